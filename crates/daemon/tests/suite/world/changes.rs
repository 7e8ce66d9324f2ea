//! Actions of the control thread, one after the other.

use std::rc::Rc;

use bio::{Errno, Extent};
use engine::lun::{OpenSpec, close_device, open_device};
use engine::registry::Former;
use engine::{GroupSpec, Label, LunSpec};
use geom::{Class, Create};
use reactor::model::{DiskOp, Fault};
use serde_json::json;

use crate::world::agent::Agent;
use crate::world::model::{BlockRange, OPEN, UNIT};
use crate::world::nbd::Client;
use crate::world::rights::Tidings;
use crate::world::rules::{Act, CommandOutcome};
use crate::world::shared::{GROUPS, Rights, Unit};
use crate::world::sim::{DISKS, MS, PLAIN_BLOCKS_MAX, Part, SLOT_BLOCKS, SLOTS, Sim, slot_first};
use crate::world::stack::TargetEdits;
use crate::world::unit_attentions::{CAPACITY_CHANGED, Code, LUNS_CHANGED, SESSION, Source};

const RIGHTS: [Rights; 3] = [Rights::None, Rights::Read, Rights::Write];

/// The configuration of the same for every initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrangement {
    /// A group has the names of its initiators.
    #[default]
    Names,
    /// The groups have other names.
    Renamed,
    /// The patterns fit more initiators than there are.
    Patterns,
    /// Each initiator has a group of its own.
    Own,
}

impl Arrangement {
    fn next(self) -> Arrangement {
        match self {
            Arrangement::Names => Arrangement::Renamed,
            Arrangement::Renamed => Arrangement::Patterns,
            Arrangement::Patterns => Arrangement::Own,
            Arrangement::Own => Arrangement::Names,
        }
    }

    fn of(self, group: GroupSpec) -> Vec<GroupSpec> {
        match self {
            Arrangement::Names => vec![group],
            Arrangement::Renamed => {
                let name = format!("new-{}", group.name);
                vec![GroupSpec { name, ..group }]
            }
            Arrangement::Patterns => {
                let initiators = group.initiators.iter().map(|name| format!("{name}*")).collect();
                vec![GroupSpec { initiators, ..group }]
            }
            Arrangement::Own => {
                let own = |name: &String| GroupSpec {
                    name: name.clone(),
                    initiators: vec![name.clone()],
                    ..group.clone()
                };
                group.initiators.iter().map(own).collect()
            }
        }
    }
}

impl Sim {
    /// One change, or a pause.
    pub fn step(&mut self) {
        if self.asymmetric && self.random.chance(100) {
            return self.change_access();
        }
        match self.below(100) {
            0..48 => {
                let ns = self.below(300 * MS);
                // No random number is drawn for them, so that the seeds of old regressions keep
                // their runs.
                match ns % 8 {
                    0 => self.rename_and_back(DISKS[usize::from(ns.is_multiple_of(16))]),
                    1 if self.regroups => self.regroup(),
                    2 if self.edits => self.change_accounts(),
                    3 if self.edits => self.change_portals(),
                    _ => {}
                }
                self.stack().pass(ns);
            }
            48..58 => self.change_groups(),
            58..62 => self.export_plain(),
            62..65 => self.withdraw_some(),
            65..72 => self.add_partition(),
            72..75 => self.delete_partition(),
            75..79 => self.resize_partition(),
            79..82 => self.resize_plain(),
            82..86 => self.insert_nop(),
            86..89 => self.remove_nop(),
            89..93 if self.shared.forcing.get() => self.cut_disk_power(),
            89..93 => self.break_disk(),
            93..95 => self.cut_disk_power(),
            95..96 => self.kick(),
            96..98 => self.renew_target(),
            98 => self.restart(),
            _ => {
                let known = self.stack().partitions("d0").expect("a table");
                self.compare_table(&known);
            }
        }
        self.stack().control.topology.check();
    }

    fn some_rights(&mut self) -> Rights {
        RIGHTS[[0, 1, 2, 2][self.below(4) as usize]]
    }

    pub fn exported(&self) -> Vec<Rc<Unit>> {
        self.shared.units.borrow().iter().filter(|u| u.exported.get()).cloned().collect()
    }

