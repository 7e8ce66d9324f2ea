//! Records of geoms that no record on a disk describes: stripes and concatenations made by hand, a
//! `nop` with an offset. The bytes that such a geom shows depend on its members, their order, and
//! their layout, so these are recorded when it is made. A geom that has become another one, by an
//! edit or by a disk in another's place, is not made before the operator agrees.
//!
//! Invariants
//!  W1  No geom is made that shows other bytes than those of its record, unless it is named as
//!      consent. The same holds for several members that contain data and have no record. Members
//!      that are appended to a concatenation move no byte of it.
//!  W2  A record outlives the geom: a geom that is made again as it was needs no consent.
//!  W3  A record that cannot be read counts as none, and the journal reports it.
//!  W4  The first start of a version with these records, on a state folder of a version without
//!      them, accepts the configuration as it is.
//!  W5  The members of a geom that has records on its members are recorded here too. So no geom is
//!      made anew in its place of disks that never belonged to it, unless it is named as consent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bio::{Attr, Errno};
use engine::state_store::{self, SaveFuture, StateStore, save_channel};
use geom::{GraphControl, Topology};
use serde_json::{Value, json};

use crate::state_store::{ReportFn, document, read};

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "geoms";

/// Form of the record.
const LAYOUT: u64 = 1;

/// Geoms that are remembered; of more the first by name are forgotten.
const LAYOUTS_MAX: usize = 4096;

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the provider.
    pub name: String,
    /// Serial number of a disk; empty: it reports none, or is no disk, or is not there.
    pub ident: String,
}

impl Member {
    /// As the graph has it now.
    pub fn of(topology: &Topology, name: &str) -> Member {
        let found = topology.find(name);
        // A partition answers with the serial number of its disk.
        let is_disk = |p| topology.geom_of(p).is_some_and(|g| topology.consumers_of(g).is_empty());
        let ident = found.filter(|p| is_disk(*p)).and_then(|p| topology.attr(p, "GEOM::ident"));
        let ident = match ident {
            Some(Attr::Text(ident)) => ident,
            _ => String::new(),
        };
        Member { name: name.to_owned(), ident }
    }

    fn is_same(&self, other: &Member) -> bool {
        match self.ident.is_empty() || other.ident.is_empty() {
            true => self.name == other.name,
            false => self.ident == other.ident,
        }
    }

    fn show(&self) -> String {
        match self.ident.is_empty() {
            true => self.name.clone(),
            false => format!("{} (serial number {})", self.name, self.ident),
        }
    }
}

/// How a geom is put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeomLayout {
    /// Where the bytes of members are ([`geom::Class::layout`]).
    pub layout: String,
    /// In their order.
    pub members: Vec<Member>,
}

impl GeomLayout {
    /// Why it shows other bytes than `self` did; None: it shows the same.
    fn differs(&self, now: &GeomLayout) -> Option<String> {
        if self.layout != now.layout {
            return Some(format!("layout changes from {} to {}", self.layout, now.layout));
        }
        let same = self.members.len() == now.members.len()
            && self.members.iter().zip(&now.members).all(|(was, is)| was.is_same(is));
        let show = |all: &[Member]| all.iter().map(Member::show).collect::<Vec<_>>().join(", ");
        (!same).then(|| {
            format!("members change from {} to {}", show(&self.members), show(&now.members))
        })
    }
}

/// Class and name of a geom.
type Key = (String, String);
type LayoutMap = BTreeMap<Key, GeomLayout>;

/// See the module.
pub struct GeomLayouts {
    store: Arc<dyn StateStore>,
    report: Arc<ReportFn>,
    all: LayoutMap,
    /// W4
    inherits: bool,
}

