//! Persistent reservations against a model that was written from SPC-4's tables and shares nothing
//! with the state machine. Nexuses are numbers, a registration is a place in an array.

use reactor::SeededRandom;
use testkit::Seeds;
use wire::scsi::{Asc, PrMove, PrOutAction, PrOutList, PrType, TransportId, asc};

use super::*;
use crate::flags;

/// Initiator ports 0 to 2 at target ports 1 and 2: nexus `n` is port `n % 3` at target `n / 3 + 1`.
const NEXUSES: usize = 6;

fn nexus(n: usize) -> Identity {
    let name = ["iqn.2024-01.test:a", "iqn.2024-01.test:b", "iqn.2024-01.test:b"][n % 3];
    let port = TransportId::iscsi_port(name, [0, 2, 0x3d, 0, 0, (n % 3) as u8]).unwrap();
    Identity { port, target: (n / 3 + 1) as u16 }
}

fn around() -> PortContext {
    PortContext { targets: vec![1, 2], ports: (0..3).map(|n| nexus(n).port).collect() }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ModelOutcome {
    Good,
    Conflict,
    Sense(u8, u8, u8),
}

const IN_CDB: ModelOutcome = ModelOutcome::Sense(5, 0x24, 0);
const IN_LIST: ModelOutcome = ModelOutcome::Sense(5, 0x26, 0);
const BAD_RELEASE: ModelOutcome = ModelOutcome::Sense(5, 0x26, 4);

#[derive(Clone, Default, Debug)]
struct Model {
    key: [u64; NEXUSES],
    /// TYPE, or 0 without a reservation.
    kind: u8,
    /// Who holds a reservation of type 1, 3, 5, 6.
    holder: usize,
    generation: u32,
    aptpl: bool,
    /// Attentions of the last command, by ASCQ of 2Ah.
    attentions: Vec<(usize, u8)>,
    aborted: Vec<usize>,
}

/// A command of the model: who, what, with which fields.
#[derive(Clone, Debug)]
struct Step {
    me: usize,
    action: u8,
    scope: u8,
    kind: u8,
    key: u64,
    action_key: u64,
    aptpl: bool,
    all_targets: bool,
    /// SPEC_I_PT with these ports (0 to 2); 3 means the device with ports 1 and 2.
    ports: Option<Vec<usize>>,
    to: usize,
    unreg: bool,
}

impl Model {
    fn registrants(&self) -> Vec<usize> {
        (0..NEXUSES).filter(|n| self.key[*n] != 0).collect()
    }

    fn holds(&self, n: usize) -> bool {
        match self.kind {
            0 => false,
            7 | 8 => self.key[n] != 0,
            _ => self.holder == n,
        }
    }

    fn notify_others(&mut self, me: usize, ascq: u8) {
        let others: Vec<usize> = self.registrants().into_iter().filter(|n| *n != me).collect();
        self.attentions.extend(others.into_iter().map(|n| (n, ascq)));
    }

    /// The registrations of `gone` end, and what depends on them.
    fn strike(&mut self, gone: &[usize]) -> bool {
        let held = self.kind;
        gone.iter().for_each(|n| self.key[*n] = 0);
        let lost = match held {
            0 => false,
            7 | 8 => self.registrants().is_empty(),
            _ => self.key[self.holder] == 0,
        };
        if lost {
            self.kind = 0;
        }
        lost
    }

    fn step(&mut self, s: &Step) -> ModelOutcome {
        self.attentions.clear();
        self.aborted.clear();
        let registered = self.key[s.me] != 0;
        let right = registered && self.key[s.me] == s.key;
        match s.action {
            0 | 6 => self.register(s),
            _ if !right => ModelOutcome::Conflict,
            1 => {
                if s.scope != 0 || ![1, 3, 5, 6, 7, 8].contains(&s.kind) {
                    return IN_CDB;
                }
                if self.kind == 0 {
                    (self.kind, self.holder) = (s.kind, s.me);
                    return ModelOutcome::Good;
                }
                if self.holds(s.me) && self.kind == s.kind {
                    ModelOutcome::Good
                } else {
                    ModelOutcome::Conflict
                }
            }
            2 => {
                if !self.holds(s.me) {
                    return ModelOutcome::Good;
                }
                if s.scope != 0 || s.kind != self.kind {
                    return BAD_RELEASE;
                }
                if self.kind >= 5 {
                    self.notify_others(s.me, 4);
                }
                self.kind = 0;
                ModelOutcome::Good
            }
            3 => {
                self.notify_others(s.me, 3);
                (self.key, self.kind) = ([0; NEXUSES], 0);
                self.generation += 1;
                ModelOutcome::Good
            }
            4 | 5 => self.preempt(s),
            _ => self.relocate(s),
        }
    }

    fn register(&mut self, s: &Step) -> ModelOutcome {
        let old = self.key[s.me];
        if s.action == 0 && s.key != old {
            return ModelOutcome::Conflict;
        }
        if old == 0 && s.action_key == 0 {
            return ModelOutcome::Good;
        }
        if s.ports.is_some() && old != 0 {
            return IN_CDB;
        }
        let sibling = (s.me + 3) % NEXUSES;
        let with = if s.all_targets { vec![s.me, sibling] } else { vec![s.me] };
        if old == 0 {
            let mut ports = vec![s.me % 3];
            for p in s.ports.iter().flatten() {
                ports.extend(if *p == 3 { vec![1, 2] } else { vec![*p] });
            }
            for n in with.iter().flat_map(|w| ports.iter().map(move |p| w / 3 * 3 + p)) {
                if self.key[n] == 0 {
                    self.key[n] = s.action_key;
                }
            }
        } else if s.action_key != 0 {
            for n in with {
                if n == s.me || self.key[n] == 0 || self.key[n] == old || s.action == 6 {
                    self.key[n] = s.action_key;
                }
            }
        } else {
            let kind = self.kind;
            let known = |n: &usize| *n == s.me || self.key[*n] == old || s.action == 6;
            let gone: Vec<usize> = with.into_iter().filter(known).collect();
            if self.strike(&gone) && kind >= 5 {
                self.notify_others(s.me, 4);
            }
        }
        self.aptpl = s.aptpl;
        self.generation += 1;
        ModelOutcome::Good
    }

    fn preempt(&mut self, s: &Step) -> ModelOutcome {
        let all = self.kind >= 7;
        let takes = match self.kind {
            0 => false,
            7 | 8 => s.action_key == 0,
            _ => self.key[self.holder] == s.action_key,
        };
        if s.action_key == 0 && !(takes && all) {
            return IN_LIST;
        }
        let hit: Vec<usize> = self
            .registrants()
            .into_iter()
            .filter(|n| s.action_key == 0 || self.key[*n] == s.action_key)
            .collect();
        if takes && (s.scope != 0 || ![1, 3, 5, 6, 7, 8].contains(&s.kind)) {
            return IN_CDB;
        }
        if hit.is_empty() {
            return ModelOutcome::Conflict;
        }
        let others: Vec<usize> = hit.iter().copied().filter(|n| *n != s.me).collect();
        self.attentions.extend(others.iter().map(|n| (*n, 5)));
        if s.action == 5 {
            self.aborted = others.clone();
        }
        if takes {
            let was = self.kind;
            others.iter().for_each(|n| self.key[*n] = 0);
            (self.kind, self.holder) = (s.kind, s.me);
            if was != s.kind {
                self.notify_others(s.me, 4);
            }
        } else {
            self.strike(&hit);
        }
        self.generation += 1;
        ModelOutcome::Good
    }

    fn relocate(&mut self, s: &Step) -> ModelOutcome {
        if self.kind == 0 {
            return IN_CDB;
        }
        if self.kind >= 7 || self.holder != s.me {
            return ModelOutcome::Conflict;
        }
        if s.action_key == 0 || s.to == s.me {
            return IN_LIST;
        }
        self.key[s.to] = s.action_key;
        self.holder = s.to;
        if s.unreg {
            self.key[s.me] = 0;
        }
        self.aptpl = s.aptpl;
        self.generation += 1;
        ModelOutcome::Good
    }

    /// May nexus `n` read, may it write?
    fn may(&self, n: usize) -> (bool, bool) {
        let in_club = self.holds(n) || (self.kind >= 5 && self.key[n] != 0);
        match self.kind {
            0 => (true, true),
            _ if in_club => (true, true),
            1 | 5 | 7 => (true, false),
            _ => (false, false),
        }
    }
}

fn random_step(r: &mut SeededRandom, m: &Model) -> Step {
    let me = r.below(NEXUSES as u64) as usize;
    let action = r.below(8) as u8;
    let key = |r: &mut SeededRandom, n: usize| match r.below(8) {
        0 => 0,
        1 => 1 + r.below(3),
        _ => m.key[n],
    };
    let kinds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 15];
    let kind = match r.below(3) {
        0 if m.kind != 0 => m.kind,
        _ => kinds[r.below(10) as usize],
    };
    let other = r.below(NEXUSES as u64) as usize;
    let action_key = match (action, r.below(4)) {
        (0 | 6 | 7, 0) => 0,
        (0 | 6 | 7, _) => 1 + r.below(3),
        (_, 0) => r.below(4),
        (_, _) => m.key[other],
    };
    let ports = (action == 0 && r.below(4) == 0).then(|| {
        let n = r.below(3);
        (0..n).map(|_| r.below(4) as usize).collect()
    });
    let registers = matches!(action, 0 | 6);
    Step {
        me,
        action,
        scope: if r.below(16) == 0 { 1 } else { 0 },
        kind,
        key: key(r, me),
        action_key,
        aptpl: (registers || action == 7) && r.below(2) == 0,
        all_targets: registers && r.below(3) == 0,
        ports,
        to: other,
        unreg: r.below(2) == 0,
    }
}

