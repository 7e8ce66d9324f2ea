//! State of the sessions of targets, for the API.

use engine::CommandState;
use engine::registry::{CommandView, LatencyReading, NexusCounts, SessionFacts};
use mgmt::api::{Digests, Histogram, LUN_COUNTERS_MAX, LunCounters, SessionState, Stats};

use super::{Sources, histogram};

/// Most LUNs listed of a session; of further ones only the number is reported.
const LUNS_SHOWN_MAX: usize = 64;

/// How long write data may be on its way before lists mention it, ns.
const DATA_SLOW_NS: u64 = 1_000_000_000;

/// How many commands of a session wait here: for their turn at the unit, for buffers, in the order.
/// Tasks wait for a turn while they execute.
fn waiting_commands(s: &SessionFacts, all: &[CommandView]) -> u64 {
    let others = [CommandState::MemoryWait, CommandState::Dormant];
    let others = all.iter().filter(|c| others.contains(&c.state)).count();
    u64::from(s.held_back().queued).saturating_add(others as u64)
}

/// Why commands of a session wait here: what most of them wait for.
fn wait_reason(from: &Sources<'_>, s: &SessionFacts, all: &[CommandView]) -> Option<String> {
    let waits = |c: &CommandView, state| {
        c.state == state && (state != CommandState::DataWait || c.age_ns > DATA_SLOW_NS)
    };
    let held = s.held_back();
    let count = |state: CommandState| match state {
        // Requests of tasks among them, which execute meanwhile.
        CommandState::Queued => held.queued as usize,
        _ => all.iter().filter(|c| waits(c, state)).count(),
    };
    let states = [
        CommandState::Queued,
        CommandState::MemoryWait,
        CommandState::Dormant,
        CommandState::DataWait,
    ];
    let most = states.into_iter().rev().max_by_key(|state| count(*state))?;
    let n = count(most);
    if n == 0 {
        return None;
    }
    Some(match most {
        CommandState::Queued => {
            let device = from.registry.devices.iter().find(|d| Some(d.number) == held.device);
            let name = device.map_or("its unit", |d| d.label.name.as_str());
            let share = held.share.map_or(String::new(), |n| format!(", its share is {n}"));
            match device
                .and_then(|d| d.flow.limit.map(|l| (l, d.flow.latency_ns, d.flow.par_bytes)))
            {
                Some((limit, ns, par)) => format!(
                    "{n} wait for {name}, which is no faster with more than {limit} ({} us \
                     each, and {} KiB count as one more){share}",
                    ns / 1000,
                    par / 1024
                ),
                None => format!("{n} wait for {name}{share}"),
            }
        }
        CommandState::MemoryWait => format!("{n} wait for buffers"),
        CommandState::Dormant => format!("{n} wait for their turn in the order of the unit"),
        _ => format!("{n} wait for the initiator's data"),
    })
}

fn latency(reading: &LatencyReading) -> Histogram {
    histogram(&reading.buckets, reading.sum_ns)
}

/// Counters of the listed LUNs that a session has used, and of others that had requests.
fn lun_counters(used: &[NexusCounts], listed: &[u64]) -> Vec<LunCounters> {
    let is_shown = |counts: &&NexusCounts| {
        counts.reads > 0 || counts.writes > 0 || listed.contains(&counts.lun)
    };
    used.iter().filter(is_shown).take(LUN_COUNTERS_MAX).map(counters).collect()
}

/// Counters of a LUN as the API shows them.
pub(super) fn counters(counts: &NexusCounts) -> LunCounters {
    LunCounters {
        lun: counts.lun,
        reads: counts.reads,
        writes: counts.writes,
        read_bytes: counts.read_bytes,
        write_bytes: counts.written_bytes,
        errors: counts.errors,
    }
}

/// A session as the API shows it.
pub(super) fn session(from: &Sources<'_>, s: &SessionFacts) -> SessionState {
    let label = |key: &str| s.labels.iter().find(|(k, _)| *k == key).map(|(_, v)| v.as_str());
    let counters = s.counters();
    let group = s.group();
    let target = from.registry.target(&s.driver, &s.target);
    let own = target.and_then(|t| t.groups.iter().find(|g| g.name == group));
    let all = own.map(|g| &g.luns);
    // A client that has entered one unit sees no other.
    let only: Option<u64> = label("lun").and_then(|l| l.parse().ok());
    let (luns, luns_total): (Vec<u64>, u64) = match only {
        Some(lun) => (vec![lun], 1),
        None => (
            all.into_iter().flatten().take(LUNS_SHOWN_MAX).map(|l| l.lun).collect(),
            all.map_or(0, |l| l.len() as u64),
        ),
    };
    let used = from.registry.nexuses.get(&s.number).map(Vec::as_slice).unwrap_or_default();
    let waiting = s.commands(from.now_ns);
    let mut stats = Stats { in_flight: waiting.len() as u64, ..Stats::default() };
    stats.read.ops = counters.reads;
    stats.read.bytes = counters.read_bytes;
    stats.read.latency = latency(&s.read_latency());
    stats.write.ops = counters.writes;
    stats.write.bytes = counters.written_bytes;
    stats.write.latency = latency(&s.write_latency());
    stats.other.ops = counters.commands.saturating_sub(counters.reads + counters.writes);
    stats.other.errors = counters.errors;
    SessionState {
        id: s.number,
        initiator: s.initiator.clone(),
        address: s.from.to_string(),
        portal: s.portal.to_string(),
        group: (!group.is_empty()).then_some(group),
        isid: label("isid").unwrap_or_default().to_owned(),
        host_id: label("host-id").map(str::to_owned),
        tsih: label("tsih").and_then(|t| t.parse().ok()).unwrap_or(0),
        since_ns: from.since_start_ns(s.since_ns),
        lun_counters: lun_counters(used, &luns),
        luns,
        luns_total,
        unit: label("export").map(str::to_owned),
        tls: label("tls").filter(|t| *t != "none").map(str::to_owned),
        digests: Digests {
            header: label("header-digest").is_some_and(|d| d != "none"),
            data: label("data-digest").is_some_and(|d| d != "none"),
        },
        auth: label("auth").unwrap_or("none").to_owned(),
        commands_outstanding: stats.in_flight,
        oldest_command_ns: waiting.first().map_or(0, |c| c.age_ns),
        window: s.held_back().window,
        share: s.held_back().share,
        waiting: waiting_commands(s, &waiting),
        held_back: wait_reason(from, s, &waiting),
        stats,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_luns_beyond_the_listed_ones_have_counters() {
        let counts = |lun: u64, reads: u64| NexusCounts { lun, reads, ..NexusCounts::default() };
        let of = |used: &[NexusCounts], listed: &[u64]| -> Vec<(u64, u64)> {
            lun_counters(used, listed).iter().map(|of| (of.lun, of.reads)).collect()
        };
        let used = [counts(0, 0), counts(1, 4), counts(70, 0), counts(71, 5)];
        assert_eq!(of(&used, &[0, 1]), [(0, 0), (1, 4), (71, 5)]);
        let many: Vec<NexusCounts> = (0..2000).map(|lun| counts(lun, 1)).collect();
        assert_eq!(of(&many, &[0]).len(), LUN_COUNTERS_MAX);
    }
}
