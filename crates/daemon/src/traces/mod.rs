//! Slow requests of all cores with their names, kept while clients request them.
//!
//! Invariants
//!  L1  Cores record only while the lease of a client runs: a client that sends no request for
//!      [`LEASE`] costs nothing from then on.
//!  L2  A client waits for a core at most [`ANSWER_LIMIT`], and never for one that does not answer.
//!  L3  At most [`RECENT_MAX`] requests are kept, and at most [`CLIENTS_MAX`] thresholds.
//!  L4  Cores are queried at most once in [`ASK_INTERVAL`], for any number of client requests. A
//!      core searches its ring for each slow request that it keeps, and after a question keeps
//!      others.
//!  L5  A request that a core recorded is shown, or counted as missed: also if the core answers too
//!      late, or if the names are not known.

mod layers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bio::sync::Mutex;
use geom::{Call, Core, Edge, EdgeNames, Message, Origins, SlowRequests};
use mgmt::api::{Error, Kind, Result, SlowRequest, TraceQuery, TraceState};
use reactor::Mailer;

/// How long requests are recorded after a question.
const LEASE: Duration = Duration::from_secs(5);
/// Longest wait for the cores.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// Shortest time between two questions to the cores. An earlier request waits.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
/// Requests kept; older ones are dropped.
const RECENT_MAX: usize = 1024;
/// Different thresholds of clients at a time.
const CLIENTS_MAX: usize = 16;

/// Names of connections, and the start of the daemon in ns of the cores' clock.
pub type Names = (BTreeMap<Edge, EdgeNames>, u64);

/// See the module.
pub struct Traces {
    cores: Vec<Mailer<Message>>,
    origins: Arc<Origins>,
    kept: Mutex<Kept>,
    /// Requests of cores that answered too late, until they are counted as missed.
    late: Arc<AtomicU64>,
}

#[derive(Default)]
struct Kept {
    /// Ends of the leases, by the least time of a request in ns.
    leases: BTreeMap<u64, Instant>,
    recent: VecDeque<SlowRequest>,
    last: u64,
    missed: u64,
    /// When the cores were queried last.
    asked: Option<Instant>,
}

impl Kept {
    /// Renews the lease of a threshold; the least threshold of all clients.
    fn renew(&mut self, slow_ns: u64, now: Instant) -> Result<u64> {
        self.leases.retain(|_, until| *until > now);
        self.leases.insert(slow_ns, now + LEASE);
        if self.leases.len() > CLIENTS_MAX {
            self.leases.remove(&slow_ns);
            let why = format!("too many clients with other times (limit {CLIENTS_MAX})");
            let next = "Repeat `ashlar trace` with the --slow of another client, or in 5 seconds.";
            return Err(Error::new(Kind::Limit, "trace", why).next(next));
        }
        Ok(self.leases.keys().next().copied().unwrap_or(slow_ns))
    }

    /// Time until the cores may be queried again (L4).
    fn pause(&self, now: Instant) -> Duration {
        let since = self.asked.map_or(ASK_INTERVAL, |at| now.saturating_duration_since(at));
        ASK_INTERVAL.saturating_sub(since)
    }

    fn add(&mut self, request: SlowRequest) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.last += 1;
        self.recent.push_back(SlowRequest { id: self.last, ..request });
    }

    fn answer(&self, query: &TraceQuery) -> TraceState {
        let accepted = self.recent.iter().filter(|request| query.accepts(request));
        TraceState {
            last: self.last,
            missed: self.missed,
            silent_cores: 0,
            requests: accepted.cloned().collect(),
        }
    }
}

/// A time of the cores' clock as nanoseconds since 1970.
fn unix_ns(at_ns: u64) -> u64 {
    let age = Duration::from_nanos(reactor::monotonic_ns().saturating_sub(at_ns));
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.saturating_sub(age).as_nanos()).unwrap_or(u64::MAX)
}

impl Traces {
    /// Of these cores; `origins` has the names of their clients.
    pub fn new(cores: Vec<Mailer<Message>>, origins: Arc<Origins>) -> Traces {
        Traces { cores, origins, kept: Mutex::default(), late: Arc::default() }
    }

    /// The requests for a client. `names` finds the names of connections.
    pub fn poll(
        &self,
        query: &TraceQuery,
        names: impl FnOnce(Vec<Edge>) -> Result<Names>,
    ) -> Result<TraceState> {
        let mut kept = self.kept.lock();
        let slow_ns = kept.renew(query.slow_ns, Instant::now())?;
        std::thread::sleep(kept.pause(Instant::now()));
        let found = self.ask(slow_ns);
        kept.asked = Some(Instant::now());
        let silent_cores = self.cores.len().saturating_sub(found.len());
        self.keep(&mut kept, &found, names)?;
        kept.missed += self.late.swap(0, Ordering::Relaxed);
        let silent_cores = u64::try_from(silent_cores).unwrap_or(u64::MAX);
        Ok(TraceState { silent_cores, ..kept.answer(query) })
    }

