//! Names of disks that are found on buses. `da0` of the configuration is the same disk after a
//! restart, whichever disks are missing then and whichever answers first.

use std::time::Duration;

use crate::fixture::Fixture;

const FAR: &str = "iqn.2026-11.test.ashlar:far";

const LIMIT: Duration = Duration::from_secs(60);

/// A daemon whose target has these LUNs of two disks, `small` (1 MiB) and `large` (2 MiB).
fn far(portal: &str, luns: &str) -> String {
    let disk = |name: &str, size: &str| {
        format!("[[disk]]\nname = \"{name}\"\nkind = \"memory\"\nsize = \"{size}\"\n\n")
    };
    format!(
        "{}{}[[target]]\nname = \"{FAR}\"\ndriver = \"iscsi\"\nlisten = [\"{portal}\"]\n\n\
         [[access]]\ntarget = \"{FAR}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ {luns} }}\n",
        disk("small", "1MiB"),
        disk("large", "2MiB")
    )
}

/// A daemon with a bus to it.
fn near(fixture: &Fixture, bus: &str, portal: &str, luns: &str) {
    let text = format!(
        "[[bus]]\nname = \"{bus}\"\nkind = \"iscsi\"\nportals = [\"{portal}\"]\n\
         target = \"{FAR}\"\ninitiator = \"iqn.2026-11.test.ashlar:near\"\n\n"
    );
    fixture.configure(&text, luns);
}

const BOTH: &str = "0 = \"small\", 1 = \"large\"";
const SECOND: &str = "1 = \"large\"";

/// Last blocks of the disks.
const SMALL: &str = "Last Block: 2047,";
const LARGE: &str = "Last Block: 4095,";

struct Two {
    near: Fixture,
    far: Fixture,
    portal: String,
}

impl Two {
    /// Both run, `da0` is the small disk and `da1` the large one.
    fn new(name: &str, luns: &str) -> Two {
        let mut fixture = Fixture::new(name);
        let portal = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
        let far = fixture.sibling("far", &far(&portal, BOTH));
        near(&fixture, "san0", &portal, luns);
        fixture.start();
        let two = Two { near: fixture, far, portal };
        two.until_there("da1");
        two.is("da0", SMALL);
        two.is("da1", LARGE);
        two
    }

    fn until_there(&self, name: &str) {
        self.near.until("it is there", LIMIT, || self.near.provider(name).is_some());
    }

    fn is(&self, name: &str, last: &str) {
        self.near.ashlar(&["cam", "readcap", name]).ends(0).prints(&[last]);
    }

    /// The far target has other LUNs, and the near daemon starts anew.
    fn restart(&mut self, luns: &str) {
        self.near.stop();
        self.far.configure(&far(&self.portal, luns), "");
        let file = self.far.path("ashlar.toml").display().to_string();
        self.far.ashlar(&["apply", &file]).ends(0);
        self.near.start();
    }

    fn over(mut self) {
        self.near.stop();
        self.far.stop();
    }

    fn lun_is_shown(&self) -> bool {
        self.near.lists_unit(0)
    }
}

/// K1 of cam/src/wired_names.rs.
#[test]
fn name_of_an_absent_disk_is_not_given_to_another() {
    let mut two = Two::new("names-kept", "0 = \"da0\"");
    let file = two.near.path("ashlar.toml").display().to_string();
    two.near.ashlar(&["doctor", "names", "--file", &file]).ends(0);
    two.restart(SECOND);
    two.until_there("da1");
    two.is("da1", LARGE);
    assert!(!two.lun_is_shown(), "another disk is exported");
    let output = two.near.ashlar(&["status"]).ends(3);
    output.prints(&["LUN 0 (da0) is not there yet", "da0 is reserved for", "on san0"]);
    // The disk returns, and no further command is needed.
    two.far.configure(&far(&two.portal, BOTH), "");
    let file = two.far.path("ashlar.toml").display().to_string();
    two.far.ashlar(&["apply", &file]).ends(0);
    two.near.ok(&["cam", "rescan"]);
    two.near.until("its LUN is there", LIMIT, || two.lun_is_shown());
    two.is("da0", SMALL);
    two.near.ashlar(&["status"]).ends(0);
    two.over();
}

#[test]
fn unreferenced_disk_name_is_free() {
    let mut two = Two::new("names-free", "0 = \"da0\"");
    near(&two.near, "san0", &two.portal, "0 = \"da1\"");
    let file = two.near.path("ashlar.toml").display().to_string();
    two.near.ashlar(&["apply", &file]).ends(0);
    two.restart(SECOND);
    two.until_there("da1");
    two.is("da1", LARGE);
    near(&two.near, "san0", &two.portal, "");
    two.near.ashlar(&["apply", &file]).ends(0);
    two.restart(SECOND);
    two.until_there("da0");
    two.is("da0", LARGE);
    two.over();
}

#[test]
fn disk_keeps_its_name_on_another_bus() {
    let mut two = Two::new("names-moved", "0 = \"da1\"");
    near(&two.near, "lan7", &two.portal, "0 = \"da1\"");
    two.restart(SECOND);
    two.until_there("da1");
    two.is("da1", LARGE);
    assert!(two.lun_is_shown());
    // That is where it is now.
    two.restart(SECOND);
    two.until_there("da1");
    assert!(two.lun_is_shown());
    two.over();
}

#[test]
fn name_used_by_a_layer_is_kept_and_a_torn_record_is_reported() {
    let mut two = Two::new("names-layer", "");
    let layer = "[[geom]]\nclass = \"concat\"\nname = \"c\"\nmembers = [\"da1\"]\n\n";
    near(&two.near, "san0", &two.portal, "0 = \"concat/c\"");
    let file = two.near.path("ashlar.toml");
    let text = std::fs::read_to_string(&file).unwrap().replacen(
        "[[target]]",
        &format!("{layer}[[target]]"),
        1,
    );
    std::fs::write(&file, text).unwrap();
    two.near.ashlar(&["apply", file.to_str().unwrap()]).ends(0);
    two.restart(SECOND);
    two.until_there("concat/c");
    two.is("da1", LARGE);
    two.near.stop();
    std::fs::write(two.near.path("units/buses.names"), "ashlarV1 of something else").unwrap();
    two.near.start();
    let output = two.near.ashlar(&["journal"]).ends(0);
    output.prints(&["recorded names of bus disks: cannot be read"]);
    two.over();
}

#[test]
fn generated_initiator_name_of_a_bus_survives_restarts() {
    let mut fixture = Fixture::new("own-name");
    let portal = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    let mut far = fixture.sibling("far", &far(&portal, BOTH));
    let bus = format!(
        "[[bus]]\nname = \"san0\"\nkind = \"iscsi\"\nportals = [\"{portal}\"]\n\
         target = \"{FAR}\"\n\n"
    );
    fixture.configure(&bus, "0 = \"da0\"");
    fixture.start();
    let name = |far: &Fixture| {
        let sessions = far.json(&["sessions"])["sessions"].clone();
        sessions[0]["session"]["initiator"].as_str().unwrap_or_default().to_owned()
    };
    far.until("it is logged in", LIMIT, || name(&far).starts_with("iqn."));
    let first = name(&far);
    fixture.stop();
    far.until("it has left", LIMIT, || name(&far).is_empty());
    fixture.start();
    far.until("it is back", LIMIT, || !name(&far).is_empty());
    assert_eq!(name(&far), first);
    fixture.stop();
    far.stop();
}
