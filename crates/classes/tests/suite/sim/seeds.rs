//! Seeds that found something once, on the way to what the mirror is now.

use super::raids::Kind;
use super::run::Tally;

/// Of mirrors on disks: stale members that looked complete, records that were cleared from the
/// last member, writes that only a rebuilt member had, a rebuild that ended twice; 7844: a member's
/// record cleared before those of the others said that it was out; 1223176, 1243393, 1267850: one
/// that was forgotten, or whose place another one took, and one that failed later looked like a
/// whole mirror; 1223274: a member was rebuilt while only its record said that another had failed.
const MIRRORS: [u64; 19] = [
    110, 120, 194, 276, 454, 468, 492, 795, 849, 905, 988, 1074, 1186, 1387, 7844, 1223176,
    1223274, 1243393, 1267850,
];

/// With what happens more rarely: 1052412: one that was forgotten and one that failed looked like a
/// whole mirror; 1000620: of the story itself: the last two members went at once, one of them with
/// its cache, and nobody remembered that what was not flushed could be lost; 6001698: bits were
/// written where the bitmap was to be after a disk had grown, and the record was not there yet;
/// 7005741: members were to be forgotten by a mirror that had not started; 4012129: a growth was
/// asked for again, to a larger size, while it waited to be recorded: the larger size was recorded,
/// and what it added was another on each member; 6032443: a record failed to be moved, and its old
/// place was cleared later, when the mirror had grown over it, on that member alone.
const RICH: [u64; 6] = [1000620, 1052412, 4012129, 6001698, 6032443, 7005741];

/// Of mirrors that become smaller: 392: a member came while no record could say so yet, and was
/// filled up to the new end only; readers still had the old one, and found there what it had held
/// before; 3000624, 3500621: as [`OVERLAPPING`]; 6043265: a mirror was made to end where a record
/// of one of its members had been before that one grew, was known by it, and had it carried to its
/// end when it grew: over what users had there. Of the story itself: 108886: the end came within
/// what was read, 6051027: before it; 5511403: it grew as was asked after it had become smaller,
/// unseen.
const SHRINKING: [u64; 7] = [392, 108886, 3000624, 3500621, 5511403, 6043265, 6051027];

/// With users who write over each other: a disk had grown, and so had the mirror; its record's old
/// place read as zeroes, and as that record after a power cut.
const OVERLAPPING: [u64; 2] = [3001079, 3501501];

/// Of stacks whose disks grow: 42: of two disks of a DDF array that grew one after the other one
/// had its record moved, and the other was taken to have; 5056: the same, two lives later; 233699:
/// a disk came back, and a verb read it while it was tasted: its mirror did not claim it, a table
/// that was the mirror's did, and what stood on the mirror's partition took the stale one;
/// 216423: a disk that a mirror had put out grew, its record stayed behind (`put_out`), and what
/// stood on the mirror's partition took the stale one of that disk; 6034063: a stripe ended, after
/// a power cut, where a label of another one had been left on its member as that one grew, and its
/// own was not looked for where it had ended; 6070403: the same for a concat, which took it for
/// somebody's.
const RISING: [u64; 6] = [42, 5056, 216423, 233699, 6034063, 6070403];

/// Of stacks in which the power goes though an array lacks a member: 35: the record of a disk in a
/// partition was torn, so the whole disk was taken for it as the array started, and let go when
/// that had begun: the array went on without the partition, and was broken. Of the story itself:
/// 300460: a disk was to fail while the loss of another was not dealt with yet; 311255: three
/// arrays, one within the other, had no room for all their records; 310081, 322325: a disk was
/// pulled while another's failed flush was not dealt with yet: what both had lost nobody could
/// know; 313555: a disk that was to be failed by hand, while another hung, was out after all was
/// seen in order; 329599: a disk was pulled while the loss of another had not come up through what
/// stood on it.
const HARSH_STACKS: [u64; 7] = [35, 300460, 310081, 311255, 313555, 322325, 329599];

#[test]
fn stacks_in_harsh_times_that_failed_once() {
    let mut tally = Tally::default();
    for seed in HARSH_STACKS {
        super::one(seed, &super::plan::Plan::harsh, &mut tally);
    }
    assert!(tally.acked > 0 && tally.verified > 0, "nothing was done: {tally:?}");
}

#[test]
fn mirrors_that_became_smaller_and_failed_once() {
    let mut tally = Tally::default();
    for seed in SHRINKING {
        super::one(seed, &super::shrinking, &mut tally);
    }
    assert!(tally.shrunk > 0, "nothing was done: {tally:?}");
}

#[test]
fn stacks_that_rose_and_failed_once() {
    let mut tally = Tally::default();
    for seed in RISING {
        super::one(seed, &super::rising, &mut tally);
    }
    assert!(tally.followed > 0 && tally.verified > 0, "nothing was done: {tally:?}");
}