fn request(s: &Step) -> Request {
    let device = || TransportId::iscsi_device("iqn.2024-01.test:b").unwrap();
    let port = |p: &usize| if *p == 3 { device() } else { nexus(*p).port };
    let list = PrOutList {
        key: s.key,
        action_key: s.action_key,
        aptpl: s.aptpl,
        all_targets: s.all_targets,
        has_ports: s.ports.is_some(),
        ports: s.ports.iter().flatten().map(port).collect(),
        to: (s.action == 7).then(|| PrMove {
            unregister: s.unreg,
            target: nexus(s.to).target,
            port: nexus(s.to).port,
        }),
    };
    let action = PrOutAction::from_code(s.action).unwrap();
    Request { action, scope: s.scope, kind: s.kind, list }
}

fn model_outcome(result: &Result<Option<Change>, Refusal>) -> ModelOutcome {
    match result {
        Ok(_) => ModelOutcome::Good,
        Err(Refusal::Conflict) => ModelOutcome::Conflict,
        Err(Refusal::Sense(s)) => ModelOutcome::Sense(s.code.key as u8, s.code.asc, s.code.ascq),
    }
}

fn check(state: &Reservations, m: &Model, what: &str) {
    assert!(state.is_sound(), "{what}");
    for n in 0..NEXUSES {
        assert_eq!(state.key_of(&nexus(n)).unwrap_or(0), m.key[n], "key of {n}, {what}");
        assert_eq!(state.is_holder(&nexus(n)), m.holds(n), "holder {n}, {what}");
        let bits = state.restriction(Some(&nexus(n)), n as u64).bits();
        let may = (bits & flags::RESERVED_READ == 0, bits & flags::RESERVED_WRITE == 0);
        assert_eq!(bits & flags::RESERVED_STATUS, 0, "{what}");
        assert_eq!(may, m.may(n), "access of {n}, {what}");
    }
    let key = if m.kind >= 7 { 0 } else { m.key[m.holder] };
    let kind = PrType::from_code(m.kind);
    assert_eq!(state.reservation(), kind.map(|k| (key, k)), "{what}");
    assert_eq!((state.generation(), state.is_aptpl()), (m.generation, m.aptpl), "{what}");
    let back = Reservations::of_record(&state.record()).unwrap();
    assert_eq!(back.generation(), state.generation(), "{what}");
    if state.is_aptpl() {
        assert_eq!(&back, state, "{what}");
    } else {
        assert!(back.is_empty() && back.held().is_none(), "{what}");
    }
}

