//! Option strings of a scheduler, for example `quantum_kb=4096,weight=50,7.weight=200`.
//!
//! A bare `weight`, `iops` or `kbps` applies to every client that has none of its own. With a
//! client in front it applies to that client. `burst_ms` with a client in front does so too; a bare
//! `burst_ms` belongs to the algorithm and applies to all. The name of a client depends on the
//! attribute that distinguishes clients: the number of a session or process, an initiator, or an
//! initiator and its LUN (`iqn.x/3`). A background pass has a name with spaces (`mirror rebuild
//! gm0`). `CLIENT=default` removes the options of one client. All other options belong to the
//! algorithm.

use std::collections::BTreeSet;

use bio::Errno;
use geom::Error;

use super::algorithms::{self, Share};
use super::clients::SHARES_MAX;
use super::queue::DiskQueue;

/// Options of a single client.
const SHARES: &[&str] = &["weight", "iops", "kbps", BURST];
/// Of one client; of all it belongs to the algorithm.
const BURST: &str = "burst_ms";
/// Longest time that can be saved up for, ms: as of the algorithm.
const BURST_MS_MAX: u64 = 60_000;
/// Largest weight: a hundred thousand times the smallest.
const WEIGHT_MAX: u64 = 100_000;
/// Largest limits: what no disk does. More is refused.
const IOPS_MAX: u64 = 1_000_000_000;
const KBPS_MAX: u64 = 1 << 40;
/// Options given at once; more are refused.
const OPTIONS_MAX: usize = 256;

/// Value that removes the options of a client.
const DEFAULT: &str = "default";

/// A change of what clients may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShareOption {
    /// One value, for all clients or for one: client, key, value.
    Set(Option<String>, &'static str, u64),
    /// The client returns to the default share.
    Unset(String),
}

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) knobs: Vec<(String, u64)>,
    pub(super) shares: Vec<ShareOption>,
}

pub(super) fn read(text: Option<&str>) -> Result<Options, Error> {
    let mut out = Options::default();
    let all = text.unwrap_or_default();
    for (n, word) in all.split(',').flat_map(options).enumerate() {
        if n >= OPTIONS_MAX {
            return Err(Error::inval(format!("more than {OPTIONS_MAX} options at once")));
        }
        let Some((key, value)) = word.split_once('=') else {
            return Err(Error::inval(format!("option {word} is not KEY=VALUE")));
        };
        if value == DEFAULT {
            if SHARES.contains(&key) {
                return Err(Error::inval(format!("option {key}: of whom? CLIENT={DEFAULT}")));
            }
            out.shares.push(ShareOption::Unset(key.to_owned()));
            continue;
        }
        let number = value.parse::<u64>();
        let value =
            number.map_err(|_| Error::inval(format!("option {key}: {value} is not a number")))?;
        // An initiator's name has dots too.
        let (client, name) = match key.rsplit_once('.') {
            Some((client, name)) if !client.is_empty() => (Some(client.to_owned()), name),
            _ => (None, key),
        };
        let is_own = |share: &&&str| **share == name && (name != BURST || client.is_some());
        match SHARES.iter().find(is_own) {
            Some(share) => {
                out.shares.push(ShareOption::Set(client, checked(share, value)?, value));
            }
            None if client.is_some() => {
                let what = format!("option {key}: a client has {}", SHARES.join(", "));
                return Err(Error::inval(what));
            }
            None => out.knobs.push((key.to_owned(), value)),
        }
    }
    Ok(out)
}

/// Options with spaces between them. One ends with the word that has its `=`: names of clients may
/// be several words.
fn options(part: &str) -> Vec<String> {
    let (mut out, mut name) = (Vec::new(), Vec::new());
    for word in part.split_whitespace() {
        name.push(word);
        if word.contains('=') {
            out.push(name.join(" "));
            name.clear();
        }
    }
    if !name.is_empty() {
        out.push(name.join(" "));
    }
    out
}

