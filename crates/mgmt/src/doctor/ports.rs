//! Check that the addresses of targets and metrics are free, that those of file servers are this
//! machine's, and that Unix sockets are open to clients.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::config::listeners::Listener;
use crate::config::{AccessConfig, Catalog, Config};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// See the module.
pub const CHECK: Check =
    Check { id: "ports", doc: "whether targets can listen and clients can connect", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Some(config) = facts.valid_config() else { return ok("no configuration to look at") };
    let ours: BTreeSet<&String> = match &facts.daemon {
        Ok(state) => {
            let portals = state.targets.iter().flat_map(|t| &t.portals);
            portals.chain(&state.daemon.metrics_listen).collect()
        }
        Err(_) => BTreeSet::new(),
    };
    let unchecked = facts.unchecked("ports in use");
    let metrics = config.daemon.metrics_listen.as_ref();
    let wanted = config.target.iter().flat_map(|t| &t.listen);
    let wanted: BTreeSet<&String> = wanted.chain(metrics).collect();
    let mut out = Vec::new();
    for address in &wanted {
        let (key, loss) = match metrics == Some(*address) {
            true => ("metrics_listen", "metrics cannot be scraped there"),
            false => ("listen", "the target cannot be served there"),
        };
        let is_ours = ours.contains(address);
        if let Some(path) = address.strip_prefix("unix:").filter(|_| !is_ours)
            && unchecked.is_none()
        {
            out.extend(unix(address, Path::new(path)));
        }
        if let Some(name) = crate::config::interface(address)
            && !is_ours
            && !Path::new("/sys/class/net").join(name).exists()
        {
            let finding = format!("{address}: this machine has no such interface");
            let fix = "ip link shows the interfaces of this machine; change `listen`".to_owned();
            out.push(bad(Severity::Fail, finding, loss, fix));
        }
        let Ok(socket) = address.parse::<SocketAddr>() else { continue };
        let Err(e) = TcpListener::bind(socket) else { continue };
        if e.kind() == std::io::ErrorKind::AddrNotAvailable {
            out.push(no_interface(address, key));
            continue;
        }
        let port = socket.port();
        // `0.0.0.0` and an address of this machine share a port. A running daemon may widen and
        // narrow `listen`, and its plan knows whether another process is in the way.
        let has_port = |at: &&String| at.parse::<SocketAddr>().is_ok_and(|at| at.port() == port);
        let may_share = unchecked.is_some() || ours.iter().any(has_port);
        let is_shared = e.kind() == std::io::ErrorKind::AddrInUse && may_share;
        if is_ours || is_shared {
            continue;
        }
        let fix = match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("ss -ltnp 'sport = :{port}' shows the process; stop it or change `{key}`")
            }
            std::io::ErrorKind::PermissionDenied => {
                format!(
                    "setcap cap_net_bind_service+ep $(command -v ashlar), or a port over {port}"
                )
            }
            _ => format!("ip address shows the addresses of this machine; change `{key}`"),
        };
        let finding = format!("{address} cannot be listened on: {e}");
        out.push(bad(Severity::Fail, finding, loss, fix));
    }
    let count = wanted.len();
    out.extend(absent_addresses(config, &facts.catalog));
    out.extend(config.access.iter().flat_map(|access| closed_sockets(config, access, &ours)));
    out.extend(unchecked);
    if out.is_empty() { ok(format!("{count} looked at, free or ours")) } else { out }
}

/// An address of a key that no interface has yet.
fn no_interface(address: &str, key: &str) -> CheckFinding {
    bad(
        Severity::Warn,
        format!("{address}: no interface of this machine has that address"),
        "clients cannot connect there until one has it",
        format!("ip address shows the addresses of this machine; add it or change `{key}`"),
    )
}

/// Addresses of file servers that no interface of this machine has. Their ports are not tried: the
/// file server of a running daemon has them.
fn absent_addresses(config: &Config, catalog: &Catalog) -> impl Iterator<Item = CheckFinding> {
    let all = config.geom.iter().flat_map(|geom| Listener::of_geom(geom, catalog));
    all.filter_map(|(key, _, listener)| {
        let at: SocketAddr = listener.address().parse().ok()?;
        let e = TcpListener::bind((at.ip(), 0)).err()?;
        let is_absent = e.kind() == std::io::ErrorKind::AddrNotAvailable;
        is_absent.then(|| no_interface(listener.address(), key))
    })
}

/// Users of this machine that a group names, and that the mode of a socket of its target keeps out.
fn closed_sockets(
    config: &Config,
    access: &AccessConfig,
    ours: &BTreeSet<&String>,
) -> Vec<CheckFinding> {
    let mut out = Vec::new();
    let target = config.target.iter().find(|target| target.name == access.target);
    let listen = target.into_iter().flat_map(|target| &target.listen);
    for path in listen.filter(|at| ours.contains(at)).filter_map(|at| at.strip_prefix("unix:")) {
        let Ok(file) = std::fs::metadata(path) else { continue };
        let names = access.initiators.iter().filter_map(|name| name.strip_prefix("unix:uid="));
        let uids = names.filter_map(|uid| uid.parse::<u32>().ok());
        for uid in uids.filter(|uid| !may_connect(&file, *uid)) {
            let (group, target, mode) = (&access.group, &access.target, file.mode() & 0o777);
            out.push(bad(
                Severity::Warn,
                format!(
                    "{path}: mode {mode:04o} and owner {} keep out uid {uid}, which group {group} \
                     of target {target} names",
                    file.uid()
                ),
                "clients of that user end with `Permission denied`",
                format!(
                    "set socket_mode = \"0660\" and socket_owner or socket_group of target \
                     {target}, then `ashlar apply`"
                ),
            ));
        }
    }
    out
}

/// Whether a user may write to the file, which a connection needs. Any user may be of its group.
fn may_connect(file: &Metadata, uid: u32) -> bool {
    let of_owner = if file.uid() == uid { 0o200 } else { 0o022 };
    uid == 0 || file.mode() & of_owner != 0
}

/// Obstacles to listening at the path of a Unix socket. The daemon removes a socket that has no
/// listener.
fn unix(address: &str, path: &Path) -> Option<CheckFinding> {
    let fail = |what: String, fix: String| {
        let finding = format!("{address} cannot be listened on: {what}");
        Some(bad(Severity::Fail, finding, "the target cannot be served there", fix))
    };
    let display = path.display();
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match reactor::has_unix_listener(path) {
            Ok(true) => {
                let fix =
                    format!("ss -lxp src {display} shows the process; stop it or change `listen`");
                fail("another process listens there".into(), fix)
            }
            _ => None,
        },
        Ok(_) => {
            let fix = format!("ls -l {display} shows it; move it or change `listen`");
            fail("a file that is not a socket exists there".into(), fix)
        }
        Err(_) => {
            let folder = path.parent()?;
            let gone = std::fs::metadata(folder).map_or_else(
                |e| Some(e.to_string()),
                |found| (!found.is_dir()).then(|| "not a folder".into()),
            )?;
            let folder = folder.display();
            fail(format!("{folder}: {gone}"), format!("mkdir -p {folder}, or change `listen`"))
        }
    }
}
