//! One boot of a real kernel against two tgt daemons: the copied tree (with mutual CHAP), and the
//! target killed in the middle of writes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rig::guest::{self, Boot, Image, Script, SharedGuest};
use rig::peer::{Store, Tgt, TgtConfig};
use rig::proc::Scratch;
use rig::scenarios::{self, From, Tree};
use rig::{Chap, Login, packages};

/// How long the killed target stays away: writes pile up in the guest meanwhile.
const DOWN: Duration = Duration::from_millis(500);

fn tgt(folder: &Path, name: &str, chap: Option<Chap>) -> (Tgt, PathBuf) {
    let image = folder.join(name);
    File::create(&image).unwrap().set_len(128 << 20).unwrap();
    let config = TgtConfig { chap, ..TgtConfig::new(Store::File(image.clone())) };
    (Tgt::start(config).unwrap(), image)
}

#[test]
fn guest_copies_a_tree_and_survives_a_killed_target() {
    let _turn = crate::turn();
    packages::ensure_host().unwrap();
    let image = Image::build().unwrap();
    let scratch = Scratch::new("guest-test").unwrap();
    let chap = Chap {
        user: "alice".into(),
        secret: "initiator-pass".into(),
        mutual: Some(("target".into(), "target-passwd".into())),
    };
    let (first, first_image) = tgt(scratch.path(), "first.img", Some(chap.clone()));
    let (mut second, second_image) = tgt(scratch.path(), "second.img", None);
    let tree = Tree::some(100).unwrap();
    let open = Login::open(second.target().clone());
    let mut script =
        scenarios::copy_tree(&Login::open(first.target().clone()).with_chap(chap), &tree);
    script.then(scenarios::discover(&open)).then(scenarios::end_in_writes(&open, 1));

    let how = Boot { deadline: Duration::from_secs(180), core: None };
    let played = scenarios::play(From::Kernel(&image), &script, how, &mut || {
        second.kill()?;
        std::thread::sleep(DOWN);
        second.restart()
    })
    .unwrap();
    println!("{:?} files and bytes\n{}", tree.size(), played.run.summary());
    println!(
        "acknowledged {} + {}, restart took {:?}",
        played.acknowledged_before,
        played.acknowledged.len() - played.acknowledged_before,
        played.restart
    );
    assert!(played.acknowledged_before >= 20);
    assert!(played.acknowledged.len() >= played.acknowledged_before + 20);
    assert!(played.restart.is_some());

    drop((first, second));
    scenarios::check_image(&second_image, &played.acknowledged).unwrap();
    // The check itself is tested: it reports a file that was never written and a wrong checksum.
    let mut more = played.acknowledged.clone();
    more.insert("f999999".into(), "0".repeat(64));
    assert!(scenarios::check_image(&second_image, &more).is_err());
    let none = Default::default();
    assert!(scenarios::check_image(&scratch.path().join("none"), &none).is_err());
    scenarios::check_clean(&first_image).unwrap();
}

/// B2 of guest/boot.rs.
#[test]
fn a_guest_is_stopped_at_its_deadline() {
    let _turn = crate::turn();
    let image = Image::build().unwrap();
    let mut script = Script::new();
    script.step("never", "sleep 1000");
    let deadline = Duration::from_millis(700);
    let run = guest::boot(&image, &script, Boot { deadline, core: None }, &mut |_, _| Ok(()));
    let run = run.unwrap();
    assert!(run.late && run.took >= deadline, "{:?}", run.took);
    assert_eq!(run.steps[0].status, None);
    let error = run.expect_ok().unwrap_err().to_string();
    assert!(error.contains("the deadline passed"), "{error}");
}

#[test]
fn a_shared_guest_is_replaced_after_a_failed_script() {
    let _turn = crate::turn();
    let mut guest = SharedGuest::new(Image::build().unwrap(), &[]);
    let mut script = Script::new();
    script.step("never", "sleep 1000");
    let how = Boot { deadline: Duration::from_millis(100), core: None };
    for _ in 0..2 {
        // A killed guest could not be given a second script.
        let run = guest.run(&script, how, &mut |_, _| Ok(())).unwrap();
        assert!(run.late, "{:?}", run.took);
    }
}
