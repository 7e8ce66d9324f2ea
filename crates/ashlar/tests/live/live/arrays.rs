//! Arrays under test and their disks; their state as the daemon reports it.

use std::time::Duration;

use rig::loop_device::LoopDevice;
use serde_json::Value;

use super::pull::Pull;
use crate::fixture::{Fixture, array as list, file_disk, text};

/// Bytes of most disks.
pub const DISK_BYTES: u64 = 16 << 20;
/// Bytes of DDF's disks, which keep 32 MiB for records.
pub const DDF_BYTES: u64 = 48 << 20;
/// The disk that is reached by two paths.
const SHARED: &str = "mp";
/// Longest way to an answer about a short run of `verify`.
const VERIFY_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Mirror,
    Raid,
    Multipath,
}

impl Class {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Class::Mirror => "mirror",
            Class::Raid => "raid",
            Class::Multipath => "multipath",
        }
    }
}

/// Something whose members can be pulled.
pub struct Array {
    pub class: Class,
    /// Its name on the command line.
    pub on: &'static str,
    /// How the name of its geom begins.
    geom: &'static str,
    pub members: &'static [&'static str],
}

/// Every array, including those below a stripe.
const ARRAYS: &[Array] = &[
    Array { class: Class::Mirror, on: "m", geom: "m", members: &["m0", "m1", "m2"] },
    Array { class: Class::Mirror, on: "sa", geom: "sa", members: &["s0", "s1"] },
    Array { class: Class::Mirror, on: "sb", geom: "sb", members: &["s2", "s3"] },
    Array { class: Class::Raid, on: "five", geom: "Intel-", members: &["r0", "r1", "r2"] },
    Array { class: Class::Raid, on: "six", geom: "DDF-", members: &["q0", "q1", "q2", "q3"] },
    Array { class: Class::Multipath, on: "mp", geom: "mp", members: &["p0", "p1"] },
];

/// Everything that was made.
pub struct Arrays {
    pub all: Vec<&'static Array>,
    /// Providers of the LUNs from 0 on.
    pub units: Vec<String>,
    loops: Vec<LoopDevice>,
}

/// Makes the disks, starts the daemon and labels everything.
pub fn build(fixture: &mut Fixture) -> Arrays {
    let mut arrays = Arrays { all: Vec::new(), units: Vec::new(), loops: Vec::new() };
    for disk in ["c0", "c1", SHARED] {
        fixture.image(disk, DISK_BYTES);
    }
    let files = ARRAYS.iter().filter(|a| a.class != Class::Multipath);
    for disk in files.flat_map(|a| a.members) {
        fixture.image(disk, bytes_of(disk));
    }
    let paths = [(); 2].map(|()| LoopDevice::over(&fixture.path(SHARED), &[]));
    arrays.loops = paths.into_iter().flatten().collect();
    if arrays.loops.len() < 2 {
        // Without multipath.
        arrays.loops.clear();
    }
    let is_available = |a: &&Array| a.class != Class::Multipath || !arrays.loops.is_empty();
    arrays.all = ARRAYS.iter().filter(is_available).collect();
    arrays.configure(fixture, None);
    fixture.start_whole();
    fixture.ok(&["mirror", "label", "--bitmap", "m", "m0", "m1", "m2"]);
    fixture.ok(&["mirror", "label", "-b", "round-robin", "sa", "s0", "s1"]);
    fixture.ok(&["mirror", "label", "-b", "split", "sb", "s2", "s3"]);
    fixture.ok(&["stripe", "label", "-s", "64k", "st", "mirror/sa", "mirror/sb"]);
    let label = |words: &[&str]| {
        let answer = fixture.json(&[&["raid", "label"], words, &["-s", "64k"]].concat());
        answer["answer"]["provider"].as_str().unwrap().to_owned()
    };
    let five = label(&["Intel", "five", "RAID5", "r0", "r1", "r2"]);
    let six = label(&["DDF", "six", "RAID6", "q0", "q1", "q2", "q3"]);
    fixture.ok(&["concat", "label", "c", "c0", "c1"]);
    let [m, st, c] = ["mirror/m", "stripe/st", "concat/c"].map(str::to_owned);
    arrays.units = vec![m, st, five, six, c];
    if !arrays.loops.is_empty() {
        fixture.ok(&["multipath", "label", "-A", "mp", "p0", "p1"]);
        arrays.units.push("multipath/mp".into());
    }
    arrays.apply(fixture, None);
    arrays
}

