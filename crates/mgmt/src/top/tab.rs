//! Tabs of `top`: the kinds of objects, and the counters of each.

use crate::api::{CoreState, SessionState, Stats, SystemState, TargetState};
use crate::object_id::{LUN_CLASS, core_id};
use reactor::Address;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Kind of the shown objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tab {
    /// Providers of disks and layers.
    #[default]
    All,
    /// Disks.
    Disks,
    /// Providers of geoms above disks.
    Layers,
    /// Units of LUNs, by provider.
    Luns,
    /// Initiators, by target and host.
    Initiators,
    /// Reactors; busy is their CPU time.
    Cores,
}

/// An object and its counters.
pub struct Counted<'s> {
    /// Name, unique among the objects of a tab.
    pub name: Cow<'s, str>,
    /// Class of its geom; `session` or `core` for others.
    pub class: &'s str,
    /// Rank of its geom; 0 for others.
    pub rank: u32,
    /// Its counters.
    pub stats: Cow<'s, Stats>,
}

impl Tab {
    /// All tabs, in the order of their keys.
    pub const ALL: [Tab; 6] =
        [Tab::All, Tab::Disks, Tab::Layers, Tab::Luns, Tab::Initiators, Tab::Cores];

    /// The word of the tab.
    pub const fn label(self) -> &'static str {
        match self {
            Tab::All => "all",
            Tab::Disks => "disks",
            Tab::Layers => "layers",
            Tab::Luns => "LUNs",
            Tab::Initiators => "initiators",
            Tab::Cores => "cores",
        }
    }

    /// The tab that has the objects of this one and maybe others.
    pub const fn widest(self) -> Tab {
        match self {
            Tab::Disks | Tab::Layers => Tab::All,
            other => other,
        }
    }

    /// The tab so many places further, or back.
    pub fn moved(self, by: isize) -> Tab {
        let at = Tab::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        let to = (at as isize + by).rem_euclid(Tab::ALL.len() as isize);
        usize::try_from(to).ok().and_then(|to| Tab::ALL.get(to)).copied().unwrap_or_default()
    }

    /// The objects of the tab in a state.
    pub fn objects(self, state: &SystemState) -> Vec<Counted<'_>> {
        match self {
            Tab::All => providers(state, |_| true),
            Tab::Disks => providers(state, |rank| rank <= 1),
            Tab::Layers => providers(state, |rank| rank > 1),
            Tab::Luns => units(state),
            Tab::Initiators => initiators(state),
            Tab::Cores => cores(state),
        }
    }
}

fn providers(state: &SystemState, shows: impl Fn(u32) -> bool) -> Vec<Counted<'_>> {
    let geoms = state.geoms.iter().filter(|geom| shows(geom.rank));
    let all = geoms.flat_map(|geom| geom.providers.iter().map(move |p| (geom, p)));
    all.map(|(geom, provider)| Counted {
        name: Cow::Borrowed(&provider.name),
        class: &geom.class,
        rank: geom.rank,
        stats: Cow::Borrowed(&provider.stats),
    })
    .collect()
}

fn units(state: &SystemState) -> Vec<Counted<'_>> {
    let geoms = state.geoms.iter().filter(|geom| geom.class == LUN_CLASS);
    let all = geoms.flat_map(|geom| {
        geom.consumers.iter().filter_map(move |c| Some((geom, c.provider.as_deref()?, c)))
    });
    all.map(|(geom, provider, consumer)| Counted {
        name: Cow::Borrowed(provider),
        class: &geom.class,
        rank: geom.rank,
        stats: Cow::Borrowed(&consumer.stats),
    })
    .collect()
}

/// `INITIATOR HOST TARGET` of a session, without the port, which is another one after each login.
fn initiator_of(target: &TargetState, session: &SessionState) -> String {
    let host = session.address.parse::<Address>();
    let host = host.map_or_else(|_| session.address.clone(), |at| at.host());
    format!("{} {host} {}", session.initiator, target.name)
}

fn initiators(state: &SystemState) -> Vec<Counted<'_>> {
    let mut sums: BTreeMap<String, Cow<'_, Stats>> = BTreeMap::new();
    for (target, session) in state.sessions() {
        let sum = sums.entry(initiator_of(target, session));
        sum.and_modify(|sum| *sum = Cow::Owned(sum.plus(&session.stats)))
            .or_insert(Cow::Borrowed(&session.stats));
    }
    let one = |(name, stats)| Counted { name: Cow::Owned(name), class: "session", rank: 0, stats };
    sums.into_iter().map(one).collect()
}

fn cores(state: &SystemState) -> Vec<Counted<'_>> {
    let one = |(number, core): (usize, &CoreState)| Counted {
        name: Cow::Owned(core_id(number)),
        class: "core",
        rank: 0,
        stats: Cow::Owned(Stats { busy_ns: core.busy_ns, ..Stats::default() }),
    };
    state.daemon.cores.iter().enumerate().map(one).collect()
}
