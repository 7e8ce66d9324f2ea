//! Devices, as config strings name them.

use std::fmt;
use std::str::FromStr;

use super::SyntaxError;
use super::parse::Parser;
use crate::volume::MEMBERS_MAX;

/// Disks by controller, unit and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// SCSI: target, target.lun, or controller.target.lun.
    Wren,
    /// IDE.
    Ide,
    /// Marvell SATA.
    Marvell,
    /// AHCI.
    Ahci,
}

impl Disk {
    /// Its letter.
    pub fn letter(self) -> char {
        match self {
            Disk::Wren => 'w',
            Disk::Ide => 'h',
            Disk::Marvell => 'm',
            Disk::Ahci => 'a',
        }
    }
}

/// A config string. Its printed form parses to the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// One after the other: `(ab)`.
    Cat(Vec<Device>),
    /// Block by block in turn: `[ab]`.
    Interleave(Vec<Device>),
    /// The same on each: `{ab}`; read from the first that answers.
    Mirror(Vec<Device>),
    /// Each block once: `fa`, with a bitmap at its end.
    Once(Box<Device>),
    /// A cached WORM: `cab`.
    Cached(Box<Device>, Box<Device>),
    /// The dumps of the cached WORM before it: `o`.
    Dumps,
    /// A part: `pa50.1`. Two numbers up to 100 are percent, from and how much; larger ones blocks,
    /// from and to.
    Part(Box<Device>, u64, u64),
    /// A part by its name in the disk's own table: `pa"fscache"`.
    Named(Box<Device>, String),
    /// Written by a machine of the other byte order: `xa`.
    Swapped(Box<Device>),
    /// A jukebox: robot and drives, sides: `j(w1w2)(r0r1)`.
    Jukebox(Vec<Device>, Vec<Device>),
    /// A side of the jukebox: `r0`.
    Side(u32),
    /// A labelled one: `l0`.
    Labelled(u32),
    /// A disk by its numbers: `w1.0`, `h0`.
    Disk(Disk, Vec<u32>),
    /// An AoE target: `e565.1`.
    Aoe(u32, u32),
    /// A provider or a file by its name: `"da0"`, `/dev/sdb`.
    Path(String),
    /// Nothing: reads and writes fail.
    None,
}

impl Device {
    /// Those that it is made of.
    pub fn parts(&self) -> Vec<&Device> {
        match self {
            Device::Cat(v) | Device::Interleave(v) | Device::Mirror(v) => v.iter().collect(),
            Device::Once(d) | Device::Part(d, ..) | Device::Named(d, _) | Device::Swapped(d) => {
                vec![d]
            }
            Device::Cached(c, w) => vec![c, w],
            Device::Jukebox(a, b) => a.iter().chain(b).collect(),
            _ => Vec::new(),
        }
    }

    /// True when one that satisfies `f` is in it, at any depth.
    pub fn holds(&self, f: &impl Fn(&Device) -> bool) -> bool {
        f(self) || self.parts().iter().any(|d| d.holds(f))
    }

    /// The reason why the string cannot be served, if any. `image`: it names an image of cwfs64x.
    /// Whether its disks exist is checked elsewhere.
    pub fn refusal(&self, image: bool) -> Option<String> {
        let alone = |d: &Device| d.unserved().map(|why| format!("{d}: {why}"));
        let worm = |w: &Device| match w {
            Device::Once(of) if image => of.refusal_within(),
            Device::Mirror(legs) if !image && legs.len() > MEMBERS_MAX => {
                Some(format!("{w}: a WORM is mirrored on at most {MEMBERS_MAX} devices"))
            }
            w => w.refusal_within(),
        };
        match self {
            Device::Cached(c, w) => c.refusal_within().or_else(|| worm(w)),
            Device::Dumps => alone(self),
            one => one.refusal_within(),
        }
    }

    fn refusal_within(&self) -> Option<String> {
        let why = self.unserved().map(|why| format!("{self}: {why}"));
        why.or_else(|| self.parts().into_iter().find_map(Device::refusal_within))
    }

    /// The reason why this device cannot be a part of a served one; its own parts are not checked.
    pub fn unserved(&self) -> Option<&'static str> {
        Some(match self {
            Device::Cached(..) => "a cached WORM cannot be part of another device",
            Device::Dumps => {
                "the dumps of another device are not served here; attach them as `dump`"
            }
            Device::Once(_) => {
                "a fake WORM can only be the whole WORM of an image (`image = true`); a volume has \
                 no fake WORM"
            }
            Device::Swapped(_) => "big-endian images are not supported; images are little-endian",
            Device::Jukebox(..) | Device::Side(_) | Device::Labelled(_) => {
                "jukeboxes are not supported; any provider can be the WORM"
            }
            Device::Disk(..) => {
                "write the name of a provider instead, such as \"da0\"; `ashlar list` shows them"
            }
            Device::None => "an empty device cannot be served",
            Device::Cat(_)
            | Device::Interleave(_)
            | Device::Mirror(_)
            | Device::Part(..)
            | Device::Named(..)
            | Device::Aoe(..)
            | Device::Path(_) => return None,
        })
    }

    /// Its text ends with a digit, so that a number behind it would be read as its own.
    fn ends_with_digit(&self) -> bool {
        self.to_string().ends_with(|c: char| c.is_ascii_digit())
    }
}

fn list(f: &mut fmt::Formatter<'_>, open: char, v: &[Device], close: char) -> fmt::Result {
    write!(f, "{open}")?;
    v.iter().try_for_each(|d| write!(f, "{d}"))?;
    write!(f, "{close}")
}

fn quoted(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let quote = if name.contains('"') { '\'' } else { '"' };
    write!(f, "{quote}{name}{quote}")
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cat(v) => list(f, '(', v, ')'),
            Device::Interleave(v) => list(f, '[', v, ']'),
            Device::Mirror(v) => list(f, '{', v, '}'),
            Device::Once(d) => write!(f, "f{d}"),
            Device::Cached(c, w) => write!(f, "c{c}{w}"),
            Device::Dumps => f.write_str("o"),
            Device::Part(d, a, b) if d.ends_with_digit() => write!(f, "p({d}){a}.{b}"),
            Device::Part(d, a, b) => write!(f, "p{d}{a}.{b}"),
            Device::Named(d, name) => {
                write!(f, "p{d}")?;
                quoted(f, name)
            }
            Device::Swapped(d) => write!(f, "x{d}"),
            Device::Jukebox(robot, sides) => {
                f.write_str("j")?;
                list(f, '(', robot, ')')?;
                list(f, '(', sides, ')')
            }
            Device::Side(n) => write!(f, "r{n}"),
            Device::Labelled(n) => write!(f, "l{n}"),
            Device::Disk(kind, numbers) => {
                let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
                write!(f, "{}{}", kind.letter(), words.join("."))
            }
            Device::Aoe(shelf, slot) => write!(f, "e{shelf}.{slot}"),
            Device::Path(name) => quoted(f, name),
            Device::None => f.write_str("n"),
        }
    }
}

impl FromStr for Device {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Device, SyntaxError> {
        let mut p = Parser::new(text);
        let d = p.device()?;
        p.end()?;
        Ok(d)
    }
}
