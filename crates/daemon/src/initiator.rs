//! Our own name as an iSCSI initiator, for buses whose section gives none: that of this machine's
//! initiator, else one that is made once and kept in the state folder.

use std::fs;
use std::io::Read;

use engine::state_store::{self, StateStore, save_channel};
use mgmt::api::{Error, Kind, Result};
use wire::iscsi::normalise_name;

use crate::state_store::read;

/// Where open-iscsi keeps the name of a machine.
const FILE: &str = "/etc/iscsi/initiatorname.iscsi";

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "initiator";

/// Prefix of our initiator names; random digits follow.
const PREFIX: &str = "iqn.2026-11.org.ashlar:";

/// The name.
///
/// # Errors
/// When there is none and none can be kept: two daemons must not have one name.
pub fn own_name(store: &dyn StateStore) -> Result<String> {
    if let Some(name) = fs::read_to_string(FILE).ok().as_deref().and_then(named_in) {
        return Ok(name);
    }
    let refuse = |why: String| {
        let next = "Give the bus its `initiator`, or [daemon] a `state` folder.";
        Error::new(Kind::ConfigValue, "attach", why).at("initiator").next(next)
    };
    let kept = read(store, SERIAL, state_store::RecordKind::Initiator, |bytes| {
        normalise_name(std::str::from_utf8(bytes).ok()?).ok()
    });
    match kept {
        Err(why) => return Err(refuse(format!("recorded name: cannot be read: {why}"))),
        Ok(name) if !name.is_empty() => return Ok(name),
        Ok(_) => {}
    }
    if !store.is_persistent() {
        return Err(refuse(format!("no name in {FILE}, and no state folder to keep one")));
    }
    let name = random_name().map_err(|e| refuse(format!("no random numbers: {e}")))?;
    let (done, saved) = save_channel();
    store.save(SERIAL, state_store::RecordKind::Initiator, name.clone().into_bytes(), done);
    saved.wait().map_err(|e| refuse(format!("generated name: cannot be saved: {e}")))?;
    Ok(name)
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
    use super::*;

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
