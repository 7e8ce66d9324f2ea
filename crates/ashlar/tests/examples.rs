//! The configurations in `examples/`: each is one that a daemon would carry out, and what is said
//! of it in its own words is so.

mod house;

use std::path::{Path, PathBuf};

use house::House;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn each_is_read_and_planned() {
    let mut house = House::new("examples");
    house.configure("", "");
    house.start();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        // 6: there is something to do, and it can be said what.
        let plan = house.ashlar(&["plan", path.to_str().unwrap()]).ends(6);
        assert!(plan.out.contains("create "), "{plan}");
        names.push(path);
    }
    assert!(names.len() >= 4, "{names:?}");
    house.stop();
}

/// The listing as FreeBSD's camcontrol prints it, of the talk from which CAM came here.
#[test]
fn sas_and_sata_are_listed_side_by_side() {
    let mut house = House::new("diversity");
    let text = std::fs::read_to_string(examples().join("unified-diversity.toml")).unwrap();
    house.configure(&text, "");
    house.start();
    let want = "\
scbus0 on mps0 bus 0:
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 0 lun 0 (pass0,da0)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 1 lun 0 (pass1,da1)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 2 lun 0 (pass2,da2)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 3 lun 0 (pass3,da3)
<LSILOGIC SASX28 A.0 9>            at scbus0 target 21 lun 0 (pass4,ses0)
<>                                 at scbus0 target -1 lun -1 ()
scbus1 on ahcich0 bus 0:
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 0 lun 0 (ada0,pass5)
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 1 lun 0 (ada1,pass6)
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 2 lun 0 (ada2,pass7)
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 3 lun 0 (ada3,pass8)
<AMI MG9071 1.00 0011>             at scbus1 target 5 lun 0 (pass9,ses1)
<Port Multiplier 37261095 1706>    at scbus1 target 15 lun 0 (pass10,pmp0)
<>                                 at scbus1 target -1 lun -1 ()
";
    assert_eq!(house.ok(&["cam", "devlist", "-v"]), want);
    house.stop();
}
