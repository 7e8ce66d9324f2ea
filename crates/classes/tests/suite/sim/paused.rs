//! Rebuilds that are paused, resumed and limited while they run: their progress never decreases, a
//! paused one does not move, and all end complete.

use std::sync::Arc;

use bio::Origin;
use geom::{GeomView, Origins, Progress, Trouble};
use serde_json::{Value, json};
use testkit::Seeds;

use super::life::{Life, MS};
use super::named::Bench;
use super::named_raid_progress::Array;
use crate::support::Seed;

/// So slow that a rebuild takes about a second, bytes a second.
const SLOW: u64 = 64 << 10;
/// Longest life of a rebuild, in steps of 20 ms.
const STEPS_MAX: usize = 3_000;
const SEEDS: u64 = 20;

/// A geom with a rebuild.
struct Rebuilt {
    life: Life,
    class: &'static str,
    name: String,
}

impl Rebuilt {
    /// A mirror of two disks, one of which was rebuilt from its start a moment ago.
    fn mirror() -> Rebuilt {
        let mut bench = Bench::of(2);
        bench.fill(1, true);
        Rebuilt::begun(bench.life, "mirror", "m".to_owned(), |life| {
            let of = json!({ "members": ["d1"] });
            life.verb("mirror", "rebuild", "m", of).expect("rebuilt");
        })
    }

    /// An array whose second disk returned a moment ago.
    fn array(format: &str, level: &str, count: usize) -> Rebuilt {
        let Array { mut life, disks, set, edge } = Array::of((format, level, count));
        life.pull("d1", &disks[1], false);
        life.pass(50 * MS);
        life.write(edge, 0, vec![7; 512]).expect("written");
        Rebuilt::begun(life, "raid", set, |life| life.plug_soon("d1", &disks[1]))
    }

    fn all() -> [Rebuilt; 3] {
        let mirror = Rebuilt::mirror();
        [mirror, Rebuilt::array("Intel", "RAID1", 2), Rebuilt::array("DDF", "RAID5", 3)]
    }

    fn begun(life: Life, class: &'static str, name: String, f: impl FnOnce(&mut Life)) -> Rebuilt {
        let mut rebuilt = Rebuilt { life, class, name };
        rebuilt.limit(SLOW);
        f(&mut rebuilt.life);
        let begins = (0..STEPS_MAX).any(|_| {
            rebuilt.life.pass(MS);
            rebuilt.progress().is_some()
        });
        assert!(begins, "{}", rebuilt.life.dump_state());
        rebuilt
    }

    fn view(&self) -> GeomView {
        let mut all = self.life.geoms(self.class).into_iter();
        all.find(|geom| geom.name == self.name).expect("the geom")
    }

    fn progress(&self) -> Option<Progress> {
        self.view().measures.iter().find_map(|measure| measure.progress().cloned())
    }

    fn verb(&mut self, verb: &str, with: Value) {
        let name = self.name.clone();
        self.life.verb(self.class, verb, &name, with).expect(verb);
    }

    fn limit(&mut self, rate: u64) {
        self.verb("configure", json!({ "sync_rate": rate }));
    }

    /// Lets time pass until the rebuild has ended.
    fn ends(&mut self) {
        let ended = (0..STEPS_MAX).any(|_| {
            self.life.pass(20 * MS);
            self.progress().is_none()
        });
        let view = self.view();
        let state = self.life.dump_state();
        assert!(ended && view.troubles.is_empty(), "{:?}\n{state}", view.troubles);
    }
}

#[test]
fn progress_never_decreases_whatever_the_pauses_and_limits() {
    for seed in Seeds::of(SEEDS) {
        let mut random = Seed(seed);
        for mut rebuilt in Rebuilt::all() {
            let mut before = 0;
            for _ in 0..100 {
                match random.below(8) {
                    0 => rebuilt.verb("pause", json!({})),
                    1 => rebuilt.verb("resume", json!({})),
                    2 => rebuilt.limit(SLOW << random.below(4)),
                    _ => rebuilt.life.pass(20 * MS),
                }
                let Some(now) = rebuilt.progress() else { break };
                assert!(before <= now.done_bytes && now.done_bytes <= now.size_bytes, "{now:?}");
                assert_eq!(now.percent() == 100, now.done_bytes == now.size_bytes, "{now:?}");
                assert!(!now.is_paused || now.rate().is_none(), "{now:?}");
                assert!(!now.sources.is_empty() && !now.sources.contains(&now.part), "{now:?}");
                before = now.done_bytes;
            }
            rebuilt.verb("resume", json!({}));
            rebuilt.limit(0);
            rebuilt.ends();
        }
    }
}

#[test]
fn paused_rebuild_stays_where_it_is_and_status_names_the_command() {
    for mut rebuilt in Rebuilt::all() {
        rebuilt.verb("pause", json!({}));
        // A step that began before ends.
        rebuilt.life.pass(500 * MS);
        let paused = rebuilt.progress().expect("a rebuild");
        assert!(paused.is_paused && paused.done_bytes < paused.size_bytes, "{paused:?}");
        rebuilt.life.pass(5_000 * MS);
        let later = rebuilt.progress().expect("a rebuild");
        assert_eq!(later.done_bytes, paused.done_bytes);
        let view = rebuilt.view();
        let command = format!("`ashlar {} resume {}`", rebuilt.class, rebuilt.name);
        let names = |t: &Trouble| t.why.ends_with(", paused") && t.action.contains(&command);
        let has = view.troubles.iter().any(names);
        assert!(has, "{:?}", view.troubles);
        let kept = view.transients.iter().any(|t| t.setting == "rebuilds are paused");
        assert!(kept, "{:?}", view.transients);
        rebuilt.verb("resume", json!({}));
        rebuilt.ends();
        assert!(rebuilt.view().transients.iter().all(|t| t.setting != "rebuilds are paused"));
    }
}

/// T2 of throttle.rs.
#[test]
fn rebuild_that_began_anew_leaves_no_task_that_waits_for_its_rate() {
    let mut rebuilt = Rebuilt::mirror();
    let origins = Arc::new(Origins::default());
    rebuilt.life.cores[0].set_origins(origins.clone());
    rebuilt.limit(1);
    for _ in 0..3 {
        rebuilt.verb("rebuild", json!({ "members": ["d1"] }));
        // The first step is over, and the second one waits.
        rebuilt.life.pass(1_000 * MS);
    }
    let all = (1..100).filter_map(|number| origins.originator(Origin(number)));
    assert_eq!(all.filter(|of| of.task == "mirror rebuild m").count(), 1);
    rebuilt.limit(0);
    rebuilt.ends();
}

/// A step of 4 KiB takes an hour at this rate.
/// T1 of throttle.rs.
#[test]
fn limit_of_a_running_rebuild_changes_at_once() {
    for mut rebuilt in Rebuilt::all() {
        rebuilt.limit(1);
        rebuilt.life.pass(5_000 * MS);
        let slow = rebuilt.progress().expect("a rebuild");
        assert_eq!(slow.limit, 1);
        rebuilt.limit(SLOW);
        rebuilt.life.pass(500 * MS);
        let faster = rebuilt.progress().expect("a rebuild");
        assert!(slow.done_bytes < faster.done_bytes, "{slow:?} {faster:?}");
        assert!(faster.rate().is_some_and(|rate| rate > 0), "{faster:?}");
        rebuilt.limit(0);
        rebuilt.ends();
    }
}
