//! Generator of documents: disks, layers over disks of their own, buses and units. Most documents
//! can be carried out.

use super::{Dice, settings, targets};

/// A document that is being written.
pub struct Document<'d> {
    pub dice: &'d mut Dice,
    text: String,
    /// Providers that LUNs may show.
    pub units: Vec<String>,
}

/// A filter over a disk of its own: class, disk, and settings, one of which it has. The last
/// settings of a scheduler are refused.
const FILTERS: [(&str, &str, &[&str]); 3] = [
    (
        "sched",
        "s0",
        &[
            "",
            "algorithm = 'fair'",
            "algorithm = 'fifo'\nclassify = 'initiator'",
            "options = 'quantum_kb=64,weight=5'",
            "classify = 'lun'",
            "algorithm = 'none'",
        ],
    ),
    ("trim", "t0", &["", "share = 7", "batch = 9\nquiet_ms = 9", "granule = 4096"]),
    ("limit", "l0", &["", "iops = 1000", "bytes_per_s = 1048576\nburst_ms = 200"]),
];

/// Buses that cannot be opened.
const WRONG_BUSES: [&str; 5] = [
    "kind = 'iscsi'\nportals = ['10.0.0.1:3260']\ntarget = 'disk1'",
    "kind = 'iscsi'\nportals = ['10.0.0.1:3260']\ntarget = 'iqn.2026-11.test:far'\n\
     chap = { user = 'u', secret = 'file:open' }",
    "kind = 'aoe'\ninterfaces = ['lo']\ntargets = ['one']",
    "kind = 'sg'\ndevices = ['sg0']",
    "kind = 'virtual'\nmultiplier = true\ntransport = 'sas'",
];

/// Makes a document. `has_partition`: the disk `p0` has a partition.
pub fn document(dice: &mut Dice, has_partition: bool) -> String {
    let mut document = Document { dice, text: String::new(), units: Vec::new() };
    let mut plain = document.disks();
    document.mirror();
    document.file_server();
    document.joined(&mut plain);
    document.filters();
    document.paths();
    document.found_by_tasting(has_partition);
    document.units.extend(plain.iter().map(|name| (*name).to_owned()));
    document.settings_of_units(&plain);
    document.buses();
    targets::add(&mut document);
    settings::add(&mut document);
    document.text
}

