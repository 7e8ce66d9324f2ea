//! status: health first, then why, what to do, and what to look at.

use super::entry::CommandVerb;
use crate::api::{
    DeviceErrorState, DiskState, Exit, GeomState, Health, ListenerState, ProgressLine,
    RebuildState, Result, RivalsState, SCHEMA_VERSION, StoppedState, SystemState, TargetHealth,
    TroubleState,
};
use crate::config::units::{short, short_ns};
use crate::config::{Catalog, Config, exposures};
use crate::plan::{Deferred, adopt_found_members, grown_disks, manual_changes, running_config};
use crate::service::Control;
use crate::text::{count, shell_word};
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

/// Parameters of `status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StatusParams {
    /// Exit with code 0 although parts are degraded or failed.
    #[serde(default)]
    pub alive: bool,
}

/// One problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusFinding {
    /// Severity of the problem.
    pub health: Health,
    /// Affected object: "disk d0".
    pub at: String,
    /// Reason of the problem.
    pub why: String,
    /// Recommended action.
    pub action: String,
    /// Command that shows more.
    pub see: String,
}

/// A rebuild or resync.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusRebuild {
    /// Name of the geom.
    pub geom: String,
    /// Class of the geom.
    pub class: String,
    /// Progress.
    pub progress: RebuildState,
}

/// Rebuilds and resyncs of all geoms.
fn rebuilds(state: &SystemState) -> Vec<StatusRebuild> {
    let of = |geom: &GeomState| {
        let (geom, class, all) = (geom.name.clone(), geom.class.clone(), geom.rebuilds.clone());
        all.into_iter().map(move |progress| {
            let (geom, class) = (geom.clone(), class.clone());
            StatusRebuild { geom, class, progress }
        })
    };
    state.geoms.iter().flat_map(of).collect()
}

/// Answer of `status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StatusAnswer {
    /// Version of the format of this answer.
    pub schema_version: u32,
    /// Whether the daemon still carries out its first configuration; it serves when that is done.
    pub starting: bool,
    /// The worst health of all objects.
    pub health: Health,
    /// Whether the exit code ignores the health (`--alive`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alive: bool,
    /// Problems, the worst first.
    pub findings: Vec<StatusFinding>,
    /// Rebuilds and resyncs that run or are paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rebuilds: Vec<StatusRebuild>,
    /// One line about the daemon.
    pub daemon: String,
    /// One line about the served objects.
    pub serves: String,
    /// Listeners of the API over TCP and of metrics.
    #[serde(default)]
    pub listeners: Vec<ListenerState>,
}

/// How long a command may wait before `status` speaks of it, in nanoseconds. Initiators give a
/// command up after 30 s or more; half of that leaves time to look.
const STUCK_NS: u64 = 15_000_000_000;

/// Commands that wait for longer than [`STUCK_NS`], one finding a session.
fn stuck_commands(state: &SystemState) -> Vec<StatusFinding> {
    let waits = state.sessions().filter(|(_, s)| s.oldest_command_ns > STUCK_NS);
    let finding =
        |(target, s): (&crate::api::TargetState, &crate::api::SessionState)| StatusFinding {
            health: Health::Degraded,
            at: format!("session of {} at {}", s.initiator, target.name),
            why: format!(
                "{} outstanding, the oldest for {}",
                count(usize::try_from(s.commands_outstanding).unwrap_or(usize::MAX), "command"),
                short_ns(s.oldest_command_ns)
            ),
            action: "Find the disk with requests in flight and no operations: `ashlar top`."
                .to_owned(),
            see: format!("ashlar tree --down {}", shell_word(&s.initiator)),
        };
    waits.map(finding).collect()
}

