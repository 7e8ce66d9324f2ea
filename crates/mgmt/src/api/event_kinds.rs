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

/// Rows of kinds: in brackets the classes that report it, then text, level, cause and remedy.
macro_rules! kinds {
    ($($([$classes:literal])? $text:literal, $level:literal, $cause:literal, $next:literal;)*) => {
        &[$(EventKind {
            classes: concat!("" $(, $classes)?),
            text: $text,
            level: $level,
            cause: $cause,
            next: $next,
        }),*]
    };
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

const DAEMON: &[EventKind] = kinds! {
    "`core N uses io_uring (...)`, or `poll, because ...`",
        "info", "start", "`ashlar doctor io_uring`";
    "`GEOM: records are not clean after ...: ...`", "warn", "a disk hangs", "check the disk";
    "`...: cannot be read (...)`; `...: not saved (...)`",
        "warn", "state folder", "repair or restore it";
    "`KIND could not be saved: ERROR`", "error", "state folder", "check space, permissions";
    "`KIND: the newest record cannot be used (...)`",
        "error", "damaged record", "check its settings";
    "`serving FILE on SOCKET`; `stopping: SIGNAL` (log)", "info", "start; stop", "nothing";
    "`left out: STEP: WHY` (log)", "error", "missing at the start", "`ashlar status`";
    "`abandoned because it does not answer: ...` (log)", "error", "a task hangs", "check disks";
    "`...: connection refused: ...` (log)", "warn", "many clients", "find the client";
    "`ASHLAR PANIC: THREAD at PLACE: WHY` (log)", "none", "defect, the daemon ends", "report it";
};

const CONFIGURATION: &[EventKind] = kinds! {
    "`create KIND NAME (...)`, also `change`, `grow`, `remove`", "info", "step done", "nothing";
    "`change settings of the daemon`", "info", "step done", "restart the daemon";
    "`STEP: OBJECT: ERROR`, then inverse steps",
        "error; info", "failed, undone", "correct it, apply";
    "a reason without a step", "warn", "a retry failed", "`ashlar status`";
    "`waits for PROVIDER, which is missing`", "warn", "provider is late", "attach the disk";
    "`CLASS VERB`, `part VERB: RESULT`, `fs VERB: RESULT`", "info", "command done", "nothing";
    "`the port group is STATE now`", "info", "`ashlar alua set`", "nothing";
    "`..., as set by hand`", "warn", "group or tray keeps its state", "`alua show`, `tray`";
    "`..., loaded by hand, is missing: WHY`", "warn", "no medium", "load another";
    "`its reservations were cleared by hand`", "warn", "command done", "stop the dead host";
    "`session ID of HOST at ADDRESS was ended by hand`", "warn", "command done", "nothing";
    "`SIGHUP: FILE reloaded`, or `was not reloaded` (log)",
        "info; error", "SIGHUP", "correct the file";
};

const DISK: &[EventKind] = kinds! {
    "`medium missing: PATH: ...`, `medium lost: PATH: ERROR`", "error", "it is gone", "attach it";
    "`medium lost: PATH has N bytes and had M; ...`",
        "error, warn", "file was cut", "restore the image";
    "`medium missing: PATH has N bytes ...`",
        "error, warn", "smaller than `size`", "restore the image";
    "`medium lost: PATH does not answer; ...`", "error", "failed requests", "check the device";
    "`medium lost: PATH: path does not answer ...`",
        "error, warn", "file system hangs", "its server";
    "`PATH: path does not answer ...`, `PATH: not examined ...`", "warn", "the same", "`findmnt`";
    "`PLACE does not answer; ...`", "error", "network disk", "check server and network";
    "`medium available again`", "info", "disk is open again", "check mirrors above it";
    "`providers available again`, `...; its LUNs ...`", "info", "geom, unit is back", "nothing";
    "`replaced by another disk: ...`; `returned with ...`",
        "warn", "wrong disk", "attach the right one";
    "`PATH: unused tail of N bytes: ...`", "info", "not whole sectors", "nothing";
    "`PATH was renamed to NEW while it is in use...`", "warn", "`mv` of an image", "rename it back";
    "`PATH was removed ...`, `PATH was replaced ...`",
        "warn", "no name is left", "copy before a stop";
    "`PATH does not name the file that is in use...`", "warn", "folder was moved", "move it back";
    "`PATH names another device now, ...`, `PATH is gone: ...`",
        "warn", "device", "`lsblk`; plug it in";
    "`the file system of PATH became read-only ...`", "warn", "fault or remount", "`dmesg`, `fsck`";
    "`writes to PATH failed for lack of room ...`", "warn", "quota, size limit", "raise the limit";
    "`a header of protection information is at ...`", "error", "state folder lost", "see the text";
    "`disk NAME: the NBD server ended (...) ...` (log)",
        "warn", "its own server", "read lines before it";
};

const BUS: &[EventKind] = kinds! {
    "`found DISK, ...`; `cam attach: ...`", "info", "new disks", "nothing";
    "`TARGET at PORTAL: WHY. ...`", "warn", "iSCSI portal fails", "`ashlar cam discover PORTAL`";
    "`... does not answer by IFACE at MAC. ...`", "warn", "AoE path fails", "`ip link show IFACE`";
    "`DISK at PATH (...): a different disk answers ...`", "warn", "exchanged disk", "put it back";
    "`...: identity not confirmed, ...`", "warn", "check is pending", "look at the target";
    "`DISK at PATH ...: CMD is not answered; ...`",
        "warn", "slow target", "`ashlar cam reset DISK`";
    "`the device at PATH ... is not offered: WHY. ...`", "warn", "bad answers", "check its target";
    "`...: the target has N logical units, but ...`", "warn", "too many LUNs", "raise `luns_max`";
    "`...; the device is kept unchanged. ...`",
        "warn", "implausible answers", "`ashlar cam rescan N`";
    "other text, `about` is the bus", "error", "graph was not updated", "`ashlar cam devlist`";
};

const GEOM: &[EventKind] = kinds! {
    ["labels"] "`...: the label was moved ...`, `could not be moved`",
        "info; error", "growth", "see text";
    ["labels"] "`PROVIDER may be one of CLASS: WHY`", "warn", "growth", "see the text";
    ["arrays"] "`PROVIDER is refused: WHY`", "warn", "stale or failed", "see the reason";
    ["mirror, raid"] "`MEMBER is gone, was STATE`",
        "warn", "removed or lost", "attach or replace it";
    ["mirror, raid"] "`MEMBER failed a request, but stays: ...`",
        "error", "last copy", "save the data";
    ["mirror, raid"] "`... be written: writes wait until ...`",
        "error", "no record", "repair a member";
    ["mirror"] "`mirror/NAME: DEGRADED (N of M members)`", "warn", "incomplete", "`ashlar status`";
    ["mirror"] "`mirror/NAME: COMPLETE (...), was DEGRADED (...)`", "info", "rebuilt", "nothing";
    ["mirror"] "`MEMBER: SYNCHRONIZING`, then `ACTIVE`", "warn; info", "rebuild, end", "wait";
    ["mirror"] "`MEMBER: STALE`", "warn", "no automatic rebuild", "`ashlar mirror rebuild`";
    ["mirror"] "`the mirror does not start: WHY`",
        "error", "split, missing", "`ashlar mirror list`";
    ["mirror"] "`no complete member is left: ...`", "error", "all lost", "attach a member";
    ["raid"] "`volume NAME: STATE`, also `not offered (STATE)`",
        "by state", "disks", "`ashlar raid list`";
    ["raid"] "`DISK: REBUILD`, `DISK: FAILED`", "warn", "replaced; failed", "wait; replace it";
    ["raid"] "`...: its parity may be wrong for ...`", "error", "write hole", "attach the disk";
    ["raid"] "`DISK is older than the array ...`", "warn", "old record", "wait";
    ["raid"] "`split brain: ...`; `its last disk has gone`",
        "error", "see the text", "choose; attach";
    ["multipath"] "`multipath/NAME: DEGRADED (...)`, `BROKEN (...)`",
        "warn; error", "paths", "repair one";
    ["multipath"] "`PATH: FAIL`, `TRANSITION`; `ACTIVE` and others",
        "warn; info", "path", "repair it";
    ["stripe, concat"] "`CLASS/NAME: UP`, also `DOWN (...)`",
        "info; error", "members", "`ashlar status`";
    ["trim"] "`trim VERB`, such as `trim insert`", "info", "command done", "`ashlar trim stats`";
};

const TARGET: &[EventKind] = kinds! {
    "`stopping: waiting for N sessions, ...` (event)",
        "info", "the daemon stops", "wait 5 s at most";
    "`N sessions have commands at a disk ...` (event)", "warn", "a disk hangs", "check the disk";
    "`LUN N (UNIT) is DEVICE, rw`; `LUN N: WHY` (event)", "info; error", "attach", "see the reason";
    "`memory is not locked (...): ...` (event)", "error", "no capability", "add CAP_IPC_LOCK";
    "`NAME (PEER): logged in to TARGET`", "info", "iSCSI login", "nothing";
    "`PEER: login of NAME to TARGET refused: ...`",
        "warn", "iSCSI: group, CHAP", "`sessions --denied`";
    "`PEER: NAME may not use EXPORT...`", "warn", "NBD, NVMe: no group", "add it to a group";
    "`...: the daemon stops`, `ended by the administrator`", "warn", "stop, kick", "nothing";
    "`...: no answer to a ping`, `the network ended ...`",
        "warn", "host, network", "check the network";
    "`...: broken PDU framing: ...`, `TLS: WHY`", "warn", "bad peer or keys", "find the peer";
    "`PEER: refused, this core has N connections already`", "warn", "flood", "find the peer";
    "`portal PORTAL: cannot accept connections: ...`", "warn", "descriptors", "raise LimitNOFILE";
    "`INTERFACE: ERROR; the interface is looked up ...`", "warn", "AoE link is gone", "`ip link`";
};

const CERTIFICATES: &[EventKind] = kinds! {
    "`KEY PATH has changed; ...`", "warn", "replaced file", "`ashlar apply`";
    "`KEY PATH cannot be used: WHY; ...`", "warn", "mode, content", "correct it before a restart";
    "`read files of SECTION anew`", "info", "`apply`, SIGHUP", "nothing";
};

const FILESERVER: &[EventKind] = kinds! {
    "`serving files`; `DEVICE is back`", "info", "opened; returned", "nothing";
    "`halted; all data is durable`", "info", "`fs halt`, stop", "`ashlar fs start NAME`";
    "`WHY; NEXT`; `disk NAME: WHY`", "error", "cannot open; no disk made", "follow the text";
    "`DEVICE is gone`", "error", "lost device", "attach it, or `ashlar fs replace`";
    "`fs dump: PATH: N blocks`", "info", "`ashlar fs dump`", "nothing";
    "`NAME: PEER: ...` (log)", "warn", "rejected client", "`ashlar fs list`";
};
