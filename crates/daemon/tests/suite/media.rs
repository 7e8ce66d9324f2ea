//! Files of disks that a plan makes: shared ones and locked ones are refused by `plan` and `apply`.

use std::os::unix::fs::symlink;

use daemon::{Daemon, catalog};
use mgmt::api::Kind;
use mgmt::config::{Config, DaemonConfig, Port, read};
use mgmt::{Archive, Consent, Control};
use reactor::{File, OpenHow};
use testkit::Folder;

use crate::by_hand::Site;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn disk(name: &str, file: &str, more: &str) -> String {
    format!("[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{file}'\n{more}\n")
}

/// The refusals of a plan for a configuration; `apply` agrees and changes nothing.
fn refused(site: &Site, text: &str) -> Vec<String> {
    let config = site.read(text);
    let plan = site.control.plan(&config).expect("a plan");
    let (refused, _) = site.control.refused_steps(&plan);
    let before = site.control.config().0;
    match site.control.apply(&config, &Consent::default(), &mut |_| {}) {
        Ok(_) => assert!(refused.is_empty(), "{refused:?}"),
        Err(e) => {
            assert!(e.kind == Kind::CannotCarryOut && !refused.is_empty(), "{e}: {refused:?}");
            assert_eq!(site.control.config().0, before);
        }
    }
    refused
}

#[test]
fn image_under_two_paths_is_refused_unless_both_only_read() {
    let site = Site::launched("media-links");
    let at = |name: &str| site.folder.join(name);
    std::fs::write(at("a.img"), vec![0; MIB as usize]).expect("an image");
    symlink("a.img", at("soft.img")).expect("a link");
    std::fs::hard_link(at("a.img"), at("hard.img")).expect("a link");
    symlink(".", at("again")).expect("a link");
    symlink("new.img", at("to-new.img")).expect("a link");
    let is_shared = |refused: Vec<String>| {
        let [one] = refused.as_slice() else { panic!("{refused:?}") };
        assert!(one.contains("create disk b") && one.contains("of disk a"), "{one}");
    };
    for other in ["soft.img", "hard.img", "again/a.img"] {
        is_shared(refused(&site, &(disk("a", "a.img", "") + &disk("b", other, ""))));
    }
    let made = "create = true\nsize = '1MiB'";
    is_shared(refused(&site, &(disk("a", "new.img", made) + &disk("b", "to-new.img", made))));
    assert!(!at("new.img").exists(), "nothing was made");
    // One of the two runs already.
    let one = disk("a", "a.img", "");
    assert!(refused(&site, &one).is_empty());
    is_shared(refused(&site, &(one + &disk("b", "hard.img", ""))));
    // The other takes its place.
    assert!(refused(&site, &disk("b", "hard.img", "")).is_empty());
    let reads = "read_only = true";
    let both = disk("a", "a.img", reads) + &disk("b", "hard.img", reads);
    assert!(refused(&site, &both).is_empty());
}

#[test]
fn start_leaves_out_the_second_disk_of_an_image() {
    let site = Site::launched("media-start");
    std::fs::write(site.folder.join("a.img"), vec![0; MIB as usize]).expect("an image");
    symlink("a.img", site.folder.join("b.img")).expect("a link");
    let config = site.read(&(disk("a", "a.img", "") + &disk("b", "b.img", "")));
    let left = site.control.start(&config).expect("all that can be").deferred;
    let [left] = left.as_slice() else { panic!("{left:?}") };
    assert!(left.subject.contains("create disk b"), "{left:?}");
    assert!(left.why.contains("one file or device"), "{left:?}");
    assert!(site.control.plant().state().expect("a state").provider("a").is_some());
}

/// It is awaited after the edit as it was before.
#[test]
fn edit_of_an_awaited_disk_is_accepted_before_its_image_exists() {
    let site = Site::launched("media-awaited");
    let left = site.control.start(&site.read(&disk("a", "a.img", ""))).expect("a start").deferred;
    assert_eq!(left.len(), 1, "{left:?}");
    let serial = "serial = 'S1'";
    let sized = format!("{serial}\nsize = '2MiB'");
    let sized = sized.as_str();
    for (name, more) in [("a", serial), ("a", sized), ("b", sized), ("b", serial), ("b", "")] {
        assert!(refused(&site, &disk(name, "a.img", more)).is_empty(), "{name}: {more}");
        let disks = site.control.plant().state().expect("a state").disks;
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, [name], "{more}");
    }
    // Another path may be a mistake, and a LUN is not exported before its disk is there.
    assert_eq!(refused(&site, &disk("b", "c.img", "")).len(), 1);
    let exported = disk("c", "a.img", "") + &crate::members::exported("c");
    assert!(!refused(&site, &exported).is_empty());
    let made = disk("b", "a.img", &format!("{sized}\ncreate = true"));
    assert!(refused(&site, &made).is_empty());
    let state = site.control.plant().state().expect("a state");
    assert_eq!(state.disks.first().map(|disk| disk.serial.as_str()), Some("S1"));
    assert!(state.provider("b").is_some());
}

