//! Ranks, cycles and names: a refused request leaves the graph unchanged (docs/reference/geom.md
//! 1.1).

use bio::{DEPTH_MAX, Errno, Op};
use geom::{Access, ProviderId};

use crate::common::{Lab, Leaf, Manner, SECTOR};

/// Names, ranks and attachments, as text.
fn picture(lab: &Lab) -> String {
    let mut out = String::new();
    for g in lab.control.topology.view(0) {
        let below: Vec<_> =
            g.consumers.iter().map(|c| format!("{:?} {}", c.provider, c.counts)).collect();
        let above: Vec<_> = g.providers.iter().map(|p| &p.name).collect();
        out += &format!("{} {} rank {} on {below:?} gives {above:?}\n", g.class, g.name, g.rank);
    }
    out
}

fn tower(lab: &mut Lab, name: &str, height: usize) -> ProviderId {
    let mut top = lab.disk(&format!("{name}0"), &Leaf::new(1 << 20));
    for i in 1..height {
        top = lab.pass_through(&format!("{name}{i}"), top, "");
    }
    top
}

#[test]
fn deepest_stack_works_and_one_more_layer_is_refused() {
    let mut lab = Lab::new(1);
    let most = DEPTH_MAX / 2;
    let below = tower(&mut lab, "t", most - 1);
    let c = lab.writer("u", below);
    assert!(lab.io(lab.edge(c), Op::Read, 0, SECTOR).status.is_ok());
    let top = lab.pass_through("last", below, "");
    let before = picture(&lab);
    assert_eq!(lab.try_pass_through("more", top, "").unwrap_err().kind, Errno::DeadLk);
    assert_eq!(picture(&lab), before);
    // From below: a tower on top of which another one is put at once.
    let t = &mut lab.control.topology;
    let fresh = Leaf::new(1 << 20).create(t, "fresh").unwrap();
    let wanted = t.find_geom("test", "t0").unwrap();
    assert_eq!(t.attach_new(wanted, fresh), Err(Errno::DeadLk), "everybody would be lifted");
    t.check();
    lab.control.settle().unwrap();
    let lines = picture(&lab);
    assert!(lines.starts_with("test fresh rank 1"));
    assert_eq!(
        lines.lines().filter(|l| !l.contains("fresh")).collect::<Vec<_>>().join("\n") + "\n",
        before
    );
}

#[test]
fn a_full_stack_with_a_split_at_every_layer_has_frames_enough() {
    let mut lab = Lab::new(1);
    let limits = |io_max| geom::Limits {
        media_bytes: 1 << 20,
        sector_bytes: 512,
        io_max_bytes: io_max,
        delete_max_bytes: 0,
    };
    let leaf = Leaf::shaped(limits(512));
    let mut top = lab.disk("d", &leaf);
    let layers = DEPTH_MAX / 2 - 2;
    for i in 0..layers {
        top = lab.pass_through(&format!("s{i}"), top, "");
        let halves = limits(512 << (i + 1).min(11));
        let layer = lab.control.topology.layer(top).expect("it exists");
        lab.control.topology.replace_layer(top, layer, halves);
    }
    let c = lab.writer("u", top);
    let tag = lab.send(lab.edge(c), Op::Write, 0, 1 << 20);
    assert_eq!(lab.finish(tag).status, Ok(()));
    assert_eq!(leaf.take_requests().len(), 2048);
    lab.assert_empty();
}

