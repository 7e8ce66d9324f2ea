//! The verbs and their arguments, as gmirror has them.

use geom::{ArgKind, ArgSpec, VerbSpec};

use crate::members::follow::FOLLOW;
use crate::mirror::metadata::Balance;
use crate::words::{self, verb};

const BALANCE: ArgSpec = ArgSpec {
    name: "balance",
    short: Some('b'),
    kind: ArgKind::Choice(Balance::WORDS),
    doc: "Which member serves a read [default: load]",
};
const SLICE: ArgSpec = ArgSpec {
    name: "slice",
    short: Some('s'),
    kind: ArgKind::Bytes,
    doc: "With balance split: reads larger than this are split [default: 4096]",
};
const NOFAILSYNC: ArgSpec = ArgSpec {
    name: "no_failsync",
    short: Some('F'),
    kind: ArgKind::Flag,
    doc: "After a crash members are taken as they are, not rebuilt",
};
const NOAUTOSYNC: ArgSpec = ArgSpec {
    name: "no_autosync",
    short: Some('n'),
    kind: ArgKind::Flag,
    doc: "Members that are out of date wait for `rebuild`",
};
const FAILSYNC: ArgSpec = ArgSpec {
    name: "failsync",
    short: Some('f'),
    kind: ArgKind::Flag,
    doc: "After a crash dirty members are rebuilt",
};
const AUTOSYNC: ArgSpec = ArgSpec {
    name: "autosync",
    short: Some('a'),
    kind: ArgKind::Flag,
    doc: "Members that are out of date are rebuilt at once",
};
const PRIORITY: ArgSpec = ArgSpec {
    name: "priority",
    short: Some('p'),
    kind: ArgKind::Number,
    doc: "0 to 255; the highest is read first with balance prefer [default: 0]",
};
const INACTIVE: ArgSpec = ArgSpec {
    name: "inactive",
    short: Some('i'),
    kind: ArgKind::Flag,
    doc: "Take it in, but do not use it until it is activated",
};
const MEMBER: ArgSpec = ArgSpec {
    name: "member",
    short: None,
    kind: ArgKind::Maybe,
    doc: "One member, for --priority",
};
const HARDCODE: ArgSpec = ArgSpec {
    doc: "Store the members' names as they are now: they are found nowhere else",
    ..words::HARDCODE
};
const DYNAMIC: ArgSpec = ArgSpec {
    name: "dynamic",
    short: Some('d'),
    kind: ArgKind::Flag,
    doc: "Store no names of members any more",
};

const BITMAP: ArgSpec = ArgSpec {
    name: "bitmap",
    short: None,
    kind: ArgKind::Flag,
    doc: "Keep a write-intent bitmap: after a crash only what was being written is copied. FreeBSD \
          refuses such a mirror, as too new",
};
const NO_BITMAP: ArgSpec =
    ArgSpec { name: "no_bitmap", short: None, kind: ArgKind::Flag, doc: "Keep no bitmap" };
const REGION: ArgSpec = ArgSpec {
    name: "region",
    short: None,
    kind: ArgKind::Bytes,
    doc: "What one bit of the bitmap stands for, a power of two [default: 1MiB, or as it fits]",
};
const KEEP: ArgSpec = ArgSpec {
    name: "keep",
    short: None,
    kind: ArgKind::Text,
    doc: "After a split brain: the member whose contents are kept",
};
const REPAIR: ArgSpec =
    ArgSpec { name: "repair", short: None, kind: ArgKind::Flag, doc: "Write anew what differs" };
const RIGHT: ArgSpec = ArgSpec {
    name: "member",
    short: None,
    kind: ArgKind::Text,
    doc: "The member that is right [default: the one of the highest priority]",
};

