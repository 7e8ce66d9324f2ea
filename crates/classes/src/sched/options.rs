//! Option strings of a scheduler, for example `quantum_kb=4096,weight=50,7.weight=200`.
//!
//! A bare `weight`, `iops` or `kbps` applies to every client that has none of its own. With a
//! client in front it applies to that client. `burst_ms` with a client in front does so too; a bare
//! `burst_ms` belongs to the algorithm and applies to all. The name of a client depends on the
//! attribute that distinguishes clients: the number of a session or process, an initiator, or an
//! initiator and its LUN (`iqn.x/3`). A background pass has a name with spaces (`mirror rebuild
//! gm0`). `CLIENT=default` removes the options of one client. All other options belong to the
//! algorithm.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bio::Errno;
use geom::Error;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::algorithms::{self, Knob, Share, WEIGHT};
use super::clients::SHARES_MAX;
use super::queue::DiskQueue;

/// Options of a single client. Largest limits: what no disk does. Largest weight: a hundred
/// thousand times the smallest.
const SHARES: &[Knob] = &[
    Knob { name: "weight", min: 1, default: WEIGHT, max: 100_000, doc: "share beside others" },
    Knob { name: "iops", min: 0, default: 0, max: 1_000_000_000, doc: "requests/s, 0: any" },
    Knob { name: "kbps", min: 0, default: 0, max: 1 << 40, doc: "KiB/s, 0: any" },
    Knob { name: BURST, min: 0, default: 0, max: 60_000, doc: "as that of the algorithm" },
];
/// Of one client; of all it belongs to the algorithm.
const BURST: &str = "burst_ms";
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) knobs: Vec<(String, u64)>,
    pub(super) shares: Vec<ShareOption>,
}

impl Options {
    pub(super) fn is_empty(&self) -> bool {
        self.knobs.is_empty() && self.shares.is_empty()
    }

    /// Those of a text.
    fn parse(text: &str) -> Result<Options, Error> {
        let mut out = Options::default();
        for word in text.split(',').flat_map(options) {
            let Some((key, value)) = word.split_once('=') else {
                return Err(Error::inval(format!("option {word} is not KEY=VALUE")));
            };
            out.add(key, value)?;
        }
        Ok(out)
    }

    /// Those of a table.
    fn of_table(table: &Map<String, Value>) -> Result<Options, Error> {
        let mut out = Options::default();
        for (key, value) in table {
            match value {
                Value::String(text) => out.add(key, text)?,
                value => out.add(key, &value.to_string())?,
            }
        }
        Ok(out)
    }

    fn add(&mut self, key: &str, value: &str) -> Result<(), Error> {
        if self.knobs.len() + self.shares.len() >= OPTIONS_MAX {
            return Err(Error::inval(format!("more than {OPTIONS_MAX} options at once")));
        }
        if value == DEFAULT {
            if SHARES.iter().any(|share| share.name == key) {
                return Err(Error::inval(format!("option {key}: of whom? CLIENT={DEFAULT}")));
            }
            self.shares.push(ShareOption::Unset(key.to_owned()));
            return Ok(());
        }
        let number = value.parse::<u64>();
        let value =
            number.map_err(|_| Error::inval(format!("option {key}: {value} is not a number")))?;
        // An initiator's name has dots too.
        let (client, name) = match key.rsplit_once('.') {
            Some((client, name)) if !client.is_empty() => (Some(client.to_owned()), name),
            _ => (None, key),
        };
        let is_own = |share: &&Knob| share.name == name && (name != BURST || client.is_some());
        match SHARES.iter().find(is_own) {
            Some(share) => {
                let Knob { name, min, max, .. } = *share;
                if !(min..=max).contains(&value) {
                    return Err(Error::inval(format!("{name} must be between {min} and {max}")));
                }
                self.shares.push(ShareOption::Set(client, name, value));
            }
            None if client.is_some() => {
                let names: Vec<&str> = SHARES.iter().map(|share| share.name).collect();
                let what = format!("option {key}: a client has {}", names.join(", "));
                return Err(Error::inval(what));
            }
            None => self.knobs.push((key.to_owned(), value)),
        }
        Ok(())
    }

    /// The options of a queue that are not defaults.
    pub(super) fn of(hub: &DiskQueue) -> Options {
        let usual: Vec<_> = match algorithms::make(hub.algorithm_name) {
            Ok((_, algorithm)) => algorithm.knobs().all().collect(),
            Err(_) => Vec::new(),
        };
        let set = hub.algorithm().knobs().all().filter(|knob| !usual.contains(knob));
        let knobs = set.map(|(key, value)| (key.to_owned(), value)).collect();
        let (all, own) = hub.clients.shares();
        let differs = |share: Share, from: Share| {
            let pairs = share.numbers().into_iter().zip(from.numbers());
            pairs.filter(|(is, was)| is != was).map(|(is, _)| is).collect::<Vec<_>>()
        };
        // `burst_ms` alone is the algorithm's.
        let bare = differs(all, Share::default()).into_iter();
        let mut shares: Vec<ShareOption> =
            bare.map(|(key, value)| ShareOption::Set(None, key, value)).collect();
        for (client, share) in own {
            let mut keys = differs(share, all);
            if keys.is_empty() {
                keys.push(("weight", share.weight));
            }
            let of_client = |(key, value)| ShareOption::Set(Some(client.to_owned()), key, value);
            shares.extend(keys.into_iter().map(of_client));
        }
        Options { knobs, shares }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knobs = self.knobs.iter().map(|(key, value)| format!("{key}={value}"));
        let shares = self.shares.iter().map(|share| match share {
            ShareOption::Set(None, key, value) => format!("{key}={value}"),
            ShareOption::Set(Some(client), key, value) => format!("{client}.{key}={value}"),
            ShareOption::Unset(client) => format!("{client}={DEFAULT}"),
        });
        f.write_str(&knobs.chain(shares).collect::<Vec<_>>().join(","))
    }
}