    fn change_groups(&mut self) {
        let units = self.exported();
        let mut changes = Vec::new();
        for unit in &units {
            for group in 0..GROUPS {
                if self.random.chance(300) {
                    changes.push((unit.lun, group, self.some_rights()));
                }
            }
        }
        self.set_groups(&changes);
    }

    /// Gives groups other rights. While it is done, either may hold.
    pub fn set_groups(&mut self, changes: &[(usize, usize, Rights)]) {
        let units = self.shared.units.borrow().clone();
        let before: Vec<Vec<usize>> = (0..GROUPS).map(|g| visible(&units, g)).collect();
        for (lun, group, rights) in changes {
            let Some(unit) = units.iter().find(|u| u.lun == *lun) else { continue };
            self.log(|| format!("group {group} lun {lun}: {rights:?}"));
            let mut grants = unit.grants.get();
            if grants[*group].now == *rights {
                continue;
            }
            grants[*group].next = Some(*rights);
            unit.grants.set(grants);
            let agents = self.shared.agents.borrow();
            agents.iter().filter(|a| a.group == *group).for_each(|a| a.rights_move(unit, *rights));
            let clients = self.shared.clients.borrow();
            clients.iter().filter(|c| c.group == *group).for_each(|c| c.rights_move(unit, *rights));
        }
        let sources: Vec<u64> = (0..GROUPS).map(|_| self.tick()).collect();
        let hides = self.hide(&units);
        for (group, luns) in before.iter().enumerate() {
            let goes = |lun: &usize| {
                let unit = units.iter().find(|u| u.lun == *lun);
                unit.is_none_or(|u| u.grant(group).next == Some(Rights::None))
            };
            let stay = luns.iter().filter(|lun| !goes(lun)).copied();
            for lun in stay.chain([SESSION]) {
                self.source_begins(sources[group], Some(group), lun, LUNS_CHANGED);
            }
        }
        self.apply_groups(&units);
        self.stack().pass(MS);
        for unit in &units {
            let mut grants = unit.grants.get();
            for (group, grant) in grants.iter_mut().enumerate() {
                if let Some(next) = grant.next.take() {
                    grant.now = next;
                    self.moved(unit, group);
                }
            }
            unit.grants.set(grants);
        }
        for (group, before) in before.iter().enumerate() {
            let changed = visible(&units, group) != *before;
            self.source_ends(sources[group], changed);
        }
        for (agent, session, unit, op) in hides {
            // A session that has ended meanwhile keeps its RESERVE until its commands have.
            match agent.lives_as(session) {
                true => self.shared.act_ends(&unit, op, &CommandOutcome::Good, "hidden"),
                false => {
                    let now = self.tick();
                    unit.book.borrow_mut().over(op, now);
                }
            }
        }
    }

    fn apply_groups(&mut self, units: &[Rc<Unit>]) {
        for (driver, target) in self.stack().targets() {
            let specs = |g| self.arrangement.of(self.group_spec(driver, g, units));
            let specs: Vec<GroupSpec> = (0..GROUPS).flat_map(specs).collect();
            let set = self.stack().registry.set_groups(driver, target, &specs);
            set.unwrap_or_else(|e| panic!("groups of {driver}: {e}"));
        }
    }

    /// The same rights in other groups. Hosts must not notice it: the model does not change.
    fn regroup(&mut self) {
        self.arrangement = self.arrangement.next();
        self.log(|| format!("groups: {:?}", self.arrangement));
        let units = self.shared.units.borrow().clone();
        self.apply_groups(&units);
        self.stack().pass(MS);
        self.shared.mark("regroupings");
    }

    /// Accounts that no initiator uses are added or removed. Hosts must not notice it.
    fn change_accounts(&mut self) {
        let edits = self.stack().edits;
        let to = TargetEdits { accounts: !edits.accounts, ..edits };
        self.log(|| format!("more accounts: {}", to.accounts));
        self.stack().edit_target(to);
        self.stack().pass(MS);
        self.shared.mark("accounts changed");
    }

