//! Tests of targets, groups and access.

use geom::Edge;

use super::*;
use crate::state_store::MemoryStore;
use crate::unit::space::SpaceUsage;

fn at() -> Address {
    Address::Inet("10.0.0.1:3260".parse().unwrap())
}

fn registry() -> Arc<Registry> {
    let r = Registry::new();
    for name in ["a", "b"] {
        r.add_device("disk", DeviceSpec::new(name, name, Edge(0), 1 << 20, 512)).unwrap();
    }
    r.set_target("iscsi", "iqn.t").unwrap();
    r
}

fn group(name: &str, initiators: &[&str], luns: &[(u64, &str)]) -> GroupSpec {
    GroupSpec {
        name: name.into(),
        initiators: initiators.iter().map(|s| s.to_string()).collect(),
        luns: luns
            .iter()
            .map(|(lun, device)| LunSpec {
                lun: *lun,
                device: device.to_string(),
                read_only: false,
            })
            .collect(),
        ..GroupSpec::default()
    }
}

#[test]
fn r2_initiators_without_a_group_are_refused() {
    let r = registry();
    let t = r.target("iscsi", "iqn.t").unwrap();
    assert!(!t.decide("iqn.h1", &at()).grants());
    assert!(t.decide("iqn.h1", &at()).reason.contains("no access group"));
    r.set_groups("iscsi", "iqn.t", &[group("g", &["iqn.h1"], &[(0, "a")])]).unwrap();
    assert!(t.decide("iqn.h1", &at()).grants());
    let no = t.decide("iqn.h2", &at());
    assert!(!no.grants() && no.group.is_none());
    assert!(no.reason.contains("iqn.h2") && no.reason.contains("(g)"), "{}", no.reason);
    assert_eq!(r.visible_targets("iscsi", "iqn.h1", &at()).len(), 1);
    assert_eq!(r.visible_targets("iscsi", "iqn.h2", &at()).len(), 0);
    assert_eq!(r.visible_targets("nbd", "iqn.h1", &at()).len(), 0);
}

#[test]
fn r3_a_change_that_fails_in_part_changes_nothing() {
    let r = registry();
    let good = [group("g", &["iqn.h1"], &[(0, "a")])];
    r.set_groups("iscsi", "iqn.t", &good).unwrap();
    let before = r.target("iscsi", "iqn.t").unwrap().decide("iqn.h1", &at());
    let bad: Vec<(Vec<GroupSpec>, Errno, &str)> = vec![
        (vec![group("x", &["*"], &[(0, "c")])], Errno::NoEnt, "no device c"),
        (vec![group("x", &["*"], &[(0, "a"), (0, "b")])], Errno::Exist, "twice"),
        (vec![group("x", &["*"], &[(LUN_MAX + 1, "a")])], Errno::Inval, "larger"),
        (vec![group("x", &[""], &[])], Errno::Inval, "empty"),
        (vec![group("x", &["a"], &[]), group("x", &["b"], &[])], Errno::Exist, "called"),
        (vec![group("x", &["iqn.*"], &[]), group("y", &["iqn.h?"], &[])], Errno::Exist, "belong"),
    ];
    for (specs, kind, text) in bad {
        let e = r.set_groups("iscsi", "iqn.t", &specs).unwrap_err();
        assert_eq!(e.kind, kind, "{e}");
        assert!(e.message.contains(text), "{e}");
        let t = r.target("iscsi", "iqn.t").unwrap();
        let after = t.decide("iqn.h1", &at());
        assert!(after.grants() && Arc::ptr_eq(&after.luns, &before.luns));
        assert_eq!(after.view.generation(), before.view.generation());
    }
}

