//! Seeds that found faults during development of the mirror and the arrays.

use super::raids::Kind;
use super::run::Totals;

/// Of mirrors on disks: stale members that looked complete, records that were cleared from the
/// last member, writes that only a rebuilt member had, a rebuild that ended twice; 7844: a member's
/// record cleared before those of the others recorded that it was out; 1223176, 1243393, 1267850:
/// one that was forgotten, or whose place another one took, and one that failed later looked like a
/// whole mirror; 1223274: a member was rebuilt while only its record recorded that another had
/// failed.
const MIRRORS: [u64; 19] = [
    110, 120, 194, 276, 454, 468, 492, 795, 849, 905, 988, 1074, 1186, 1387, 7844, 1223176,
    1223274, 1243393, 1267850,
];

/// With rarer events. Seeds marked "test" found a fault of the test itself.
///
///  * 1000620 (test): the last two members left at once, one of them with its cache, and the loss
///    of unflushed data was not remembered.
///  * 1052412: a forgotten member and a failed one looked like a whole mirror.
///  * 4012129: a growth was requested again, to a larger size, while it waited to be recorded. The
///    larger size was recorded, and the added data differed on each member.
///  * 6001698: bits were written at the bitmap's new place after a disk had grown, and the record
///    was not there yet.
///  * 6032443: a record failed to be moved. Its old place was cleared later, when the mirror had
///    grown over it, on that member alone.
///  * 7005741: members were to be forgotten by a mirror that had not started.
const RICH: [u64; 6] = [1000620, 1052412, 4012129, 6001698, 6032443, 7005741];

/// Of mirrors that become smaller. Seeds marked "test" found a fault of the test itself.
///
///  * 392: a member arrived while no record could contain that yet, and was filled up to the new
///    end only. Readers still had the old end, and found the member's former data behind the new
///    one.
///  * 108886 (test): the end was within the range of a read; 6051027 (test): before it.
///  * 3000624, 3500621: as [`OVERLAPPING`].
///  * 5511403 (test): it grew as requested after it had become smaller, unseen.
///  * 6043265: a mirror was made to end where a record of one of its members had been before that
///    one grew. The mirror was known by that record, and had it moved to its end when it grew: over
///    user data.
const SHRINKING: [u64; 7] = [392, 108886, 3000624, 3500621, 5511403, 6043265, 6051027];

/// With overlapping writes of users: a disk had grown, and so had the mirror. Its record's old
/// place read as zeroes, and as that record after a power cut.
const OVERLAPPING: [u64; 2] = [3001079, 3501501];

/// Of stacks whose disks grow.
///
///  * 42: two disks of a DDF array grew one after the other. One had its record moved, and the
///    other was taken to have; 5056: the same, two lives later.
///  * 216423: a disk that a mirror had put out grew. Its record stayed behind (`put_out`), and a
///    geom on the mirror's partition took the stale one of that disk.
///  * 233699: a disk returned, and a verb read it while it was tasted. Its mirror did not claim
///    it, a table that was the mirror's did, and a geom on the mirror's partition took the stale
///    one.
///  * 6034063: a stripe ended, after a power cut, where a label of another one had been left on its
///    member as that one grew. Its own was not looked for at its old end.
///  * 6070403: the same for a concat, which took the label for that of another geom.
const RISING: [u64; 6] = [42, 5056, 216423, 233699, 6034063, 6070403];

/// Of stacks in which the power fails though an array lacks a member. Seeds marked "test" found a
/// fault of the test itself.
///
///  * 35: the record of a disk in a partition was torn. So the whole disk was taken for it as the
///    array started, and released when that had begun. The array continued without the
///    partition, and was broken.
///  * 300460 (test): a disk was to fail while the loss of another was not dealt with yet.
///  * 310081, 322325 (test): a disk was pulled while another's failed flush was not dealt with yet:
///    the data that both had lost was unknown.
///  * 311255 (test): three arrays, one within the other, had no space for all their records.
///  * 313555 (test): a disk that was to be failed by hand, while another hung, was out after all
///    was seen in order.
///  * 329599 (test): a disk was pulled while the loss of another had not passed the layers
///    above it.
const HARSH_STACKS: [u64; 7] = [35, 300460, 310081, 311255, 313555, 322325, 329599];

