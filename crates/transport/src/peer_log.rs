//! Rate-limited log lines about peers. One line a minute is logged about each peer, over all cores
//! ([`RepeatedLines`]); the number of lines is limited on each core.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use reactor::Address;

use crate::repeated_lines::RepeatedLines;

/// Lines about misbehaviour in one watch period; further ones are counted.
const LINES_MAX: u32 = 20;

/// Writes a line to the log of a protocol.
pub type LogFn = fn(PeerFields<'_>, fmt::Arguments<'_>);

/// Fields of a line for logs that have them; empty for a line that is not about one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerFields<'a> {
    /// Kind of the line: `peer`.
    pub kind: Option<&'static str>,
    /// The peer without its port, which is another with each connection.
    pub peer: Option<&'a str>,
    /// Its name in the protocol.
    pub initiator: Option<&'a str>,
}

impl<'a> PeerFields<'a> {
    fn of(peer: &'a str, name: &'a str) -> PeerFields<'a> {
        let initiator = (!name.is_empty()).then_some(name);
        PeerFields { kind: Some("peer"), peer: Some(peer), initiator }
    }
}

/// The peer that a line is about.
pub struct LogSubject<'a> {
    /// Its address.
    pub peer: &'a Address,
    /// Its name in the protocol; empty while that is not known.
    pub name: &'a str,
}

/// The log of one core.
pub struct PeerLog {
    warn: LogFn,
    info: LogFn,
    lines: Cell<u32>,
    suppressed: Cell<u64>,
    repeated: Arc<RepeatedLines>,
}

impl PeerLog {
    /// Empty. `warn` is for misbehaviour, `info` for the rest; all cores share `repeated`.
    pub fn new(warn: LogFn, info: LogFn, repeated: &Arc<RepeatedLines>) -> PeerLog {
        PeerLog {
            warn,
            info,
            lines: Cell::new(0),
            suppressed: Cell::new(0),
            repeated: repeated.clone(),
        }
    }

    /// Logs a warning that is not about one peer, or counts it.
    pub fn warn(&self, what: fmt::Arguments<'_>) {
        self.warn_limited(PeerFields::default(), what);
    }

    fn warn_limited(&self, fields: PeerFields<'_>, what: fmt::Arguments<'_>) {
        let lines = self.lines.get();
        self.lines.set(lines.saturating_add(1));
        if lines < LINES_MAX {
            (self.warn)(fields, what);
        } else {
            self.suppressed.set(self.suppressed.get() + 1);
        }
    }

    /// Logs a warning that the caller does not repeat.
    pub fn warn_once(&self, what: fmt::Arguments<'_>) {
        (self.warn)(PeerFields::default(), what);
    }

    /// Logs the misbehaviour of a peer.
    pub fn warn_about(&self, about: LogSubject<'_>, what: fmt::Arguments<'_>) {
        self.log_line(&about, what, true);
    }

    /// Logs an orderly event of a peer.
    pub fn info_about(&self, about: LogSubject<'_>, what: fmt::Arguments<'_>) {
        self.log_line(&about, what, false);
    }

    fn log_line(&self, about: &LogSubject<'_>, what: fmt::Arguments<'_>, is_trouble: bool) {
        let text = match about.name {
            "" => what.to_string(),
            name => format!("{name}: {what}"),
        };
        let host = host(about.peer);
        if !self.repeated.admit(host.clone(), text, is_trouble) {
            return;
        }
        let (peer, fields) = (about.peer, PeerFields::of(&host, about.name));
        match (is_trouble, about.name) {
            (true, "") => self.warn_limited(fields, format_args!("{peer}: {what}")),
            (true, name) => self.warn_limited(fields, format_args!("{name} ({peer}): {what}")),
            (false, "") => (self.info)(fields, format_args!("{peer}: {what}")),
            (false, name) => (self.info)(fields, format_args!("{name} ({peer}): {what}")),
        }
    }

    /// Ends a watch period.
    pub fn end_period(&self, now_ns: u64) {
        self.lines.set(0);
        let suppressed = self.suppressed.take();
        if suppressed > 0 {
            (self.warn)(
                PeerFields::default(),
                format_args!("{suppressed} more lines about bad connections left out"),
            );
        }
        self.repeated.expire(now_ns, |host, is_trouble, line| {
            self.log_collected(host, is_trouble, line);
        });
    }

    /// Logs the collected lines: the core ends.
    pub fn flush(&self) {
        self.repeated.flush(|host, is_trouble, line| self.log_collected(host, is_trouble, line));
    }