    /// A second portal is added or removed. Hosts must not notice it.
    fn change_portals(&mut self) {
        let edits = self.stack().edits;
        let to = TargetEdits { portal: !edits.portal, ..edits };
        self.log(|| format!("second portal: {}", to.portal));
        self.stack().edit_target(to);
        self.stack().pass(MS);
        self.shared.mark("portals changed");
    }

    /// Who loses sight of a unit loses its RESERVE.
    fn hide(&self, units: &[Rc<Unit>]) -> Vec<(Rc<Agent>, u64, Rc<Unit>, u64)> {
        let mut out = Vec::new();
        for agent in self.shared.agents.borrow().iter() {
            let goes = |u: &&Rc<Unit>| {
                u.grant(agent.group).next == Some(Rights::None)
                    && u.book.borrow().may_be_whole(agent.index)
            };
            for unit in units.iter().filter(goes) {
                let op = self.tick();
                self.shared.act_begins(agent, unit, op, Act::Hide);
                out.push((agent.clone(), agent.session.get(), unit.clone(), op));
            }
        }
        out
    }

    pub fn tick(&self) -> u64 {
        self.shared.model.borrow_mut().tick()
    }

    pub fn source_begins(&self, number: u64, group: Option<usize>, lun: usize, code: Code) {
        self.shared.source_begins(Source { number, lun, code, group, except: None });
    }

    pub fn source_ends(&self, number: u64, raised: bool) {
        if raised {
            self.shared.mark("changes to tell");
        }
        let tidings = if raised { Tidings::Sure } else { Tidings::None };
        self.shared.source_ends(number, None, tidings);
    }

    fn members(&self, driver: &str, group: usize) -> Vec<String> {
        if driver == "nbd" {
            return vec![Client::initiator(group)];
        }
        let agents = self.shared.agents.borrow();
        let members = agents.iter().filter(|a| a.group == group);
        let mut initiators: Vec<String> =
            members.map(|a| a.login_options.initiator.clone()).collect();
        initiators.sort();
        initiators.dedup();
        initiators
    }

    fn group_spec(&self, driver: &str, group: usize, units: &[Rc<Unit>]) -> GroupSpec {
        let initiators = self.members(driver, group);
        let mut luns = Vec::new();
        for unit in units.iter().filter(|u| u.exported.get()) {
            let grant = unit.grant(group);
            let rights = grant.next.unwrap_or(grant.now);
            if rights != Rights::None {
                let (lun, device) = (unit.lun as u64, unit.provider.clone());
                luns.push(LunSpec { lun, device, read_only: rights == Rights::Read });
            }
        }
        // The model of reservations knows one right to reserve for all.
        GroupSpec {
            name: format!("g{group}"),
            initiators,
            luns,
            read_only_reserves: true,
            ..GroupSpec::default()
        }
    }

    /// A tasting that a hanging disk delays keeps the geoms on a partition open, exclusively as a
    /// label does. In this case the open is retried.
    pub fn open_unit(&mut self, unit: &Unit) {
        let hung = self.shared.marks.borrow().0.contains_key("hangs");
        for _ in 0..20 {
            let serial = Some(unit.serial());
            let spec = OpenSpec { serial, ..OpenSpec::default() };
            let stack = self.stack();
            let opened = open_device(&mut stack.control, &stack.registry, &unit.provider, &spec);
            match opened {
                Ok(_) => return,
                Err(e) if hung && e.kind == Errno::Perm => {
                    self.log(|| format!("export {}: {e}", unit.provider));
                    self.stack().pass(500 * MS);
                }
                Err(e) => panic!("export {}: {e}", unit.provider),
            }
        }
        panic!("export {}: others hold it for ever", unit.provider);
    }

    fn export(&mut self, provider: &str, place: BlockRange, per: usize) {
        let unit = self.new_unit(provider, place, per);
        self.shared.mark("exports");
        self.log(|| format!("lun {} is {provider}: {place:?}", unit.lun));
        self.open_unit(&unit);
        let mut changes = Vec::new();
        for group in 0..GROUPS {
            changes.push((unit.lun, group, self.some_rights()));
        }
        self.set_groups(&changes);
    }

    fn export_plain(&mut self) {
        if self.exported().iter().any(|u| u.provider == "d1") {
            return;
        }
        let place = BlockRange { disk: 1, first: 0, count: self.plain_count };
        self.export("d1", place, self.plain_per);
    }

