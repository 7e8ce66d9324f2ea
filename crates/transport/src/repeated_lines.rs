//! Memory of log lines about peers: it limits them to one a minute for each peer.
//!
//! A port scan or an initiator that retries for ever causes line after line. The first line about
//! a peer is logged at once. Further ones within a minute are collected: equal texts are counted,
//! and all of them are one line when the minute is over. The cores of a protocol share the memory,
//! because one peer may connect to several cores.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use bio::sync::Mutex;

/// Time in which one line about a peer is logged, ns.
pub(crate) const QUIET_NS: u64 = 60_000_000_000;

/// Peers that are remembered; lines about further ones are not collected.
const REMEMBERED_MAX: usize = 1024;

/// Different texts that are collected about one peer in [`QUIET_NS`]; further ones are counted.
const TEXTS_MAX: usize = 16;

/// Bytes of the texts that are collected about one peer; texts beyond it are counted. The whole
/// line stays below the limit of a log line.
const TEXT_BYTES_MAX: usize = 4096;

/// Bytes that the texts about all peers occupy; texts beyond it are counted. Addresses of peers can
/// be forged, so that one sender may appear as many peers.
const ALL_BYTES_MAX: usize = 256 << 10;

/// Name of the texts that are only counted.
const OTHERS: &str = "other lines";

/// Memory that a collected text occupies, bytes.
fn bytes_of(text: &str) -> usize {
    text.len() + size_of::<(String, u64)>()
}

/// Lines about a peer since the last one that was logged.
struct Collected {
    /// The time at which they are logged, ns.
    until_ns: u64,
    /// Texts and how often each occurred, in the order of their first occurrence.
    texts: Vec<(String, u64)>,
    /// Lines whose text is not in `texts`.
    others: u64,
    /// Whether one of them is a warning.
    is_trouble: bool,
}

impl Collected {
    fn new(until_ns: u64) -> Collected {
        Collected { until_ns, texts: Vec::new(), others: 0, is_trouble: false }
    }

    /// Adds a line. Its text is kept if it occupies at most `left_bytes`. Answers the bytes that it
    /// occupies from now on.
    fn add(&mut self, mut text: String, is_trouble: bool, left_bytes: usize) -> usize {
        self.is_trouble |= is_trouble;
        if let Some((_, times)) = self.texts.iter_mut().find(|(known, _)| *known == text) {
            *times += 1;
            return 0;
        }
        let bytes: usize = self.texts.iter().map(|(known, _)| known.len()).sum();
        let fits = bytes + text.len() <= TEXT_BYTES_MAX && bytes_of(&text) <= left_bytes;
        if self.texts.len() >= TEXTS_MAX || !fits {
            self.others += 1;
            return 0;
        }
        text.shrink_to_fit();
        let bytes = bytes_of(&text);
        self.texts.push((text, 1));
        bytes
    }

    /// Bytes that its texts occupy.
    fn bytes(&self) -> usize {
        self.texts.iter().map(|(text, _)| bytes_of(text)).sum()
    }

    /// The line about them; `None` when there are none.
    fn line(&self, host: &str) -> Option<String> {
        let more = self.others + self.texts.iter().map(|(_, times)| times).sum::<u64>();
        if more == 0 {
            return None;
        }
        let mut line = format!("{host}: {more} more in the last minute: ");
        let texts = self.texts.iter().map(|(text, times)| (text.as_str(), *times));
        let others = (self.others > 0).then_some((OTHERS, self.others));
        for (i, (text, times)) in texts.chain(others).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let _ = write!(line, "{comma}{text} ({times})");
        }
        Some(line)
    }
}

/// The remembered peers.
#[derive(Default)]
struct Peers {
    by_host: BTreeMap<String, Collected>,
    /// Bytes that all collected texts occupy.
    bytes: usize,
}

/// See the module.
#[derive(Default)]
pub struct RepeatedLines {
    /// The latest time that a core reported, ns.
    now_ns: AtomicU64,
    peers: Mutex<Peers>,
}

impl RepeatedLines {
    /// Whether a line about a peer is to be logged; if not, it is collected. `host`: the peer
    /// without its port, which is another with each connection.
    pub fn admit(&self, host: String, text: String, is_trouble: bool) -> bool {
        let until_ns = self.now_ns.load(Ordering::Relaxed).saturating_add(QUIET_NS);
        let mut peers = self.peers.lock();
        let Peers { by_host, bytes } = &mut *peers;
        let has_space = by_host.len() < REMEMBERED_MAX;
        match by_host.entry(host) {
            Entry::Occupied(mut known) => {
                let left_bytes = ALL_BYTES_MAX.saturating_sub(*bytes);
                *bytes += known.get_mut().add(text, is_trouble, left_bytes);
                return false;
            }
            Entry::Vacant(new) => {
                if has_space {
                    new.insert(Collected::new(until_ns));
                }
            }
        }
        true
    }

    /// Forgets peers without a further line in their minute. `log` receives one line about each of
    /// the others, with the host, and whether it is a warning.
    pub fn expire(&self, now_ns: u64, log: impl Fn(&str, bool, fmt::Arguments<'_>)) {
        let now_ns = self.now_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns);
        let mut ended = Vec::new();
        let mut peers = self.peers.lock();
        let Peers { by_host, bytes } = &mut *peers;
        by_host.retain(|host, collected| {
            if collected.until_ns > now_ns {
                return true;
            }
            // That line begins the next minute.
            let next = Collected::new(now_ns.saturating_add(QUIET_NS));
            let collected = std::mem::replace(collected, next);
            *bytes = bytes.saturating_sub(collected.bytes());
            let line = collected.line(host);
            let is_kept = line.is_some();
            ended.extend(line.map(|line| (host.clone(), collected.is_trouble, line)));
            is_kept
        });
        drop(peers);
        for (host, is_trouble, line) in ended {
            log(&host, is_trouble, format_args!("{line}"));
        }
    }