fn checked(name: &'static str, value: u64) -> Result<&'static str, Error> {
    let (least, most) = match name {
        "weight" => (1, WEIGHT_MAX),
        "iops" => (0, IOPS_MAX),
        BURST => (0, BURST_MS_MAX),
        _ => (0, KBPS_MAX),
    };
    match (least..=most).contains(&value) {
        true => Ok(name),
        false => Err(Error::inval(format!("{name} must be between {least} and {most}"))),
    }
}

/// Sets the shares of clients, all or none. Callers that change more check [`has_room`] before.
pub(super) fn set_shares(hub: &mut DiskQueue, shares: &[ShareOption]) -> Result<(), Error> {
    check_share_limit(hub, shares)?;
    hub.configure(|algorithm, clients| {
        for option in shares {
            match option {
                ShareOption::Unset(client) => clients.unset_share(client, algorithm),
                ShareOption::Set(client, name, value) => {
                    let change = |share: &mut Share| match *name {
                        "weight" => share.weight = *value,
                        "iops" => share.iops = *value,
                        BURST => share.burst_ms = *value,
                        _ => share.kbps = *value,
                    };
                    clients.set_share(client.as_deref(), change, algorithm);
                }
            }
        }
    });
    Ok(())
}

/// Sets what clients may have to these shares alone.
pub(super) fn only_shares(hub: &mut DiskQueue, shares: &[ShareOption]) -> Result<(), Error> {
    hub.configure(|algorithm, clients| {
        let own: Vec<String> = clients.shares().1.map(|(client, _)| client.to_owned()).collect();
        own.iter().for_each(|client| clients.unset_share(client, algorithm));
        clients.set_share(None, |share| *share = Share::default(), algorithm);
    });
    set_shares(hub, shares)
}

/// The option string from which [`read`] makes the current options. `None` if all are defaults.
pub(super) fn text(hub: &DiskQueue) -> Option<String> {
    let usual: Vec<_> = match algorithms::make(hub.algorithm_name) {
        Ok((_, algorithm)) => algorithm.knobs().all().collect(),
        Err(_) => Vec::new(),
    };
    let set = hub.algorithm().knobs().all().filter(|knob| !usual.contains(knob));
    let mut words: Vec<String> = set.map(|(key, value)| format!("{key}={value}")).collect();
    let (all, own) = hub.clients.shares();
    let differs = |share: Share, from: Share| {
        let pairs = share.numbers().into_iter().zip(from.numbers());
        pairs.filter(|(is, was)| is != was).map(|(is, _)| is).collect::<Vec<_>>()
    };
    // `burst_ms` alone is the algorithm's.
    let bare = differs(all, Share::default());
    words.extend(bare.iter().map(|(key, value)| format!("{key}={value}")));
    for (client, share) in own {
        let mut keys = differs(share, all);
        if keys.is_empty() {
            keys.push(("weight", share.weight));
        }
        words.extend(keys.iter().map(|(key, value)| format!("{client}.{key}={value}")));
    }
    (!words.is_empty()).then(|| words.join(","))
}

/// Whether so many clients may have shares of their own, at each step.
pub(super) fn check_share_limit(hub: &DiskQueue, shares: &[ShareOption]) -> Result<(), Error> {
    let mut own: BTreeSet<&str> = hub.clients.shares().1.map(|(client, _)| client).collect();
    for option in shares {
        match option {
            ShareOption::Unset(client) => drop(own.remove(client.as_str())),
            ShareOption::Set(Some(client), ..) => drop(own.insert(client)),
            ShareOption::Set(None, ..) => {}
        }
        if own.len() > SHARES_MAX {
            let what = format!(
                "{SHARES_MAX} clients have shares of their own already; CLIENT={DEFAULT} takes \
                 one away"
            );
            return Err(Error::new(Errno::NoSpc, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_text_is_parsed_and_checked() {
        let read = |text| super::read(Some(text));
        let set = |client: Option<&str>, name, value| {
            ShareOption::Set(client.map(str::to_owned), name, value)
        };
        let all = read("quantum_kb=64, weight=5,7.iops=100").expect("good");
        assert_eq!(all.knobs, [("quantum_kb".to_owned(), 64)]);
        assert_eq!(all.shares, [set(None, "weight", 5), set(Some("7"), "iops", 100)]);
        let named = read("iqn.2026-11.x:a/3.weight=200").expect("an initiator's LUN");
        assert_eq!(named.shares, [set(Some("iqn.2026-11.x:a/3"), "weight", 200)]);
        let task = read("x=1 mirror rebuild gm0.weight=7  y=2,z=3").expect("a pass");
        assert_eq!(task.shares, [set(Some("mirror rebuild gm0"), "weight", 7)]);
        assert_eq!(task.knobs.len(), 3, "{task:?}");
        let burst = read("burst_ms=5,iqn.x.burst_ms=7").expect("of all, and of one");
        assert_eq!(burst.knobs, [("burst_ms".to_owned(), 5)]);
        assert_eq!(burst.shares, [set(Some("iqn.x"), "burst_ms", 7)]);
        let unset = read("iqn.2026-11.x:a/3=default,7=default").expect("two clients");
        let of = |client: &str| ShareOption::Unset(client.into());
        assert_eq!(unset.shares, [of("iqn.2026-11.x:a/3"), of("7")]);
        assert_eq!(super::read(None).expect("nothing"), Options::default());
        for bad in [
            "x",
            "x=1 y",
            "x=y",
            "7.depth=1",
            "weight=0",
            "weight=default",
            "kbps=99999999999999",
            "7.burst_ms=60001",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
