//! Geoms and disks that change while they are used, in plans.

use super::{PredictedSerials, plan};
use crate::api::{ConsumerState, DiskState, GeomState, ProviderState, SystemState};
use crate::config::{Config, GeomConfig, read};
use crate::fake::catalog;

/// A document with these disks, a mirror of these members, and a LUN on it.
fn document(disks: &[(&str, &str)], members: &[&str], balance: Option<&str>) -> Config {
    let mut text = String::new();
    for (name, path) in disks {
        text += &format!("[[disk]]\nname='{name}'\nkind='file'\npath='{path}'\n");
    }
    text += "[[target]]\ndriver='iscsi'\nname='iqn.2026-11.test:t'\nlisten=['127.0.0.1:0']\n";
    text += "[[access]]\ntarget='iqn.2026-11.test:t'\ngroup='g'\ninitiators=['*']\n";
    text += "luns={ 0='mirror/r0' }\n";
    let mut config = read(&text, "a.toml", &catalog()).expect("well-formed");
    config.geom.push(GeomConfig {
        class: "mirror".into(),
        name: "r0".into(),
        provider: None,
        members: members.iter().map(|name| (*name).to_owned()).collect(),
        params: balance.iter().map(|word| ("balance".to_owned(), (*word).into())).collect(),
    });
    config
}

/// The running state: disks, and the mirror on those of its members that are there.
fn state(config: &Config, on: &[&str]) -> SystemState {
    let provider = |name: &str| ProviderState { name: name.into(), ..Default::default() };
    let disk = |name: &str| GeomState {
        class: "disk".into(),
        name: name.into(),
        rank: 1,
        providers: vec![provider(name)],
        ..Default::default()
    };
    let below =
        |name: &&str| ConsumerState { provider: Some((*name).into()), ..Default::default() };
    let mirror = GeomState {
        class: "mirror".into(),
        name: "r0".into(),
        rank: 2,
        consumers: on.iter().map(below).collect(),
        providers: vec![provider("mirror/r0")],
        ..Default::default()
    };
    let disks = config.disk.iter().map(|d| disk(&d.name));
    SystemState { geoms: disks.chain([mirror]).collect(), ..SystemState::default() }
}

fn steps(from: &Config, to: &Config, on: &[&str]) -> Vec<String> {
    let steps = plan(from, to, (&state(from, on), &PredictedSerials::new()), &catalog());
    steps.into_iter().map(|s| s.what).collect()
}

#[test]
fn secret_of_an_account_with_any_name_is_not_shown() {
    let document = |secret: &str| {
        let mut config = document(&BOTH, &["d0", "d1"], None);
        let mutual = serde_json::json!({ "user": "u", "secret": secret });
        let bus = serde_json::json!({ "name": "b", "kind": "virtual", "mutual": mutual });
        config.bus.push(serde_json::from_value(bus).expect("a bus"));
        config
    };
    let (from, to) = (document("sesame one"), document("sesame two"));
    let state = state(&from, &["d0", "d1"]);
    let steps = plan(&from, &to, (&state, &PredictedSerials::new()), &catalog());
    let whys: Vec<&str> = steps.iter().map(|step| step.why.as_str()).collect();
    assert!(whys.iter().any(|why| why.contains("mutual changes")), "{whys:?}");
    assert!(whys.iter().all(|why| !why.contains("sesame")), "{whys:?}");
}

const BOTH: [(&str, &str); 2] = [("d0", "/a"), ("d1", "/b")];

#[test]
fn mirror_settings_and_members_change_without_withdrawing_luns() {
    let from = document(&BOTH, &["d0", "d1"], None);
    let all: [(&[&str], Option<&str>); 3] =
        [(&["d0", "d1"], Some("prefer")), (&["d1", "d0"], None), (&["d0"], None)];
    for (members, balance) in all {
        let to = document(&BOTH, members, balance);
        assert_eq!(steps(&from, &to, &["d0", "d1"]), ["change geom r0 (mirror)"], "{members:?}");
    }
}