    /// Removes a unit from all groups and closes it.
    fn withdraw(&mut self, unit: &Rc<Unit>) {
        self.log(|| format!("lun {} goes", unit.lun));
        let none = |group| (unit.lun, group, Rights::None);
        let changes: Vec<_> = (0..GROUPS).map(none).collect();
        self.set_groups(&changes);
        unit.exported.set(false);
        let stack = self.stack();
        let closed = close_device(&mut stack.control, &stack.registry, &unit.provider);
        closed.unwrap_or_else(|e| panic!("close {}: {e}", unit.provider));
        unit.mode_moved(false);
        self.shared.mark("withdrawals");
    }

    fn withdraw_some(&mut self) {
        let units = self.exported();
        if !units.is_empty() {
            let at = self.below(units.len() as u64) as usize;
            self.withdraw(&units[at]);
        }
    }

    fn unit_of(&self, provider: &str) -> Option<Rc<Unit>> {
        self.exported().into_iter().find(|u| u.provider == provider)
    }

    /// A request to the class `part`. On a disk that fails or hangs an error is acceptable: the
    /// request is retried, and the contents of the table decide.
    fn part(&mut self, what: &str, request: serde_json::Value) -> bool {
        let error = match self.stack().part(request) {
            Ok(_) => {
                self.shared.mark("table changes");
                self.log(|| format!("part {what}"));
                return true;
            }
            Err(e) => e,
        };
        self.log(|| format!("part {what}: {error}"));
        let late = [Errno::TimedOut, Errno::Busy].contains(&error.kind);
        let hung = self.shared.marks.borrow().0.contains_key("hangs");
        assert!(self.shared.fails(0) || (late && hung), "part {what}: {error}");
        self.shared.mark("table changes failed");
        for _ in 0..20 {
            let again = self.stack().part(json!({ "op": "commit", "geom": "d0" }));
            let known = self.stack().partitions("d0");
            self.log(|| format!("part commit: {:?}, {known:?}", again.as_ref().err()));
            let nothing = again.as_ref().is_err_and(|e| e.kind == Errno::Perm);
            match known {
                Some(known) if again.is_ok() || nothing => {
                    self.compare_table(&known);
                    return false;
                }
                _ => self.stack().pass(500 * MS),
            }
        }
        panic!("part {what}: nobody knows what the disk holds");
    }

    fn add_partition(&mut self) {
        let slot = self.below(SLOTS as u64) as usize;
        let provider = format!("d0p{}", slot + 1);
        if let Some(part) = self.parts[slot] {
            if self.unit_of(&provider).is_none() {
                let place = BlockRange { disk: 0, first: slot_first(slot), count: part.count };
                self.export(&provider, place, 1);
            }
            return;
        }
        let count = (32 + self.below(SLOT_BLOCKS as u64 - 31)) as usize;
        self.doubt[slot].push(Some(count));
        let request = json!({
            "op": "add", "geom": "d0", "kind": "linux-data", "index": slot + 1,
            "start": { "sectors": slot_first(slot) }, "size": { "sectors": count },
        });
        if !self.part(&format!("add {provider}, {count} blocks"), request) {
            return;
        }
        self.doubt[slot].clear();
        self.parts[slot] = Some(Part { count });
        let place = BlockRange { disk: 0, first: slot_first(slot), count };
        self.export(&provider, place, 1);
    }

    fn delete_partition(&mut self) {
        let slot = self.below(SLOTS as u64) as usize;
        let provider = format!("d0p{}", slot + 1);
        if self.parts[slot].is_none() {
            return;
        }
        if let Some(unit) = self.unit_of(&provider) {
            self.withdraw(&unit);
        }
        self.doubt[slot].push(None);
        let request = json!({ "op": "delete", "geom": "d0", "index": slot + 1,
                              "yes_destroy": [provider] });
        if self.part(&format!("delete {provider}"), request) {
            self.doubt[slot].clear();
            self.parts[slot] = None;
            // Unused layers were removed with it.
            self.nop_names.retain(|(_, under)| *under != provider);
        }
    }

