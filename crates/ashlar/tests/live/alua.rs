//! Asymmetric access, both sides: a daemon's targets in two port groups, and another daemon whose
//! iSCSI initiators reach one disk through both. The initiators use the better path and switch when
//! the states change, under load, without an error above.

use std::time::Duration;

use crate::fixture::bench::Bench;
use crate::fixture::{Fixture, array, text};

const BYTES: u64 = 24 << 20;
const LIMIT: Duration = Duration::from_secs(30);
const NAMES: [&str; 2] = ["near", "far"];

fn iqn(name: &str) -> String {
    format!("iqn.2026-11.test.ashlar:{name}")
}

/// The daemon that has the disk: a target in each group.
fn back(image: &str) -> String {
    let mut out =
        format!("[[disk]]\nname = \"d0\"\nkind = \"file\"\npath = \"{image}\"\nserial = \"one\"\n");
    for (id, name) in (10..).zip(NAMES) {
        let state = if name == "near" { "optimized" } else { "non-optimized" };
        out += &format!(
            "[[alua]]\nname = \"{name}\"\nid = {id}\nstate = \"{state}\"\n\
             [[target]]\ndriver = \"iscsi\"\nname = \"{iqn}\"\nlisten = [\"{{portal}}\"]\n\
             port_group = \"{name}\"\n\
             [[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ 0 = \"d0\" }}\n",
            iqn = iqn(name)
        );
    }
    out
}

/// The daemon that reaches it: a bus to each target.
fn front(back: &Fixture) -> String {
    let bus = |name: &str| {
        format!(
            "[[bus]]\nname = \"{name}0\"\nkind = \"iscsi\"\nportals = [\"{}\"]\n\
             target = \"{}\"\ninitiator = \"iqn.2026-11.test.ashlar:front\"\n\
             names = {{ {name} = \"0:0\" }}\n",
            back.portal(),
            iqn(name)
        )
    };
    NAMES.map(bus).concat()
}

struct Pair {
    front: Fixture,
    back: Fixture,
}

impl Pair {
    /// Words of a path in the front's list.
    fn path(&self, name: &str) -> (String, String) {
        let list = self.front.json(&["multipath", "list"]);
        let geoms = &list["answer"]["geoms"];
        let all = array(&geoms[0]["consumers"]);
        let Some(path) = all.iter().find(|c| c["provider"] == name) else {
            panic!("no {name} in {list:#}")
        };
        (text(&path["config"]["State"]), text(&path["config"]["Access"]))
    }

    fn is(&self, near: (&str, &str), far: (&str, &str)) -> bool {
        let is_reported = |name, (state, access): (&str, &str)| {
            let (is, has) = self.path(name);
            // One that cannot be used has failed when something was under way there.
            has == access && (is == state || state == "not" && is != "ACTIVE")
        };
        is_reported("near", near) && is_reported("far", far)
    }

    fn set(&self, name: &str, state: &str) {
        self.back.ok(&["alua", "set", name, state]);
    }

    /// Requests a second on each path now.
    fn rates(&self) -> [f64; 2] {
        let top = self.front.json(&["top", "--interval", "1s"]);
        let rates = array(&top["rates"]).to_vec();
        NAMES.map(|name| {
            let rate = rates.iter().find(|r| r["name"] == name);
            let Some(rate) = rate else { panic!("no {name} in {top:#}") };
            rate["ops_per_s"].as_f64().unwrap()
        })
    }

    /// A file over the disk through the front, in the file behind the back.
    fn fill(&self, seed: u64) {
        self.front.fill(seed, BYTES - 512, &self.front.path("d0.img"));
    }
}

#[test]
fn optimized_path_is_used_and_state_changes_cause_no_error() {
    let front_fixture = Fixture::new("alua");
    let image = front_fixture.image("d0.img", BYTES);
    let back = front_fixture.sibling("alua-back", &back(image.to_str().unwrap()));
    let mut pair = Pair { front: front_fixture, back };
    pair.front.configure(&front(&pair.back), "");
    pair.front.start();
    let is_present = || NAMES.iter().all(|n| pair.front.provider(n).is_some());
    pair.front.until("both disks", LIMIT, is_present);
    pair.front.ok(&["multipath", "label", "--active", "m", "far", "near"]);
    let until = |what: &str, near, far| pair.front.until(what, LIMIT, || pair.is(near, far));
    until("states are known", ("ACTIVE", "optimized"), ("PASSIVE", "non-optimized"));
    pair.front.ok(&["multipath", "configure", "m", "--checker", "1"]);
    pair.front.configure(&front(&pair.back), "0 = \"multipath/m\"");
    pair.front.ok(&["apply"]);

    pair.fill(1);
    let load = Bench::start(&pair.front.url(0), 512, &pair.front.path("bench.log"));
    let [near, far] = pair.rates();
    // But for the checker's looks.
    assert!(near > 20.0 * far, "{near} and {far} requests a second by the better and the worse");
    for _ in 0..2 {
        pair.set("near", "standby");
        until("the other way", ("not", "standby"), ("ACTIVE", "non-optimized"));
        pair.set("far", "optimized");
        until("it is better now", ("not", "standby"), ("ACTIVE", "optimized"));
        let [near, far] = pair.rates();
        assert!(far > 20.0 * near, "{near} and {far} by the one that was better and that is");
        pair.set("near", "unavailable");
        until("it is worse still", ("not", "unavailable"), ("ACTIVE", "optimized"));
        pair.set("near", "optimized");
        until("both are good", ("ACTIVE", "optimized"), ("ACTIVE", "optimized"));
        pair.set("far", "non-optimized");
        until("as in the beginning", ("ACTIVE", "optimized"), ("PASSIVE", "non-optimized"));
    }
    load.ends_well();
    pair.fill(2);
    pair.back.assert_alive();
    pair.front.assert_alive();
}
