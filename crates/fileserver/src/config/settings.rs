//! Lines of config mode.

use std::fmt::{self, Write};

use super::{Device, SyntaxError};

/// A file system by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filsys {
    /// `main` is attached to by default.
    pub name: String,
    /// The device that it uses.
    pub device: Device,
}

/// The settings of config mode. Printed, they are lines that set the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Name of the server: without it nothing starts.
    pub service: String,
    /// File systems, in their order.
    pub filsys: Vec<Filsys>,
    /// Formatted at the next start.
    pub ream: Vec<String>,
    /// Begun again from the WORM at the next start.
    pub recover: Vec<String>,
    /// The chain of dumps ends at this superblock, for a recovery.
    pub recoversb: Option<u64>,
    /// No automatic dumps.
    pub nodump: bool,
    /// Attaches are refused.
    pub noattach: bool,
    /// The user `none` is refused.
    pub nonone: bool,
    /// Names are believed.
    pub noauth: bool,
    /// Permissions are not looked at.
    pub allow: bool,
    /// Nothing is written.
    pub readonly: bool,
    /// Reading does not change when a file was read.
    pub noatime: bool,
    /// Settings of machines that are none of ours, kept unchanged: `ip`, `ipgw`, `nvram` and the
    /// like.
    pub foreign: Vec<String>,
}

const FLAGS: [&str; 6] = ["noattach", "nonone", "noauth", "allow", "readonly", "noatime"];
/// Lines that mean something to the first file servers' kernels only.
const FOREIGN_KEYS: [&str; 13] = [
    "config",
    "nvram",
    "newcache",
    "copyworm",
    "copydev",
    "queryjuke",
    "resetparams",
    "ip",
    "ipgw",
    "ipmask",
    "ipauth",
    "ipsntp",
    "ipflag",
];

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

impl Settings {
    /// From lines; which one is wrong, and why. `end` ends them.
    pub fn parse(text: &str) -> Result<Settings, String> {
        let mut out = Settings::default();
        for (n, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line == "end" {
                break;
            }
            if !line.is_empty() {
                out.line(line).map_err(|w| format!("line {n}: {w}"))?;
            }
        }
        let mut cached = false;
        for f in &out.filsys {
            cached |= matches!(f.device, Device::Cached(..));
            if f.device == Device::Dumps && !cached {
                return Err(format!("filsys {}: no cached WORM before it has dumps", f.name));
            }
        }
        for name in out.ream.iter().chain(&out.recover) {
            if !out.filsys.iter().any(|f| f.name == *name) {
                return Err(format!("ream or recover: no filsys {name}"));
            }
        }
        Ok(out)
    }

    /// One line.
    pub fn line(&mut self, line: &str) -> Result<(), SyntaxError> {
        let wrong = |at: usize, why: &str| Err(SyntaxError { at, reason: why.into() });
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let at = line.len() - rest.len();
        let named = |what: &str| {
            if is_name(rest) {
                Ok(rest.to_owned())
            } else {
                Err(SyntaxError { at, reason: what.into() })
            }
        };
        match word {
            "service" => self.service = named("a service has one name")?,
            "filsys" => return self.filsys(rest, at),
            "ream" => self.ream.push(named("name the file system to format")?),
            "recover" => self.recover.push(named("name the file system to recover")?),
            "recoversb" => match rest.parse() {
                Ok(at) => self.recoversb = Some(at),
                Err(_) => return wrong(at, "recoversb takes the address of a superblock"),
            },
            "dumpctl" => {
                self.nodump = match rest {
                    "yes" | "on" | "1" => false,
                    "no" | "off" | "0" => true,
                    _ => return wrong(at, "dumpctl is yes or no"),
                }
            }
            flag if FLAGS.contains(&flag) && rest.is_empty() => *self.flag(flag) = true,
            other
                if FOREIGN_KEYS.contains(&other.trim_end_matches(|c: char| c.is_ascii_digit())) =>
            {
                self.foreign.push(line.to_owned());
            }
            _ => return wrong(0, "no such command of config mode"),
        }
        Ok(())
    }

    fn flag(&mut self, flag: &str) -> &mut bool {
        match flag {
            "noattach" => &mut self.noattach,
            "nonone" => &mut self.nonone,
            "noauth" => &mut self.noauth,
            "allow" => &mut self.allow,
            "readonly" => &mut self.readonly,
            _ => &mut self.noatime,
        }
    }

    fn filsys(&mut self, rest: &str, at: usize) -> Result<(), SyntaxError> {
        let (name, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if !is_name(name) {
            return Err(SyntaxError { at, reason: "a file system has a name".into() });
        }
        let text = text.trim();
        if text.is_empty() {
            self.filsys.retain(|f| f.name != name);
            return Ok(());
        }
        let from = at + rest.len() - text.len();
        let device = text
            .parse()
            .map_err(|w: SyntaxError| SyntaxError { at: w.at + from, reason: w.reason })?;
        let new = Filsys { name: name.into(), device };
        match self.filsys.iter_mut().find(|f| f.name == name) {
            Some(old) => *old = new,
            None => self.filsys.push(new),
        }
        Ok(())
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        if !self.service.is_empty() {
            writeln!(out, "service {}", self.service)?;
        }
        for fs in &self.filsys {
            writeln!(out, "filsys {} {}", fs.name, fs.device)?;
        }
        self.ream.iter().try_for_each(|n| writeln!(out, "ream {n}"))?;
        self.recover.iter().try_for_each(|n| writeln!(out, "recover {n}"))?;
        if let Some(at) = self.recoversb {
            writeln!(out, "recoversb {at}")?;
        }
        if self.nodump {
            writeln!(out, "dumpctl no")?;
        }
        let Settings { noattach, nonone, noauth, allow, readonly, noatime, .. } = *self;
        let flags = [noattach, nonone, noauth, allow, readonly, noatime];
        for (name, _) in FLAGS.iter().zip(flags).filter(|(_, on)| *on) {
            writeln!(out, "{name}")?;
        }
        self.foreign.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        f.write_str(&out)
    }
}