    fn resize_partition(&mut self) {
        let slot = self.below(SLOTS as u64) as usize;
        let Some(part) = self.parts[slot] else { return };
        let provider = format!("d0p{}", slot + 1);
        let count = (32 + self.below(SLOT_BLOCKS as u64 - 31)) as usize;
        // One that is in use only grows.
        if let Some(unit) = self.unit_of(&provider).filter(|_| count < part.count) {
            self.withdraw(&unit);
        }
        self.doubt[slot].push(Some(count));
        let unit = self.unit_of(&provider);
        let source = self.shrink_first(unit.as_ref(), count);
        let request = json!({
            "op": "resize", "geom": "d0", "index": slot + 1, "size": { "sectors": count },
        });
        let done = self.part(&format!("resize {provider} to {count} blocks"), request);
        if done {
            self.doubt[slot].clear();
            self.parts[slot] = Some(Part { count });
        }
        let count = self.parts[slot].map_or(count, |p| p.count);
        self.resized(unit.as_ref(), count, part.count, source);
    }

    /// From now on no command uses blocks that may be removed.
    fn shrink_first(&self, unit: Option<&Rc<Unit>>, count: usize) -> u64 {
        let source = self.tick();
        if let Some(unit) = unit {
            let place = unit.place.get();
            unit.resized.set(true);
            unit.place.set(BlockRange { count: place.count.min(count), ..place });
            for group in 0..GROUPS {
                if unit.grant(group).now != Rights::None {
                    self.source_begins(source, Some(group), unit.lun, CAPACITY_CHANGED);
                }
            }
        }
        source
    }

    fn resized(&self, unit: Option<&Rc<Unit>>, count: usize, before: usize, source: u64) {
        let Some(unit) = unit else { return };
        unit.place.set(BlockRange { count, ..unit.place.get() });
        if count != before {
            self.shared.mark("resizes");
        }
        self.source_ends(source, count != before);
    }

    /// A disk only grows: one that has become smaller is taken for lost.
    fn resize_plain(&mut self) {
        let (before, room) = (self.plain_count, PLAIN_BLOCKS_MAX - self.plain_count);
        let count = before + self.below(room as u64 + 1) as usize / 8 * 8;
        let unit = self.unit_of("d1");
        let source = self.shrink_first(unit.as_ref(), count);
        self.log(|| format!("d1 has {count} blocks, had {before}"));
        self.plain_count = count;
        self.outside.world.with_disk("d1", |d| d.set_size((count * UNIT) as u64));
        let stack = self.stack();
        let answer = stack.disks.clone().verb(&mut stack.control, "resize", "d1", &json!({}));
        answer.unwrap_or_else(|e| panic!("resize d1: {e}"));
        self.resized(unit.as_ref(), count, before, source);
    }

    fn insert_nop(&mut self) {
        let mut under = vec!["d0".to_owned(), "d1".to_owned()];
        under.extend((1..=SLOTS).map(|n| format!("d0p{n}")));
        let at = self.below(under.len() as u64) as usize;
        let Some(below) = self.stack().control.topology.find(&under[at]) else { return };
        self.nops += 1;
        let name = format!("nop{}", self.nops);
        let params = json!({});
        let request = Create { name: &name, members: &[], params: &params };
        let done = self.stack().control.insert("nop", below, &request);
        self.log(|| format!("{name} over {}: {:?}", under[at], done.as_ref().err()));
        match done {
            Ok(_) => {
                self.shared.mark("nops in");
                self.nop_names.push((name, under[at].clone()));
            }
            Err(e) => assert_eq!(e.kind, Errno::TimedOut, "insert {name}: {e}"),
        }
    }

    fn remove_nop(&mut self) {
        if self.nop_names.is_empty() {
            return;
        }
        let at = self.below(self.nop_names.len() as u64) as usize;
        let (name, _) = self.nop_names[at].clone();
        let geom = self.stack().control.topology.find_geom("nop", &name);
        let geom = geom.unwrap_or_else(|| panic!("{name} has gone by itself"));
        let done = self.stack().control.remove(geom);
        self.log(|| format!("{name} out: {:?}", done.as_ref().err()));
        match done {
            Ok(()) => {
                self.shared.mark("nops out");
                self.nop_names.remove(at);
            }
            Err(e) => assert_eq!(e.kind, Errno::TimedOut, "remove {name}: {e}"),
        }
    }