impl Serialize for Options {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Options, D::Error> {
        let read = match Value::deserialize(from)? {
            Value::Null => Ok(Options::default()),
            Value::String(text) => Options::parse(&text),
            Value::Object(table) => Options::of_table(&table),
            other => Err(Error::inval(format!("{other} is neither KEY=VALUE nor a table"))),
        };
        read.map_err(|e| D::Error::custom(e.message))
    }
}

impl JsonSchema for Options {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SchedOptions".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": properties(),
                    "additionalProperties": { "type": ["integer", "string"] },
                },
            ],
        })
    }
}

/// Schemas of the options without a client in front. The range of an option that several algorithms
/// have contains all of theirs.
fn properties() -> Map<String, Value> {
    let of_kind = |kind: &'static algorithms::Kind| {
        let text = move |knob: &Knob| format!("{}: {}, {}", kind.name, knob.doc, knob.range());
        kind.knobs.iter().map(move |knob| (knob, text(knob)))
    };
    let knobs = algorithms::ALL.iter().flat_map(of_kind);
    let shares = SHARES.iter().filter(|share| share.name != BURST);
    let shares =
        shares.map(|share| (share, format!("every client: {}, {}", share.doc, share.range())));
    let mut all = BTreeMap::new();
    for (knob, text) in knobs.chain(shares) {
        let (min, max, texts) = all.entry(knob.name).or_insert((knob.min, knob.max, Vec::new()));
        (*min, *max) = (knob.min.min(*min), knob.max.max(*max));
        texts.push(text);
    }
    let schema = |(name, (min, max, texts)): (&str, (u64, u64, Vec<String>))| {
        let text = texts.join("; ");
        let schema =
            json!({ "type": "integer", "minimum": min, "maximum": max, "description": text });
        (name.to_owned(), schema)
    };
    all.into_iter().map(schema).collect()
}

/// The options of each algorithm with their ranges and defaults, for help.
pub(super) fn help() -> String {
    let of_kind = |kind: &algorithms::Kind| {
        let knobs: Vec<String> =
            kind.knobs.iter().map(|knob| format!("{} {}", knob.name, knob.range())).collect();
        format!("{}: {}.", kind.name, knobs.join(", "))
    };
    let kinds: Vec<String> = algorithms::ALL.iter().map(of_kind).collect();
    format!(
        "Options of the algorithms, with minimum, maximum and default. {} Only fair uses weight, \
         iops, kbps and a client's burst_ms.",
        kinds.join(" ")
    )
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

/// Sets the shares of clients, all or none. Callers that change more call [`check_share_limit`]
/// before.
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

/// Sets options of the algorithm that [`super::queue::algorithm`] accepts for it.
pub(super) fn set_knobs<'k>(
    hub: &mut DiskQueue,
    knobs: impl IntoIterator<Item = (&'k str, u64)>,
) -> Result<(), Error> {
    hub.configure(|algorithm, _| {
        let set = |(key, value)| algorithm.knobs_mut().set(key, value).map_err(Error::inval);
        knobs.into_iter().try_for_each(set)
    })
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
        let read = Options::parse;
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
        assert_eq!(read("").expect("nothing"), Options::default());
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
    #[test]
    fn options_have_the_same_value_as_text_and_as_table() {
        let read = |value: Value| Options::deserialize(value).map_err(|e| e.to_string());
        let text = "queue_depth=4,weight=50,7.iops=100,iqn.x=default";
        let all = read(json!(text)).expect("a text");
        assert_eq!(json!(all), json!(text));
        let table = json!({ "queue_depth": 4, "weight": 50, "7.iops": 100, "iqn.x": "default" });
        let mut of_table = read(table).expect("a table");
        of_table.shares.sort_by_key(|share| text.find(&share_text(share)));
        assert_eq!(of_table, all);
        assert_eq!(read(Value::Null), Ok(Options::default()));
        for (wrong, key) in
            [(json!({ "weight": 0 }), "weight"), (json!({ "wait_ms": [1] }), "wait_ms")]
        {
            let refused = read(wrong).expect_err("it is refused");
            assert!(refused.contains(key), "{refused}");
        }
        assert!(read(json!(7)).expect_err("a number").contains("neither"));
    }

    fn share_text(share: &ShareOption) -> String {
        Options { knobs: Vec::new(), shares: vec![share.clone()] }.to_string()
    }

    #[test]
    fn schema_and_help_have_the_range_of_each_option() {
        let schema = geom::schema_of::<Options>();
        let keys = &schema["anyOf"][1]["properties"];
        for kind in algorithms::ALL {
            for knob in kind.knobs {
                let of = &keys[knob.name];
                assert!(of["minimum"].as_u64().is_some_and(|min| min <= knob.min), "{of}");
                assert!(of["maximum"].as_u64().is_some_and(|max| max >= knob.max), "{of}");
                let text = of["description"].as_str().expect("a description");
                let own = format!("{}: {}, {}", kind.name, knob.doc, knob.range());
                assert!(text.split("; ").any(|part| part == own), "{own}: {text}");
            }
        }
        assert_eq!(keys["queue_depth"]["maximum"], 4096);
        assert_eq!(keys["weight"]["minimum"], 1);
        let help = help();
        assert!(help.contains(" rr: queue_depth 1 to 50 (1), wait_ms 1 to 30 (10), "), "{help}");
        assert!(help.ends_with("Only fair uses weight, iops, kbps and a client's burst_ms."));
    }
}
