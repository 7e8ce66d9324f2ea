//! The verbs and their arguments, as graid has them.

use geom::{ArgKind, ArgSpec, VerbSpec};

use crate::members::follow::{MEMBER, WAS};
use crate::words::{self, verb};

const KEEP: ArgSpec = ArgSpec {
    name: "keep",
    short: None,
    kind: ArgKind::Text,
    doc: "After a split brain: a disk of the half that is kept",
};
const FORMAT: ArgSpec = ArgSpec {
    name: "format",
    short: None,
    kind: ArgKind::Name,
    doc: "Intel, or DDF (also called SNIA)",
};
const LEVEL: ArgSpec = ArgSpec {
    name: "level",
    short: None,
    kind: ArgKind::Name,
    doc: "RAID0, RAID1, RAID1E, RAID10, RAID4, RAID5[-LA|-LS|-RA|-RS], RAID6[-LA|-LS|-RA], \
          CONCAT, SINGLE",
};
const ARRAY: ArgSpec = ArgSpec {
    name: "name",
    short: None,
    kind: ArgKind::Name,
    doc: "The array; or one of its volumes, by its label or as `status` names it",
};
const LABEL: ArgSpec =
    ArgSpec { name: "label", short: None, kind: ArgKind::Name, doc: "Name of the new volume" };
const VOLUME: ArgSpec = ArgSpec {
    name: "volume",
    short: None,
    kind: ArgKind::Maybe,
    doc: "Label of the volume, or its number in `list` from 0 [default: the one that NAME is, or \
          all of them]",
};
const SIZE: ArgSpec = ArgSpec {
    name: "size",
    short: Some('S'),
    kind: ArgKind::Bytes,
    doc: "Bytes of each disk to use [default: all there is]",
};
const STRIP: ArgSpec = ArgSpec {
    name: "strip",
    short: Some('s'),
    kind: ArgKind::Bytes,
    doc: "Strip: a power of two [default: 128KiB]",
};
const ORDER: ArgSpec = ArgSpec {
    name: "order",
    short: Some('O'),
    kind: ArgKind::Choice(&["linux", "big", "little"]),
    doc: "DDF: byte order and checksum, graid's -o (that letter is taken by every command's \
          --output) [default: linux]",
};
const CONSISTENCY: ArgSpec = ArgSpec {
    name: "consistency",
    short: None,
    kind: ArgKind::Choice(&["resync", "ppl"]),
    doc: "What a crash costs: with \"resync\" all parity is made anew; with \"ppl\" (Intel, RAID5) \
          a log of partial parity is kept, and nothing is resynced [default: resync]",
};
const POLICY: ArgSpec = ArgSpec {
    name: "policy",
    short: None,
    kind: ArgKind::Choice(&["resync", "ppl"]),
    doc: "From now on, as with --consistency of `label` [default: show what it is]",
};
const REPAIR: ArgSpec = ArgSpec {
    name: "repair",
    short: None,
    kind: ArgKind::Flag,
    doc: "Make parity anew, and other copies like the first, where they differ; of RAID6 the one \
          strip that is wrong",
};
const ANYHOW: ArgSpec = ArgSpec {
    name: "force",
    short: None,
    kind: ArgKind::Flag,
    doc: "With --repair: RAID6 makes parity anew for the data as it is also where it cannot be \
          told which strips are wrong",
};