impl GeomLayouts {
    /// Loads the stored records (W3). The callback receives messages for people.
    pub fn load(store: Arc<dyn StateStore>, tell: Arc<ReportFn>) -> GeomLayouts {
        let kept = read(&*store, SERIAL, state_store::RecordKind::GeomLayouts, |bytes| {
            decode(bytes).map(Some)
        });
        let kept = kept.unwrap_or_else(|why| {
            let text = format!(
                "recorded layouts of stripes and concatenations: cannot be read ({why}); those \
                 with data on their members wait for consent"
            );
            tell("daemon", text);
            Some(LayoutMap::new())
        });
        let inherits = kept.is_none() && store.was_used();
        let is_new = kept.is_none();
        let wholes = GeomLayouts { store, report: tell, all: kept.unwrap_or_default(), inherits };
        if let Some(saved) = is_new.then(|| wholes.begin_store()).flatten() {
            wholes.end_store("no geom", saved.wait());
        }
        wholes
    }

    /// Whether unknown geoms of the configuration are accepted while the daemon starts (W4).
    pub fn inherits(&self) -> bool {
        self.inherits
    }

    /// Whether it is known how a geom was put together.
    pub fn has_record(&self, class: &str, name: &str) -> bool {
        self.all.contains_key(&(class.to_owned(), name.to_owned()))
    }

    /// The number of members that a geom was made of.
    pub fn count(&self, class: &str, name: &str) -> Option<usize> {
        self.all.get(&(class.to_owned(), name.to_owned())).map(|layout| layout.members.len())
    }

    /// Why a geom shows other bytes than it did; None: it is as it was, or nothing is known of it.
    pub fn differs(&self, class: &str, name: &str, now: &GeomLayout) -> Option<String> {
        self.all.get(&(class.to_owned(), name.to_owned()))?.differs(now)
    }

    /// The former members of a geom of records, if none of the present ones is among them: it would
    /// be made anew.
    pub fn lost_members(&self, class: &str, name: &str, members: &[Member]) -> Option<String> {
        let was = &self.all.get(&(class.to_owned(), name.to_owned()))?.members;
        let known = was.iter().any(|was| members.iter().any(|is| was.is_same(is)));
        let show = was.iter().map(Member::show).collect::<Vec<_>>().join(", ");
        (!known && !was.is_empty()).then_some(show)
    }

    /// A geom is put together so; waits for the disk, once a change. The control thread answers
    /// questions meanwhile.
    pub fn record(
        &mut self,
        control: &mut GraphControl,
        (class, name): (&str, &str),
        layout: GeomLayout,
    ) {
        let key = (class.to_owned(), name.to_owned());
        if self.all.get(&key) == Some(&layout) {
            return;
        }
        if self.all.len() >= LAYOUTS_MAX && !self.all.contains_key(&key) {
            self.all.pop_first();
        }
        self.all.insert(key, layout);
        self.store(control, &format!("{class} {name}"));
    }

    /// Providers have other names: members follow. A partition has no serial number of its own, and
    /// would be taken for another member.
    pub fn rename(&mut self, control: &mut GraphControl, names: &[(String, String)]) {
        let before = self.all.clone();
        for member in self.all.values_mut().flat_map(|layout| &mut layout.members) {
            if let Some((_, to)) = names.iter().find(|(from, _)| *from == member.name) {
                member.name.clone_from(to);
            }
        }
        if self.all != before {
            self.store(control, "a geom on a renamed disk");
        }
    }

    fn store(&self, control: &mut GraphControl, what: &str) {
        if let Some(saved) = self.begin_store() {
            self.end_store(what, control.wait_for(saved));
        }
    }

    fn begin_store(&self) -> Option<SaveFuture> {
        if !self.store.is_persistent() {
            return None;
        }
        let (done, saved) = save_channel();
        self.store.save(SERIAL, state_store::RecordKind::GeomLayouts, encode(&self.all), done);
        Some(saved)
    }

    fn end_store(&self, what: &str, saved: Result<(), Errno>) {
        if let Err(e) = saved {
            let text = format!(
                "layout of {what}: not saved ({e}); the next start may need consent. Repair the \
                 state folder: `state` in [daemon] names it"
            );
            (self.report)("daemon", text);
        }
    }
}