fn run(seed: u64) {
    let mut random = SeededRandom::new(seed);
    let (mut state, mut model) = (Reservations::default(), Model::default());
    for i in 0..200 {
        let step = random_step(&mut random, &model);
        let what = format!("seed {seed}, step {i}: {step:?}, before {model:?}");
        let result = state.out(
            RequestingNexus { id: Some(&nexus(step.me)), session: step.me as u64 },
            &request(&step),
            &around(),
        );
        let before = model.clone();
        assert_eq!(model_outcome(&result), model.step(&step), "{what}");
        let effects = match result {
            Ok(Some(change)) => {
                let changes = change.next != state;
                assert!(changes, "{what}: a change that changes nothing");
                assert_eq!(change.save, before.aptpl || model.aptpl, "{what}");
                state = change.next;
                change.effects
            }
            _ => Effects::default(),
        };
        check(&state, &model, &what);
        let index = |id: &Identity| (0..NEXUSES).find(|n| nexus(*n) == *id).unwrap();
        let mut seen: Vec<(usize, u8)> =
            effects.attentions.iter().map(|(id, a)| (index(id), ascq(*a))).collect();
        seen.sort_unstable();
        model.attentions.sort_unstable();
        assert_eq!(seen, model.attentions, "{what}");
        let aborts: Vec<usize> = effects.aborts.iter().map(index).collect();
        let mut aborts = aborts;
        aborts.sort_unstable();
        assert_eq!(aborts, model.aborted, "{what}");
    }
}