/// T3.
#[test]
fn a_cycle_is_refused_wherever_it_would_close() {
    let mut lab = Lab::new(1);
    let low = lab.disk("low", &Leaf::new(1 << 20));
    let mid = lab.pass_through("mid", low, "");
    let high = lab.pass_through("high", mid, "");
    let before = picture(&lab);
    for (geom, provider) in [("low", high), ("low", mid), ("low", low), ("mid", high), ("mid", mid)]
    {
        let class = if geom == "low" { "test" } else { "shim" };
        let t = &mut lab.control.topology;
        let g = t.find_geom(class, geom).unwrap();
        assert_eq!(t.attach_new(g, provider), Err(Errno::Loop), "{geom}");
        t.check();
    }
    assert_eq!(picture(&lab), before);
    // An edge that makes no cycle is allowed: a second way from high to low, which raises no rank.
    let t = &mut lab.control.topology;
    let g = t.find_geom("shim", "high").unwrap();
    let c = t.attach_new(g, low).unwrap();
    assert_eq!(t.attach(c, mid), Err(Errno::Busy), "attached already");
    t.check();
    assert_eq!(t.view(0).iter().map(|g| g.rank).collect::<Vec<_>>(), [1, 2, 3]);
}

/// T3.
#[test]
fn ranks_decrease_when_a_consumer_is_removed() {
    let mut lab = Lab::new(1);
    let low = lab.disk("low", &Leaf::new(1 << 20));
    let tall = tower(&mut lab, "t", 4);
    let both = lab.pass_through("both", tall, "");
    let t = &mut lab.control.topology;
    let g = t.find_geom("shim", "both").unwrap();
    t.attach_new(g, low).unwrap();
    let above = lab.pass_through("above", both, "");
    let rank = |lab: &Lab, name: &str| {
        lab.control.topology.view(0).iter().find(|g| g.name == name).map(|g| g.rank)
    };
    assert_eq!((rank(&lab, "both"), rank(&lab, "above")), (Some(5), Some(6)));
    let c = lab.control.topology.consumers_of(g)[1];
    lab.control.topology.leave(c);
    lab.control.settle().unwrap();
    assert_eq!((rank(&lab, "both"), rank(&lab, "above")), (Some(2), Some(3)));
    lab.control.topology.check();
    assert!(lab.control.topology.provider_is_live(above));
}

#[test]
fn names_are_unique_and_free_when_their_owner_withers() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let t = &mut lab.control.topology;
    assert_eq!(leaf.create(t, "d0").unwrap_err().kind, Errno::Exist);
    assert_eq!(leaf.create(t, "").unwrap_err().kind, Errno::Inval);
    assert_eq!(leaf.create(t, &"x".repeat(256)).unwrap_err().kind, Errno::Inval);
    lab.control.settle().unwrap();
    // Another class may have a geom of the name, not a provider.
    let same = lab.try_pass_through("d0", disk, "").unwrap_err();
    assert_eq!(same.kind, Errno::Exist);
    assert!(lab.control.topology.find_geom("shim", "d0").is_none(), "nothing half made is left");
    let u = lab.user("u", disk, Manner { stays: true, ..Manner::default() });
    lab.open(u, Access::READ).unwrap();
    let g = lab.control.topology.geom_of(disk).unwrap();
    lab.control.topology.wither_geom(g, Errno::NxIo);
    lab.control.settle().unwrap();
    let again = lab.disk("d0", &leaf);
    assert_ne!(again, disk, "the old one lives on under its user, nameless to newcomers");
    assert_eq!(lab.control.topology.find("d0"), Some(again));
    lab.control.topology.check();
}

#[test]
fn withering_geom_or_provider_accepts_no_new_consumer() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let u = lab.user("u", disk, Manner { stays: true, ..Manner::default() });
    lab.open(u, Access::READ).unwrap();
    let t = &mut lab.control.topology;
    let leaf_geom = t.geom_of(disk).unwrap();
    let user = t.find_geom("user", "u").unwrap();
    t.wither_geom(leaf_geom, Errno::NxIo);
    assert_eq!(t.attach_new(user, disk), Err(Errno::NxIo));
    assert_eq!(t.new_consumer(leaf_geom), Err(Errno::NxIo));
    t.wither_geom(user, Errno::NxIo);
    assert_eq!(t.new_consumer(user), Err(Errno::NxIo));
    lab.control.settle().unwrap();
    lab.control.topology.check();
}