/// The disk of a missing or removed member is removed after the mirror has released it.
#[test]
fn replacing_a_disk_in_a_mirror_withdraws_no_lun() {
    let from = document(&BOTH, &["d0", "d1"], None);
    let to = document(&[("d0", "/a"), ("d2", "/c")], &["d0", "d2"], None);
    for on in [&["d0", "d1"][..], &["d0"]] {
        let wanted = ["create disk d2 (file)", "change geom r0 (mirror)", "remove disk d1 (file)"];
        assert_eq!(steps(&from, &to, on), wanted, "{on:?}");
    }
}

#[test]
fn mirror_is_recreated_if_a_new_member_has_an_image_in_use() {
    let from = document(&BOTH, &["d0", "d1"], None);
    let assert_recreated = |to: &Config, on: &[&str]| {
        let steps = steps(&from, to, on);
        assert!(steps.contains(&"remove geom r0 (mirror)".to_owned()), "{steps:?}");
    };
    // The image of d1 under another name with other keys, and another image under its name.
    let mut other = document(&[("d0", "/a"), ("d2", "/b")], &["d0", "d2"], None);
    other.disk[1].params.insert("read_only".into(), true.into());
    assert_recreated(&other, &["d0", "d1"]);
    assert_recreated(&document(&[("d0", "/a"), ("d1", "/c")], &["d0", "d1"], None), &["d0", "d1"]);
}

/// LUNs and layers on a partition with a letter (BSD) stay when its disk is renamed.
#[test]
fn a_partition_with_a_letter_follows_its_renamed_disk() {
    let config = |disk: &str| {
        let text = format!(
            "[[disk]]\nname='{disk}'\nkind='file'\npath='/a'\n\
             [[target]]\ndriver='iscsi'\nname='iqn.2026-11.test:t'\nlisten=['127.0.0.1:0']\n\
             [[access]]\ntarget='iqn.2026-11.test:t'\ngroup='g'\ninitiators=['*']\n\
             luns={{ 0='{disk}a', 1='{disk}s1b' }}\n"
        );
        read(&text, "a.toml", &catalog()).expect("well-formed")
    };
    let (from, to) = (config("d0"), config("data"));
    let steps = plan(&from, &to, (&SystemState::default(), &PredictedSerials::new()), &catalog());
    let what: Vec<&str> = steps.iter().map(|s| s.what.as_str()).collect();
    assert_eq!(what, ["rename disk d0 to data"]);
}

/// LUNs on a disk with these keys, on a partition of it, and on another disk.
fn identified(keys: &[(&str, &str)]) -> Config {
    let text = "[[disk]]\nname='d0'\nkind='memory'\n[[disk]]\nname='d1'\nkind='memory'\n\
        [[target]]\ndriver='iscsi'\nname='iqn.2026-11.test:t'\nlisten=['127.0.0.1:0']\n\
        [[access]]\ntarget='iqn.2026-11.test:t'\ngroup='g'\ninitiators=['*']\n\
        luns={ 0='d0', 1='d0p1', 2='d1' }\n";
    let mut config = read(text, "a.toml", &catalog()).expect("well-formed");
    let keys = keys.iter().map(|(key, id)| ((*key).to_owned(), serde_json::Value::from(*id)));
    config.disk[0].params.extend(keys);
    config
}