    /// A disk, the providers named after it and their units have other names for a while. Hosts
    /// must not notice it, not even one that logs in by the old name: the model does not change.
    fn rename_and_back(&mut self, disk: &str) {
        self.log(|| format!("{disk} is called otherwise"));
        for (from, to) in [(disk, "other"), ("other", disk)] {
            let stack = self.stack();
            let names = stack.control.call(|t| t.rename("disk", from, to));
            // Requests that the disk does not answer keep the graph from coming to rest.
            let names = names.unwrap_or_else(|e| panic!("{from} to {to}: {e}"));
            assert!(names.iter().any(|(was, is)| was == from && is == to), "{names:?}");
            let former = names.iter().filter_map(|(from, to)| {
                let serial = stack.registry.device(from)?.spec().serial.clone();
                Some((from.clone(), Former { serial, provider: to.clone() }))
            });
            stack.registry.set_former(former.collect());
            for (from, to) in &names {
                if let Some(device) = stack.registry.device(from) {
                    let label = Label { name: to.clone(), ..(*device.label()).clone() };
                    assert!(stack.registry.relabel(from, label), "{from} to {to}");
                }
            }
            stack.pass(MS);
        }
        self.shared.mark("disks renamed");
    }

    fn break_disk(&mut self) {
        let disk = self.below(2) as usize;
        let (first, last) = if disk == 0 { (128, 1600) } else { (0, 600) };
        let start = (first + self.below(last - first)) * UNIT as u64;
        let op = [DiskOp::Read, DiskOp::Write, DiskOp::Flush][self.below(3) as usize];
        let times = Some(1 + self.below(4) as u32);
        let len = (1 + self.below(64)) * UNIT as u64;
        let range = Extent::new(start, len).expect("small");
        self.log(|| format!("{} fails: {op:?} at {start}+{len} {times:?}", DISKS[disk]));
        self.shared.may_fail(disk);
        let fault = Fault { range, op, error: Errno::Io, times };
        self.outside.world.with_disk(DISKS[disk], |d| d.fail(fault).expect("room"));
        self.shared.mark("faults");
    }

    fn cut_disk_power(&mut self) {
        let disk = self.below(2) as usize;
        self.log(|| format!("{} loses power", DISKS[disk]));
        self.shared.may_fail(disk);
        self.outside.world.power_cut(DISKS[disk]);
        self.shared.model.borrow_mut().power_cut(disk, false);
        self.shared.mark("power cuts");
    }

    fn kick(&mut self) {
        let sessions = self.stack().registry.sessions();
        if !sessions.is_empty() {
            let at = self.below(sessions.len() as u64) as usize;
            self.log(|| format!("kick session {}", sessions[at].number));
            self.stack().registry.kick(sessions[at].number);
            self.shared.mark("kicks");
        }
    }

    fn renew_target(&mut self) {
        self.log(|| "the target goes".into());
        self.shared.open.set(OPEN);
        self.stack().close_target();
        let ns = 20 * MS + self.below(500 * MS);
        self.stack().pass(ns);
        self.log(|| "the target comes".into());
        self.stack().open_target();
        self.set_groups(&[]);
        self.shared.open.set(self.tick());
        self.shared.mark("targets renewed");
    }

    /// Stops as it should, and starts again.
    fn restart(&mut self) {
        self.log(|| "stop".into());
        self.shared.open.set(OPEN);
        self.stack().stop();
        let ns = self.below(100 * MS);
        self.stack().pass(ns);
        for name in DISKS {
            self.outside.world.hang(name, false);
        }
        self.drop_stack();
        (0..DISKS.len()).for_each(|i| self.shared.model.borrow_mut().all_over(i));
        self.forget_rights();
        self.look_at_disks("after the stop");
        self.shared.mark("restarts");
        self.boot();
    }
}

fn visible(units: &[Rc<Unit>], group: usize) -> Vec<usize> {
    let seen = units.iter().filter(|u| u.exported.get() && u.grant(group).now != Rights::None);
    seen.map(|u| u.lun).collect()
}
