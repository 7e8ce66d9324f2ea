//! Targets for data of enclosures, expanders and disks that management tools read.

use crate::ata::SepIdentify;
use crate::scsi::{
    Defects, SES_ELEMENTS_MAX, SesConfig, mode_fields, mode_select_list, parse_mode_pages,
    parse_toc, ses_supported,
};
use crate::smp::{Manufacturer, Phy, ReportGeneral};

/// Pages of SES: the first byte gives the length of the configuration, and another page follows it.
/// Decoded pages are encoded again and decode to the same value.
pub fn fuzz_ses(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let _pages = ses_supported(rest);
    let (config, other) = rest.split_at(rest.len().min(usize::from(*first)));
    let Ok(config) = SesConfig::decode(config) else { return };
    assert!(config.elements() <= SES_ELEMENTS_MAX && config.kinds().count() == config.elements());
    if config.types.len() < 256 {
        let again = SesConfig::decode(&config.encode()).unwrap();
        assert_eq!(again.elements(), config.elements());
    }
    if let Ok(each) = config.status(other) {
        assert_eq!(config.status(&config.encode_status(&each)), Ok(each.clone()));
        let Some(one) = each.first() else { return };
        let asked = config.control(0, *one, true, false);
        assert_eq!(config.parse_control(&asked), Ok(vec![(0, true, false)]));
    }
    if let Ok(names) = config.names(other) {
        assert_eq!(names.len(), config.elements());
    }
    let _wishes = config.parse_control(other);
    if let Ok(places) = config.additional_elements(other) {
        assert!(places.len() <= SES_ELEMENTS_MAX);
    }
}

/// Responses of expanders.
pub fn fuzz_smp(data: &[u8]) {
    if let Ok(Ok(decoded)) = ReportGeneral::decode(data) {
        assert_eq!(ReportGeneral::decode(&decoded.encode()), Ok(Ok(decoded)));
    }
    if let Ok(Ok(decoded)) = Phy::decode(data) {
        assert_eq!(Phy::decode(&decoded.encode()), Ok(Ok(decoded)));
    }
    if let Ok(Ok(decoded)) = Manufacturer::decode(data) {
        assert_eq!(Manufacturer::decode(&decoded.encode()), Ok(Ok(decoded)));
    }
}

/// Defect lists, mode pages, tracks of discs, and the identity of an enclosure behind a bridge.
pub fn fuzz_upkeep(data: &[u8]) {
    for twelve in [false, true] {
        let Ok(decoded) = Defects::decode(twelve, data) else { continue };
        assert!(decoded.list.len() <= decoded.count);
        let again = Defects::decode(twelve, &decoded.encode(twelve));
        assert!(again.is_ok_and(|again| again.list == decoded.list));
    }
    if let Ok(decoded) = SepIdentify::decode(data) {
        assert_eq!(SepIdentify::decode(&decoded.encode()), Ok(decoded));
    }
    if let Ok(tracks) = parse_toc(data) {
        assert!(tracks.len() <= 99 && tracks.len() * 8 <= data.len());
    }
    let Ok(pages) = parse_mode_pages(data) else { return };
    for mut page in pages {
        for field in mode_fields(page.page, page.subpage).1 {
            let Some(value) = field.get(&page.bytes) else { continue };
            let before = page.bytes.clone();
            assert!(field.set(&mut page.bytes, field.max() - value));
            assert_eq!(field.get(&page.bytes), Some(field.max() - value));
            assert!(field.set(&mut page.bytes, value));
            assert_eq!(page.bytes, before, "no other field is touched");
        }
        assert_eq!(mode_select_list(&page).len(), 8 + page.bytes.len());
    }
}