/// Hosts that have one name and end each other's sessions.
fn rivals(state: &SystemState) -> Vec<StatusFinding> {
    let now = state.daemon.uptime_ns;
    let finding = |r: &RivalsState| StatusFinding {
        health: Health::Degraded,
        at: format!("initiator {} at {}", r.initiator, r.target),
        why: format!(
            "{} use the same initiator name and end each other's session: {} times, last {} ago",
            r.addresses.join(" and "),
            r.moves,
            short_ns(now.saturating_sub(r.at_ns))
        ),
        action: "Give each host a name of its own (InitiatorName in \
                 /etc/iscsi/initiatorname.iscsi, `iscsi-iname` makes one), and put both names into \
                 the group."
            .to_owned(),
        see: "ashlar sessions".to_owned(),
    };
    state.rivals.iter().map(finding).collect()
}

/// NVMe hosts that have one host NQN and several host identifiers. None ends the association of
/// another, but they share an access group. Several addresses with one identifier are paths.
fn shared_nqns(state: &SystemState) -> Vec<StatusFinding> {
    let mut hosts: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    for target in &state.targets {
        for session in &target.sessions {
            let Some(id) = &session.host_id else { continue };
            let key = (session.initiator.as_str(), target.name.as_str());
            hosts.entry(key).or_default().entry(id.as_str()).or_insert(session.address.as_str());
        }
    }
    let host = |(id, address): (&&str, &&str)| match address.parse::<SocketAddr>() {
        Ok(at) => format!("{} ({id})", at.ip().to_canonical()),
        Err(_) => format!("{address} ({id})"),
    };
    let finding = |((initiator, target), ids): ((&str, &str), BTreeMap<&str, &str>)| {
        let all: Vec<String> = ids.iter().map(host).collect();
        StatusFinding {
            health: Health::Ok,
            at: format!("initiator {initiator} at {target}"),
            why: format!(
                "{} use the same host NQN with different host identifiers: they share the LUNs of \
                 one access group",
                all.join(" and ")
            ),
            action: "Give each host a host NQN of its own (`nvme gen-hostnqn` makes one, for \
                     /etc/nvme/hostnqn), and put both names into the group; or give one host that \
                     connects twice one identifier (/etc/nvme/hostid)."
                .to_owned(),
            see: "ashlar sessions".to_owned(),
        }
    };
    hosts.into_iter().filter(|(_, ids)| ids.len() > 1).map(finding).collect()
}

/// How long the last error of a disk is shown, ns.
const ERROR_SHOWN_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Name of a disk, its last error, the action to take, and the command that shows more.
type LastErrorOf<'a> = (&'a String, &'a Option<DeviceErrorState>, &'a str, String);

/// Last errors of configured disks, and of disks that buses found.
fn last_errors(state: &SystemState) -> Vec<StatusFinding> {
    let configured = state.disks.iter().map(|disk| {
        let see = format!("ashlar list disks {} --json", shell_word(&disk.name));
        let action = "Search the kernel log for errors of the device below it (`dmesg -T`); \
                      replace a disk whose medium fails.";
        (&disk.name, &disk.last_error, action, see)
    });
    let found = state.bus_disks().map(|(_, device)| {
        let action = "Watch whether more errors follow; replace a disk whose medium fails.";
        (&device.name, &device.last_error, action, "ashlar cam devlist -v".to_owned())
    });
    let finding = |(name, error, action, see): LastErrorOf<'_>| {
        let error = error.as_ref().filter(|error| error.age_ns < ERROR_SHOWN_NS)?;
        Some(StatusFinding {
            health: Health::Ok,
            at: format!("disk {name}"),
            why: format!(
                "last error {} ago, {} in all: {}",
                short_ns(error.age_ns),
                error.count,
                error.what
            ),
            action: action.to_owned(),
            see,
        })
    };
    configured.chain(found).filter_map(finding).collect()
}

/// Certificates that have expired or expire soon.
fn certificates(state: &SystemState) -> impl Iterator<Item = StatusFinding> + '_ {
    state.certificates.iter().filter_map(|file| {
        Some(StatusFinding {
            health: if file.expires_s < 0 { Health::Degraded } else { Health::Ok },
            at: file.at.clone(),
            why: file.warning()?,
            action: format!("Replace {}, then run `ashlar apply`.", file.path),
            see: format!("openssl x509 -noout -dates -in {}", file.path),
        })
    })
}