#[test]
fn access_groups_match_on_the_portal_as_on_the_name() {
    let r = registry();
    let limited = |name: &str, portal: &str, device: &str| GroupSpec {
        portals: vec![portal.into()],
        ..group(name, &["iqn.h*"], &[(0, device)])
    };
    let both = [limited("x", "10.0.0.1", "a"), limited("y", "*:3261", "b")];
    let e = r.set_groups("iscsi", "iqn.t", &both).unwrap_err();
    assert!(e.message.contains("belong to group x") && e.message.contains("portals"), "{e}");
    let apart = [limited("x", "10.0.0.1", "a"), limited("y", "10.0.0.2:3261", "b")];
    r.set_groups("iscsi", "iqn.t", &apart).unwrap();
    let t = r.target("iscsi", "iqn.t").unwrap();
    assert_eq!(t.decide("iqn.h1", &at()).group.as_deref(), Some("x"));
    let second = Address::Inet("10.0.0.2:3261".parse().unwrap());
    assert_eq!(t.decide("iqn.h1", &second).group.as_deref(), Some("y"));
    let no = t.decide("iqn.h1", &Address::Unix("/run/a".into()));
    assert!(!no.grants() && no.reason.contains("only at 10.0.0.1"), "{}", no.reason);
    let odd = r.set_groups("iscsi", "iqn.t", &[limited("x", "nowhere", "a")]).unwrap_err();
    assert!(odd.message.contains("is no portal"), "{odd}");
}

#[test]
fn r4_devices_list_their_ports_after_each_lun_change() {
    let r = registry();
    r.set_groups("iscsi", "iqn.t", &[group("g", &["iqn.h1"], &[(0, "a")])]).unwrap();
    let (t, b) = (r.target("iscsi", "iqn.t").unwrap(), r.device("b").unwrap());
    let line = |lun, device: &str| LunSpec { lun, device: device.into(), read_only: false };
    let before = t.decide("iqn.h1", &at());
    let change = [LunChange::Set(line(16_384, "b")), LunChange::Set(line(LUN_MAX, "b"))];
    r.change_luns("iscsi", "iqn.t", "g", &change).unwrap();
    assert_eq!((b.ports(), r.device("a").unwrap().ports()), (vec![t.port], vec![t.port]));
    assert_eq!((t.decide("iqn.h1", &at()).luns.len(), before.luns.len()), (3, 1));
    let refused = [LunChange::Remove(0), LunChange::Set(line(1, "c"))];
    let e = r.change_luns("iscsi", "iqn.t", "g", &refused).unwrap_err();
    assert!(e.message.contains("no device c"), "{e}");
    assert!(t.decide("iqn.h1", &at()).luns.get(0).is_some());
    r.change_luns("iscsi", "iqn.t", "g", &[LunChange::Remove(LUN_MAX)]).unwrap();
    assert_eq!(r.remove_device("b").err().map(|e| e.kind), Some(Errno::Busy));
    r.change_luns("iscsi", "iqn.t", "g", &[LunChange::Remove(16_384)]).unwrap();
    assert!(b.ports().is_empty() && r.remove_device("b").is_ok());
    r.remove_target("iscsi", "iqn.t").unwrap();
    assert!(r.remove_device("a").is_ok());
}

#[test]
fn a_unit_mapped_by_a_group_cannot_be_removed() {
    let r = registry();
    r.set_groups("iscsi", "iqn.t", &[group("g", &["*"], &[(7, "a")])]).unwrap();
    assert_eq!(r.remove_device("a").err().map(|e| e.kind), Some(Errno::Busy));
    r.set_groups("iscsi", "iqn.t", &[]).unwrap();
    assert!(r.remove_device("a").is_ok());
    assert_eq!(r.remove_device("a").err().map(|e| e.kind), Some(Errno::NoEnt));
}

#[test]
fn lost_and_thin_units_are_counted_while_they_are_in_the_registry() {
    let r = registry();
    assert!(!r.has_lost() && !r.has_thin() && r.thin_devices().is_empty());
    let usage = SpaceUsage { used: 1, free: 2, is_shared: false };
    let spec = DeviceSpec::new("thin", "thin", Edge(0), 1 << 20, 512);
    let spec = DeviceSpec { can_delete: true, space_usage: Some(usage), ..spec };
    let thin = r.add_device("disk", spec).unwrap();
    assert!(r.has_thin() && r.thin_devices().len() == 1);
    let a = r.device("a").unwrap();
    a.lose(Errno::NxIo);
    thin.lose(Errno::Io);
    assert_eq!((r.has_lost(), r.lost()), (true, vec!["a".to_owned(), "thin".to_owned()]));
    a.find(Edge(1), 1 << 20);
    assert_eq!((r.has_lost(), r.lost()), (true, vec!["thin".to_owned()]));
    r.remove_device("thin").unwrap();
    assert!(!r.has_lost() && r.lost().is_empty());
    assert!(!r.has_thin() && r.thin_devices().is_empty());
    assert_eq!(thin.lost(), Some(Errno::NxIo), "its commands end");
    thin.find(Edge(2), 1 << 20);
    thin.lose(Errno::Io);
    assert!(!r.has_lost());
}

