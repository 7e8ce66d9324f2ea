//! Kinds of events and of lines of the log, for the reference. A test of the daemon finds the texts
//! of each kind in the sources, so that a reworded event is reworded here as well.

/// One kind of events, or of lines of the log.
pub struct EventKind {
    /// Classes that report it; empty for a kind that no class reports.
    pub classes: &'static str,
    /// Texts in code quotes: words in capitals are values, `...` is omitted text.
    pub text: &'static str,
    /// Level, or one for each of the texts.
    pub level: &'static str,
    /// Cause.
    pub cause: &'static str,
    /// What an operator does.
    pub next: &'static str,
}

/// The kinds of one subject.
pub struct EventGroup {
    /// The subject, as the page of events marks its part.
    pub part: &'static str,
    /// Its kinds.
    pub kinds: &'static [EventKind],
}

const fn kind(
    text: &'static str,
    level: &'static str,
    cause: &'static str,
    next: &'static str,
) -> EventKind {
    of_class("", text, level, cause, next)
}

const fn of_class(
    classes: &'static str,
    text: &'static str,
    level: &'static str,
    cause: &'static str,
    next: &'static str,
) -> EventKind {
    EventKind { classes, text, level, cause, next }
}

/// Every kind, by subject.
pub const EVENT_GROUPS: &[EventGroup] = &[
    EventGroup { part: "daemon", kinds: DAEMON },
    EventGroup { part: "configuration", kinds: CONFIGURATION },
    EventGroup { part: "disk", kinds: DISK },
    EventGroup { part: "bus", kinds: BUS },
    EventGroup { part: "geom", kinds: GEOM },
    EventGroup { part: "target", kinds: TARGET },
    EventGroup { part: "certificates", kinds: CERTIFICATES },
    EventGroup { part: "fileserver", kinds: FILESERVER },
];

const DAEMON: &[EventKind] = &[
    kind(
        "`core N uses io_uring (...)`, or `poll, because ...`",
        "info",
        "start",
        "`ashlar doctor io_uring`",
    ),
    kind("`GEOM: records are not clean after ...: ...`", "warn", "a disk hangs", "check the disk"),
    kind(
        "`...: cannot be read (...)`; `...: not saved (...)`",
        "warn",
        "state folder",
        "repair or restore it",
    ),
    kind("`KIND could not be saved: ERROR`", "error", "state folder", "check space, permissions"),
    kind(
        "`KIND: the newest record cannot be used (...)`",
        "error",
        "damaged record",
        "check its settings",
    ),
    kind("`serving FILE on SOCKET`; `stopping: SIGNAL` (log)", "info", "start; stop", "nothing"),
    kind("`left out: STEP: WHY` (log)", "error", "missing at the start", "`ashlar status`"),
    kind(
        "`abandoned because it does not answer: ...` (log)",
        "error",
        "a task hangs",
        "check disks",
    ),
    kind("`...: connection refused: ...` (log)", "warn", "many clients", "find the client"),
    kind(
        "`ASHLAR PANIC: THREAD at PLACE: WHY` (log)",
        "none",
        "defect, the daemon ends",
        "report it",
    ),
];

const CONFIGURATION: &[EventKind] = &[
    kind(
        "`create KIND NAME (...)`, also `change`, `grow`, `remove`",
        "info",
        "step done",
        "nothing",
    ),
    kind("`change settings of the daemon`", "info", "step done", "restart the daemon"),
    kind(
        "`STEP: OBJECT: ERROR`, then inverse steps",
        "error; info",
        "failed, undone",
        "correct it, apply",
    ),
    kind("a reason without a step", "warn", "a retry failed", "`ashlar status`"),
    kind("`waits for PROVIDER, which is missing`", "warn", "provider is late", "attach the disk"),
    kind("`CLASS VERB`, `part VERB: RESULT`, `fs VERB: RESULT`", "info", "command done", "nothing"),
    kind("`the port group is STATE now`", "info", "`ashlar alua set`", "nothing"),
    kind("`..., as set by hand`", "warn", "group or tray keeps its state", "`alua show`, `tray`"),
    kind("`..., loaded by hand, is missing: WHY`", "warn", "no medium", "load another"),
    kind("`its reservations were cleared by hand`", "warn", "command done", "stop the dead host"),
    kind("`session ID of HOST at ADDRESS was ended by hand`", "warn", "command done", "nothing"),
    kind(
        "`SIGHUP: FILE reloaded`, or `was not reloaded` (log)",
        "info; error",
        "SIGHUP",
        "correct the file",
    ),
];