/// A sandbox that the kernel does not enforce.
fn sandbox(state: &SystemState) -> Option<StatusFinding> {
    let why = state.daemon.sandbox_problem.as_ref()?;
    Some(StatusFinding {
        health: Health::Degraded,
        at: "daemon".to_owned(),
        why: format!("`sandbox = true` in [daemon] is not enforced: {why}"),
        action: "Use a kernel with Landlock (`lsm=landlock,...`) and seccomp, or remove `sandbox` \
                 from [daemon]; then restart the daemon."
            .to_owned(),
        see: "ashlar doctor sandbox".to_owned(),
    })
}

/// Listeners of the API and of metrics that cannot be opened, or are weak.
fn listeners(state: &SystemState) -> impl Iterator<Item = StatusFinding> + '_ {
    let finding = |of: &ListenerState, health, why: String, action: String| StatusFinding {
        health,
        at: of.place(),
        why,
        action,
        see: "ashlar doctor listeners".to_owned(),
    };
    state.listeners.iter().flat_map(move |of| {
        let closed = (!of.why.is_empty()).then(|| {
            let action = "Free the address or correct [api], then run `ashlar apply`.".to_owned();
            finding(of, Health::Degraded, format!("not open: {}", of.why), action)
        });
        let weak = of.warning().map(|weak| {
            let why = format!("{}: {}", weak.why, weak.consequence);
            finding(of, Health::Ok, why, format!("Next: {}.", weak.fix))
        });
        closed.into_iter().chain(weak)
    })
}

/// One line about a listener.
fn listener_words(of: &ListenerState) -> String {
    let tls = if of.tls { "TLS" } else { "no TLS" };
    let days = of.certificate_days().map(|days| format!(", certificate valid for {days} days"));
    format!("{}, {tls}{}, admits {}", of.place(), days.unwrap_or_default(), of.admits)
}

/// Webhooks whose last delivery failed.
fn webhooks(state: &SystemState) -> impl Iterator<Item = StatusFinding> + '_ {
    state.webhooks.iter().filter(|hook| !hook.failure.is_empty()).map(|hook| StatusFinding {
        health: Health::Degraded,
        at: format!("webhook {}", hook.name),
        why: format!(
            "{}: {}; {} waiting, {} dropped",
            hook.server,
            hook.failure,
            count(usize::try_from(hook.waiting).unwrap_or(usize::MAX), "event"),
            hook.dropped
        ),
        action: "Check the server, or correct the section in ashlar.toml; failed events are \
                 delivered again."
            .to_owned(),
        see: "ashlar doctor secrets certificates".to_owned(),
    })
}

/// Names under which NBD clients get a unit whose disk has another name now.
fn former_names(state: &SystemState) -> impl Iterator<Item = StatusFinding> + '_ {
    state.former_names.iter().map(|former| StatusFinding {
        health: Health::Ok,
        at: format!("export {}", former.name),
        why: format!("NBD clients that request it receive {}, its present name", former.provider),
        action: format!(
            "When none does any more: `ashlar geom lun forget-name name={}`.",
            shell_word(&former.name)
        ),
        see: "ashlar sessions".to_owned(),
    })
}

/// Geoms that a verb stopped.
fn stopped(state: &SystemState) -> impl Iterator<Item = StatusFinding> + '_ {
    state.stopped.iter().map(|StoppedState { class, name }| StatusFinding {
        health: Health::Ok,
        at: format!("{class} {name}"),
        why: "stopped by hand; the members are unused".to_owned(),
        action: format!("To start it: `ashlar {class} start {}`.", shell_word(name)),
        see: "ashlar history".to_owned(),
    })
}