fn ascq(code: Asc) -> u8 {
    let known =
        [asc::RESERVATIONS_PREEMPTED, asc::RESERVATIONS_RELEASED, asc::REGISTRATIONS_PREEMPTED];
    assert!(known.contains(&code));
    code.ascq
}

/// Test 11 of the list of what toy targets get wrong.
/// P2 of reservations/mod.rs.
#[test]
fn test_11_every_action_agrees_with_the_model() {
    Seeds::of(1000).each(run);
}

fn plain(action: PrOutAction, key: u64, action_key: u64, kind: u8) -> Request {
    let list = PrOutList { key, action_key, ..PrOutList::default() };
    Request { action, scope: 0, kind, list }
}

fn apply(state: &mut Reservations, n: usize, request: &Request) -> Effects {
    let id = nexus(n);
    let change = state
        .out(RequestingNexus { id: Some(&id), session: n as u64 }, request, &around())
        .unwrap();
    let change = change.expect("a change");
    *state = change.next;
    change.effects
}

/// P3 of reservations/mod.rs.
#[test]
fn a_spc2_reservation_belongs_to_a_session_and_excludes_persistent_ones() {
    let (a, b) = (nexus(0), nexus(1));
    let (i1, i2) = (
        RequestingNexus { id: Some(&a), session: 1 },
        RequestingNexus { id: Some(&b), session: 2 },
    );
    let state = Reservations::default().reserve_unit(i1).unwrap().unwrap();
    assert_eq!(state.reserve_unit(i1), Ok(None));
    assert_eq!(state.reserve_unit(i2), Err(Refusal::Conflict));
    assert_eq!(state.release_unit(i2), Ok(None));
    assert_eq!(state.restriction(Some(&a), 1), Restriction::None);
    assert_eq!(state.restriction(Some(&b), 3), Restriction::Legacy);
    assert_eq!(Restriction::Legacy.bits(), flags::RESERVED);
    for who in [i1, i2] {
        let register = plain(PrOutAction::Register, 0, 7, 0);
        assert_eq!(state.out(who, &register, &around()), Err(Refusal::Conflict));
    }
    assert_eq!(state.without_session(2), None);
    for gone in [state.without_session(1), state.reset(), state.release_unit(i1).unwrap()] {
        assert_eq!(gone, Some(Reservations::default()));
    }
}