#[test]
fn locked_image_is_refused_and_an_image_of_the_same_disk_is_not() {
    let site = Site::launched("media-locked");
    let path = site.folder.join("a.img");
    std::fs::write(&path, vec![0; MIB as usize]).expect("an image");
    // As QEMU does with an image that it writes.
    let other = File::open(&path, OpenHow::default()).expect("opened");
    other.share_byte(101).expect("locked");
    let locked = refused(&site, &disk("a", "a.img", ""));
    let [one] = locked.as_slice() else { panic!("{locked:?}") };
    assert!(one.contains("create disk a") && one.contains("a.img"), "{one}");
    assert!(one.contains("QEMU") && one.contains("fuser"), "{one}");
    drop(other);
    assert!(refused(&site, &disk("a", "a.img", "")).is_empty());
    // The disk is made anew from its own file.
    assert!(refused(&site, &disk("a", "a.img", "sector_size = 4096")).is_empty());
}

#[test]
fn image_that_cannot_grow_so_far_is_refused() {
    let site = Site::launched("media-grows");
    let sized = |size: u64| disk("a", "a.img", &format!("create = true\nsize = {size}"));
    // More than any file system here allows.
    let most = i64::MAX as u64 / 4096 * 4096;
    let new = refused(&site, &sized(most));
    assert!(new.len() == 1 && new[0].contains("cannot be made"), "{new:?}");
    assert!(!site.folder.join("a.img").exists(), "nothing was made");
    assert!(refused(&site, &sized(MIB)).is_empty());
    let grown = refused(&site, &sized(most));
    assert!(grown.len() == 1 && grown[0].contains("cannot be extended from"), "{grown:?}");
    assert!(refused(&site, &sized(2 * MIB)).is_empty());
}

/// A disk that was here before returns with its data, or not at all.
#[test]
fn lost_image_is_made_anew_only_after_its_section_was_removed() {
    let folder = Folder::new("media-lost");
    let (state, file) = (folder.join("state"), folder.join("ashlar.toml"));
    let settings = DaemonConfig {
        cores: Some(1),
        port: Port::Poll,
        state: state.to_str().map(str::to_owned),
        ..DaemonConfig::default()
    };
    let parse = |text: &str| {
        let config = read(text, file.to_str().expect("a path"), &catalog()).expect("well-formed");
        Config { daemon: settings.clone(), ..config }
    };
    let launch = || {
        let plant = Daemon::start(&settings).expect("a daemon");
        let launched = Config { daemon: settings.clone(), ..Config::default() };
        let archive = Archive::new(&folder.join("history"), 2);
        Control::new(Box::new(plant), catalog(), &launched, archive)
    };
    let made = |more: &str| disk("a", "a.img", &format!("create = true\nsize = '1MiB'\n{more}"));
    let image = folder.join("a.img");
    let control = launch();
    let done = control.start(&parse(&made(""))).expect("a start");
    assert!(done.deferred.is_empty() && image.exists(), "{:?}", done.deferred);
    control.plant().stop();
    drop(control);
    std::fs::remove_file(&image).expect("removed");

    let control = launch();
    let left = control.start(&parse(&made(""))).expect("a start").deferred;
    assert!(left.len() == 1 && left[0].why.contains("existed before"), "{left:?}");
    control.plant().open();
    let apply = |text: &str| {
        let config = parse(text);
        let plan = control.plan(&config).expect("a plan");
        let (refused, awaited) = control.refused_steps(&plan);
        assert!(refused.is_empty(), "{refused:?}");
        control.apply(&config, &Consent::default(), &mut |_| {}).expect("it is carried out");
        awaited
    };
    // An unrelated edit, and one of its own section.
    let other = "[[disk]]\nname = 'm'\nkind = 'memory'\nsize = '1MiB'\n";
    for text in [made("") + other, made("serial = 'S1'") + other] {
        let awaited = apply(&text);
        assert!(awaited.len() == 1 && awaited[0].contains("existed before"), "{awaited:?}");
        assert!(!image.exists(), "{text}");
    }
    apply(other);
    assert!(apply(&(made("") + other)).is_empty());
    assert!(image.exists(), "a new disk");
    control.plant().stop();
}