/// Files that were replaced and not read again yet.
fn changed_files(state: &SystemState) -> impl Iterator<Item = StatusFinding> + '_ {
    state.changed_files.iter().map(|changed| StatusFinding {
        health: Health::Ok,
        at: changed.at.clone(),
        why: changed.why.clone(),
        action: "Run `ashlar apply` to read it; until then the old contents are in use.".to_owned(),
        see: "ashlar plan".to_owned(),
    })
}

/// Advice for a disk that fills up.
fn free_space_advice(disk: &DiskState) -> String {
    let hosts = "discard unused space on its hosts (`fstrim -av`)";
    match &disk.path {
        Some(path) => format!("Free space in its file system (`df -h {path}`), or {hosts}."),
        None => "Discard unused space on its hosts (`fstrim -av`). A larger `memory_max` creates \
                 the disk again, empty."
            .to_owned(),
    }
}

/// Disks that are not ok: each trouble by itself; of a lost disk, only those that lose data beside
/// the error.
fn disks(state: &SystemState) -> Vec<StatusFinding> {
    let mut out = Vec::new();
    for disk in state.disks.iter().filter(|d| d.health != Health::Ok) {
        let at = format!("disk {}", disk.name);
        let is_gone = disk.is_gone();
        if is_gone || disk.troubles.is_empty() {
            let again = "Reconnect the disk: it is used again automatically. To accept another \
                         disk: `ashlar apply`.";
            let (health, why) = (disk.health, disk.health_why.clone());
            let see = format!("ashlar tree --up {}", shell_word(&disk.name));
            let (at, action) = (at.clone(), again.to_owned());
            out.push(StatusFinding { health, at, why, action, see });
        }
        let counts = |t: &&TroubleState| match is_gone {
            true => t.health == Health::Failed,
            false => t.health != Health::Ok,
        };
        let all = disk.troubles.iter().filter(counts);
        out.extend(all.map(|t| StatusFinding {
            health: t.health,
            at: at.clone(),
            why: t.why.clone(),
            action: if t.action.is_empty() { free_space_advice(disk) } else { t.action.clone() },
            see: format!("ashlar list disks {}", shell_word(&disk.name)),
        }));
    }
    out
}

/// The last refused login.
fn refused_logins(state: &SystemState) -> Option<StatusFinding> {
    let last = state.denied.last()?;
    let why = format!(
        "{} refused lately; last {} from {}: {}",
        count(state.denied.len(), "login"),
        last.initiator,
        last.address,
        last.why.lines().next().unwrap_or("")
    );
    Some(StatusFinding {
        health: Health::Ok,
        at: "access".to_owned(),
        why,
        action: format!(
            "If the initiator should have access: `ashlar access check {}`.",
            shell_word(&last.initiator)
        ),
        see: "ashlar sessions --denied".to_owned(),
    })
}

