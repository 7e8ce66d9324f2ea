//! Random lives of a multipath device, by seed.

use bio::Errno;
use geom::Access;
use serde_json::json;
use testkit::Seeds;

use super::fixture::*;

struct Seed(u64);

impl Seed {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

/// One life of a device: paths fail, recover, leave and return, by themselves and by hand. A
/// request succeeds exactly when some path works, and acknowledged data is read back.
fn live(seed: u64) {
    const PATHS: usize = 3;
    let mut chance = Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut world, disk, ways) = labelled(PATHS, json!({}));
    let mut ways: Vec<Option<Way>> = ways.into_iter().map(Some).collect();
    let mut works = [true; PATHS];
    let mut model = vec![0; 16 * 512];
    let open = world.open("multipath/m", Access::WRITE);
    for step in 0..60 {
        let at = chance.below(PATHS);
        let name = format!("d{at}");
        let others = ways.iter().enumerate().filter(|(i, w)| *i != at && w.is_some()).count();
        let step_name = format!("seed {seed}, step {step}");
        match chance.below(14) {
            0 | 1 => {
                works[at] = !works[at];
                let error = [Errno::Io, Errno::NxIo][chance.below(2)];
                if let Some(way) = &ways[at] {
                    way.fails((!works[at]).then_some(error));
                }
            }
            2 if ways[at].is_some() && others > 0 => {
                world.lose(&name);
                ways[at] = None;
            }
            3 if ways[at].is_none() => {
                ways[at] = Some(way(&mut world, &name, &disk));
                works[at] = true;
            }
            4 if ways[at].is_some() => {
                let verb = ["fail", "restore", "prefer"][chance.below(3)];
                // A path that has failed is not preferred; the others never refuse.
                let done = ask(&mut world, verb, &name);
                assert!(done.is_ok() || verb == "prefer", "{step_name}: {done:?}");
            }
            // It returns requests that another path can serve, and completes the rest.
            12 | 13 => {
                if let Some(way) = &ways[at] {
                    let mut state = way.state.lock().expect("state");
                    state.in_transition = !state.in_transition;
                }
            }
            5 => drop(world.verb("multipath", "rotate", "m", json!({}))),
            6 => {
                let flag = ["active", "read", "passive"][chance.below(3)];
                // The record needs a path that works; the mode changes all the same.
                drop(world.verb("multipath", "configure", "m", json!({ flag: true })));
            }
            n => {
                let can = (0..PATHS).any(|i| works[i] && ways[i].is_some());
                let offset = chance.below(16) * 512;
                let place = offset..offset + 512;
                if n < 9 {
                    let bytes = vec![chance.below(256) as u8; 512];
                    let done = world.write(&open, offset as u64, &bytes);
                    assert_eq!(done.is_ok(), can, "{step_name}: {done:?}");
                    if done.is_ok() {
                        model[place].copy_from_slice(&bytes);
                    }
                } else {
                    match world.read(&open, offset as u64, 512) {
                        Ok(bytes) => assert!(can && bytes == model[place], "{step_name}"),
                        Err(e) => assert!(!can, "{step_name}: {e:?}"),
                    }
                }
            }
        }
        let states = states(&world);
        assert_eq!(states.len(), ways.iter().flatten().count(), "{step_name}: {states:?}");
        if state(&world).starts_with("OPTIMAL") {
            assert!(states.iter().all(|s| !s.ends_with("FAIL")), "{step_name}: {states:?}");
        }
    }
    world.close(open);
    assert!(disk.bytes()[..model.len()] == model);
    world.control.topology.check();
}

#[test]
fn random_operations_by_seed() {
    Seeds::of(100).each(live);
}
