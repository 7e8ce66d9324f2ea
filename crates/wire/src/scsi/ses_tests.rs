//! Pages of enclosures (SES) byte by byte, and those that are refused.

use super::*;

fn config() -> SesConfig {
    SesConfig {
        generation: 7,
        id: 0x5003_0480_0000_003f,
        vendor: "LSILOGIC".into(),
        product: "SASX28 A.0".into(),
        revision: "9".into(),
        types: vec![
            SesType { kind: ARRAY_DEVICE_SLOT, count: 2, text: "ArrayDevices".into() },
            SesType { kind: 0x04, count: 1, text: "Temperature".into() },
            SesType { kind: DEVICE_SLOT, count: 1, text: String::new() },
        ],
    }
}

/// As an enclosure sends it, byte by byte.
fn config_bytes() -> Vec<u8> {
    let mut bytes = vec![0x01, 0, 0, 79, 0, 0, 0, 7, 0x11, 0, 3, 36];
    bytes.extend([0x50, 0x03, 0x04, 0x80, 0, 0, 0, 0x3f]);
    bytes.extend(b"LSILOGICSASX28 A.0      9   ");
    bytes.extend([0x17, 2, 0, 12, 0x04, 1, 0, 11, 0x01, 1, 0, 0]);
    bytes.extend(b"ArrayDevicesTemperature");
    bytes
}

#[test]
fn configuration_page_matches_known_bytes() {
    assert_eq!(SesConfig::decode(&config_bytes()), Ok(config()));
    assert_eq!(config().encode(), config_bytes());
    assert_eq!((config().elements(), config().kinds().nth(3)), (4, Some(DEVICE_SLOT)));
}

#[test]
fn truncated_configuration_is_refused_with_the_field() {
    let bytes = config_bytes();
    for (cut, field) in [
        (1, "SECONDARY ENCLOSURES"),
        (3, "PAGE LENGTH"),
        (6, "GENERATION CODE"),
        (10, "enclosure descriptor"),
        (30, "enclosure descriptor"),
        (52, "type descriptor header"),
        (70, "TYPE DESCRIPTOR TEXT"),
    ] {
        assert_eq!(SesConfig::decode(&bytes[..cut]).unwrap_err().field, field, "{cut}");
    }
    let mut short = bytes.clone();
    short[11] = 8;
    assert_eq!(SesConfig::decode(&short).unwrap_err().field, "ENCLOSURE VENDOR IDENTIFICATION");
    assert_eq!(config().status(&bytes).unwrap_err().field, "PAGE CODE");
    assert_eq!(ses_supported(&[0, 0, 0, 3, 0, 1, 2, 9]), Ok(&[0, 1, 2][..]));
}

#[test]
fn status_of_another_generation_is_refused() {
    let other = SesConfig { generation: 8, ..config() };
    let status = other.encode_status(&[]);
    assert_eq!(config().status(&status).unwrap_err().field, "GENERATION CODE");
}

#[test]
fn control_page_selects_exactly_one_slot() {
    let now = SesStatus([0x41, 0x80, 0, 0x40]);
    let page = config().control(1, now, true, false);
    // Header, generation, overall and elements of three types.
    let wanted =
        [vec![2, 0, 0, 32, 0, 0, 0, 7], vec![0; 8], vec![0xc0, 0x80, 2, 0], vec![0; 16]].concat();
    assert_eq!(page, wanted);
    assert_eq!(config().parse_control(&page), Ok(vec![(1, true, false)]));
    let off = config().control(3, SesStatus([1, 0x80, 2, 0]), false, true);
    assert_eq!(config().parse_control(&off), Ok(vec![(3, false, true)]));
    assert_eq!(off[32 + 1], 0, "a plain slot has nothing to keep");
}

#[test]
fn status_names_and_slots_decode_as_encoded() {
    let config = config();
    let each = [[1, 0, 2, 0], [5, 0, 0, 0], [2, 0, 40, 0], [0x41, 0, 0, 0x40]].map(SesStatus);
    assert_eq!(config.status(&config.encode_status(&each)).unwrap(), each);
    assert!(each[0].is_located() && each[3].is_faulty() && each[3].is_predicted());
    assert_eq!((each[1].text(), each[2].text()), ("Not Installed", "Critical"));
    let names = ["Slot 01", "Slot 02", "", "X"].map(String::from);
    assert_eq!(config.names(&config.encode_names(&names)).unwrap(), names);
    let places = [
        AdditionalElement { element: 0, slot: 1, sas: 0x5000_c500_0000_0001 },
        AdditionalElement { element: 1, slot: 2, sas: 0 },
    ];
    assert_eq!(
        config.additional_elements(&config.encode_additional_elements(&places, 9)).unwrap(),
        places
    );
}

#[test]
fn element_index_that_counts_overall_elements_is_accepted() {
    let config = config();
    let mut page =
        config.encode_additional_elements(&[AdditionalElement { element: 5, slot: 1, sas: 2 }], 9);
    page[8 + 2] = 1;
    // 0: overall element of the slots; 1, 2: slots; 3: overall of the sensors; 4; 5: overall of the
    // last type; 6.
    for (index, element) in [(1, Some(0)), (2, Some(1)), (4, Some(2)), (6, Some(3)), (3, None)] {
        page[8 + 3] = index;
        let found = config.additional_elements(&page).ok().map(|p| p[0].element);
        assert_eq!(found, element, "{index}");
    }
    page[8 + 3] = 9;
    assert_eq!(config.additional_elements(&page).unwrap_err().field, "EIIOE");
    page[8] = 0x90 | 6;
    page[8 + 2] = 0;
    assert_eq!(config.additional_elements(&page), Ok(vec![]), "what is invalid says nothing");
    page[8] = 0x16;
    page[8 + 4] = 9;
    assert_eq!(config.additional_elements(&page).unwrap_err().field, "phy descriptor");
}