#[test]
fn reserve_with_registrations_succeeds_only_for_holders_and_registrants() {
    let (a, b, c) = (nexus(0), nexus(1), nexus(2));
    let mut state = Reservations::default();
    apply(&mut state, 0, &plain(PrOutAction::Register, 0, 1, 0));
    apply(&mut state, 1, &plain(PrOutAction::Register, 0, 2, 0));
    let who = |id, session| RequestingNexus { id: Some(id), session };
    for (id, n) in [(&a, 0), (&b, 1), (&c, 2)] {
        assert_eq!(state.reserve_unit(who(id, n)), Err(Refusal::Conflict));
        assert_eq!(state.release_unit(who(id, n)), Err(Refusal::Conflict));
    }
    for kind in PrType::ALL {
        let mut state = state.clone();
        apply(&mut state, 0, &plain(PrOutAction::Reserve, 1, 0, kind.code()));
        let want = |good: bool| if good { Ok(None) } else { Err(Refusal::Conflict) };
        let friends = kind.code() >= 5;
        for (id, n, good) in [(&a, 0, true), (&b, 1, friends), (&c, 2, false)] {
            assert_eq!(state.reserve_unit(who(id, n)), want(good), "{kind:?} {n}");
            assert_eq!(state.release_unit(who(id, n)), want(good), "{kind:?} {n}");
        }
    }
}

#[test]
fn the_number_of_registrations_of_a_unit_is_bounded() {
    let mut state = Reservations::default();
    let id = |n: usize| Identity {
        port: TransportId::named(&format!("client-{n}")).unwrap(),
        target: 1,
    };
    let register = plain(PrOutAction::Register, 0, 9, 0);
    for n in 0..REGISTRATIONS_MAX {
        state.keys.insert(id(n), 9);
    }
    let last = id(REGISTRATIONS_MAX);
    let refused = state.out(RequestingNexus { id: Some(&last), session: 1 }, &register, &around());
    assert_eq!(refused, Err(Refusal::Sense(asc::OUT_OF_RESERVATIONS.into())));
    assert!(state.is_sound());
    state.aptpl = true;
    assert_eq!(Reservations::of_record(&state.record()), Ok(state));
}

#[test]
fn unknown_ports_and_ports_of_other_transports_cannot_be_registered() {
    let me = nexus(0);
    let stranger = TransportId::iscsi_device("iqn.2024-01.test:nobody").unwrap();
    let other = TransportId::named("nbd client").unwrap();
    for port in [stranger, other] {
        let mut request = plain(PrOutAction::Register, 0, 1, 0);
        (request.list.has_ports, request.list.ports) = (true, vec![port]);
        let result = Reservations::default().out(
            RequestingNexus { id: Some(&me), session: 0 },
            &request,
            &around(),
        );
        assert_eq!(model_outcome(&result), IN_LIST);
    }
}

#[test]
fn truncated_records_are_rejected_and_corrupt_ones_rejected_or_sound() {
    let mut state = Reservations::default();
    let mut register = plain(PrOutAction::Register, 0, 1, 0);
    register.list.aptpl = true;
    apply(&mut state, 0, &register);
    apply(&mut state, 1, &register);
    apply(&mut state, 0, &plain(PrOutAction::Reserve, 1, 0, 5));
    let bytes = state.record();
    for len in 0..bytes.len() {
        assert!(Reservations::of_record(&bytes[..len]).is_err(), "cut at {len}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            if let Ok(read) = Reservations::of_record(&bytes) {
                assert!(read.is_sound(), "byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn a_spc2_reservation_is_held_by_its_nexus_on_all_cores() {
    let (a, b) = (nexus(0), nexus(1));
    let who = |id, session| RequestingNexus { id, session };
    let held = Reservations::default().reserve_unit(who(Some(&a), 1)).unwrap().unwrap();
    assert_eq!(held.restriction(Some(&a), 2), Restriction::None);
    assert_eq!(held.restriction(Some(&b), 3), Restriction::Legacy);
    assert_eq!(held.restriction(None, 3), Restriction::Legacy);
    assert_eq!(held.reserve_unit(who(Some(&a), 2)), Ok(None));
    assert_eq!(held.reserve_unit(who(Some(&b), 3)), Err(Refusal::Conflict));
    assert_eq!(held.release_unit(who(Some(&b), 3)), Ok(None));
    assert!(held.release_unit(who(Some(&a), 2)).unwrap().unwrap().is_empty());
    // It ends with the session that made it.
    assert!(held.without_session(2).is_none() && held.without_session(1).is_some());
    // Sessions without a name are never treated as the same initiator.
    let held = Reservations::default().reserve_unit(who(None, 1)).unwrap().unwrap();
    assert_eq!(held.restriction(None, 2), Restriction::Legacy);
    assert_eq!(held.release_unit(who(None, 2)), Ok(None));
}