/// What the class can be asked.
pub(super) const VERBS: &[VerbSpec] = &[
    VerbSpec {
        detail: "The end of each disk is written (Intel: two sectors and more, DDF: 32 MiB). NONE \
                 in the place of a provider is a slot without a disk. Volumes with redundancy are \
                 synced in the background, from the first disk where there are copies. With DDF, \
                 -o is graid's: \"linux\" is what mdadm reads, \"big\" what the standard \
                 says, \"little\" what some controllers write. The volume's provider is called \
                 after its array and its label, raid/Intel-1234abcd/data, whatever else is there. \
                 Odd bytes of a label are written as %XX; a label that is none, or that two \
                 volumes of an array have, gets the volume's number behind a ~. With --consistency \
                 ppl a RAID5 of Intel's keeps the same log of partial parity as Linux with \
                 `mdadm --consistency-policy=ppl`, 1 MiB of each disk. After a crash it is \
                 replayed before the volume is offered: no resync, and a volume that lacks a disk \
                 starts without --force. It costs writes: each row waits until its entry is on \
                 stable storage, and for a flush of all disks before the next entry. So it suits \
                 volumes whose resync takes long, or that must come back without a disk; not those \
                 with many small writes. Without it such a volume has to be forced, and what the \
                 missing disk held may be wrong wherever it was being written. With it that is so \
                 only of data that was being written to the missing disk itself in that moment. \
                 It is to be forced all the same when two failed at once: one is missing, and \
                 another that had to stay failed a flush, or what a row needs, and may have lost \
                 anything. \
                 `ashlar raid consistency` changes it later.",
        ..verb(
            "label",
            "Make an array of disks with one volume on it",
            &[
                FORMAT,
                words::NAME,
                LEVEL,
                words::PROVIDERS,
                SIZE,
                STRIP,
                ORDER,
                CONSISTENCY,
                words::SAME,
                words::YES_DESTROY,
                words::FORCE,
            ],
            "raid label Intel data RAID1 d0 d1",
            true,
        )
    },
    verb(
        "add",
        "Make a further volume on an array's disks, behind the others",
        &[ARRAY, LABEL, LEVEL, SIZE, STRIP, CONSISTENCY, words::SAME, words::FORCE],
        "raid add Intel-1234abcd more RAID0",
        true,
    ),
    verb(
        "delete",
        "Delete a volume, or the whole array: the records are cleared with the last volume",
        &[ARRAY, VOLUME, words::FORCE],
        "raid delete Intel-1234abcd more",
        true,
    ),
    verb(
        "insert",
        "Add disks: they take the places of disks that are gone, or wait as spares",
        &[ARRAY, words::PROVIDERS, words::YES_DESTROY, words::FORCE],
        "raid insert Intel-1234abcd d2",
        true,
    ),
    verb(
        "remove",
        "Take disks out for good: their records are cleared",
        &[ARRAY, words::PROVIDERS],
        "raid remove Intel-1234abcd d1",
        true,
    ),
    verb(
        "fail",
        "Mark disks as failed: they are not used any more",
        &[ARRAY, words::PROVIDERS],
        "raid fail Intel-1234abcd d1",
        true,
    ),
    verb(
        "configure",
        "Change how an array works",
        &[ARRAY, words::SYNC_RATE],
        "raid configure --sync-rate 50MiB Intel-1234abcd",
        false,
    ),
    VerbSpec {
        detail: "Without --policy nothing changes. With it writes wait for a moment, until those \
                 under way have ended and the records say so; nothing is resynced. The volume must \
                 be OPTIMAL. A log (ppl) needs 1 MiB behind the volume's data on each disk: what \
                 `label` left with --size or --consistency ppl, or what is free before the next \
                 volume or the record at the disk's end.",
        ..verb(
            "consistency",
            "Show, or change while it is in use, what a crash costs a volume",
            &[ARRAY, VOLUME, POLICY],
            "raid consistency Intel-1234abcd --policy ppl",
            true,
        )
    },
    VerbSpec {
        detail: "What Linux calls check, and with --repair, repair: copies are compared with each \
                 other, and parity with what it is made of, row after row, while the volume is in \
                 use. `list` shows how far it is, how many sectors differ, and the first places; \
                 --end ends it, and answers the same. Only a volume that is OPTIMAL is compared. \
                 --repair makes parity anew from its row, takes the first copy for right, and \
                 writes anew what could not be read. The two parities of RAID6 tell which strip of \
                 a row is wrong if it is one alone: that disk is named, and --repair writes that \
                 strip anew, be it data or parity. Where they agree on none, more than one is \
                 wrong: that is said, and nothing is written there. `raid fail` and `clear` and \
                 `insert` of a disk that is known to be bad make it anew from the others; with \
                 --force parity is made for the data as it is.",
        ..verb(
            "verify",
            "Compare copies with each other, or parity with its row, in the background",
            &[ARRAY, VOLUME, REPAIR, ANYHOW, words::VERIFY_RATE, words::END],
            "raid verify Intel-1234abcd",
            true,
        )
    },
    VerbSpec {
        detail: "Intel's record stands at the end of a disk, and DDF's anchor does; they are \
                 looked for nowhere else. While an array has a disk open they follow when it \
                 grows, and those of one that grew meanwhile are found where this daemon has \
                 seen it end. Of a disk that has grown elsewhere they stay behind, and it is not \
                 seen: this brings them along. Intel's record must say itself that the disk had \
                 as much as --was. Something else at the end is overwritten only with --force.",
        ..verb(
            "follow",
            "Bring the record of a disk that has grown to its new end",
            &[MEMBER, WAS, words::FORCE],
            "raid follow d0 --was 10GiB",
            true,
        )
    },
    words::STOP_HIDING,
    words::DESTROY,
    VerbSpec {
        name: "start",
        doc: "Look for the disks of an array that was stopped, or start one as it is",
        detail: "With --force an array starts with the disks there are: also one whose halves were \
                 used without each other (the newest is believed), and a volume with parity that \
                 lacks a disk and was being written when it was left (what the missing disk held \
                 there may be wrong: check it). --keep DISK does the same, and believes what DISK \
                 says; disks of another half stay out until `raid insert` fills them anew.",
        args: &[words::NAME, KEEP, words::FORCE],
        example: "raid start Intel-1234abcd",
        writes: false,
    },
    words::CLEAR,
    words::DUMP,
];
