//! options: `quantum_kb=4096,weight=50,7.weight=200` as somebody types them.
//!
//! A bare `weight`, `iops` or `kbps` is for every client that has none of its own; with a client
//! before it, for that one, as is `burst_ms`, which is the algorithm's for all. What a client is
//! called depends on what clients are told apart by: the number of a session or process, an
//! initiator, an initiator and its LUN (`iqn.x/3`), or a pass in the background, which has spaces
//! in its name (`mirror rebuild gm0`).
//! Everything else belongs to the algorithm.

use bio::Errno;
use geom::Error;

use super::algorithms::Share;
use super::class::inval;
use super::clients::SHARES_MAX;
use super::hub::Hub;

/// What a client may have that can be set.
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

/// One number of what a client may have: of which client, which, how much.
pub(super) type ShareOption = (Option<String>, &'static str, u64);

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
            return Err(inval(format!("more than {OPTIONS_MAX} options at once")));
        }
        let Some((key, value)) = word.split_once('=') else {
            return Err(inval(format!("option {word} is not KEY=VALUE")));
        };
        let number = value.parse::<u64>();
        let value = number.map_err(|_| inval(format!("option {key}: {value} is not a number")))?;
        // An initiator's name has dots too.
        let (client, name) = match key.rsplit_once('.') {
            Some((client, name)) if !client.is_empty() => (Some(client.to_owned()), name),
            _ => (None, key),
        };
        let is_own = |share: &&&str| **share == name && (name != BURST || client.is_some());
        match SHARES.iter().find(is_own) {
            Some(share) => out.shares.push((client, checked(share, value)?, value)),
            None if client.is_some() => {
                let what = format!("option {key}: a client has {}", SHARES.join(", "));
                return Err(inval(what));
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
        false => Err(inval(format!("{name} lies between {least} and {most}"))),
    }
}

/// Sets what clients may have.
pub(super) fn set_shares(hub: &mut Hub, shares: &[ShareOption]) -> Result<(), Error> {
    for (client, name, value) in shares {
        let change = |share: &mut Share| match *name {
            "weight" => share.weight = *value,
            "iops" => share.iops = *value,
            BURST => share.burst_ms = *value,
            _ => share.kbps = *value,
        };
        let set = hub.configure(|algorithm, clients| {
            clients.set_share(client.as_deref(), change, algorithm)
        });
        if !set {
            let what = format!("{SHARES_MAX} clients have shares of their own already");
            return Err(Error::new(Errno::NoSpc, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_split_up_and_checked() {
        let read = |text| super::read(Some(text));
        let all = read("quantum_kb=64, weight=5,7.iops=100").expect("good");
        assert_eq!(all.knobs, [("quantum_kb".to_owned(), 64)]);
        assert_eq!(all.shares, [(None, "weight", 5), (Some("7".into()), "iops", 100)]);
        let named = read("iqn.2026-11.x:a/3.weight=200").expect("an initiator's LUN");
        assert_eq!(named.shares, [(Some("iqn.2026-11.x:a/3".into()), "weight", 200)]);
        let task = read("x=1 mirror rebuild gm0.weight=7  y=2,z=3").expect("a pass");
        assert_eq!(task.shares, [(Some("mirror rebuild gm0".into()), "weight", 7)]);
        assert_eq!(task.knobs.len(), 3, "{task:?}");
        let burst = read("burst_ms=5,iqn.x.burst_ms=7").expect("of all, and of one");
        assert_eq!(burst.knobs, [("burst_ms".to_owned(), 5)]);
        assert_eq!(burst.shares, [(Some("iqn.x".into()), "burst_ms", 7)]);
        assert_eq!(super::read(None).expect("nothing"), Options::default());
        for bad in [
            "x",
            "x=1 y",
            "x=y",
            "7.depth=1",
            "weight=0",
            "kbps=99999999999999",
            "7.burst_ms=60001",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