    /// Keeps the requests that cores recorded (L5).
    fn keep(
        &self,
        kept: &mut Kept,
        found: &[(u32, SlowRequests)],
        names: impl FnOnce(Vec<Edge>) -> Result<Names>,
    ) -> Result<()> {
        kept.missed += found.iter().map(|(_, slow)| slow.missed).sum::<u64>();
        let parts = found.iter().flat_map(|(_, slow)| &slow.requests).flat_map(|slow| &slow.parts);
        let edges: BTreeSet<Edge> = parts.map(|part| part.edge).collect();
        if edges.is_empty() {
            return Ok(());
        }
        let (names, started_ns) = names(edges.into_iter().collect()).inspect_err(|_| {
            let all = found.iter().map(|(_, slow)| slow.requests.len() as u64);
            kept.missed += all.sum::<u64>();
        })?;
        let shown = |core: u32, slow| layers::shown(core, slow, &names, started_ns);
        let mut new = Vec::new();
        for (core, slow) in found {
            for request in slow.requests.iter().filter(|request| !request.parts.is_empty()) {
                new.push(self.named(request, shown(*core, request)));
            }
        }
        new.sort_by_key(|request| request.start_ns.saturating_add(request.layer.took_ns));
        new.into_iter().for_each(|request| kept.add(request));
        Ok(())
    }

    /// Adds the date, and the names of the client.
    fn named(&self, slow: &geom::SlowRequest, shown: SlowRequest) -> SlowRequest {
        let origin = slow.parts.first().map(|part| part.origin);
        let start_unix_ns = slow.parts.first().map_or(0, |part| unix_ns(part.start_ns));
        let shown = SlowRequest { start_unix_ns, ..shown };
        let Some(client) = origin.and_then(|origin| self.origins.originator(origin)) else {
            return shown;
        };
        SlowRequest {
            initiator: client.initiator.clone(),
            lun: client.lun,
            task: client.task.clone(),
            ..shown
        }
    }

    /// Renews the leases of the cores, and takes what they recorded (L2).
    fn ask(&self, slow_ns: u64) -> Vec<(u32, SlowRequests)> {
        let lease_ns = u64::try_from(LEASE.as_nanos()).unwrap_or(u64::MAX);
        let (to, answers) = mpsc::sync_channel(self.cores.len());
        for mailer in &self.cores {
            let (to, late) = (to.clone(), self.late.clone());
            let call: Call = Box::new(move |core: &Rc<Core>| {
                let slow = core.slow_requests(slow_ns, lease_ns);
                // The client may have stopped waiting.
                if let Err(mpsc::SendError((_, slow))) = to.send((core.id(), slow)) {
                    let lost = slow.missed + slow.requests.len() as u64;
                    late.fetch_add(lost, Ordering::Relaxed);
                }
            });
            // A core that has no space for a message counts as silent.
            drop(mailer.send(Message::Call(call)));
        }
        drop(to);
        let until = Instant::now() + ANSWER_LIMIT;
        let left = || until.saturating_duration_since(Instant::now());
        std::iter::from_fn(|| answers.recv_timeout(left()).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::{Op, Origin};
    use geom::TracePart;
    use mgmt::api::TracedLayer;

    #[test]
    fn l1_least_threshold_counts_until_its_lease_ends() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        assert_eq!(kept.renew(50, now), Ok(50));
        assert_eq!(kept.renew(10, now), Ok(10));
        assert_eq!(kept.renew(50, now + LEASE / 2), Ok(10));
        assert_eq!(kept.renew(50, now + LEASE), Ok(50), "the other client does not ask any more");
    }

    #[test]
    fn l4_cores_are_asked_at_most_once_in_an_interval() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        assert_eq!(kept.pause(now), Duration::ZERO);
        kept.asked = Some(now);
        assert_eq!(kept.pause(now), ASK_INTERVAL);
        assert_eq!(kept.pause(now + ASK_INTERVAL / 4), ASK_INTERVAL * 3 / 4);
        assert_eq!(kept.pause(now + LEASE), Duration::ZERO);
    }

    #[test]
    fn l5_requests_without_names_are_counted_as_missed() {
        let part = TracePart {
            request: 7,
            parent: None,
            depth: 0,
            edge: Edge(0),
            is_cut: false,
            op: Op::Write,
            origin: Origin(0),
            offset: 0,
            length: 512,
            start_ns: 1,
            end_ns: 9,
            status: Ok(()),
        };
        let slow = geom::SlowRequest { parts: vec![part], is_complete: true };
        let found = [(0, SlowRequests { requests: vec![slow.clone(), slow], missed: 3 })];
        let traces = Traces::new(Vec::new(), Arc::default());
        let mut kept = Kept::default();
        let busy = |_| Err(Error::new(Kind::Timeout, "trace", "the control thread is busy"));
        assert!(traces.keep(&mut kept, &found, busy).is_err());
        assert_eq!((kept.missed, kept.recent.len()), (5, 0));
        let names = |_| Ok((BTreeMap::new(), 0));
        assert_eq!(traces.keep(&mut kept, &found, names), Ok(()));
        assert_eq!((kept.missed, kept.recent.len()), (8, 2));
    }

    #[test]
    fn l3_requests_and_thresholds_are_bounded() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        for slow_ns in 0..CLIENTS_MAX as u64 {
            assert!(kept.renew(slow_ns, now).is_ok());
        }
        let refused = kept.renew(999, now).expect_err("one more");
        assert_eq!(refused.kind, Kind::Limit);
        assert!(kept.renew(3, now).is_ok(), "those that are there are renewed");
        for took_ns in 0..RECENT_MAX as u64 + 10 {
            let layer = TracedLayer { took_ns, ..TracedLayer::default() };
            kept.add(SlowRequest { layer, ..SlowRequest::default() });
        }
        let query = TraceQuery { after: Some(0), ..TraceQuery::default() };
        let answer = kept.answer(&query);
        assert_eq!((answer.requests.len(), answer.last), (RECENT_MAX, RECENT_MAX as u64 + 10));
        assert_eq!(answer.requests[0].id, 11, "the oldest are dropped");
    }
}
