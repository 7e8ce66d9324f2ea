//! Stripes and concats of the configuration, which have no record on their members; groups that
//! cannot be made.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use mgmt::Consent;
use mgmt::api::{Kind, Result};
use mgmt::plan::{Action, Step};
use mgmt::verbs::{self, Run};
use serde_json::{Value, json};

use crate::by_hand::Site;

fn disks(size: &str) -> String {
    let disk = |name: &str, size: &str| {
        format!(
            "[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{name}.img'\nsize = '{size}'\n\
                 create = true\n"
        )
    };
    disk("d0", size) + &disk("d1", "4MiB")
}

/// A concat of two disks, shown to hosts of this machine.
fn config(size: &str) -> String {
    disks(size)
        + "[[geom]]\nclass = 'concat'\nname = 'big'\nmembers = ['d0', 'd1']\n\
           [[target]]\ndriver = 'local'\nname = 'here'\n\
           [[access]]\ntarget = 'here'\ngroup = 'g'\ninitiators = ['*']\n\
           luns = { 0 = 'concat/big' }\n"
}

fn serial(site: &Site) -> String {
    let state = site.control.plant().state().expect("a state");
    let mut groups = state.targets.iter().flat_map(|target| &target.groups);
    groups.find_map(|group| group.luns.first()).expect("a LUN").serial.clone()
}

#[test]
fn concats_of_one_name_on_two_machines_have_two_identities() {
    let one = Site::new("concat-one", &config("4MiB"));
    let other = Site::new("concat-other", &config("4MiB"));
    assert_ne!(serial(&one), serial(&other));
}

fn apply(site: &Site, text: &str) -> Result<()> {
    let config = site.read(text);
    site.control.apply(&config, &Consent::default(), &mut |_| {}).map(drop)
}

#[test]
fn a_member_whose_growth_would_move_bytes_does_not_grow() {
    let site = Site::new("concat-grows", &config("4MiB"));
    let refused = apply(&site, &config("8MiB")).expect_err("d0 is not the last member");
    assert_eq!(refused.kind, Kind::CannotCarryOut, "{refused:?}");
    assert!(
        refused.source.to_string().contains("its bytes in concat big would move"),
        "{refused:?}"
    );
    let plan = site.control.plan(&site.read(&config("8MiB"))).expect("a plan");
    assert_eq!(site.control.refused_steps(&plan).0.len(), 1, "plan foretells it");
    let resize = json!({ "name": "d0", "size": 8 << 20 });
    let by_hand = site.control.change(|p| p.verb("disk", "resize", &resize, &mut |_| {}));
    assert_eq!(by_hand.expect_err("by hand neither").kind, Kind::Unsupported);
    site.verb("disk", "resize", &json!({ "name": "d1", "size": 8 << 20 }));
    let longer = config("4MiB").replacen("size = '4MiB'", "size = '4096KiB'", 1);
    apply(&site, &longer).expect("the same size");
}

/// The contents of a memory disk stay, so no consent is needed.
#[test]
fn identity_of_a_disk_changes_in_place() {
    let text = |keys: &str| {
        format!(
            "[[disk]]\nname = 'm0'\nkind = 'memory'\nsize = '1MiB'\n{keys}\
             [[target]]\ndriver = 'local'\nname = 'here'\n\
             [[access]]\ntarget = 'here'\ngroup = 'g'\ninitiators = ['*']\n\
             luns = {{ 0 = 'm0' }}\n"
        )
    };
    let site = Site::new("disk-identity", &text(""));
    let of_disk = || site.control.plant().state().expect("a state").disks[0].serial.clone();
    let (first, with_serial) = (of_disk(), text("serial = 'A'\n"));
    let plan = site.control.plan(&site.read(&with_serial)).expect("a plan");
    let is_its = |step: &&Step| matches!(step.action, Action::IdentifyDisk { .. });
    let step = plan.steps.iter().find(is_its).expect("in place");
    for (action, then) in [(&step.action, "A"), (&step.inverse, first.as_str())] {
        site.control.change(|p| p.carry_out(action, &mut |_| {})).expect("carried out");
        assert_eq!(of_disk(), then);
    }
    apply(&site, &with_serial).expect("no data is lost");
    assert_eq!((serial(&site), of_disk()), ("A".to_owned(), "A".to_owned()));
    apply(&site, &text("serial = 'B'\nnaa = '5000c500a1b2c3d4'\n")).expect("no data is lost");
    assert_eq!((serial(&site), of_disk()), ("B".to_owned(), "B".to_owned()));
    let groups = site.control.plant().state().expect("a state").targets.remove(0).groups;
    assert!(groups[0].luns[0].naa.contains("5000c500a1b2c3d4"), "{groups:?}");
}

#[test]
fn size_of_an_image_file_is_removed_without_a_step_and_never_lowered() {
    let site = Site::new("file-size", &config("4MiB"));
    let plan = |text: &str| site.control.plan(&site.read(text)).expect("a plan");
    let bare = config("4MiB").replacen("size = '4MiB'\ncreate = true\n", "", 1);
    for text in [&bare, &config("4MiB")] {
        assert_eq!(plan(text).steps, [], "the file keeps its size");
        apply(&site, text).expect("no step");
        assert!(site.control.config().0.is_equivalent(&site.read(text)));
    }
    let lower = config("2MiB");
    let (refused, _) = site.control.refused_steps(&plan(&lower));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("from 4194304 to 2097152 bytes"), "{refused:?}");
    let error = apply(&site, &lower).expect_err("data would be lost");
    assert_eq!(error.kind, Kind::CannotCarryOut, "{error:?}");
    assert!(error.next.is_some_and(|next| next.contains("size = \"4MiB\"")));
}