    /// Logs all collected lines before their minute is over: the log ends.
    pub fn flush(&self, log: impl Fn(&str, bool, fmt::Arguments<'_>)) {
        let peers = std::mem::take(&mut *self.peers.lock());
        for (host, collected) in peers.by_host {
            if let Some(line) = collected.line(&host) {
                log(&host, collected.is_trouble, format_args!("{line}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "10.0.0.9";

    fn expired(lines: &RepeatedLines, now_ns: u64) -> Vec<(bool, String)> {
        let logged = Mutex::new(Vec::new());
        lines.expire(now_ns, |_, is_trouble, line| {
            logged.lock().push((is_trouble, line.to_string()));
        });
        logged.into_inner()
    }

    /// The only line.
    fn one(mut logged: Vec<(bool, String)>) -> String {
        assert_eq!(logged.len(), 1, "{logged:?}");
        logged.remove(0).1
    }

    #[test]
    fn remembered_peers_are_bounded() {
        let lines = RepeatedLines::default();
        let host = |i: usize| format!("10.0.{}.{}", i / 256, i % 256);
        for i in 0..2 * REMEMBERED_MAX {
            assert!(lines.admit(host(i), "no PDU".into(), true), "{i}");
        }
        assert_eq!(lines.peers.lock().by_host.len(), REMEMBERED_MAX);
    }

    #[test]
    fn collected_texts_of_all_peers_are_bounded() {
        let lines = RepeatedLines::default();
        let host = |i: usize| format!("10.0.{}.{}", i / 256, i % 256);
        let add = |i: usize, text: usize| {
            let text = format!("{text}{}", "x".repeat(TEXT_BYTES_MAX / TEXTS_MAX - 2));
            lines.admit(host(i), text, true)
        };
        let all = || (0..REMEMBERED_MAX).flat_map(|i| (0..TEXTS_MAX).map(move |text| (i, text)));
        let kept_bytes = || {
            let peers = lines.peers.lock();
            let kept: usize = peers.by_host.values().map(Collected::bytes).sum();
            assert_eq!(kept, peers.bytes);
            kept
        };
        (0..REMEMBERED_MAX).for_each(|i| assert!(add(i, 0)));
        assert!(all().all(|(i, text)| !add(i, text)));
        assert!((ALL_BYTES_MAX - TEXT_BYTES_MAX..=ALL_BYTES_MAX).contains(&kept_bytes()));
        // Those without a kept text are counted.
        let logged = expired(&lines, QUIET_NS);
        assert_eq!(logged.len(), REMEMBERED_MAX);
        assert!(logged.iter().all(|(_, line)| line.contains(" 16 more in the last minute: ")));
        assert_eq!(kept_bytes(), 0);
    }

    #[test]
    fn different_lines_about_one_peer_are_one_line_a_minute() {
        let lines = RepeatedLines::default();
        let add = |text: &str, is_trouble| lines.admit(HOST.into(), text.into(), is_trouble);
        assert!(add("logged in", false));
        for text in ["tag 1", "tag 2", "tag 1"] {
            assert!(!add(text, true), "{text}");
        }
        assert!(!add("logged in", false));
        assert!(lines.admit("10.0.0.8".into(), "tag 1".into(), true), "another peer");
        assert!(expired(&lines, QUIET_NS - 1).is_empty());
        let line = "10.0.0.9: 4 more in the last minute: tag 1 (2), tag 2 (1), logged in (1)";
        assert_eq!(expired(&lines, QUIET_NS), [(true, line.to_owned())]);
        // That line was the one of the next minute.
        assert!(!add("logged in", false));
        assert!(expired(&lines, 2 * QUIET_NS - 1).is_empty());
        let line = "10.0.0.9: 1 more in the last minute: logged in (1)";
        assert_eq!(expired(&lines, 2 * QUIET_NS), [(false, line.to_owned())], "no warning");
        assert!(expired(&lines, 3 * QUIET_NS).is_empty());
        assert!(add("logged in", false), "after a quiet minute a line is logged at once");
    }

    #[test]
    fn collected_texts_of_one_peer_are_bounded() {
        let lines = RepeatedLines::default();
        let add = |text: String| lines.admit(HOST.into(), text, true);
        assert!(add("first".into()));
        assert!((0..100).all(|i| !add(format!("tag {i}"))));
        assert!(!add("tag 0".into()));
        let line = one(expired(&lines, QUIET_NS));
        let others = 100 - TEXTS_MAX;
        assert!(line.starts_with("10.0.0.9: 101 more in the last minute: tag 0 (2), "), "{line}");
        assert!(line.ends_with(&format!("tag 15 (1), other lines ({others})")), "{line}");
        assert!((0..9).all(|i| !add(format!("{i}{}", "x".repeat(TEXT_BYTES_MAX / 4)))));
        let line = one(expired(&lines, 2 * QUIET_NS));
        assert!(line.len() < 2 * TEXT_BYTES_MAX, "{} bytes", line.len());
        assert!(line.ends_with("other lines (6)"), "{line}");
    }

    #[test]
    fn collected_lines_are_logged_at_the_end() {
        let lines = RepeatedLines::default();
        assert!(lines.admit(HOST.into(), "no PDU".into(), true));
        assert!(!lines.admit(HOST.into(), "tag 1".into(), true));
        let logged = Mutex::new(Vec::new());
        let flush = || lines.flush(|_, _, line| logged.lock().push(line.to_string()));
        flush();
        flush();
        assert_eq!(*logged.lock(), ["10.0.0.9: 1 more in the last minute: tag 1 (1)"]);
    }
}
