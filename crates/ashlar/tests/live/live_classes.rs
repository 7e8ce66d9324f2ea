//! Every class with members on real files, under load through iSCSI. Members are pulled in all
//! possible ways, users notice nothing, returned members are repaired, and no byte is wrong.
//!
//! `ASHLAR_LIVE_SECONDS`: how long members are added and removed; `docs/verification.md` has the
//! full run.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::fixture::Fixture;
use crate::live::arrays::{self, Array, Arrays, Class};
use crate::live::load::Load;
use crate::live::pull::{Pull, give_back, pull};

/// How long members are added and removed, unless the variable is set: each way once.
const SECONDS: u64 = 0;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest rebuild.
const REBUILD_LIMIT: Duration = Duration::from_secs(20);

fn seconds() -> u64 {
    std::env::var("ASHLAR_LIVE_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SECONDS)
}

/// Waits until every array is whole again; users continue meanwhile.
#[track_caller]
fn wait_until_complete(fixture: &Fixture, arrays: &Arrays, load: &mut Load, why: &str) {
    for array in &arrays.all {
        let start = Instant::now();
        while !array.is_whole(fixture) {
            load.check_running();
            let output = || fixture.ok(&[array.class.name(), "list"]);
            let late = start.elapsed() > REBUILD_LIMIT;
            assert!(!late, "{} is not whole after {why}:\n{}{}", array.on, output(), fixture.log());
            sleep(PAUSE);
        }
    }
}

/// Pulls a member of every array in one way, and gives it back in the same.
#[track_caller]
fn round(fixture: &Fixture, arrays: &Arrays, load: &mut Load, how: Pull, nth: usize) {
    let of = |array: &Array| array.members[nth % array.members.len()];
    let fits: Vec<&Array> = arrays.all.iter().copied().filter(|a| a.can(how)).collect();
    for array in &fits {
        pull(fixture, arrays, array, of(array), how);
    }
    for array in &fits {
        fixture.until(
            &format!("{} lacks {} ({how:?})", array.on, of(array)),
            REBUILD_LIMIT,
            || {
                load.check_running();
                array.lacks(fixture, of(array), how)
            },
        );
    }
    load.moves(fixture);
    for array in &fits {
        give_back(fixture, arrays, array, of(array), how);
    }
    wait_until_complete(fixture, arrays, load, &format!("{how:?}"));
}

/// The daemon is killed while a mirror lacks a member, and starts again without it.
#[track_caller]
fn kill(fixture: &mut Fixture, arrays: &Arrays, load: &mut Load, nth: usize) {
    let mirrors: Vec<&Array> =
        arrays.all.iter().copied().filter(|a| a.class == Class::Mirror).collect();
    let lacks = mirrors[nth % mirrors.len()];
    let member = lacks.members[nth % lacks.members.len()];
    pull(fixture, arrays, lacks, member, Pull::Shrinks);
    load.moves(fixture);
    fixture.kill();
    load.was_killed();
    fixture.start_whole();
    load.resume(fixture);
    assert!(lacks.lacks(fixture, member, Pull::Shrinks), "{member} has come back by itself");
    load.moves(fixture);
    give_back(fixture, arrays, lacks, member, Pull::Shrinks);
    wait_until_complete(fixture, arrays, load, "a SIGKILL");
}

#[test]
fn pulled_and_returned_members_cause_no_error_under_load() {
    let begun = Instant::now();
    let mut fixture = Fixture::alone("live");
    let arrays = arrays::build(&mut fixture);
    let mut load = Load::start(&fixture, &arrays);
    wait_until_complete(&fixture, &arrays, &mut load, "labelling");
    println!("everybody works after {:?}", begun.elapsed());
    let (time, from) = (Duration::from_secs(seconds()), Instant::now());
    let (mut rounds, mut kills) = (0, 0);
    while rounds < Pull::ALL.len() || from.elapsed() < time {
        let (how, at) = (Pull::ALL[rounds % Pull::ALL.len()], Instant::now());
        round(&fixture, &arrays, &mut load, how, rounds);
        println!("{how:?}: {:?}", at.elapsed());
        rounds += 1;
        if rounds % Pull::ALL.len() == Pull::ALL.len() / 2 {
            let at = Instant::now();
            kill(&mut fixture, &arrays, &mut load, kills);
            kills += 1;
            println!("SIGKILL: {:?}", at.elapsed());
        }
    }
    let done = load.finish(&fixture, kills as u32);
    arrays.all.iter().for_each(|array| array.verify(&fixture));
    fixture.assert_alive();
    fixture.stop();
    arrays.all.iter().for_each(|array| array.compare(&fixture));
    println!("{rounds} rounds, {kills} kills, {done}; {:?}", begun.elapsed());
}
