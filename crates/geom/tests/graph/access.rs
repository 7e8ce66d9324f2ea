//! The access matrix, against a model written from the rules (docs/reference/geom.md 1.2), not from
//! the code.

use bio::Errno;
use geom::Access;

use crate::common::{Lab, Leaf, Manner};

const fn a(r: i32, w: i32, e: i32) -> Access {
    Access { r, w, e }
}

/// The rules in the words of the reference: counts of some consumers on one provider.
#[derive(Clone, Default)]
struct Model {
    counts: Vec<(i32, i32, i32)>,
    error: Option<Errno>,
    foot_shooting: bool,
}

impl Model {
    fn access(&mut self, who: usize, d: Access) -> Result<(), Errno> {
        let own = self.counts[who];
        let next = (own.0 + d.r, own.1 + d.w, own.2 + d.e);
        if (d.r, d.w, d.e) == (0, 0, 0) || next.0 < 0 || next.1 < 0 || next.2 < 0 {
            return Err(Errno::Inval);
        }
        let opens = d.r > 0 || d.w > 0 || d.e > 0;
        let mut others = self.counts.iter().enumerate().filter(|(i, _)| *i != who);
        let (writers, excluders) =
            others.by_ref().fold((0, 0), |(w, e), (_, c)| (w + c.1, e + c.2));
        if !self.foot_shooting {
            if (d.e > 0 && writers > 0) || (d.w > 0 && excluders > 0) {
                return Err(Errno::Perm);
            }
            if let (true, Some(e)) = (opens, self.error) {
                return Err(e);
            }
        }
        self.counts[who] = next;
        Ok(())
    }
}

fn deltas() -> Vec<Access> {
    let mut all = Vec::new();
    for r in -1..=1 {
        for w in -1..=1 {
            for e in -1..=1 {
                all.push(a(r, w, e));
            }
        }
    }
    all
}

/// All states of `consumers` consumers with counts below `top`, all deltas of each.
fn matrix(consumers: usize, top: i32, foot_shooting: bool, error: Option<Errno>) -> u64 {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let users: Vec<_> =
        (0..consumers).map(|i| lab.user(&format!("u{i}"), disk, Manner::default())).collect();
    let t = &mut lab.control.topology;
    let states = (top * top * top) as usize;
    let mut checked = 0;
    for code in 0..states.pow(consumers as u32) {
        let mut counts = Vec::new();
        let mut rest = code;
        for _ in 0..consumers {
            let c = (rest % states) as i32;
            counts.push((c % top, c / top % top, c / top / top));
            rest /= states;
        }
        // Foot-shooting leads to every state; the rules decide from there.
        t.foot_shooting = true;
        for (u, c) in users.iter().zip(&counts) {
            let to = a(c.0, c.1, c.2).plus(t.consumer_counts(*u).inverse());
            if to != Access::NONE {
                t.access(*u, to).unwrap();
            }
        }
        if checked == 0
            && let Some(e) = error
        {
            t.orphan_provider(disk, e);
        }
        t.foot_shooting = foot_shooting;
        for who in 0..consumers {
            for d in deltas() {
                let mut model = Model { counts: counts.clone(), error, foot_shooting };
                let expected = model.access(who, d);
                let got = t.access(users[who], d);
                assert_eq!(got, expected, "{counts:?} error {error:?}: consumer {who} {d:?}");
                for (u, c) in users.iter().zip(&model.counts) {
                    assert_eq!(t.consumer_counts(*u), a(c.0, c.1, c.2), "{counts:?} {who} {d:?}");
                }
                t.check();
                assert_eq!(*leaf.opens.lock().unwrap(), t.counts(disk), "the geom knows");
                if got.is_ok() {
                    t.foot_shooting = true;
                    t.access(users[who], d.inverse()).unwrap();
                    t.foot_shooting = foot_shooting;
                }
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn two_consumers_follow_the_access_rules_in_all_small_states() {
    assert_eq!(matrix(2, 3, false, None), 27 * 27 * 2 * 27);
}

#[test]
fn three_consumers_follow_the_access_rules_with_counts_up_to_one() {
    assert_eq!(matrix(3, 2, false, None), 8 * 8 * 8 * 3 * 27);
}

#[test]
fn foot_shooting_skips_the_access_checks_on_disks() {
    matrix(2, 2, true, None);
}

#[test]
fn a_sticky_error_refuses_opens_and_lets_closes_pass() {
    matrix(2, 2, false, Some(Errno::NxIo));
    matrix(2, 2, true, Some(Errno::NxIo));
}

#[test]
fn foot_shooting_applies_to_rank_1_providers_only() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let upper = lab.pass_through("s0", disk, "");
    let (x, y) = (lab.user("x", upper, Manner::default()), lab.user("y", upper, Manner::default()));
    lab.control.topology.foot_shooting = true;
    lab.open(x, Access::EXCLUSIVE).unwrap();
    assert_eq!(lab.open(y, Access::WRITE), Err(Errno::Perm), "rank 2 is no physical provider");
    let z = lab.user("z", disk, Manner::default());
    assert_eq!(lab.open(z, Access::WRITE), Ok(()), "rank 1 is");
}

#[test]
fn exclusive_consumer_is_not_spoiled_by_foot_shooting() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let spoils = Manner { spoils: true, ..Manner::default() };
    let (x, y) = (lab.user("x", disk, spoils), lab.user("y", disk, Manner::default()));
    lab.open(x, a(1, 0, 1)).unwrap();
    lab.control.topology.foot_shooting = true;
    lab.open(y, Access::WRITE).unwrap();
    assert!(!lab.logged().contains(&"x spoiled".to_string()));
    assert_eq!(lab.control.topology.consumer_counts(x), a(1, 0, 1));
}

#[test]
fn opening_all_below_is_all_or_nothing() {
    let mut lab = Lab::new(1);
    let leaves: Vec<_> = (0..3).map(|_| Leaf::new(1 << 20)).collect();
    let disks: Vec<_> =
        leaves.iter().enumerate().map(|(i, l)| lab.disk(&format!("d{i}"), l)).collect();
    let first = lab.user("many", disks[0], Manner::default());
    let t = &mut lab.control.topology;
    let geom = t.find_geom("user", "many").unwrap();
    t.attach_new(geom, disks[1]).unwrap();
    t.attach_new(geom, disks[2]).unwrap();
    for refusing in 0..3 {
        *leaves[refusing].refuse.lock().unwrap() = Some(Errno::RoFs);
        assert_eq!(t.access_all_below(geom, Access::WRITE), Err(Errno::RoFs));
        for (leaf, disk) in leaves.iter().zip(&disks) {
            assert_eq!(t.counts(*disk), Access::NONE);
            assert_eq!(*leaf.opens.lock().unwrap(), Access::NONE);
        }
        t.check();
    }
    t.access_all_below(geom, Access::WRITE).unwrap();
    assert_eq!(t.consumer_counts(first), Access::WRITE);
    t.access_all_below(geom, Access::WRITE.inverse()).unwrap();
    t.access_all_below(geom, Access::NONE).unwrap();
    t.check();
}

#[test]
fn leaving_consumer_cannot_be_opened() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let c = lab.writer("x", disk);
    lab.control.topology.leave(c);
    assert_eq!(lab.control.topology.access(c, Access::READ), Err(Errno::NxIo));
    lab.control.settle().unwrap();
    assert_eq!(lab.control.topology.counts(disk), Access::NONE);
    assert_eq!(lab.control.topology.access(c, Access::READ), Err(Errno::NxIo), "it is gone");
    lab.control.topology.check();
}