#[test]
fn identity_of_a_disk_changes_under_its_partitions() {
    let none = identified(&[]);
    let edits: [(Config, &[u64]); 2] = [
        (identified(&[("serial", "A")]), &[0, 1]),
        (identified(&[("naa", "5000c500a1b2c3d4")]), &[0]),
    ];
    for (to, withdrawn) in edits {
        let known = PredictedSerials::new();
        let steps = plan(&none, &to, (&state(&none, &[]), &known), &catalog());
        let what: Vec<&str> = steps.iter().map(|s| s.what.as_str()).collect();
        let group = "change group g of iqn.2026-11.test:t";
        assert_eq!(what, [group, "change the identity of disk d0 (memory)", group]);
        let mut config = none.clone();
        steps[0].action.apply_to(&mut config);
        let left = &config.access[0].luns;
        assert!([0u64, 1, 2].iter().all(|lun| withdrawn.contains(lun) != left.contains_key(lun)));
        steps[1..].iter().for_each(|step| step.action.apply_to(&mut config));
        assert!(config.is_equivalent(&to));
        steps.iter().rev().for_each(|step| step.inverse.apply_to(&mut config));
        assert!(config.is_equivalent(&none));
    }
}

/// A mirror is not notified of a serial number, and a serial number that a section does not give is
/// read when the disk is opened. Other names are those of the unit alone.
#[test]
fn disk_is_remade_if_its_serial_number_does_not_reach_its_users() {
    let (none, serial) = (identified(&[]), identified(&[("serial", "A")]));
    let naa = identified(&[("naa", "5000c500a1b2c3d4")]);
    let remade = "remove disk d0 (memory)".to_owned();
    let edits: [(&Config, &Config, &[&str], bool); 4] = [
        (&none, &serial, &["d0"], true),
        (&none, &naa, &["d0"], false),
        (&serial, &none, &[], true),
        (&naa, &none, &[], false),
    ];
    for (from, to, on, is_remade) in edits {
        let steps = steps(from, to, on);
        assert_eq!(steps.contains(&remade), is_remade, "{steps:?}");
    }
}

#[test]
fn awaited_disk_with_another_name_is_removed_and_created() {
    let document = |name: &str| {
        let text = format!("[[disk]]\nname='{name}'\nkind='file'\npath='/a'\n");
        read(&text, "a.toml", &catalog()).expect("well-formed")
    };
    let (from, to) = (document("d0"), document("d1"));
    let steps = |state: &SystemState| -> Vec<String> {
        let steps = plan(&from, &to, (state, &PredictedSerials::new()), &catalog());
        steps.into_iter().map(|s| s.what).collect()
    };
    let disk = DiskState { name: "d0".into(), ..DiskState::default() };
    let mut state = SystemState { disks: vec![disk], ..SystemState::default() };
    assert_eq!(steps(&state), ["remove disk d0 (file)", "create disk d1 (file)"]);
    let provider = ProviderState { name: "d0".into(), ..Default::default() };
    state.geoms.push(GeomState { providers: vec![provider], ..Default::default() });
    assert_eq!(steps(&state), ["rename disk d0 to d1"]);
}

#[test]
fn plan_names_the_changed_settings_of_units() {
    let document = |units: &[&str]| {
        let unit = |text: &&str| format!("[[unit]]\nprovider={text}\n");
        let units: String = units.iter().map(unit).collect();
        let disks = ["a", "b", "c", "d"]
            .map(|name| format!("[[disk]]\nname='{name}'\nkind='file'\npath='/{name}'\n"));
        read(&(disks.concat() + &units), "a.toml", &catalog()).expect("well-formed")
    };
    let why = |from: &[&str], to: &[&str]| -> String {
        let known = (&SystemState::default(), &PredictedSerials::new());
        let steps = plan(&document(from), &document(to), known, &catalog());
        steps.into_iter().map(|s| s.why).collect()
    };
    let protected = why(&["'a'\nremovable=true"], &["'a'\nremovable=true\nprotection='type1'"]);
    assert_eq!(protected, "a: protection default -> \"type1\"");
    let removable = ["'a'", "'b'", "'c'", "'d'"].map(|name| format!("{name}\nremovable=true"));
    let many = why(&[], &removable.each_ref().map(String::as_str));
    assert!(many.contains("c: removable") && many.ends_with("; 1 more"), "{many}");
}
