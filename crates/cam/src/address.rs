//! Address of a device: bus, target and logical unit.

use std::fmt;

/// In an address of CAM: any bus, target or logical unit.
pub const ANY: u64 = u64::MAX;

/// bus:target:lun; each may be [`ANY`]. A path with all three numbers names one device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// The N of scbusN.
    pub bus: u64,
    /// A target of the bus: a port, a phy, a session.
    pub target: u64,
    /// A logical unit of the target.
    pub lun: u64,
}

impl Path {
    /// One device.
    pub const fn new(bus: u64, target: u64, lun: u64) -> Path {
        Path { bus, target, lun }
    }

    /// Everything behind a target.
    pub const fn target(bus: u64, target: u64) -> Path {
        Path::new(bus, target, ANY)
    }

    /// Everything on a bus.
    pub const fn bus(bus: u64) -> Path {
        Path::new(bus, ANY, ANY)
    }

    /// As it is typed: `0` is a bus, `0:3` a target of it, `0:3:0` a device, `all` everything.
    pub fn typed(text: &str) -> Option<Path> {
        if text == "all" {
            return Some(Path::bus(ANY));
        }
        let numbers: Option<Vec<u64>> = text.split(':').map(|word| word.parse().ok()).collect();
        match numbers?.as_slice() {
            [bus] => Some(Path::bus(*bus)),
            [bus, target] => Some(Path::target(*bus, *target)),
            [bus, target, lun] => Some(Path::new(*bus, *target, *lun)),
            _ => None,
        }
    }

    /// Both may mean the same device: [`ANY`] counts on either side.
    pub const fn meets(self, other: Path) -> bool {
        const fn same(a: u64, b: u64) -> bool {
            a == b || a == ANY || b == ANY
        }
        same(self.bus, other.bus) && same(self.target, other.target) && same(self.lun, other.lun)
    }
}

/// As lists of CAM have it: `scbus0 target 3 lun 1a`, with -1 for any. Logical units are in
/// hexadecimal there.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |n: u64| if n == ANY { "-1".to_string() } else { n.to_string() };
        let [bus, target] = [self.bus, self.target].map(number);
        let lun = if self.lun == ANY { number(ANY) } else { format!("{:x}", self.lun) };
        write!(f, "scbus{bus} target {target} lun {lun}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_addresses_parse_to_a_path_or_are_rejected() {
        for (text, want) in [
            ("all", Some(Path::bus(ANY))),
            ("1", Some(Path::bus(1))),
            ("1:15", Some(Path::target(1, 15))),
            ("1:15:2", Some(Path::new(1, 15, 2))),
            ("1:2:3:4", None),
            ("1:", None),
            ("-1:0", None),
            ("", None),
            ("da0", None),
        ] {
            assert_eq!(Path::typed(text), want, "{text}");
        }
    }

    #[test]
    fn wildcards_match_on_both_sides() {
        let one = Path::new(0, 3, 1);
        for other in [one, Path::target(0, 3), Path::bus(0), Path::bus(ANY)] {
            assert!(one.meets(other) && other.meets(one), "{other}");
        }
        for other in [Path::new(0, 3, 2), Path::target(0, 4), Path::bus(1)] {
            assert!(!one.meets(other) && !other.meets(one), "{other}");
        }
        assert_eq!(Path::target(0, 21).to_string(), "scbus0 target 21 lun -1");
        assert_eq!(Path::new(0, 21, 26).to_string(), "scbus0 target 21 lun 1a");
    }
}
