//! The file server in a simulated world: clients, dumps, legs that fail, power cuts, takeovers; all
//! contents beside a model.

mod ahead;
mod client;
mod crashes;
mod damage;
pub mod disk;
mod everywhere;
mod exposing;
mod full;
mod gather;
mod grow;
mod image;
mod image_ahead;
mod image_figures;
mod image_grow;
mod image_moment;
mod image_repair;
mod image_spare;
mod image_temporary;
mod media;
pub mod model;
mod operator_actions;
mod power_cycles;
mod powercut;
mod repair;
mod replace;
mod resume;
pub mod server;
mod takeover;
mod temporary;
pub mod turns;
mod worm_copies;

use testkit::Seeds;

/// V1, V2.
#[test]
fn synced_data_survives_crashes_and_dumps_do_not_change() {
    let mut total = power_cycles::Totals::default();
    let seeds = Seeds::of(60);
    seeds.each(|seed| total.add(&power_cycles::play(seed)));
    eprintln!("{total:?}");
    if seeds.are_enough() {
        let t = &total;
        assert!(
            t.power_cuts > 20 && t.dumps > 40 && t.recovered > 20 && t.synced > 100,
            "{total:?}"
        );
    }
}

/// N1, V5.
/// N2 of volume/fence.rs, N3 of volume/fence.rs.
#[test]
fn exposing_7_stopped_main_that_returns_writes_nothing() {
    Seeds::of(30).each(takeover::play);
}

#[test]
fn damaged_devices_return_written_data_or_a_located_error() {
    let seen = std::cell::Cell::new((0, 0, 0));
    Seeds::of(100).each(|seed| damage::anywhere(seed, &seen));
    let (good, bad, n) = seen.get();
    eprintln!("{good} trees read, {bad} refused, {n} seeds");
    assert!(n < 100 || (good > n && bad > n / 10), "{good} {bad} {n}");
}

#[test]
fn a_damaged_block_is_reported_with_its_files_name() {
    damage::of_one_file();
}

/// V3.
#[test]
fn exposing_5_whole_dump_is_recovered_after_a_power_cut_of_a_worm_copy() {
    let copies = Seeds::of(6).each(powercut::everywhere);
    assert!(copies.iter().any(|operations| *operations > 10), "operations: {copies:?}");
}

#[test]
fn exposing_8_full_cache_device_is_reported_and_a_dump_frees_space() {
    let small = [4096, 12_288, 65_536, 131_048].map(|len| (4096, len));
    let large = [12_288, 131_048].map(|len| (16_384, len));
    for (block, len) in small.into_iter().chain(large) {
        full::is_reported_and_dump_frees(1500, block, len);
    }
    // As many slots are emptied ahead as are kept, and more.
    full::is_reported_and_dump_frees(400, 4096, 4096);
    // More blocks of checksums than are free with any reserve for them.
    full::is_reported_and_dump_frees(64_000, 4096, 16_384);
}

#[test]
fn operation_larger_than_the_block_cache_is_refused() {
    full::of_the_block_cache();
}

#[test]
fn cache_device_full_of_temporary_files_is_reported_and_freeable() {
    full::of_temporary_files();
    full::of_small_temporary_files();
}

#[test]
fn contradictory_metadata_is_repaired_without_loss_of_contents() {
    let done = std::cell::Cell::new(0);
    let seeds = Seeds::of(100);
    seeds.each(|seed| repair::play(seed, &done));
    eprintln!("{} repairs", done.get());
    let enough = done.get() as u64 > 3 * seeds.count();
    assert!(!seeds.are_enough() || enough, "{} repairs", done.get());
}

/// I1 of image/mod.rs, I2 of image/mod.rs.
/// I3 of image/mod.rs, I5 of image/mod.rs.
/// I9 of image/mod.rs.
#[test]
fn images_keep_synced_data_and_every_dump_and_remain_consistent() {
    let mut total = image::Totals::default();
    let seeds = Seeds::of(60);
    seeds.each(|seed| total.add(&image::play(seed, true)));
    eprintln!("{total:?}");
    let t = &total;
    let enough = t.power_cuts > 60 && t.dumps > 400 && t.recovered > 20 && t.operations > 10_000;
    let enough = enough && t.amid_dumps > 1000 && t.amid_copies > 5000;
    let enough =
        enough && t.checks > 100 && t.amid_checks > 200 && t.repaired > 10 && t.leaked > 10;
    let enough = enough && t.grown > 5 && t.watched > 3000;
    assert!(!seeds.are_enough() || enough, "{total:?}");
}

/// T1.
#[test]
fn temporary_files_are_in_no_dump_and_never_on_the_worm() {
    let mut total = temporary::Totals::default();
    let seeds = Seeds::of(32);
    seeds.each(|seed| {
        let t = temporary::play(seed);
        total.toggles += t.toggles;
        total.dumps += t.dumps;
        total.power_cuts += t.power_cuts;
        total.amid += t.amid;
        total.recovered += t.recovered;
        total.there += t.there;
        total.kept += t.kept;
    });
    eprintln!("{total:?}");
    let t = &total;
    let enough = t.toggles > 300 && t.amid > 0 && t.recovered > 20 && t.kept > 1000;
    assert!(!seeds.are_enough() || enough, "{total:?}");
}

#[test]
fn regression_seeds_pass() {
    // 1443: blocks on their way to a slow leg held all of the block cache: a read found no memory.
    // 2612: a client's directory became another's file while it waited. The model did not know.
    for seed in [1443, 2612] {
        power_cycles::play(seed);
    }
    // A file without a name that was recorded without one, and was not removed, lost its contents.
    for seed in [105, 1136] {
        repair::play(seed, &std::cell::Cell::new(0));
    }
    // 98: an address was copied to the WORM before it was durable. 0: an operation that waited for
    // a block when a dump began continued amid that, and was lost. 911, 7024: the layout was taken
    // for the other one while superblock and roots were on the WORM alone. 4001: a commit found no
    // memory for the header in a block cache full of blocks to be written, and nothing moved.
    for seed in [98, 0, 911, 7024, 4001] {
        image::play(seed, false);
    }
    // 50044: a cut while a fake WORM grew left the tag of its new bits without these. 40082: what
    // became free behind a waiting superblock was not noted when no block changed with it.
    // Never failed: 62 notices a check that does not freeze the tree, 255 a close that does not
    // wait for a check.
    for seed in [50044, 40082, 62, 255] {
        image::play(seed, true);
    }
}