const DISK: &[EventKind] = &[
    kind(
        "`medium missing: PATH: ...`, `medium lost: PATH: ERROR`",
        "error",
        "it is gone",
        "attach it",
    ),
    kind(
        "`medium lost: PATH has N bytes and had M; ...`",
        "error, warn",
        "file was cut",
        "restore the image",
    ),
    kind(
        "`medium missing: PATH has N bytes ...`",
        "error, warn",
        "smaller than `size`",
        "restore the image",
    ),
    kind(
        "`medium lost: PATH does not answer; ...`",
        "error",
        "failed requests",
        "check the device",
    ),
    kind(
        "`medium lost: PATH: path does not answer ...`",
        "error, warn",
        "file system hangs",
        "its server",
    ),
    kind(
        "`PATH: path does not answer ...`, `PATH: not examined ...`",
        "warn",
        "the same",
        "`findmnt`",
    ),
    kind("`PLACE does not answer; ...`", "error", "network disk", "check server and network"),
    kind("`medium available again`", "info", "disk is open again", "check mirrors above it"),
    kind(
        "`providers available again`, `...; its LUNs ...`",
        "info",
        "geom, unit is back",
        "nothing",
    ),
    kind(
        "`replaced by another disk: ...`; `returned with ...`",
        "warn",
        "wrong disk",
        "attach the right one",
    ),
    kind("`PATH: unused tail of N bytes: ...`", "info", "not whole sectors", "nothing"),
    kind(
        "`PATH was renamed to NEW while it is in use...`",
        "warn",
        "`mv` of an image",
        "rename it back",
    ),
    kind(
        "`PATH was removed ...`, `PATH was replaced ...`",
        "warn",
        "no name is left",
        "copy before a stop",
    ),
    kind(
        "`PATH does not name the file that is in use...`",
        "warn",
        "folder was moved",
        "move it back",
    ),
    kind(
        "`PATH names another device now, ...`, `PATH is gone: ...`",
        "warn",
        "device",
        "`lsblk`; plug it in",
    ),
    kind(
        "`the file system of PATH became read-only ...`",
        "warn",
        "fault or remount",
        "`dmesg`, `fsck`",
    ),
    kind(
        "`writes to PATH failed for lack of room ...`",
        "warn",
        "quota, size limit",
        "raise the limit",
    ),
    kind(
        "`a header of protection information is at ...`",
        "error",
        "state folder lost",
        "see the text",
    ),
    kind(
        "`disk NAME: the NBD server ended (...) ...` (log)",
        "warn",
        "its own server",
        "read lines before it",
    ),
];

const BUS: &[EventKind] = &[
    kind("`found DISK, ...`; `cam attach: ...`", "info", "new disks", "nothing"),
    kind(
        "`TARGET at PORTAL: WHY. ...`",
        "warn",
        "iSCSI portal fails",
        "`ashlar cam discover PORTAL`",
    ),
    kind(
        "`... does not answer by IFACE at MAC. ...`",
        "warn",
        "AoE path fails",
        "`ip link show IFACE`",
    ),
    kind(
        "`DISK at PATH (...): a different disk answers ...`",
        "warn",
        "exchanged disk",
        "put it back",
    ),
    kind("`...: identity not confirmed, ...`", "warn", "check is pending", "look at the target"),
    kind(
        "`DISK at PATH ...: CMD is not answered; ...`",
        "warn",
        "slow target",
        "`ashlar cam reset DISK`",
    ),
    kind(
        "`the device at PATH ... is not offered: WHY. ...`",
        "warn",
        "bad answers",
        "check its target",
    ),
    kind(
        "`...: the target has N logical units, but ...`",
        "warn",
        "too many LUNs",
        "raise `luns_max`",
    ),
    kind(
        "`...; the device is kept unchanged. ...`",
        "warn",
        "implausible answers",
        "`ashlar cam rescan N`",
    ),
    kind(
        "other text, `about` is the bus",
        "error",
        "graph was not updated",
        "`ashlar cam devlist`",
    ),
];