/// N3 of numbers.rs.
#[test]
fn a_target_whose_number_cannot_be_saved_is_refused() {
    let (r, store) = (Registry::new(), MemoryStore::new());
    r.set_state_store(store.clone());
    store.fail(Some(Errno::NoSpc));
    assert_eq!(r.set_target("iscsi", "iqn.t").err().map(|e| e.kind), Some(Errno::NoSpc));
    store.fail(None);
    assert_eq!(r.set_target("iscsi", "iqn.t").unwrap().port, 1);
}

#[test]
fn two_disks_never_share_an_identity() {
    let r = registry();
    let twin = DeviceSpec::new("c", "a", Edge(0), 1 << 20, 512);
    assert_eq!(r.add_device("disk", twin).err().map(|e| e.kind), Some(Errno::Exist));
    let blank = DeviceSpec::new("c", "", Edge(0), 1 << 20, 512);
    assert_eq!(r.add_device("disk", blank).err().map(|e| e.kind), Some(Errno::Inval));
    let tape = DeviceSpec::new("c", "c", Edge(0), 1 << 20, 512);
    assert_eq!(r.add_device("tape", tape).err().map(|e| e.kind), Some(Errno::NoEnt));
}

#[test]
fn the_list_of_refused_logins_is_bounded() {
    let r = registry();
    for n in 0..DENIED_MAX as u64 + 5 {
        r.note_denied(Denied {
            at_ns: n,
            driver: "iscsi".into(),
            target: "iqn.t".into(),
            initiator: "x".into(),
            from: None,
            text: String::new(),
        });
    }
    let all = r.denied();
    assert_eq!(all.len(), DENIED_MAX);
    assert_eq!(all.first().map(|d| d.at_ns), Some(5));
    assert_eq!(r.denied_total(), DENIED_MAX as u64 + 5);
}

/// T4.
#[test]
fn a_lun_is_awaited_until_its_unit_is_mapped() {
    let r = registry();
    let awaited = |lun: u64| (lun, format!("late{lun}"));
    let spec = GroupSpec {
        awaited: vec![awaited(0), awaited(7), awaited(LUN_MAX + 1)],
        ..group("g", &["iqn.h1"], &[(0, "a")])
    };
    r.set_groups("iscsi", "iqn.t", &[spec]).unwrap();
    let t = r.target("iscsi", "iqn.t").unwrap();
    let luns = || t.groups().group("g").unwrap().luns();
    let waits = || luns().awaited().map(|(lun, name)| (lun, name.to_owned())).collect::<Vec<_>>();
    assert_eq!(waits(), [awaited(7)], "one that is there is not awaited");
    r.change_luns("iscsi", "iqn.t", "g", &[LunChange::Await(0, "late0".into())]).unwrap();
    assert!(luns().is_empty() && luns().awaits(0) && luns().awaits(7));
    assert!(t.decide("iqn.h1", &at()).grants(), "who has nothing yet is let in");
    let change = LunSpec { lun: 7, device: "a".into(), read_only: false };
    r.change_luns("iscsi", "iqn.t", "g", &[LunChange::Set(change)]).unwrap();
    assert_eq!(waits(), [awaited(0)]);
    r.change_luns("iscsi", "iqn.t", "g", &[LunChange::Remove(7), LunChange::Remove(0)]).unwrap();
    assert!(waits().is_empty() && !t.decide("iqn.h1", &at()).grants());
}