/// The findings of a state.
pub fn findings(state: &SystemState, config: &Config, catalog: &Catalog) -> Vec<StatusFinding> {
    let mut out = disks(state);
    let mut add = |health, at: String, why: &str, action: &str, see: &str| {
        let (why, action, see) = (why.to_owned(), action.to_owned(), see.to_owned());
        out.push(StatusFinding { health, at, why, action, see });
    };
    for bus in &state.buses {
        for trouble in bus.troubles.iter().filter(|t| t.health != Health::Ok) {
            let (at, see) = (format!("bus {}", bus.name), "ashlar cam devlist -v");
            add(trouble.health, at, &trouble.why, &trouble.action, see);
        }
    }
    // Troubles of a disk are listed above.
    let is_listed = |geom: &GeomState| {
        let same = |d: &DiskState| d.name == geom.name && !d.troubles.is_empty();
        geom.class == "disk" && state.disks.iter().any(same)
    };
    for geom in state.geoms.iter().filter(|g| g.health != Health::Ok && !is_listed(g)) {
        let (at, word) = (format!("{} {}", geom.class, geom.name), shell_word(&geom.name));
        for trouble in &geom.troubles {
            let see = match geom.class.as_str() {
                "part" => format!("ashlar part show {word}"),
                class => format!("ashlar {class} list {word}"),
            };
            add(trouble.health, at.clone(), &trouble.why, &trouble.action, &see);
        }
        if geom.troubles.is_empty() {
            let see = format!("ashlar list geoms {word}");
            let action = format!("See the providers below it: `ashlar tree --down {word}`.");
            add(geom.health, at, &geom.health_why, &action, &see);
        }
    }
    for target in &state.targets {
        let down = target.state == TargetHealth::Down;
        if target.health != Health::Ok || down {
            let health = if down { Health::Failed } else { target.health };
            let (action, see) = match down {
                true => {
                    let free = "Free the address or change `listen`, then run `ashlar apply`.";
                    (free, "ashlar doctor")
                }
                false => {
                    let back = "Restore the missing disk; to accept another disk: `ashlar apply`.";
                    (back, "ashlar list luns")
                }
            };
            let at = format!("target {}", target.name);
            add(health, at, &target.health_why, action, see);
        }
    }
    let missing = missing(state, config);
    for (at, see) in &missing {
        let why = "configured but missing: a disk or geom that it uses is lost or has not arrived";
        add(Health::Failed, at.clone(), why, "Run `ashlar apply` to create it again.", see);
    }
    for by_hand in manual_changes(config, state, catalog) {
        add(Health::Ok, by_hand.object, &by_hand.why, &by_hand.fix, "ashlar plan");
    }
    for larger in grown_disks(config, state) {
        let at = format!("disk {}", larger.disk);
        add(Health::Ok, at, &larger.why, &larger.fix, "ashlar plan");
    }
    for open in exposures(config, catalog) {
        let at = format!("target {}", open.target);
        let action = format!("In ashlar.toml: {}.", open.fix);
        add(Health::Ok, at, &open.why, &action, "ashlar doctor access");
    }
    out.extend(sandbox(state));
    out.extend(refused_logins(state));
    out.extend(stuck_commands(state));
    out.extend(rivals(state));
    out.extend(shared_nqns(state));
    out.extend(listeners(state).chain(certificates(state)));
    out.extend(changed_files(state));
    out.extend(webhooks(state));
    out.extend(former_names(state));
    out.extend(stopped(state));
    out.extend(last_errors(state));
    out.sort_by_key(|f| std::cmp::Reverse(f.health));
    out
}

/// Configured objects that were created and do not exist any more.
fn missing(state: &SystemState, config: &Config) -> Vec<(String, String)> {
    let left = running_config(config, state);
    // A disk that is listed has its own finding.
    let listed = state.disks.iter().map(|d| d.name.as_str());
    let found: HashSet<&str> = left.disk.iter().map(|d| d.name.as_str()).chain(listed).collect();
    let disks = config.disk.iter().filter(|d| !found.contains(d.name.as_str()));
    let geoms = config.geom.iter().filter(|g| left.geom(&g.name).is_none());
    let targets = config.target.iter().filter(|t| left.target(&t.name).is_none());
    let mut out: Vec<String> = disks.map(|d| format!("disk {}", d.name)).collect();
    out.extend(geoms.map(|g| format!("{} {}", g.class, g.name)));
    out.extend(targets.map(|t| format!("target {}", t.name)));
    out.into_iter().map(|at| (at, "ashlar journal".to_owned())).collect()
}

/// How far a start is; before the plan is made no number of steps is known.
fn start_text(line: &ProgressLine) -> String {
    match line.total {
        0 => format!("it starts: {}", line.what).trim_end_matches([' ', ':']).to_owned(),
        total => format!("it starts: step {} of {total}, {}", line.done + 1, line.what),
    }
}

/// The whole answer, worst first.
///
/// # Errors
/// Those of [`Control::state`].
pub fn status_answer(control: &Control) -> Result<StatusAnswer> {
    Ok(status_of(control, &control.state()?))
}