#[test]
fn mirrors_that_failed_once() {
    let mut tally = Tally::default();
    for seed in MIRRORS {
        super::one(seed, &super::mirror, &mut tally);
    }
    for seed in RICH {
        super::one(seed, &super::rich(super::mirror), &mut tally);
    }
    for seed in OVERLAPPING {
        super::one(seed, &super::crowded(super::rich(super::mirror)), &mut tally);
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}

/// Of stacks: 250: a mirror started with a stale mirror while the newer one still waited for a
/// member of its own.
const STACKS: [u64; 1] = [250];

/// Of mirrors over concats: 35891: a member that a mirror had let go hung, and calls of others
/// waited for it.
const OVER_CONCATS: [u64; 1] = [35891];

/// Of rich stacks: a concat wrote an old label back while the write of the new one, which it had
/// given up, was still under way, and the copies of the mirror below kept one each.
const RICH_STACKS: [u64; 4] = [3000647, 3000763, 3000975, 3008345];

#[test]
fn stacks_that_failed_once() {
    let mut tally = Tally::default();
    for seed in STACKS {
        super::one(seed, &super::plan::Plan::three, &mut tally);
    }
    for seed in OVER_CONCATS {
        super::one(seed, &super::mirror_over_concats, &mut tally);
    }
    for seed in RICH_STACKS {
        super::one(seed, &super::rich(super::plan::Plan::three), &mut tally);
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}

/// Of stacks with arrays and partitions. 15, 59: a disk that an array had put out was partitioned
/// like the array, and what stood on the array's partition took the stale one of that disk; 58: a
/// partition of an array's that ended where its disk did: the whole disk was taken for the member;
/// 42, 133, 244, 322, 339: an array started with a stale mirror, or a mirror with a stale array,
/// while the newer one still waited for a member of its own: they did not know of each other; 4520:
/// a disk that was inserted into one Intel array went to another, which remembered it. Of
/// the story itself: 191: a disk hung when it was looked at, and nobody looked again.
const DEEP: [u64; 10] = [15, 42, 58, 59, 133, 191, 244, 322, 339, 4520];

#[test]
fn stacks_with_arrays_and_partitions_that_failed_once() {
    let mut tally = Tally::default();
    for seed in DEEP {
        super::one(seed, &super::plan::Plan::deep, &mut tally);
    }
    assert!(tally.acked > 0 && tally.verified > 0, "nothing was done: {tally:?}");
}

/// Of arrays: 139: a write that a needed disk failed left parity that solved for what a missing
/// disk held wrongly; 5149: a torn record made a disk a stranger that could not be done without;
/// 5233: a write waited for records that stood behind the wait for that write; 6278: a disk was
/// filled before the other's record said that it was there; 9064: a disk that was left behind
/// before a spare came was taken for another half; 420531: a spare was taken to have everything,
/// for one that had been replaced called it so.
const ARRAYS: [u64; 6] = [139, 5149, 5233, 6278, 9064, 420531];

/// In harsh times: 3: of two parities that two lost disks were known by one was written; 28: a disk
/// that shared no record with those in use was taken for another half; 80564: a second parity was
/// put back, for a member that had gone and was not on record, where it could not be written, and
/// the data it allowed for was not; 80984: rows were zeroed on the members that did it, when one
/// that was needed failed it, and the row alone knew what a third was to be filled with; 80986: the
/// configuration (DDF) of a disk that a spare had replaced was believed over the spare's; 200804: a
/// spare that was named in a configuration, and by no newest record, was taken to have everything;
/// 402527, 407811: a record torn by the power added up to the sum it was to have, with two slots
/// that had changed places; 409808, 411403, 413929, 414957: one disk went, and another failed the
/// parity of the same rows: what the first one held was solved for wrongly; 409988: of the story
/// itself: the power went again between a start by force and the look at what was there, and nobody
/// remembered that some of it could be anything; 422352: a volume was marked clean though a disk
/// had failed to make stable what was written; 8029467: a disk that had been dropped long ago, and
/// spoke of disks that had all been replaced since, was taken for another half; 12012451: a spare
/// was struck from the list while it was being taken in, and went by a name that no record had.
const HARSH: [u64; 16] = [
    3, 28, 80564, 80984, 80986, 200804, 402527, 407811, 409808, 409988, 411403, 413929, 414957,
    422352, 8029467, 12012451,
];

/// Of DDF: 1226: a disk failed while another was being pulled, and was judged as if that one had
/// gone already; 3003499: a disk was back before its loss was on record, and nobody looked at it
/// again; 8002472: a disk that was being taken in when the power went, and that nobody knew
/// afterwards, was held for a half of the array; 12005320: of the story itself: a disk was back
/// before its loss was dealt with, and a third one was pulled.
const DDF: [u64; 4] = [1226, 3003499, 8002472, 12005320];

/// With a log of partial parity: 2006680, 2008684: a write waited for its log while one of its
/// disks was put out on record, and was sent then as if that disk had it: what it held was known by
/// parity and data alone that the power tore apart; 2008574: of the story itself: parity that had
/// been in doubt was right again, and no disk said so before the power went; 2003768: of the story
/// itself: a disk was back before its loss was dealt with, and the next one was pulled: two were
/// lost at once; 4000560, 4003760: rows were sent as if a disk that had just been filled had
/// everything, before a record said so; 8006812: a member was lost between two tries of a row, and
/// what it was to get was written together with the others'; 8008728: of the story itself: the
/// power went between the doubt on the disks and the word about it; 8012159: the newest record was
/// of a disk that was being filled, and was not believed; 8018327: a unit was written while a disk
/// was lost and no record said so, and the last one spoke of rows whose part it had not kept.
const LOGGED: [u64; 10] =
    [2003768, 2006680, 2008574, 2008684, 4000560, 4003760, 8006812, 8008728, 8012159, 8018327];

/// With users who write over each other: 8000458: of the story itself: a disk was back and its loss
/// not dealt with, for records could not be written, and the next one was pulled.
const CROWDED: [u64; 1] = [8000458];

#[test]
fn arrays_that_failed_once() {
    let mut tally = Tally::default();
    let all = [
        (Kind::Intel, &ARRAYS[..]),
        (Kind::Harsh, &HARSH[..]),
        (Kind::Ddf, &DDF[..]),
        (Kind::Logged, &LOGGED[..]),
        (Kind::Crowded, &CROWDED[..]),
    ];
    for (kind, seeds) in all {
        for seed in seeds {
            super::raids::run(kind, *seed, 4, &mut tally);
        }
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}