/// The secret of one group cannot be read, and the other group is served.
#[test]
fn group_that_cannot_be_created_does_not_block_the_others() {
    let site = Site::launched("groups");
    let secret = |name: &str, mode: u32| {
        let path = site.folder.join(name);
        std::fs::write(&path, "correct horse battery").expect("a file");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
    };
    secret("db.secret", 0o644);
    secret("web.secret", 0o600);
    let group = |name: &str, lun: &str| {
        format!(
            "[[access]]\ntarget = 'iqn.2026-11.test:t'\ngroup = '{name}'\n\
             initiators = ['iqn.2026-11.test:{name}']\nluns = {{ 0 = '{lun}' }}\n\
             chap = {{ user = '{name}', secret = 'file:{name}.secret' }}\n"
        )
    };
    let target = "[[target]]\ndriver = 'iscsi'\nname = 'iqn.2026-11.test:t'\n\
                  listen = ['127.0.0.1:0']\n";
    let text = disks("4MiB") + target + &group("db", "d0") + &group("web", "d1");
    let left = site.control.start(&site.read(&text)).expect("all that can be").deferred;
    let left: Vec<String> = left.into_iter().map(|left| left.subject).collect();
    assert_eq!(left, ["create group db of iqn.2026-11.test:t"]);
    let state = site.control.plant().state().expect("a state");
    let groups = state.targets.iter().flat_map(|target| &target.groups);
    assert_eq!(groups.map(|group| group.name.as_str()).collect::<Vec<_>>(), ["web"]);
}

#[test]
fn read_only_medium_in_a_writable_unit_is_refused_with_a_remedy() {
    let disk = |name: &str, rest: &str| {
        format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '1MiB'\n{rest}")
    };
    let text = disk("m0", "")
        + &disk("m1", "read_only = true\n")
        + "[[unit]]\nprovider = 'm0'\nremovable = true\n\
           [[target]]\ndriver = 'local'\nname = 'here'\n\
           [[access]]\ntarget = 'here'\ngroup = 'g'\ninitiators = ['*']\nluns = { 0 = 'm0' }\n";
    let site = Site::new("tray-read-only", &text);
    site.verb("lun", "eject", &json!({ "name": "m0" }));
    let params = json!({ "name": "m0", "provider": "m1" });
    let done = site.control.change(|plant| plant.verb("lun", "load", &params, &mut |_| {}));
    let error = done.expect_err("m1 cannot be written");
    assert_eq!((error.kind, error.at.as_str()), (Kind::Unsupported, "m0"));
    assert!(error.source.starts_with("m1 can only be read"), "{error}");
    assert!(error.source.contains("`read_only = true` in the [[unit]] of m0"), "{error}");
    // The medium that was ejected is there still.
    site.verb("lun", "load", &json!({ "name": "m0" }));
}

/// The document that `export` prints.
fn export(site: &Site) -> String {
    let Run::Daemon(run) = verbs::find("export").expect("a verb").run else {
        panic!("the daemon answers it");
    };
    let answer = run(&site.control, json!({}), &mut |_| {}).expect("an answer");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    answer["document"].as_str().expect("a document").to_owned()
}

#[test]
fn exported_geoms_of_verbs_are_kept_without_a_step() {
    let disk = |i: u32| format!("[[disk]]\nname = 'm{i}'\nkind = 'memory'\nsize = '1MiB'\n");
    let text: String = (0..10).map(disk).collect();
    let site = Site::new("made", &text);
    for (class, verb, params) in [
        ("stripe", "create", json!({ "name": "r", "members": ["m1", "m0"], "strip": 8192 })),
        ("concat", "create", json!({ "name": "c", "members": ["m3", "m2"] })),
        ("multipath", "create", json!({ "name": "p", "members": ["m4"] })),
        ("sched", "create", json!({ "disks": ["m5"] })),
        ("trim", "create", json!({ "name": "m6", "zeroes": "drop" })),
        ("label", "create", json!({ "name": "n", "provider": "m7" })),
        ("mirror", "create", json!({ "name": "h", "members": ["m8"] })),
        ("nop", "insert", json!({ "name": "slow", "provider": "m9" })),
    ] {
        site.verb(class, verb, &params);
    }
    let document = export(&site);
    let comments: Vec<&str> = document.lines().filter(|line| line.starts_with('#')).collect();
    let [slow, mirror] = comments[..] else { panic!("{document}") };
    assert!(slow.starts_with("# nop slow: inserted over m9"), "{slow}");
    assert!(mirror.starts_with("# mirror h: ") && mirror.contains("mirror label"), "{mirror}");
    let exported = site.read(&document);
    let order: Vec<&[String]> = exported.geom.iter().map(|geom| &geom.members[..]).collect();
    assert!(order.contains(&&["m1".to_owned(), "m0".to_owned()][..]), "{document}");
    let steps = |text: &str| {
        let plan = site.control.plan(&site.read(text)).expect("a plan");
        plan.steps.into_iter().map(|step| step.what).collect::<Vec<_>>()
    };
    assert_eq!(steps(&document), Vec::<String>::new(), "{document}");
    apply(&site, &document).expect("nothing to do");
    let state = site.control.plant().state().expect("a state");
    let of = |name: &str| state.geoms.iter().find(|g| g.name == name).expect("it is there");
    for geom in &exported.geom {
        assert!(of(&geom.name).configured, "{}", geom.name);
    }
    assert_eq!((exported.geom.len(), of("h").configured), (6, false));
    assert_eq!(steps(&text).len(), 6, "they belong to the configuration");
}
