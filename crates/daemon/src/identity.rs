//! Serial numbers of what is exported.

use bio::Attr;
use geom::{ProviderId, Topology};

/// FNV-1a, 64 bits: a stable digest for names, not for secrets.
fn digest(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// The serial number of a provider when the configuration gives none: the same after every
/// restart, and on every path, as long as the disk's identity and the provider's name stay.
pub fn serial_of(topology: &Topology, provider: ProviderId) -> String {
    let name = topology.provider_name(provider);
    let ident = match topology.attr(provider, "GEOM::ident") {
        Some(Attr::Text(t)) => t,
        _ => String::new(),
    };
    let unique = match topology.attr(provider, "PART::uuid") {
        // A partition of an MBR has none.
        Some(Attr::Text(t)) if !t.is_empty() => t,
        _ => name.to_owned(),
    };
    format!("{:016x}", digest(&[&ident, &unique]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["a"]), digest(&["a"]));
    }
}
