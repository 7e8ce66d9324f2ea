//! Clean records: the geoms that receive the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bio::Errno;
use geom::{CLEAN_RECORDS_DEADLINE, Geom, GeomId, Topology};

use crate::common::Lab;

/// Counts the questions for clean records; the first one finds dirty records.
struct Keeper {
    keeps: bool,
    asked: Arc<AtomicU32>,
}

impl Geom for Keeper {
    fn keeps_records(&self) -> bool {
        self.keeps
    }

    fn clean_records(&mut self, _: &mut Topology, _: GeomId) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) > 0
    }
}

fn keeper(keeps: bool) -> (Box<Keeper>, Arc<AtomicU32>) {
    let asked = Arc::<AtomicU32>::default();
    (Box::new(Keeper { keeps, asked: asked.clone() }), asked)
}

/// The questions of one call for clean records.
fn questions(lab: &mut Lab, asked: &AtomicU32) -> u32 {
    let before = asked.load(Ordering::Relaxed);
    let late = lab.control.clean_records(CLEAN_RECORDS_DEADLINE, |_, _| true);
    assert_eq!(late, Vec::<String>::new());
    lab.control.topology.check();
    asked.load(Ordering::Relaxed) - before
}

#[test]
fn t7_only_geoms_that_keep_records_are_asked_for_clean_ones() {
    let mut lab = Lab::new(1);
    let ((with, asked), (without, unasked)) = (keeper(true), keeper(false));
    let made = lab.control.call(|t| {
        let with = t.new_geom("shim", "with", "a test", with)?;
        Ok((with, t.new_geom("shim", "without", "a test", without)?))
    });
    let (with, without) = made.expect("two geoms");
    assert!(questions(&mut lab, &asked) > 1, "again until its records are clean");
    assert_eq!(questions(&mut lab, &unasked), 0);

    // The state that a geom is given later decides.
    let (ops, late) = keeper(true);
    lab.control.topology.set_ops(without, ops);
    assert!(questions(&mut lab, &late) > 1);
    let (ops, never) = keeper(false);
    lab.control.topology.set_ops(without, ops);
    assert_eq!(questions(&mut lab, &never), 0);

    let gone = lab.control.call(|t| {
        t.wither_geom(with, Errno::NxIo);
        Ok(())
    });
    gone.expect("the graph settles");
    assert_eq!(questions(&mut lab, &asked), 0, "it is gone");
}
