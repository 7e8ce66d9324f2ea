//! SendTargets: which targets there are for this initiator, and where (RFC 7143 appendix C).

use std::net::SocketAddr;
use std::sync::Arc;

use engine::TargetPort;
use reactor::Address;
use transport::advertised;

use super::NAME;
use super::params::Checked;
use super::session::IscsiSession;

/// Target portal group tag: all portals of a target are one group.
pub(crate) const PORTAL_GROUP: u16 = 1;

/// Bytes of one answer; targets beyond it are left out, which is logged.
const ANSWER_MAX: usize = 4 << 20;

/// The answer to SendTargets; None when the value is not allowed in this session. Targets of
/// which the initiator may see nothing are left out.
pub(crate) fn send_targets(session: &IscsiSession, value: &str) -> Option<Vec<u8>> {
    let discovery = session.is_discovery();
    let own = session.target.as_ref().map(|t| t.spec.name.clone());
    let wanted = match (value, own) {
        ("All", None) => None,
        ("All", Some(_)) => return None,
        ("", Some(own)) => Some(own),
        ("", None) => return None,
        (name, own) => {
            let name = wire::iscsi::normalise_name(name).ok()?;
            if own.is_some_and(|own| own != name) {
                return Some(Vec::new());
            }
            Some(name)
        }
    };
    let mut out = Vec::new();
    let engine = &session.conn.core.own.engine;
    let reached = &session.conn.local;
    for port in engine.visible_targets(NAME, &session.initiator, reached) {
        if wanted.as_ref().is_some_and(|w| *w != port.name) {
            continue;
        }
        let Some(target) = session.conn.core.shared.own.targets.get(&port.name) else { continue };
        if discovery && !is_visible_to(&target, session.user.as_deref()) {
            continue;
        }
        if out.len() > ANSWER_MAX {
            session.conn.warn(format_args!("too many targets for one SendTargets answer"));
            break;
        }
        describe(session, &port, &target, &mut out);
    }
    Some(out)
}

/// A target with a discovery account is shown only to an initiator that authenticated with it.
fn is_visible_to(target: &Checked, user: Option<&str>) -> bool {
    let account = target.spec.discovery_chap.as_ref();
    account.is_none_or(|a| user == Some(a.user.as_str()))
}

fn describe(session: &IscsiSession, port: &TargetPort, target: &Arc<Checked>, out: &mut Vec<u8>) {
    let mut addresses = addresses(session, target);
    // A group may be limited to portals: portals that would refuse the initiator are left out.
    addresses.retain(|at| port.decide(&session.initiator, &(*at).into()).grants());
    if addresses.is_empty() {
        return;
    }
    out.extend_from_slice(format!("TargetName={}\0", target.spec.name).as_bytes());
    for address in addresses {
        out.extend_from_slice(format!("TargetAddress={address},{PORTAL_GROUP}\0").as_bytes());
    }
}

/// Where a target is: the requested address first when it listens there, then its other portals.
fn addresses(session: &IscsiSession, target: &Arc<Checked>) -> Vec<SocketAddr> {
    let conn = &session.conn;
    let Some(reached) = conn.local.inet() else { return Vec::new() };
    let mut out = Vec::new();
    for at in target.spec.listen.iter().filter_map(|at| at.inet()) {
        let at_address = Address::Inet(at);
        let address = if at_address == conn.at {
            reached
        } else {
            let portal = conn.core.shared.own.targets.portal(&at_address);
            let local = portal.and_then(|at| at.inet()).unwrap_or(at);
            match local.ip().is_unspecified() {
                // Everywhere: then also at the address that the initiator has reached.
                true => SocketAddr::new(reached.ip(), local.port()),
                false => local,
            }
        };
        let address = advertised(address);
        if !out.contains(&address) {
            out.push(address);
        }
    }
    let index = out.iter().position(|a| *a == advertised(reached));
    if let Some(index) = index {
        out.swap(0, index);
    }
    out
}