/// The answer for a state that the daemon has just reported.
pub fn status_of(control: &Control, state: &SystemState) -> StatusAnswer {
    let config = control.config().0;
    let mut findings = findings(state, &config, control.catalog());
    let mut running = running_config(&config, state);
    adopt_found_members(&mut running, &control.deferred(), state, control.catalog());
    let left = control.deferred().into_iter().filter(|left| !left.is_resolved(&running, state));
    let left: Vec<Deferred> = left.collect();
    // The reason of its absence replaces the report of it.
    findings.retain(|f| left.iter().all(|left| left.status_entry().is_none_or(|at| at != f.at)));
    findings.splice(
        0..0,
        left.into_iter().map(|left| StatusFinding {
            health: Health::Failed,
            at: left.subject,
            why: format!("left out: {}", left.why),
            action: left.next.unwrap_or_else(|| "Correct it, then run `ashlar apply`.".to_owned()),
            see: "ashlar doctor".to_owned(),
        }),
    );
    let starting = control.start_progress();
    findings.extend(starting.as_ref().map(|line| StatusFinding {
        health: Health::Degraded,
        at: "daemon".to_owned(),
        why: start_text(line),
        action: "Wait: initiators can log in when this is done.".to_owned(),
        see: "ashlar journal".to_owned(),
    }));
    let d = &state.daemon;
    let mut ports: Vec<&str> = d.cores.iter().map(|c| c.port_kind.as_str()).collect();
    ports.dedup();
    let resident = short(d.memory.resident_bytes);
    let sandbox = if d.sandbox.is_empty() { "" } else { ", in a sandbox" };
    let daemon = format!(
        "version {}, up {}, {} ({}), {resident} resident{sandbox}",
        d.version,
        short_ns(d.uptime_ns),
        count(d.cores.len(), "core"),
        ports.join(", "),
    );
    let groups = state.targets.iter().map(|t| t.groups.len()).sum();
    let serves = format!(
        "{}, {}, {}, {}, {}",
        count(state.disks.len() + state.bus_disks().count(), "disk"),
        count(state.geoms.len(), "geom"),
        count(state.targets.len(), "target"),
        count(groups, "group"),
        count(state.sessions().count(), "session"),
    );
    let health = findings.iter().map(|f| f.health).max().unwrap_or_default().max(state.health);
    let starting = starting.is_some();
    let (schema_version, listeners) = (SCHEMA_VERSION, state.listeners.clone());
    let rebuilds = rebuilds(state);
    StatusAnswer {
        schema_version,
        starting,
        health,
        alive: false,
        findings,
        rebuilds,
        daemon,
        serves,
        listeners,
    }
}

impl Verb<Control> for StatusParams {
    const NAME: &'static str = "status";
    const DOC: &'static str = "Show health: what is wrong, why, and what to do";
    const DETAIL: &'static str = "Exit code 0 when everything is ok, 3 when anything is degraded \
        or failed, 5 when no daemon answers. With --alive, the code is 0 when the daemon answers, \
        also while it starts or is degraded: for a supervisor that restarts it.";
    const EXAMPLE: &'static str = "status";
    const MORE_EXAMPLES: &'static [&'static str] = &["status --json", "status --alive"];
    type Answer = StatusAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<StatusAnswer> {
        Ok(StatusAnswer { alive: self.alive, ..status_answer(control)? })
    }
}

impl CommandVerb<Control> for StatusParams {
    fn table(answer: &StatusAnswer) -> String {
        let word = answer.health.label().to_uppercase();
        let mut out =
            format!(" state: {word}\ndaemon: {}\nserves: {}\n", answer.daemon, answer.serves);
        for listener in &answer.listeners {
            out.push_str(&format!("listen: {}\n", listener_words(listener)));
        }
        for f in &answer.findings {
            out.push_str(&format!(
                "\n    at: {} ({})\n   why: {}\naction: {}\n   see: {}\n",
                f.at,
                f.health.label(),
                f.why,
                f.action,
                f.see
            ));
        }
        for r in &answer.rebuilds {
            let (part, words) = (&r.progress.part, r.progress.words());
            out.push_str(&format!("\nrebuild: {} {}: {part} {words}\n", r.class, r.geom));
        }
        out
    }

