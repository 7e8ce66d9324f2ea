//! Attributes of a geom with several members, which FreeBSD loses.

use bio::Attr;
use geom::{PHYSICAL_SECTOR, ProviderId, Topology};

/// Attributes of a geom with several members (those that FreeBSD loses on the way).
pub(crate) fn attributes(topology: &Topology, members: &[ProviderId]) -> Vec<(&'static str, Attr)> {
    let int = |p: &ProviderId, name| match topology.attr(*p, name) {
        Some(Attr::Int(n)) => Some(n),
        _ => None,
    };
    let all = |name| members.iter().all(|p| int(p, name) == Some(1));
    let mut out = Vec::new();
    let deletes = members.iter().any(|p| int(p, "GEOM::candelete") == Some(1));
    out.push(("GEOM::candelete", Attr::Int(u64::from(deletes))));
    let zeroes = all("GEOM::candelete") && all("GEOM::deletereadszero");
    out.push(("GEOM::deletereadszero", Attr::Int(u64::from(zeroes))));
    // 1: nothing rotates; otherwise the slowest that is known to.
    let rates: Vec<Option<u64>> = members.iter().map(|p| int(p, "GEOM::rotation_rate")).collect();
    if rates.iter().all(Option::is_some) {
        let rotating = rates.iter().flatten().filter(|r| **r > 1).min();
        let unknown = rates.contains(&Some(0));
        let rate = match rotating {
            Some(rate) => *rate,
            None if unknown => 0,
            None => 1,
        };
        out.push(("GEOM::rotation_rate", Attr::Int(rate)));
    }
    let largest = members.iter().map(|p| topology.physical_sector(*p)).max();
    out.extend(largest.filter(|n| *n > 0).map(|n| (PHYSICAL_SECTOR, Attr::Int(n))));
    out
}

/// Stripe size and offset of copies, bytes: those of the member with the largest stripes, to which
/// the others' are aligned too if they can be; as in GEOM.
pub(crate) fn largest_stripe(topology: &Topology, members: &[ProviderId]) -> (u64, u64) {
    let all = members.iter().map(|p| topology.stripe(*p));
    all.reduce(|most, own| if own.0 > most.0 { own } else { most }).unwrap_or((0, 0))
}

/// Whether deleted blocks of a provider read as zeroes.
pub(crate) fn zeroes(topology: &Topology, member: ProviderId) -> bool {
    let is = |name| topology.attr(member, name) == Some(Attr::Int(1));
    is("GEOM::candelete") && is("GEOM::deletereadszero")
}