    fn log_collected(&self, host: &str, is_trouble: bool, line: fmt::Arguments<'_>) {
        let log = if is_trouble { self.warn } else { self.info };
        log(PeerFields::of(host, ""), line);
    }
}

/// A peer without its port, which is another with each connection.
fn host(peer: &Address) -> String {
    match peer {
        Address::Inet(at) => at.ip().to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bio::sync::Mutex;
    use testkit::clock::S;

    use super::*;
    use crate::repeated_lines::QUIET_NS;

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn keep(_: PeerFields<'_>, what: fmt::Arguments<'_>) {
        LINES.lock().push(what.to_string());
    }

    fn lines() -> Vec<String> {
        std::mem::take(&mut *LINES.lock())
    }

    const QUIET_S: u64 = QUIET_NS / S;

    #[test]
    fn flood_of_a_peer_is_one_line_a_minute_with_a_count() {
        // The peer is served by two cores.
        let repeated = Arc::default();
        let cores = [(); 2].map(|()| PeerLog::new(keep, keep, &repeated));
        let peer = |port: u16| Address::Inet(([10, 0, 0, 7], port).into());
        let probe = |port: u16| {
            let about = LogSubject { peer: &peer(port), name: "" };
            cores[usize::from(port % 2)].warn_about(about, format_args!("no PDU"));
        };
        let pass = |seconds: std::ops::RangeInclusive<u64>| {
            seconds.for_each(|s| cores.iter().for_each(|core| core.end_period(s * S)));
        };
        (1..=500).for_each(probe);
        let other = Address::Inet(([10, 0, 0, 8], 1).into());
        cores[0].info_about(LogSubject { peer: &other, name: "iqn.a" }, format_args!("logged in"));
        assert_eq!(lines(), ["10.0.0.7:1: no PDU", "iqn.a (10.0.0.8:1): logged in"]);
        // A different line about the peer is collected too.
        let about = LogSubject { peer: &peer(501), name: "iqn.b" };
        cores[1].info_about(about, format_args!("logged in"));
        pass(1..=QUIET_S - 1);
        assert!(lines().is_empty());
        pass(QUIET_S..=QUIET_S);
        let more = "10.0.0.7: 500 more in the last minute: no PDU (499), iqn.b: logged in (1)";
        assert_eq!(lines(), [more]);
        // The probes continue.
        probe(9);
        assert!(lines().is_empty());
        pass(QUIET_S + 1..=2 * QUIET_S);
        let more = "10.0.0.7: 1 more in the last minute: no PDU (1)";
        assert_eq!(lines(), [more]);
        pass(2 * QUIET_S + 1..=3 * QUIET_S);
        probe(10);
        assert_eq!(
            lines(),
            ["10.0.0.7:10: no PDU"],
            "after a quiet minute a line is logged at once"
        );
        probe(11);
        cores.iter().for_each(PeerLog::flush);
        assert_eq!(lines(), [more], "a stop loses no line");
    }

    #[test]
    fn lines_of_many_peers_are_bounded() {
        let log = PeerLog::new(keep_nothing, keep_nothing, &Arc::default());
        for i in 0..2 * LINES_MAX as u8 {
            let peer = Address::Inet(([10, 0, 0, i], 1).into());
            log.warn_about(LogSubject { peer: &peer, name: "" }, format_args!("no PDU"));
        }
        assert_eq!(log.suppressed.get(), u64::from(LINES_MAX));
        log.end_period(S);
        assert_eq!((log.suppressed.get(), log.lines.get()), (0, 0));
    }

    fn keep_nothing(_: PeerFields<'_>, _: fmt::Arguments<'_>) {}

    static FIELDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn keep_fields(of: PeerFields<'_>, _: fmt::Arguments<'_>) {
        FIELDS.lock().push(format!("{:?} {:?} {:?}", of.kind, of.peer, of.initiator));
    }

    #[test]
    fn line_about_a_peer_has_its_address_without_the_port_as_a_field() {
        let log = PeerLog::new(keep_fields, keep_fields, &Arc::default());
        let peer = Address::Inet(([10, 0, 0, 7], 40_001).into());
        log.info_about(LogSubject { peer: &peer, name: "iqn.a" }, format_args!("logged in"));
        log.warn_about(LogSubject { peer: &peer, name: "" }, format_args!("no PDU"));
        log.flush();
        log.warn(format_args!("no memory"));
        let expected = [
            "Some(\"peer\") Some(\"10.0.0.7\") Some(\"iqn.a\")",
            "Some(\"peer\") Some(\"10.0.0.7\") None",
            "None None None",
        ];
        assert_eq!(*FIELDS.lock(), expected);
    }
}