/// What the class can be asked.
pub(in crate::mirror) const VERBS: &[VerbSpec] = &[
    VerbSpec {
        detail: "The last sector of each provider is written; the first provider's contents are \
                 kept and copied to the others. A provider that holds something is refused \
                 unless --yes-destroy PROVIDER is given. The last one has the highest priority.",
        ..verb(
            "label",
            "Label providers and make a mirror of them that is found again by itself",
            &[
                words::NAME,
                words::PROVIDERS,
                BALANCE,
                SLICE,
                NOFAILSYNC,
                NOAUTOSYNC,
                words::SAME,
                BITMAP,
                REGION,
                words::HARDCODE,
                words::YES_DESTROY,
                words::FORCE,
            ],
            "mirror label -b round-robin data d0 d1",
            true,
        )
    },
    verb(
        "create",
        "Make a mirror without writing records, until the daemon ends",
        &[
            words::NAME,
            words::PROVIDERS,
            BALANCE,
            SLICE,
            NOFAILSYNC,
            NOAUTOSYNC,
            words::YES_DESTROY,
        ],
        "mirror create data d0 d1",
        false,
    ),
    verb(
        "configure",
        "Change how a mirror works",
        &[
            words::NAME,
            MEMBER,
            BALANCE,
            SLICE,
            AUTOSYNC,
            NOAUTOSYNC,
            FAILSYNC,
            NOFAILSYNC,
            PRIORITY,
            HARDCODE,
            DYNAMIC,
            words::SYNC_RATE,
            BITMAP,
            NO_BITMAP,
            REGION,
        ],
        "mirror configure -b prefer data",
        true,
    ),
    verb(
        "insert",
        "Add members; they are rebuilt in the background",
        &[
            words::NAME,
            words::PROVIDERS,
            PRIORITY,
            INACTIVE,
            words::HARDCODE,
            words::YES_DESTROY,
            words::FORCE,
        ],
        "mirror insert data d2",
        true,
    ),
    verb(
        "remove",
        "Take members out for good: their records are cleared",
        &[words::NAME, words::PROVIDERS],
        "mirror remove data d1",
        true,
    ),
    verb(
        "forget",
        "No longer expect members that are not there",
        &[words::NAMES],
        "mirror forget data",
        true,
    ),
    verb(
        "rebuild",
        "Copy to members anew",
        &[words::NAME, words::PROVIDERS],
        "mirror rebuild data d1",
        true,
    ),
    verb(
        "deactivate",
        "Take members out of use; they stay marked so until they are activated",
        &[words::NAME, words::PROVIDERS],
        "mirror deactivate data d1",
        true,
    ),
    verb(
        "activate",
        "Use members again that were deactivated",
        &[words::NAME, words::PROVIDERS],
        "mirror activate data d1",
        true,
    ),
    VerbSpec {
        detail: "What is added is first made the same on all members, at the rate of a rebuild; \
                 `ashlar mirror list` shows how far it is. Until then the mirror is as large as it \
                 was, also after a power cut: then it is asked to grow again. The size that it has \
                 ends a growth. It is made smaller only while nobody has it open and its members \
                 are the same: shrink what stands on it first, for what it has behind the new end \
                 is lost. A smaller provider may be inserted then.",
        ..verb(
            "resize",
            "Grow to what the smallest member has room for, or shrink",
            &[
                words::NAME,
                ArgSpec {
                    name: "size",
                    short: Some('s'),
                    kind: ArgKind::Bytes,
                    doc: "New size [default: all there is]",
                },
            ],
            "mirror resize data",
            true,
        )
    },
    VerbSpec {
        detail: "It goes on in the background, beside users' requests; `ashlar mirror list` shows \
                 how far it is, how many sectors differ and where the first of them are. Nothing \
                 is written unless --repair is given: then what differs is overwritten from \
                 --member, or from the member of the highest priority. What was deleted (DELETE, \
                 UNMAP) may differ by right, on members that do not read it as zeroes.",
        ..verb(
            "verify",
            "Compare the members with each other",
            &[words::NAME, REPAIR, RIGHT, words::VERIFY_RATE, words::END],
            "mirror verify data",
            true,
        )
    },
    words::STOP_HIDING,
    words::DESTROY,
    VerbSpec {
        detail: "Members that were each used without the other (split brain) are not put together: \
                 the mirror does not start, and `status` shows what each has. --keep says which of \
                 them is right; the other is overwritten with what it has.",
        args: &[words::NAME, KEEP],
        writes: true,
        ..words::START
    },
    words::CLEAR,
    words::DUMP,
    FOLLOW,
];
