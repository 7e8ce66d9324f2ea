//! Our own name as an iSCSI initiator, for buses whose section gives none. It is that of this
//! machine's initiator, else one that is made once and kept in the state folder.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use engine::state_store::{self, StateStore, save_channel};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::BusConfig;
use wire::iscsi::normalise_name;

use crate::state_store::read;

/// Where open-iscsi keeps the name of a machine.
const FILE: &str = "/etc/iscsi/initiatorname.iscsi";

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "initiator";

/// Prefix of our initiator names; random digits follow.
const PREFIX: &str = "iqn.2026-11.org.ashlar:";

/// Longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 65_536;

/// Whether a bus gets our own name: its section gives none.
pub fn is_needed_by(bus: &BusConfig) -> bool {
    let kinds = cam::sims::kinds();
    let kind = kinds.iter().find(|kind| kind.name() == bus.kind);
    kind.is_some_and(|kind| kind.has_initiator_name()) && !bus.params.contains_key("initiator")
}

/// The name of this machine's initiator. Blocks while its file hangs, but not the control thread:
/// another thread has read it for that (`exports::files::reads`).
pub fn machine_name() -> Option<String> {
    let read = bio::read_source(Path::new(FILE), FILE_BYTES_MAX).ok()?;
    named_in(std::str::from_utf8(&read.bytes).ok()?)
}

/// See the module.
pub struct OwnName {
    store: Arc<dyn StateStore>,
    /// The name in the state folder, or why it cannot be read. Empty: there is none yet.
    kept: std::result::Result<String, String>,
}

impl OwnName {
    /// Loads the kept name.
    pub fn load(store: Arc<dyn StateStore>) -> OwnName {
        let kept = read(&*store, SERIAL, state_store::RecordKind::Initiator, |bytes| {
            normalise_name(std::str::from_utf8(bytes).ok()?).ok()
        });
        OwnName { store, kept }
    }

    /// The name.
    ///
    /// # Errors
    /// When there is none and none can be kept: two daemons must not have one name.
    pub fn get(&mut self) -> Result<String> {
        match machine_name() {
            Some(name) => Ok(name),
            None => self.kept_or_made(),
        }
    }

    fn kept_or_made(&mut self) -> Result<String> {
        let refuse = |why: String| {
            let next = "Give the bus its `initiator`, or [daemon] a `state` folder.";
            Error::new(Kind::ConfigValue, "attach", why).at("initiator").next(next)
        };
        match &self.kept {
            Err(why) => return Err(refuse(format!("recorded name: cannot be read: {why}"))),
            Ok(name) if !name.is_empty() => return Ok(name.clone()),
            Ok(_) => {}
        }
        if !self.store.is_persistent() {
            return Err(refuse(format!("no name in {FILE}, and no state folder to keep one")));
        }
        let name = random_name().map_err(|e| refuse(format!("no random numbers: {e}")))?;
        let (done, saved) = save_channel();
        let bytes = name.clone().into_bytes();
        self.store.save(SERIAL, state_store::RecordKind::Initiator, bytes, done);
        saved.wait().map_err(|e| refuse(format!("generated name: cannot be saved: {e}")))?;
        self.kept = Ok(name.clone());
        Ok(name)
    }
}

/// The name in a file of open-iscsi.
fn named_in(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    let name = lines.find_map(|line| line.strip_prefix("InitiatorName="))?;
    normalise_name(name.trim()).ok()
}

fn random_name() -> std::io::Result<String> {
    let mut random = [0; 6];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{digits}"))
}

#[cfg(test)]
mod tests {
    use engine::state_store::MemoryStore;

    use super::*;

    #[test]
    fn generated_name_is_kept_and_later_reads_ask_no_store() {
        let store = MemoryStore::new();
        let mut own = OwnName::load(store.clone());
        let name = own.kept_or_made().expect("made");
        own.store = MemoryStore::new();
        assert_eq!(own.kept_or_made().expect("kept"), name);
        let mut later = OwnName::load(store);
        assert_eq!(later.kept_or_made().expect("kept"), name, "by the next daemon");
    }

    #[test]
    fn initiator_name_is_read_from_the_open_iscsi_file() {
        let text = "## DO NOT EDIT\n#InitiatorName=iqn.a:old\n\
            InitiatorName=iqn.1993-08.org.debian:01:ab\n";
        assert_eq!(named_in(text).as_deref(), Some("iqn.1993-08.org.debian:01:ab"));
        assert_eq!(named_in("InitiatorName=\n"), None);
        assert_eq!(named_in(""), None);
    }

    #[test]
    fn generated_initiator_names_are_valid_and_distinct() {
        let (a, b) = (random_name().unwrap(), random_name().unwrap());
        assert!(a != b && normalise_name(&a).as_deref() == Ok(a.as_str()), "{a} {b}");
    }
}
