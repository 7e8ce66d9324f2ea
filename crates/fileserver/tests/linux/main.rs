//! The kernel's own client of 9P2000 in a guest: programs that people run, over a mount, with a
//! dump after each. Every dump still hashes the same at the end, after a restart of the server. One
//! boot.
//!
//! A binary of its own. A guest has a deadline, and the server that it uses is in this process, so
//! no simulation may run beside them.

mod compiler;
mod plant;
mod scene;

use plant::On;
use rig::guest::{Image, Kit, Run, SharedGuest, run_checks};
use scene::Scene;

const HASH: &str = "find . -type f | sort | xargs sha1sum | sha1sum";

/// Steps that change the files; the server takes a dump after each.
const WORK: &[(&str, &str)] = &[
    (
        "a repository",
        "mkdir src; cd src
        git init -q .
        for n in $(seq 16); do mkdir -p d$n
            dd if=/dev/urandom of=d$n/data bs=3k count=$n 2>/dev/null; done
        git add .; git commit -qm first
        for n in $(seq 3); do echo line $n >> d$n/text; git add .; git commit -qm c$n; done
        git fsck --full; git status --short",
    ),
    (
        "a clone, gc and fsck",
        "git clone -q src copy; cd copy; git log --oneline | wc -l | grep -qx 4
        git gc -q; git fsck --full; cmp d9/data ../src/d9/data; mv d1/data d1/moved; rm -r d2
        git add -A; git commit -qm moved; git fsck",
    ),
    (
        "rsync twice",
        "rsync -a src/ mirror/; rsync -a --itemize-changes src/ mirror/ | grep '^>f' && exit 1
        echo more >> src/d3/data; rsync -a src/ mirror/; cmp src/d3/data mirror/d3/data
        rsync -a --delete copy/ mirror/; [ ! -e mirror/d2 ]; [ -e mirror/d1/moved ]",
    ),
    ("a program is unpacked and built", compiler::BUILD),
    (
        "small things",
        "echo a > f; echo b > g; mv g f; grep -qx b f
        exec 3<>open; rm open; echo kept >&3; exec 3>&-
        touch -d @1000000000 f; [ $(stat -c %Y f) = 1000000000 ]
        chmod 600 f; [ $(stat -c %a f) = 600 ]
        dd if=/dev/urandom of=big bs=1M count=6 2>/dev/null; sync; truncate -s 2500000 big
        [ $(stat -c %s big) = 2500000 ]; cp big big2; cmp big big2; rm big
        mkdir many; cd many; for n in $(seq 60); do echo $n > f$n; done; ls | wc -l | grep -qx 60
        for n in $(seq 2 2 60); do rm f$n; done; ls | wc -l | grep -qx 30; tar cf ../many.tar .
        mkdir ../out; tar xf ../many.tar -C ../out; diff -r . ../out",
    ),
];

/// The hashes of all dumps that the guest printed.
fn hashes(run: &Run) -> String {
    let found = run.console.lines().find_map(|l| l.trim().strip_prefix("HASHES "));
    found.expect("the hashes").to_owned()
}

/// Checks that share the guest.
const CHECKS: &[(&str, fn(&mut SharedGuest))] = &[("volume", on_volume), ("image", on_image)];

#[test]
fn linux_client_works_and_dumps_do_not_change() {
    let programs = compiler::programs();
    let programs: Vec<_> = programs.iter().map(|(file, place)| (file.as_path(), *place)).collect();
    let image = Image::with_programs(&[Kit::Ninep], &programs).unwrap();
    run_checks(&mut SharedGuest::new(image, &[]), CHECKS);
}

/// Programs work on a volume, and its dumps do not change: the first one while the server runs, all
/// after its restart.
fn on_volume(guest: &mut SharedGuest) {
    let mut scene = Scene::new("files", On::Volume);
    compiler::furnish(&mut scene.script, scene.scratch.path());
    for (name, shell) in WORK {
        scene.script.step(
            name,
            format!(
                "export HOME=/tmp; cd /n/main\n({shell}\n)\ncd /n/main; sync; {HASH}
                echo TAKE-A-DUMP; read -r day; echo DAY $day; cd /n/dump/$day
                {HASH} > /tmp/hash.$(echo $day | tr / .); cat /tmp/hash.*"
            ),
        );
    }
    scene.script.step(
        "the first dump again",
        format!(
            "cd /n/dump/2026/1121; {HASH} | cmp - /tmp/hash.2026.1121
            echo HASHES $(cat /tmp/hash.* | cut -c1-40)
            cd /; umount /n/main; umount /n/dump"
        ),
    );
    let run = scene.play(guest);
    // The hashes of the live files before the dump equal those of the dump.
    for step in &run.steps[1..=WORK.len()] {
        let hashes: Vec<&String> = step.output.iter().filter(|l| l.ends_with("  -")).collect();
        assert_eq!(hashes.first(), hashes.last(), "{}: {:?}", step.name, step.output);
    }
    let mut scene = scene.again();
    scene.script.step(
        "dumps",
        format!(
            "for day in 1121 11211 11212 11213 11214; do
                cd /n/dump/2026/$day; {HASH} >> /tmp/all; done
            echo HASHES $(cut -c1-40 /tmp/all)"
        ),
    );
    assert_eq!(hashes(&scene.play(guest)), hashes(&run));
    scene.close();
}

/// The same on an image, with few files: a dump, further changes, and the dump is unchanged.
fn on_image(guest: &mut SharedGuest) {
    let mut scene = Scene::new("image", On::Image);
    scene.script.step(
        "an archive is unpacked",
        format!(
            "mkdir /tmp/of; cd /tmp/of
            for n in $(seq 12); do mkdir d$n
                dd if=/dev/urandom of=d$n/data bs=5k count=$n 2>/dev/null; done
            tar cf ../of.tar .; cd /n/main; tar xf /tmp/of.tar; diff -r /tmp/of /n/main
            {HASH} > /tmp/yesterday; sync
            echo TAKE-A-DUMP; read -r day; echo $day > /tmp/day
            cd /n/dump/$day; {HASH} | cmp - /tmp/yesterday"
        ),
    );
    scene.script.step(
        "a repository",
        "export HOME=/tmp; cd /n/main; git init -q .; git add .; git commit -qm first
        rm d1/data; mv d2 moved; echo more >> d3/data; git add -A; git commit -qm second
        git fsck --full; git status --short; git log --oneline | wc -l | grep -qx 2; sync",
    );
    scene.script.step(
        "yesterday again",
        format!(
            "cd /n/dump/$(cat /tmp/day); {HASH} | cmp - /tmp/yesterday; [ ! -e .git ]
            cd /n/main; {HASH} > /tmp/today; cmp /tmp/today /tmp/yesterday && exit 1
            echo HASHES $(cut -c1-40 /tmp/yesterday /tmp/today)
            cd /; umount /n/main; umount /n/dump"
        ),
    );
    scene.play(guest);
    scene.close();
}