const GEOM: &[EventKind] = &[
    of_class(
        "labels",
        "`...: the label was moved ...`, `could not be moved`",
        "info; error",
        "growth",
        "see text",
    ),
    of_class("labels", "`PROVIDER may be one of CLASS: WHY`", "warn", "growth", "see the text"),
    of_class("arrays", "`PROVIDER is refused: WHY`", "warn", "stale or failed", "see the reason"),
    of_class(
        "mirror, raid",
        "`MEMBER is gone, was STATE`",
        "warn",
        "removed or lost",
        "attach or replace it",
    ),
    of_class(
        "mirror, raid",
        "`MEMBER failed a request, but stays: ...`",
        "error",
        "last copy",
        "save the data",
    ),
    of_class(
        "mirror, raid",
        "`... be written: writes wait until ...`",
        "error",
        "no record",
        "repair a member",
    ),
    of_class(
        "mirror",
        "`mirror/NAME: DEGRADED (N of M members)`",
        "warn",
        "incomplete",
        "`ashlar status`",
    ),
    of_class(
        "mirror",
        "`mirror/NAME: COMPLETE (...), was DEGRADED (...)`",
        "info",
        "rebuilt",
        "nothing",
    ),
    of_class(
        "mirror",
        "`MEMBER: SYNCHRONIZING`, then `ACTIVE`",
        "warn; info",
        "rebuild, end",
        "wait",
    ),
    of_class(
        "mirror",
        "`MEMBER: STALE`",
        "warn",
        "no automatic rebuild",
        "`ashlar mirror rebuild`",
    ),
    of_class(
        "mirror",
        "`the mirror does not start: WHY`",
        "error",
        "split, missing",
        "`ashlar mirror list`",
    ),
    of_class("mirror", "`no complete member is left: ...`", "error", "all lost", "attach a member"),
    of_class(
        "raid",
        "`volume NAME: STATE`, also `not offered (STATE)`",
        "by state",
        "disks",
        "`ashlar raid list`",
    ),
    of_class(
        "raid",
        "`DISK: REBUILD`, `DISK: FAILED`",
        "warn",
        "replaced; failed",
        "wait; replace it",
    ),
    of_class(
        "raid",
        "`...: its parity may be wrong for ...`",
        "error",
        "write hole",
        "attach the disk",
    ),
    of_class("raid", "`DISK is older than the array ...`", "warn", "old record", "wait"),
    of_class(
        "raid",
        "`split brain: ...`; `its last disk has gone`",
        "error",
        "see the text",
        "choose; attach",
    ),
    of_class(
        "multipath",
        "`multipath/NAME: DEGRADED (...)`, `BROKEN (...)`",
        "warn; error",
        "paths",
        "repair one",
    ),
    of_class(
        "multipath",
        "`PATH: FAIL`, `TRANSITION`; `ACTIVE` and others",
        "warn; info",
        "path",
        "repair it",
    ),
    of_class(
        "stripe, concat",
        "`CLASS/NAME: UP`, also `DOWN (...)`",
        "info; error",
        "members",
        "`ashlar status`",
    ),
    of_class(
        "trim",
        "`trim VERB`, such as `trim insert`",
        "info",
        "command done",
        "`ashlar trim stats`",
    ),
];

const TARGET: &[EventKind] = &[
    kind(
        "`stopping: waiting for N sessions, ...` (event)",
        "info",
        "the daemon stops",
        "wait 5 s at most",
    ),
    kind(
        "`N sessions have commands at a disk ...` (event)",
        "warn",
        "a disk hangs",
        "check the disk",
    ),
    kind(
        "`LUN N (UNIT) is DEVICE, rw`; `LUN N: WHY` (event)",
        "info; error",
        "attach",
        "see the reason",
    ),
    kind("`memory is not locked (...): ...` (event)", "error", "no capability", "add CAP_IPC_LOCK"),
    kind("`NAME (PEER): logged in to TARGET`", "info", "iSCSI login", "nothing"),
    kind(
        "`PEER: login of NAME to TARGET refused: ...`",
        "warn",
        "iSCSI: group, CHAP",
        "`sessions --denied`",
    ),
    kind("`PEER: NAME may not use EXPORT...`", "warn", "NBD, NVMe: no group", "add it to a group"),
    kind("`...: the daemon stops`, `ended by the administrator`", "warn", "stop, kick", "nothing"),
    kind(
        "`...: no answer to a ping`, `the network ended ...`",
        "warn",
        "host, network",
        "check the network",
    ),
    kind("`...: broken PDU framing: ...`, `TLS: WHY`", "warn", "bad peer or keys", "find the peer"),
    kind("`PEER: refused, this core has N connections already`", "warn", "flood", "find the peer"),
    kind(
        "`portal PORTAL: cannot accept connections: ...`",
        "warn",
        "descriptors",
        "raise LimitNOFILE",
    ),
    kind(
        "`INTERFACE: ERROR; the interface is looked up ...`",
        "warn",
        "AoE link is gone",
        "`ip link`",
    ),
];

const CERTIFICATES: &[EventKind] = &[
    kind("`KEY PATH has changed; ...`", "warn", "replaced file", "`ashlar apply`"),
    kind(
        "`KEY PATH cannot be used: WHY; ...`",
        "warn",
        "mode, content",
        "correct it before a restart",
    ),
    kind("`read files of SECTION anew`", "info", "`apply`, SIGHUP", "nothing"),
];

const FILESERVER: &[EventKind] = &[
    kind("`serving files`; `DEVICE is back`", "info", "opened; returned", "nothing"),
    kind("`halted; all data is durable`", "info", "`fs halt`, stop", "`ashlar fs start NAME`"),
    kind("`WHY; NEXT`; `disk NAME: WHY`", "error", "cannot open; no disk made", "follow the text"),
    kind("`DEVICE is gone`", "error", "lost device", "attach it, or `ashlar fs replace`"),
    kind("`fs dump: PATH: N blocks`", "info", "`ashlar fs dump`", "nothing"),
    kind("`NAME: PEER: ...` (log)", "warn", "rejected client", "`ashlar fs list`"),
];
