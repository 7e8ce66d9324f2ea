//! Tests of the tables of members that each core has for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::per_core::{CoreLocal, PerCore};

#[derive(Default)]
struct TestState {
    table: Arc<u32>,
    taken: u32,
}

impl CoreLocal for TestState {
    type Table = u32;
    type Left = Vec<u32>;
    type Short = AtomicU64;

    fn take_over(&mut self, table: Arc<u32>, short: &AtomicU64) -> u64 {
        short.store(u64::from(*table) + 100, Relaxed);
        self.taken += 1;
        self.table = table;
        u64::from(*self.table)
    }
}

/// The open members of a core's short path, and the value beside them.
fn open(cores: &PerCore<TestState>, core: usize) -> Option<(u64, u64)> {
    cores.fast_path(core).map(|(open, beside)| (open, beside.load(Relaxed)))
}

/// N2 of per_core.rs.
#[test]
fn each_core_takes_over_a_new_table_once() {
    let cores = PerCore::<TestState>::new(2);
    let seen = |core: usize| {
        let own = cores.local(core);
        (*own.table, own.taken)
    };
    assert_eq!(open(&cores, 0), None, "there is a table to take over");
    assert_eq!(seen(0), (0, 1));
    assert_eq!(open(&cores, 0), None, "by this table nothing is open");
    assert!(Arc::ptr_eq(&cores.inbox(0).table, &cores.local(0).table), "N2");
    cores.set(|| 5, |core, left| left.push(core as u32));
    cores.set(|| 6, |core, left| left.push(core as u32));
    for (core, taken) in [(0, 2), (1, 1)] {
        assert_eq!((seen(core), seen(core)), ((6, taken), (6, taken)));
        assert_eq!(cores.inbox(core).posted, vec![core as u32; 2]);
        assert!(Arc::ptr_eq(&cores.inbox(core).table, &cores.local(core).table), "N2");
        assert_eq!(open(&cores, core), Some((6, 106)), "N3");
    }
    cores.close(0);
    assert_eq!((open(&cores, 0), seen(0)), (None, (6, 2)), "until the next table");
    assert_eq!(open(&cores, 1), Some((6, 106)), "the other core's stays open");
    cores.set(|| 7, |_, _| ());
    assert_eq!((open(&cores, 0), open(&cores, 1)), (None, None), "N3");
    assert_eq!((seen(0), open(&cores, 0)), ((7, 3), Some((7, 107))));
    assert_eq!(open(&cores, 2), None, "there is no such core");
}

/// N1 of per_core.rs, N3 of per_core.rs, T1 of mirror/shared.rs, T1 of multipath/shared.rs,
/// T1 of volume/shared.rs.
#[test]
fn new_table_is_used_by_the_core_once_set_has_returned() {
    let cores = PerCore::<TestState>::new(1);
    for n in 1..200 {
        std::thread::scope(|s| {
            s.spawn(|| cores.set(|| n, |_, _| ()));
            let seen = *cores.local(0).table;
            assert!(seen == n || seen + 1 == n);
        });
        let (open, n) = (open(&cores, 0), u64::from(n));
        assert!(open.is_none_or(|open| open == (n, n + 100)), "N3");
        assert_eq!(u64::from(*cores.local(0).table), n, "N1");
    }
}
