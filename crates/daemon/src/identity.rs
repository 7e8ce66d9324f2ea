//! Serial numbers of exported providers.

use bio::Attr;
use classes::BEGINS_ON;
use disks::DISK_CLASS;
use geom::{ProviderId, Topology};

/// FNV-1a, 64 bits: a stable digest for names, not for secrets.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// The serial number of a provider when the configuration gives none: the same after every restart,
/// and on every path, as long as the disk's identity stays. A disk of the configuration may be
/// renamed; for a provider on a disk only the part of its name behind the disk's name counts.
///
/// `is_known`: whether initiators know a unit by that serial number. A stripe or concat without
/// labels once had one from its name alone, and keeps it where it is known. Another machine may
/// have a geom of that name, too.
pub fn serial_of(
    topology: &Topology,
    provider: ProviderId,
    is_known: impl Fn(&str) -> bool,
) -> String {
    let name = topology.provider_name(provider);
    let ident = text(topology, provider, "GEOM::ident").unwrap_or_default();
    // A partition of an MBR has none.
    let unique = text(topology, provider, "PART::uuid").filter(|uuid| !uuid.is_empty());
    let disk = disk_of(topology, provider, &ident);
    match (unique, disk) {
        (Some(uuid), _) => digest(&[&ident, &uuid]),
        (None, None) if ident.is_empty() => {
            let by_name = digest(&[&ident, name]);
            match text(topology, provider, BEGINS_ON) {
                Some(first) if !is_known(&by_name) => digest(&[&first, name]),
                _ => by_name,
            }
        }
        (None, None) => digest(&[&ident, name]),
        (None, Some((disk, called))) => {
            serial_on(&ident, called.as_deref(), name.strip_prefix(&*disk).unwrap_or(name))
        }
    }
}

/// The serial number of a unit on a disk; `rest` is what its provider's name has behind the disk's.
fn serial_on(ident: &str, called: Option<&str>, rest: &str) -> String {
    match called {
        None if rest.is_empty() => ident.to_owned(),
        None => digest(&[ident, rest]),
        Some(called) => digest(&[ident, &format!("{called}{rest}")]),
    }
}

/// The serial number of a unit on a whole disk that is not there yet.
pub fn serial_of_disk(lasting: &disks::PersistentIdentity) -> String {
    serial_on(&lasting.ident, lasting.unit_name.as_deref(), "")
}

fn text(topology: &Topology, provider: ProviderId, attr: &str) -> Option<String> {
    match topology.attr(provider, attr) {
        Some(Attr::Text(text)) => Some(text),
        _ => None,
    }
}

/// The one disk of the configuration below a provider that has its identity and is called after it:
/// its name, and what its units are called by.
fn disk_of(
    topology: &Topology,
    provider: ProviderId,
    ident: &str,
) -> Option<(String, Option<String>)> {
    let mut below = provider;
    // The disk's name is that of its geom: a layer that was slipped in has taken the provider's.
    let disk = loop {
        let geom = topology.geom_of(below)?;
        match topology.consumers_of(geom) {
            [one] => below = topology.below(*one)?,
            [] if topology.find_geom(DISK_CLASS, topology.geom_name(geom)) == Some(geom) => {
                break topology.geom_name(geom).to_owned();
            }
            _ => return None,
        }
    };
    let is_its = topology.provider_name(provider).starts_with(&disk)
        && text(topology, below, "GEOM::ident").is_some_and(|own| own == ident);
    is_its.then(|| (disk, text(topology, below, "DISK::called")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_separates_its_parts() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["a"]), digest(&["a"]));
    }

    #[test]
    fn unit_serial_is_the_disk_serial_or_the_legacy_digest() {
        assert_eq!(serial_on("ab", None, ""), "ab");
        assert_ne!(serial_on("ab", None, "s1"), serial_on("ab", None, "s2"));
        assert_eq!(serial_on("ab", Some("d0"), ""), digest(&["ab", "d0"]));
        assert_eq!(serial_on("ab", Some("d0"), "s1"), digest(&["ab", "d0s1"]));
    }
}