    fn exit(answer: &StatusAnswer) -> Exit {
        if answer.alive || answer.health == Health::Ok { Exit::Done } else { Exit::Degraded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Denied, SessionState, TargetState};
    use crate::fake::catalog;

    #[test]
    fn name_of_a_host_is_one_word_of_a_command() {
        let initiator = "iqn.h:$(reboot); x".to_owned();
        let denied = vec![Denied { initiator: initiator.clone(), ..Denied::default() }];
        let waiting =
            SessionState { initiator, oldest_command_ns: STUCK_NS + 1, ..SessionState::default() };
        let targets = vec![TargetState { sessions: vec![waiting], ..TargetState::default() }];
        let state = SystemState { denied, targets, ..SystemState::default() };
        let action = refused_logins(&state).expect("a finding").action;
        assert!(action.contains("`ashlar access check 'iqn.h:$(reboot); x'`"), "{action}");
        let stuck = stuck_commands(&state);
        assert_eq!(stuck[0].see, "ashlar tree --down 'iqn.h:$(reboot); x'");
    }

    #[test]
    fn hosts_with_one_nqn_are_reported_by_identifier_and_paths_are_not() {
        let session = |initiator: &str, address: &str, id: Option<&str>| SessionState {
            initiator: initiator.to_owned(),
            address: address.to_owned(),
            host_id: id.map(str::to_owned),
            ..SessionState::default()
        };
        let sessions = vec![
            session("nqn.clone", "10.0.0.1:4000", Some("11-aa")),
            session("nqn.clone", "[::ffff:10.0.0.2]:4000", Some("22-bb")),
            session("nqn.clone", "10.0.0.1:4001", Some("11-aa")),
            session("nqn.paths", "10.0.0.3:4000", Some("33-cc")),
            session("nqn.paths", "10.0.1.3:4000", Some("33-cc")),
            session("iqn.other", "10.0.0.4:4000", None),
            session("iqn.other", "10.0.0.5:4000", None),
        ];
        let name = "disk1".to_owned();
        let targets = vec![TargetState { name, sessions, ..TargetState::default() }];
        let found = shared_nqns(&SystemState { targets, ..SystemState::default() });
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.at.as_str(), one.health), ("initiator nqn.clone at disk1", Health::Ok));
        let why = "10.0.0.1 (11-aa) and 10.0.0.2 (22-bb) use the same host NQN";
        assert!(one.why.starts_with(why), "{}", one.why);
    }

    #[test]
    fn sandbox_that_is_not_enforced_is_reported() {
        let mut state = SystemState::default();
        let found = |state: &SystemState| findings(state, &Config::default(), &catalog());
        assert!(found(&state).is_empty());
        state.daemon.sandbox_problem = Some("the kernel has no Landlock".to_owned());
        let found = found(&state);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.at.as_str(), one.health), ("daemon", Health::Degraded));
        assert!(one.why.contains("the kernel has no Landlock"), "{}", one.why);
    }

    #[test]
    fn last_error_of_a_configured_disk_is_shown_for_a_day() {
        let disk = |name: &str, age_ns: u64| DiskState {
            name: name.to_owned(),
            last_error: Some(DeviceErrorState {
                what: "read of 4096 bytes at 0: input/output error".to_owned(),
                age_ns,
                count: 3,
            }),
            ..DiskState::default()
        };
        let never = DiskState { last_error: None, ..disk("d2", 0) };
        let disks = vec![disk("d0", 60_000_000_000), disk("d1", ERROR_SHOWN_NS), never];
        let found = last_errors(&SystemState { disks, ..SystemState::default() });
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.at.as_str(), one.health), ("disk d0", Health::Ok));
        assert!(one.why.contains("3 in all: read of 4096 bytes at 0"), "{}", one.why);
        assert_eq!(one.see, "ashlar list disks d0 --json");
    }
}
