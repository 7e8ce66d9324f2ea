//! The iSCSI initiator against istgt, a second third-party target: found by discovery at its
//! portal, logged in with mutual authentication and all digests, killed and started again under
//! load. The written data is in its file.

use std::path::PathBuf;
use std::time::Duration;

use rig::Chap;
use rig::istgt::Istgt;

use crate::fixture::Fixture;
use crate::fixture::bench::Bench;

const BYTES: u64 = 24 << 20;
/// A load that not one of so many kills meets does not run.
const KILLS_MAX: u32 = 20;
const INITIATOR: &str = "iqn.2026-11.test.ashlar:initiator";

struct Shop {
    fixture: Fixture,
    disk: PathBuf,
    istgt: Istgt,
}

impl Shop {
    fn new(name: &str) -> Shop {
        let fixture = Fixture::new(name);
        fixture.secret("own", "own-secret-own\n");
        fixture.secret("theirs", "peer-secret-too\n");
        let disk = fixture.image("istgt.img", BYTES);
        let chap = Chap {
            user: "house".into(),
            secret: "own-secret-own".into(),
            mutual: Some(("peer".into(), "peer-secret-too".into())),
        };
        let istgt = Istgt::start(&disk, &chap).unwrap();
        Shop { fixture, disk, istgt }
    }

    fn configure(&self) {
        let target = self.istgt.target();
        let bus = format!(
            "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [\"{}\"]\ntarget = \"{}\"\n\
             initiator = \"{INITIATOR}\"\nheader_digest = \"require\"\n\
             data_digest = \"require\"\nchap_algorithms = [\"sha1\", \"md5\"]\n\
             chap = {{ user = \"house\", secret = \"file:{{here}}/own\" }}\n\
             mutual = {{ user = \"peer\", secret = \"file:{{here}}/theirs\" }}\n",
            target.portal, target.iqn
        );
        self.fixture.configure(&bus, "0 = \"da0\"");
    }

    /// Writes a file of its own over the disk and finds it in istgt's.
    fn fill(&self, seed: u64) {
        self.fixture.fill(seed, BYTES, &self.disk);
    }

    fn count(&self, name: &str) -> u64 {
        let list = self.fixture.json(&["cam", "devlist"]);
        list["answer"]["buses"][0]["counts"][name].as_u64().unwrap()
    }
}

#[test]
fn istgt_is_discovered_authenticated_and_restarted_under_load() {
    let mut shop = Shop::new("iscsi-istgt");
    shop.configure();
    shop.fixture.start();
    let list = shop.fixture.ok(&["cam", "devlist"]);
    assert!(list.contains("FreeBSD iSCSI") && list.contains("da0"), "{list}");
    shop.fill(1);
    // The portal answers discovery with the target's name, and the printed lines configure the same
    // bus.
    let (portal, iqn) = (shop.istgt.target().portal.to_string(), shop.istgt.target().iqn.clone());
    let found = shop.fixture.ok(&["cam", "discover", &portal, "--initiator", INITIATOR]);
    assert!(
        found.contains(&iqn) && found.contains(&format!("portals = [\"{portal}\"]")),
        "{found}"
    );
    let load = Bench::start(&shop.fixture.url(0), 4096, &shop.fixture.path("bench.log"));
    let (mut logins, mut kills) = (0, 0);
    // A kill between two turns of the load meets no command: then there is another one.
    while kills < 2 || shop.count("commands-stranded") == 0 {
        assert!(kills < KILLS_MAX, "no kill met a command under way");
        // One that has not logged in again has no session to lose.
        let limit = Duration::from_secs(60);
        shop.fixture.until("it is logged in", limit, || shop.count("logins") > logins);
        logins = shop.count("logins");
        shop.fixture.until_busy();
        let dropped = shop.count("sessions-dropped");
        shop.istgt.kill().unwrap();
        let is_dropped = || shop.count("sessions-dropped") > dropped;
        shop.fixture.until("the loss is noticed", limit, is_dropped);
        shop.istgt.boot().unwrap();
        kills += 1;
    }
    load.ends_well();
    assert!(shop.count("sessions-dropped") >= 2, "no session was dropped");
    assert_eq!(shop.count("paths-lost"), 0);
    shop.fill(7);
    shop.fixture.assert_alive();
}