#[test]
fn stacks_with_harsh_faults_that_failed_once() {
    let mut tally = Totals::default();
    for seed in HARSH_STACKS {
        super::run_seed(seed, &super::plan::Plan::harsh, &mut tally);
    }
    assert!(tally.acked > 0 && tally.verified > 0, "nothing was done: {tally:?}");
}

#[test]
fn mirrors_that_shrank_that_failed_once() {
    let mut tally = Totals::default();
    for seed in SHRINKING {
        super::run_seed(seed, &super::shrinking, &mut tally);
    }
    assert!(tally.shrunk > 0, "nothing was done: {tally:?}");
}

#[test]
fn stacks_whose_disks_grew_that_failed_once() {
    let mut tally = Totals::default();
    for seed in RISING {
        super::run_seed(seed, &super::rising, &mut tally);
    }
    assert!(tally.followed > 0 && tally.verified > 0, "nothing was done: {tally:?}");
}

#[test]
fn mirrors_that_failed_once() {
    let mut tally = Totals::default();
    for seed in MIRRORS {
        super::run_seed(seed, &super::mirror, &mut tally);
    }
    for seed in RICH {
        super::run_seed(seed, &super::rich(super::mirror), &mut tally);
    }
    for seed in OVERLAPPING {
        super::run_seed(seed, &super::crowded(super::rich(super::mirror)), &mut tally);
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}

/// Of stacks: 250: a mirror started with a stale mirror while the newer one still waited for a
/// member of its own.
const STACKS: [u64; 1] = [250];

/// Of mirrors over concats: 35891: a member that a mirror had released hung, and calls of others
/// waited for it.
const OVER_CONCATS: [u64; 1] = [35891];

/// Of rich stacks: a concat wrote an old label back while the write of the new one, which it had
/// given up, was still under way. The copies of the mirror below kept one each.
const RICH_STACKS: [u64; 4] = [3000647, 3000763, 3000975, 3008345];

#[test]
fn stacks_that_failed_once() {
    let mut tally = Totals::default();
    for seed in STACKS {
        super::run_seed(seed, &super::plan::Plan::three, &mut tally);
    }
    for seed in OVER_CONCATS {
        super::run_seed(seed, &super::mirror_over_concats, &mut tally);
    }
    for seed in RICH_STACKS {
        super::run_seed(seed, &super::rich(super::plan::Plan::three), &mut tally);
    }
    assert!(tally.acked > 0, "nothing was done: {tally:?}");
}

/// Of stacks with arrays and partitions. Seeds marked "test" found a fault of the test itself.
///
///  * 15, 59: a disk that an array had put out was partitioned like the array. A geom on the
///    array's partition took the stale one of that disk.
///  * 42, 133, 244, 322, 339: an array started with a stale mirror, or a mirror with a stale array,
///    while the newer one still waited for a member of its own. They did not know of each other.
///  * 58: a partition of an array's that ended where its disk did: the whole disk was taken for the
///    member.
///  * 191 (test): a disk hung when it was tasted, and was not tasted again.
///  * 4520: a disk that was inserted into one Intel array was added to another, which remembered
///    it.
const DEEP: [u64; 10] = [15, 42, 58, 59, 133, 191, 244, 322, 339, 4520];

#[test]
fn stacks_with_arrays_and_partitions_that_failed_once() {
    let mut tally = Totals::default();
    for seed in DEEP {
        super::run_seed(seed, &super::plan::Plan::deep, &mut tally);
    }
    assert!(tally.acked > 0 && tally.verified > 0, "nothing was done: {tally:?}");
}

/// Of arrays.
///
///  * 139: a write that a needed disk failed left parity that solved for a missing disk's data
///    wrongly.
///  * 5149: a torn record made a needed disk an unknown one.
///  * 5233: a write waited for records that waited for that write.
///  * 6278: a disk was filled before the other's record listed it as present.
///  * 9064: a disk that was left behind before a spare was added was taken for another half.
///  * 420531: a spare was taken to have everything, because a replaced disk's record listed that.
const ARRAYS: [u64; 6] = [139, 5149, 5233, 6278, 9064, 420531];

/// In harsh times. Seeds marked "test" found a fault of the test itself.
///
///  * 3: of two parities that two lost disks were known by one was written.
///  * 28: a disk that shared no record with those in use was taken for another half.
///  * 80564: a second parity was put back, for a member that had left and was not on record, where
///    it could not be written. The data that it allowed for was not.
///  * 80984: rows were zeroed on the members that did it, when one that was needed failed it. Only
///    the row contained the data that a third was to be filled with.
///  * 80986: the configuration (DDF) of a disk that a spare had replaced was used instead of the
///    spare's.
///  * 200804: a spare that was named in a configuration, and by no newest record, was taken to have
///    everything.
///  * 402527, 407811: a record torn by a power cut had the right sum, with two slots that had
///    changed places.
///  * 409808, 411403, 413929, 414957: one disk was lost, and another failed the parity of the same
///    rows: data of the first one was solved for wrongly.
///  * 409988 (test): the power failed again between a start by force and the check of the content.
///    The test forgot that some of it could be anything.
///  * 422352: a volume was marked clean though a disk had failed to make its writes stable.
///  * 8029467: a disk that had been dropped long ago, and recorded disks that had all been replaced
///    since, was taken for another half.
///  * 12012451: a spare was struck from the list while it was being taken in, and had a name that
///    no record had.
const HARSH: [u64; 16] = [
    3, 28, 80564, 80984, 80986, 200804, 402527, 407811, 409808, 409988, 411403, 413929, 414957,
    422352, 8029467, 12012451,
];

/// Of DDF. Seeds marked "test" found a fault of the test itself.
///
///  * 1226: a disk failed while another was being pulled, and was judged as if that one had left
///    already.
///  * 3003499: a disk was back before its loss was on record, and was not tasted again.
///  * 8002472: a disk that was being taken in when the power failed, and was unknown afterwards,
///    was taken for a half of the array.
///  * 12005320 (test): a disk was back before its loss was dealt with, and a third one was pulled.
const DDF: [u64; 4] = [1226, 3003499, 8002472, 12005320];

/// With a log of partial parity. Seeds marked "test" found a fault of the test itself.
///
///  * 2003768 (test): a disk was back before its loss was dealt with, and the next one was pulled:
///    two were lost at once.
///  * 2006680, 2008684: a write waited for its log while one of its disks was put out on record. It
///    was sent then as if that disk had it. The disk's content was known only by parity and data
///    that the power cut made inconsistent.
///  * 2008574 (test): parity that had been in doubt was right again, and no disk recorded that
///    before the power failed.
///  * 4000560, 4003760: rows were sent as if a disk that had just been filled had everything,
///    before a record contained that.
///  * 8006812: a member was lost between two tries of a row, and its data was written together with
///    that of the others.
///  * 8008728 (test): the power failed between the doubt on the disks and its report.
///  * 8012159: the newest record was of a disk that was being filled, and was not used.
///  * 8018327: a unit was written while a disk was lost and no record contained that. The last
///    one covered rows whose part it had not kept.
const LOGGED: [u64; 10] =
    [2003768, 2006680, 2008574, 2008684, 4000560, 4003760, 8006812, 8008728, 8012159, 8018327];

/// With overlapping writes of users. 8000458 found a fault of the test itself: a disk was back and
/// its loss not dealt with, because records could not be written, and the next one was pulled.
const CROWDED: [u64; 1] = [8000458];

#[test]
fn arrays_that_failed_once() {
    let mut tally = Totals::default();
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
