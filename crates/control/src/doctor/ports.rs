//! Whether the addresses of the targets are free.

use super::{Check, Facts, Finding, Grade, bad, ok};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};

/// See the module.
pub const CHECK: Check =
    Check { id: "ports", doc: "whether the addresses of the targets are free", look };

fn look(facts: &Facts) -> Vec<Finding> {
    let Some(config) = facts.good() else { return ok("no configuration to look at") };
    let ours: BTreeSet<&String> = match &facts.daemon {
        Ok(state) => state.targets.iter().flat_map(|t| &t.portals).collect(),
        Err(_) => BTreeSet::new(),
    };
    let wanted: BTreeSet<&String> = config.target.iter().flat_map(|t| &t.listen).collect();
    let mut out = Vec::new();
    for address in wanted.iter().filter(|a| !ours.contains(*a)) {
        let Ok(socket) = address.parse::<SocketAddr>() else { continue };
        let Err(e) = TcpListener::bind(socket) else { continue };
        let port = socket.port();
        let fix = match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("ss -ltnp 'sport = :{port}' shows who has it; stop it or change `listen`")
            }
            std::io::ErrorKind::PermissionDenied => {
                format!(
                    "setcap cap_net_bind_service+ep $(command -v ashlar), or a port over {port}"
                )
            }
            _ => "ip address shows the addresses of this machine; change `listen`".to_owned(),
        };
        let finding = format!("{address} cannot be listened on: {e}");
        out.push(bad(Grade::Fail, finding, "the target cannot be served there", fix));
    }
    let count = wanted.len();
    if out.is_empty() { ok(format!("{count} looked at, free or ours")) } else { out }
}
