//! Tables per core: N1 and N3 in every order of a geom that sets tables and a core that uses them.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

use crate::everything;
use crate::per_core::{CoreLocal, PerCore};

#[derive(Default)]
struct TableState(Arc<u64>);

/// The data beside the open state: the table that it belongs to.
struct Beside(AtomicU64);

impl Default for Beside {
    fn default() -> Beside {
        Beside(AtomicU64::new(0))
    }
}

impl CoreLocal for TableState {
    type Table = u64;
    type Left = ();
    type Short = Beside;

    fn take_over(&mut self, table: Arc<u64>, beside: &Beside) -> u64 {
        beside.0.store(*table, SeqCst);
        self.0 = table;
        *self.0
    }
}

/// Returns the table that a core uses: of the short way, or of the long one if that is closed.
fn table_of_core(cores: &PerCore<TableState>) -> u64 {
    match cores.fast_path(0) {
        Some((open, beside)) => {
            assert_eq!(open, beside.0.load(SeqCst), "N3: of one table");
            open
        }
        None => *cores.local(0).0,
    }
}

/// A geom sets tables 1, 2 and so on. A core reads now and then, and never uses a table that is
/// older than one that was published before the read.
fn tables(sets: u64, reads: usize) {
    let cores = Arc::new(PerCore::<TableState>::new(1));
    let seen_table = Arc::new(AtomicU64::new(0));
    let geom = {
        let (cores, seen_table) = (cores.clone(), seen_table.clone());
        thread::spawn(move || {
            for table in 1..=sets {
                cores.set(|| table, |_, ()| ());
                seen_table.store(table, SeqCst);
            }
        })
    };
    for _ in 0..reads {
        let known = seen_table.load(SeqCst);
        let by = table_of_core(&cores);
        assert!(by >= known, "N1, N3: by table {by}, and {known} is set");
    }
    geom.join().expect("the geom");
    assert_eq!((table_of_core(&cores), table_of_core(&cores)), (sets, sets));
    // Setting a table closes only cores of older tables. A lane closed without the core's knowledge
    // would stay closed.
    assert_eq!(cores.fast_path(0).map(|(open, _)| open), Some(sets), "N3: open again");
}

#[test]
fn an_open_short_path_uses_the_newest_table() {
    everything("a table", 5, 100, || tables(1, 3));
    everything("two tables", 4, 1_000, || tables(2, 3));
}