pub fn bytes_of(disk: &str) -> u64 {
    if disk.starts_with('q') { DDF_BYTES } else { DISK_BYTES }
}

impl Arrays {
    /// Writes the configuration, without a disk that is out.
    fn configure(&self, fixture: &Fixture, without: Option<&str>) {
        let mut text = String::from("[daemon]\ncores = 2\nlog = \"warn\"\n\n");
        let files = ARRAYS.iter().filter(|a| a.class != Class::Multipath);
        let disks = files.flat_map(|a| a.members).chain(&["c0", "c1"]);
        for disk in disks.filter(|d| Some(**d) != without) {
            text += &file_disk(disk, disk);
        }
        for (path, at) in ["p0", "p1"].into_iter().zip(&self.loops) {
            if Some(path) != without {
                let kind = "kind = \"blockdev\"";
                text += &format!("[[disk]]\nname = \"{path}\"\n{kind}\npath = \"{}\"\n", at.0);
            }
        }
        let luns = self.units.iter().enumerate().map(|(n, unit)| format!("{n} = \"{unit}\""));
        fixture.configure(&text, &luns.collect::<Vec<_>>().join(", "));
    }

    /// The same, carried out.
    #[track_caller]
    pub fn apply(&self, fixture: &Fixture, without: Option<&str>) {
        self.configure(fixture, without);
        fixture.ok(&["apply"]);
    }
}

impl Array {
    /// All its members are active, and the array is complete.
    pub fn is_whole(&self, fixture: &Fixture) -> bool {
        let (state, active) = self.state(fixture);
        let well = ["COMPLETE", "OPTIMAL"].contains(&state.as_str());
        well && self.members.iter().all(|m| active.iter().any(|a| a == m))
    }

    /// It continues without the pulled member. A member that failed as if it were removed may be
    /// back already, but not through its failing layer.
    pub fn lacks(&self, fixture: &Fixture, member: &str, how: Pull) -> bool {
        let (_, active) = self.state(fixture);
        let without = |name: &str| !active.iter().any(|a| a == name);
        !active.is_empty()
            && without(&failing_layer(member))
            && (how == Pull::FailsAll && self.class != Class::Multipath || without(member))
    }

    /// Its state, and the providers of its good members.
    fn state(&self, fixture: &Fixture) -> (String, Vec<String>) {
        let Some(geom) = self.geom(fixture) else { return Default::default() };
        let good = |c: &&Value| ["ACTIVE", "ACTIVE (ACTIVE)"].contains(&text(&c["state"]).as_str());
        let active = list(&geom["consumers"]).iter().filter(good);
        (text(&geom["state"]), active.map(|c| text(&c["provider"])).collect())
    }

    fn geom(&self, fixture: &Fixture) -> Option<Value> {
        let ours = |g: &&Value| {
            text(&g["class"]) == self.class.name() && text(&g["name"]).starts_with(self.geom)
        };
        list(&fixture.state()["geoms"]).iter().find(ours).cloned()
    }

    /// It holds this disk, in any state.
    pub fn holds(&self, fixture: &Fixture, disk: &str) -> bool {
        let geom = self.geom(fixture);
        geom.is_some_and(|g| list(&g["consumers"]).iter().any(|c| text(&c["provider"]) == disk))
    }

    /// The members of a mirror are compared by itself.
    #[track_caller]
    pub fn verify(&self, fixture: &Fixture) {
        if self.class != Class::Mirror {
            return;
        }
        fixture.ok(&["mirror", "verify", self.on]);
        let mut output = String::new();
        fixture.until(&format!("{} is verified", self.on), VERIFY_LIMIT, || {
            output = fixture.ok(&["mirror", "list", self.on]);
            output.contains("Verify: done")
        });
        assert!(output.contains("done; 0 sectors differ, 0 cannot be read"), "{output}");
    }
}

pub fn failing_layer(member: &str) -> String {
    format!("bad-{member}")
}
