//! Stripes and concats of the configuration, which have no record on their members.

use control::Consent;
use control::api::{Kind, Result};
use serde_json::json;

use crate::by_hand::Site;

fn disks(size: &str) -> String {
    let disk = |name: &str, size: &str| {
        format!(
            "[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{name}.img'\nsize = '{size}'\n\
                 create = true\n"
        )
    };
    disk("d0", size) + &disk("d1", "4MiB")
}

/// A concat of two disks, shown to hosts of this machine.
fn config(size: &str) -> String {
    disks(size)
        + "[[geom]]\nclass = 'concat'\nname = 'big'\nmembers = ['d0', 'd1']\n\
           [[target]]\ndriver = 'local'\nname = 'here'\n\
           [[access]]\ntarget = 'here'\ngroup = 'g'\ninitiators = ['*']\n\
           luns = { 0 = 'concat/big' }\n"
}

fn serial(site: &Site) -> String {
    let state = site.control.plant().state();
    let mut groups = state.targets.iter().flat_map(|target| &target.groups);
    groups.find_map(|group| group.luns.first()).expect("a LUN").serial.clone()
}

#[test]
fn concats_of_one_name_on_two_machines_have_two_identities() {
    let one = Site::new("concat-one", &config("4MiB"));
    let other = Site::new("concat-other", &config("4MiB"));
    assert_ne!(serial(&one), serial(&other));
}

fn apply(site: &Site, text: &str) -> Result<()> {
    let config = site.read(text);
    site.control.apply(&config, &Consent::default(), &mut |_| {}).map(drop)
}

#[test]
fn a_member_whose_growth_would_move_bytes_does_not_grow() {
    let site = Site::new("concat-grows", &config("4MiB"));
    let refused = apply(&site, &config("8MiB")).expect_err("d0 is not the last member");
    assert_eq!(refused.kind, Kind::CannotCarryOut, "{refused:?}");
    assert!(
        refused.source.to_string().contains("its bytes in concat big would move"),
        "{refused:?}"
    );
    let plan = site.control.plan(&site.read(&config("8MiB"))).expect("a plan");
    assert_eq!(site.control.refused(&plan).0.len(), 1, "plan foretells it");
    let resize = json!({ "name": "d0", "size": 8 << 20 });
    let by_hand = site.control.change(|p| p.verb("disk", "resize", &resize, &mut |_| {}));
    assert_eq!(by_hand.expect_err("by hand neither").kind, Kind::Unsupported);
    site.verb("disk", "resize", &json!({ "name": "d1", "size": 8 << 20 }));
    let longer = config("4MiB").replacen("size = '4MiB'", "size = '4096KiB'", 1);
    apply(&site, &longer).expect("the same size");
}