impl Document<'_> {
    /// Adds a section; `[api]` is `api`, and a section of a list is `[disk]`.
    pub fn add(&mut self, section: &str, lines: &str) {
        self.text.push_str(&format!("[{section}]\n{lines}\n"));
    }

    fn geom(&mut self, class: &str, name: &str, lines: &str) {
        self.add("[geom]", &format!("class = '{class}'\nname = '{name}'\n{lines}"));
    }

    /// A disk in memory that is there with a probability; whether it is.
    fn memory(&mut self, percent: u64, name: &str, size: &str) -> bool {
        let is = self.dice.chance(percent);
        if is {
            self.add("[disk]", &format!("name = '{name}'\nkind = 'memory'\nsize = '{size}'"));
        }
        is
    }

    /// Disks without a layer; the names of those that LUNs may show.
    fn disks(&mut self) -> Vec<&'static str> {
        let mut plain = Vec::new();
        for name in ["m0", "m1", "m2"] {
            let size = self.dice.pick(&["1MiB", "2MiB"]);
            if self.memory(70, name, size) {
                plain.push(name);
            }
        }
        // One image under one of two names.
        if self.dice.chance(70) {
            let name = self.dice.pick(&["f0", "g0"]);
            let size = self.dice.pick(&["1MiB", "1MiB", "2MiB"]);
            let image = "kind = 'file'\ncreate = true\npath = 'image'";
            self.add("[disk]", &format!("name = '{name}'\n{image}\nsize = '{size}'"));
            plain.push(name);
        }
        // The same image by another path.
        if self.dice.chance(10) {
            let image = "kind = 'file'\ncreate = true\npath = 'alias'\nsize = '1MiB'";
            self.add("[disk]", &format!("name = 'h0'\n{image}"));
            plain.push("h0");
        }
        if settings::remote_disk(self) {
            plain.push("far");
        }
        // It is missing, and no LUN shows it.
        if self.dice.chance(10) {
            self.add("[disk]", "name = 'away'\nkind = 'file'\npath = 'nowhere'");
        }
        plain
    }

    /// A mirror, which has records on its disks.
    fn mirror(&mut self) {
        let names = ["k0", "k1", "k2"];
        let [first, second, third] = names.map(|name| self.memory(80, name, "1MiB"));
        if !(first && second && self.dice.chance(70)) {
            return;
        }
        let pairs = ["'k0', 'k1'", "'k0', 'k1'", "'k1', 'k0'", "'k0'"];
        let more = ["'k0', 'k2'", "'k0', 'k1', 'k2'", "'k2'", "'k2', 'k1'"];
        let members = match third && self.dice.chance(50) {
            true => self.dice.pick(&more),
            false => self.dice.pick(&pairs),
        };
        let name = self.dice.pick(&["r", "r", "r", "q"]);
        let balance = self.dice.pick(&["", "balance = 'prefer'", "no_failsync = true"]);
        self.geom("mirror", name, &format!("members = [{members}]\n{balance}"));
        self.units.push(format!("mirror/{name}"));
    }

    fn file_server(&mut self) {
        let served = self.memory(80, "cache", "32MiB") & self.memory(80, "worm", "32MiB");
        if served && self.dice.chance(40) {
            let at = self.dice.pick(&["03:00", "never"]);
            let members = "members = ['cache', 'worm']\ncreate = true";
            let mut lines = format!("{members}\ndump_at = '{at}'");
            if self.dice.chance(40) {
                let all = ["'127.0.0.7:0'", "'127.0.1.7:0'", "'127.0.0.7:0', '127.0.1.7:0'"];
                lines += &format!("\nplan9 = [{}]", self.dice.pick(&all));
            }
            if self.dice.chance(25) {
                let files = targets::tls_files(self);
                let has_ca = files.contains("tls_client_ca");
                let ca = if has_ca { "" } else { "\ntls_client_ca = 'ca.pem'" };
                lines += &format!("\nlinux_tls = ['127.0.0.7:0']\n{files}{ca}");
            }
            if self.dice.chance(25) {
                lines += "\nmemory = 16777216";
            }
            self.geom("fs", "files", &lines);
        }
    }

    /// Layers over plain disks, which are plain no more.
    fn joined(&mut self, plain: &mut Vec<&'static str>) {
        if plain.contains(&"m2") && self.dice.chance(50) {
            let offset = self.dice.pick(&["0", "4096", "0\ndelay_ms = 1"]);
            self.geom("nop", "n", &format!("provider = 'm2'\noffset = {offset}"));
            plain.retain(|name| *name != "m2");
            self.units.push("n".into());
        }
        if plain.contains(&"m0") && plain.contains(&"m1") && self.dice.chance(40) {
            let order = self.dice.pick(&["'m0', 'm1'", "'m1', 'm0'"]);
            let class = self.dice.pick(&["stripe", "concat"]);
            self.geom(class, "w", &format!("members = [{order}]"));
            plain.retain(|name| !["m0", "m1"].contains(name));
            self.units.push(format!("{class}/w"));
        }
    }

    fn filters(&mut self) {
        for (class, disk, settings) in FILTERS {
            if self.memory(70, disk, "1MiB") && self.dice.chance(60) {
                let lines = self.dice.pick(settings);
                self.geom(class, class, &format!("provider = '{disk}'\n{lines}"));
                self.units.push(class.into());
            }
        }
    }

    /// Two paths to a disk: their serial numbers are equal.
    fn paths(&mut self) {
        let mut there = 0;
        for name in ["x0", "x1"] {
            if self.dice.chance(85) {
                let lines = "kind = 'memory'\nsize = '1MiB'\nserial = 'P'";
                self.add("[disk]", &format!("name = '{name}'\n{lines}"));
                there += 1;
            }
        }
        if there == 2 && self.dice.chance(60) {
            let members = self.dice.pick(&["'x0', 'x1'", "'x1', 'x0'", "'x0'"]);
            let settings = ["", "mode = 'active'", "mode = 'read'\nqueue = 3", "failback = 4"];
            let lines = match self.dice.chance(5) {
                true => "mode = 'fast'",
                false => self.dice.pick(&settings),
            };
            self.geom("multipath", "p", &format!("members = [{members}]\n{lines}"));
            self.units.push("multipath/p".into());
        }
    }

    /// The disks of an array and of a table, which verbs make.
    fn found_by_tasting(&mut self, has_partition: bool) {
        for name in ["q0", "q1"] {
            self.memory(90, name, "1MiB");
        }
        if self.dice.chance(85) {
            let image = "kind = 'file'\ncreate = true\npath = 'tabled'\nsize = '8MiB'";
            self.add("[disk]", &format!("name = 'p0'\n{image}"));
            if has_partition {
                self.units.push("p0p1".into());
            }
        }
    }

    /// How some plain disks in memory are shown.
    fn settings_of_units(&mut self, plain: &[&str]) {
        for name in ["m0", "m1"].into_iter().filter(|name| plain.contains(name)) {
            if self.dice.chance(30) {
                let settings =
                    ["thresholds = [60]", "thresholds = []", "serial = 'S'", "read_only = true"];
                let lines = self.dice.pick(&settings).replace("'S'", &format!("'S-{name}'"));
                self.add("[unit]", &format!("provider = '{name}'\n{lines}"));
            }
        }
    }

    fn buses(&mut self) {
        if self.dice.chance(40) {
            let (name, disks) = (self.dice.pick(&["v", "w0"]), self.dice.pick(&["1", "2"]));
            let more = self.dice.pick(&["", "", "transport = 'sata'", "timeout_s = 9"]);
            let lines = format!("kind = 'virtual'\ndisks = {disks}\nsize = '1MiB'\n{more}");
            self.add("[bus]", &format!("name = '{name}'\n{lines}"));
            // The disks of another transport have other names.
            if !more.contains("sata") {
                self.units.push("da0".into());
            }
        }
        if self.dice.chance(4) {
            let lines = self.dice.pick(&WRONG_BUSES);
            self.add("[bus]", &format!("name = 'wrong'\n{lines}"));
        }
    }
}