fn encode(all: &LayoutMap) -> Vec<u8> {
    let member = |m: &Member| json!({ "name": m.name, "ident": m.ident });
    let one = |((class, name), layout): (&Key, &GeomLayout)| {
        let members: Vec<Value> = layout.members.iter().map(member).collect();
        json!({ "class": class, "name": name, "layout": layout.layout, "members": members })
    };
    let all: Vec<Value> = all.iter().map(one).collect();
    json!({ "layout": LAYOUT, "geoms": all }).to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<LayoutMap> {
    let all = document(bytes, LAYOUT)?;
    let text = |of: &Value, key: &str| of.get(key)?.as_str().map(str::to_owned);
    let one = |one: &Value| {
        let member = |m: &Value| Some(Member { name: text(m, "name")?, ident: text(m, "ident")? });
        let members = one.get("members")?.as_array()?.iter().map(member).collect::<Option<_>>()?;
        let layout = GeomLayout { layout: text(one, "layout")?, members };
        Some(((text(one, "class")?, text(one, "name")?), layout))
    };
    all.get("geoms")?.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geom_layout(layout: &str, members: &[(&str, &str)]) -> GeomLayout {
        let member = |(name, ident): &(&str, &str)| Member {
            name: (*name).to_owned(),
            ident: (*ident).to_owned(),
        };
        GeomLayout { layout: layout.to_owned(), members: members.iter().map(member).collect() }
    }

    #[test]
    fn members_are_compared_by_serial_number_else_by_name() {
        let was = geom_layout("strips of 65536 bytes", &[("a", "1"), ("b", ""), ("c", "3")]);
        for (now, same) in [
            (geom_layout("strips of 65536 bytes", &[("a", "1"), ("b", ""), ("c", "3")]), true),
            (geom_layout("strips of 65536 bytes", &[("x", "1"), ("b", "2"), ("c", "")]), true),
            (geom_layout("strips of 65536 bytes", &[("a", "9"), ("b", ""), ("c", "3")]), false),
            (geom_layout("strips of 65536 bytes", &[("b", ""), ("a", "1"), ("c", "3")]), false),
            (geom_layout("strips of 65536 bytes", &[("a", "1"), ("b", "")]), false),
            (geom_layout("strips of 4096 bytes", &[("a", "1"), ("b", ""), ("c", "3")]), false),
        ] {
            assert_eq!(was.differs(&now).is_none(), same, "{now:?}");
        }
    }

    #[test]
    fn members_follow_a_renamed_disk() {
        let tell: Arc<ReportFn> = Arc::new(|_: &str, text: String| panic!("{text}"));
        let mut wholes = GeomLayouts::load(engine::Registry::new().state_store(), tell);
        let wait = Box::new(|inbox: &geom::Inbox, most| inbox.sleep(most));
        let mut control = GraphControl::new(Vec::new(), Arc::default(), wait, Box::new(|| 0));
        let layout = geom_layout("strips", &[("d0p1", ""), ("d1", "1")]);
        wholes.record(&mut control, ("stripe", "s"), layout);
        let renames = [("d0", "x"), ("d0p1", "xp1")];
        let names = renames.map(|(from, to)| (from.to_owned(), to.to_owned()));
        wholes.rename(&mut control, &names);
        let now = geom_layout("strips", &[("xp1", ""), ("d1", "1")]);
        assert_eq!(wholes.differs("stripe", "s", &now), None);
        let was = geom_layout("strips", &[("d0p1", ""), ("d1", "1")]);
        assert!(wholes.differs("stripe", "s", &was).is_some());
    }

    #[test]
    fn w3_record_decodes_unchanged_or_not_at_all() {
        let key = ("stripe".to_owned(), "s \"é\"".to_owned());
        let all = LayoutMap::from([(key, geom_layout("strips", &[("a", "1"), ("b", "")]))]);
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(decode(&encode(&LayoutMap::new())), Some(LayoutMap::new()));
        assert_eq!(decode(br#"{"layout":2,"geoms":[]}"#), None);
        assert_eq!(decode(br#"{"layout":1,"geoms":[{"class":"stripe"}]}"#), None);
        assert_eq!(decode(b"{\"layout\":1"), None);
    }
}
