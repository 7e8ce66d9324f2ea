//! The verbs: `insert`, `create`, `destroy`, `configure`, `now`, `stats`; `list` and `status` are
//! those of every class.

use std::sync::Arc;
use std::time::Duration;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Create, Error, GATE_DEADLINE, GeomId, VerbSpec};
use serde_json::{Value, json};

use super::NAME;
use super::class::{params_of, says};
use super::geom::TrimGeom;
use super::params::TrimParams;
use super::shared::Shared;
use super::show;
use crate::members::{hand, known};

/// How often `now --wait` says how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// What `now` is asked.
struct Now {
    wait: bool,
    /// Ends one that goes on.
    end: bool,
    /// It was asked before, and has said how far it is.
    again: bool,
}

const DISK: ArgSpec = ArgSpec {
    name: "name",
    short: None,
    kind: ArgKind::Name,
    doc: "The provider over which it is put",
};
const QUEUE: ArgSpec = ArgSpec {
    name: "name",
    short: None,
    kind: ArgKind::Name,
    doc: "The queue: the name of its provider, such as d0.trim",
};
const AS: ArgSpec = ArgSpec {
    name: "as",
    short: None,
    kind: ArgKind::Text,
    doc: "Its name [default: that of the provider with .trim behind it]",
};
const SHARE: ArgSpec = ArgSpec {
    name: "share",
    short: Some('s'),
    kind: ArgKind::Number,
    doc: "Percent of the device's time that deletes may take [default: 5]",
};
const SHORT: ArgSpec = ArgSpec {
    name: "short",
    short: None,
    kind: ArgKind::Bytes,
    doc: "Shorter ranges wait for their neighbours [default: 96k]",
};
const BATCH: ArgSpec = ArgSpec {
    name: "batch",
    short: None,
    kind: ArgKind::Number,
    doc: "Ranges that make a batch worth sending [default: 64]",
};
const QUIET: ArgSpec = ArgSpec {
    name: "quiet_ms",
    short: None,
    kind: ArgKind::Number,
    doc: "ms without a delete after which a batch is sent whatever its size [default: 1000]",
};
const EXPIRE: ArgSpec = ArgSpec {
    name: "expire_ms",
    short: None,
    kind: ArgKind::Number,
    doc: "ms after which a short range is left to `trim now` [default: 60000]",
};
const GRANULE: ArgSpec = ArgSpec {
    name: "granule",
    short: None,
    kind: ArgKind::Bytes,
    doc: "Bytes that the device gives up as a whole [default: as the provider below says]",
};
const ZEROES: ArgSpec = ArgSpec {
    name: "zeroes",
    short: None,
    kind: ArgKind::Choice(&["drop", "keep"]),
    doc: "What becomes of the promise below that deleted bytes read as zeroes: drop it, or keep it \
          and pass deletes on as they come",
};
const WAIT: ArgSpec = ArgSpec {
    name: "wait",
    short: Some('w'),
    kind: ArgKind::Flag,
    doc: "Return when the device was told of what is queued now; show how far it is",
};
const END: ArgSpec =
    ArgSpec { name: "end", short: None, kind: ArgKind::Flag, doc: "End the one that goes on" };
const RESET: ArgSpec = ArgSpec {
    name: "reset",
    short: Some('r'),
    kind: ArgKind::Flag,
    doc: "Count from zero afterwards",
};

/// What the class can be asked.
pub(super) const VERBS: &[VerbSpec] = &[
    VerbSpec {
        name: "insert",
        doc: "Put a queue of deletes under everybody who uses a provider, while they work",
        detail: "Deletes are acknowledged at once and sent to the device later, so deleted bytes \
                 do not read as zeroes any more. Where the provider promises that they do, those \
                 above may have passed the promise on to initiators: then --zeroes must be given. \
                 The queue has the provider's name meanwhile, and the provider the queue's. \
                 Nothing of the queue is kept on the disk: at the next start it is gone, with what \
                 waited in it, which harms nobody. One that is to stay is in the configuration.",
        args: &[DISK, AS, SHARE, SHORT, BATCH, QUIET, EXPIRE, GRANULE, ZEROES],
        example: "trim insert d0 --zeroes drop",
        writes: false,
    },
    VerbSpec {
        name: "create",
        doc: "Make a provider with a queue of deletes over another",
        detail: "Those who use the provider below go on using it. The new one says that deleted \
                 bytes do not read as zeroes, unless --zeroes keep is given.",
        args: &[DISK, AS, SHARE, SHORT, BATCH, QUIET, EXPIRE, GRANULE, ZEROES],
        example: "trim create d0",
        writes: false,
    },
    VerbSpec {
        name: "destroy",
        doc: "Take a queue out from under those who use it, while they work",
        detail: "What waits in it is dropped: `trim now --wait` before this has it sent. The \
                 command that is with the device is waited for; when it does not end in 10 \
                 seconds, everything stays.",
        args: &[QUEUE],
        example: "trim destroy d0.trim",
        writes: false,
    },
    VerbSpec {
        name: "configure",
        doc: "Change how eagerly deletes are sent",
        detail: "",
        args: &[QUEUE, SHARE, SHORT, BATCH, QUIET, EXPIRE],
        example: "trim configure d0.trim --share 20",
        writes: false,
    },
    VerbSpec {
        name: "now",
        doc: "Send all that was deleted and is not written again, as fstrim does",
        detail: "Short ranges too, and those that had been given up. The share of the device's \
                 time and the care for others stay as they are. It goes on by itself: `trim list` \
                 shows how far it is, and --end ends it, whoever waits for it; what is left waits \
                 in the queue as before.",
        args: &[QUEUE, WAIT, END],
        example: "trim now d0.trim",
        writes: false,
    },
    VerbSpec {
        name: "stats",
        doc: "Show what a queue has done",
        detail: "",
        args: &[QUEUE, RESET],
        example: "trim stats d0.trim",
        writes: false,
    },
];

/// Carries out a verb on the provider or queue called `on`.
pub(super) fn run(
    control: &mut Control,
    verb: &str,
    on: &str,
    params: &Value,
) -> Result<Value, Error> {
    let mut given = params.as_object().cloned().unwrap_or_default();
    let mut flag = |name: &str| given.remove(name).is_some_and(|v| v == Value::Bool(true));
    let asked = Now { wait: flag("wait"), end: flag("end"), again: flag("again") };
    let reset = flag("reset");
    let name = match given.remove("as") {
        Some(Value::String(name)) => name,
        _ => format!("{on}.trim"),
    };
    let params = params_of(&Value::Object(given))?;
    match verb {
        "insert" => insert(control, on, &name, params),
        "create" => create(control, on, &name, params),
        "destroy" => destroy(control, on),
        "configure" => configure(control, on, &params),
        "now" => now(control, on, &asked),
        "stats" => Ok(show::stats(&queue(control, on)?.1, reset)),
        _ => {
            let names: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
            let what = format!("trim has no verb {verb}; {}", names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

fn queue(control: &mut Control, on: &str) -> Result<(GeomId, Arc<Shared>), Error> {
    let geom = known::geom(control, NAME, on)?;
    let shared = control.topology.with(geom, |g: &mut TrimGeom, _| g.shared.clone());
    let going = || Error::new(Errno::NxIo, format!("{on} is going"));
    shared.map(|shared| (geom, shared)).ok_or_else(going)
}

fn insert(control: &mut Control, on: &str, name: &str, p: TrimParams) -> Result<Value, Error> {
    let below = hand::find(control, on)?;
    let t = &control.topology;
    if !says(t, below, "GEOM::candelete") {
        let what = "it takes no deletes, so there is nothing to queue: choose another provider";
        return Err(Error::new(Errno::NotSup, what));
    }
    if says(t, below, "GEOM::deletereadszero") && p.zeroes.is_none() {
        let what = format!(
            "it promises that deleted bytes read as zeroes, which those above may have passed \
             on; a queue cannot keep that. `ashlar trim insert {on} --zeroes drop` if nobody \
             relies on it, `--zeroes keep` to have deletes go down as they come"
        );
        return Err(Error::inval(what));
    }
    let params = serde_json::to_value(&p).unwrap_or_default();
    let request = Create { name, members: &[], params: &params };
    control.insert(NAME, below, &request)?;
    Ok(json!({ "message": format!("{name} inserted over {on}"), "provider": on }))
}

fn create(control: &mut Control, on: &str, name: &str, p: TrimParams) -> Result<Value, Error> {
    let below = hand::find(control, on)?;
    let params = serde_json::to_value(&p).unwrap_or_default();
    control.call(|t| {
        let class = t.class(NAME).ok_or_else(|| Error::new(Errno::NoEnt, "no class trim"))?;
        class.create(t, &Create { name, members: &[below], params: &params })
    })?;
    Ok(json!({ "message": format!("{name} is there"), "provider": name }))
}

fn destroy(control: &mut Control, on: &str) -> Result<Value, Error> {
    let (geom, shared) = queue(control, on)?;
    shared.desk.set_open(false);
    let ended = control.wait_until(GATE_DEADLINE, |_| shared.desk.fill().in_flight.0 == 0);
    let removed = match ended {
        true => control.remove(geom),
        false => {
            let what = format!("{on}: the device does not answer a delete; nothing was changed");
            Err(Error::new(Errno::TimedOut, what))
        }
    };
    if let Err(e) = removed {
        let _ = control.topology.with(geom, |g: &mut TrimGeom, _| {
            g.shared.desk.set_open(g.open.w > 0);
        });
        return Err(e);
    }
    Ok(json!({ "message": format!("{on} destroyed") }))
}

fn configure(control: &mut Control, on: &str, p: &TrimParams) -> Result<Value, Error> {
    if p.granule.is_some() || p.zeroes.is_some() {
        let what = "granule and zeroes are said when a queue is made";
        return Err(Error::inval(what));
    }
    work_as(control, on, |before| p.over(before))?;
    Ok(json!({ "message": format!("{on} configured") }))
}

/// The queue works so from now on; `granule` and `zeroes` stay.
pub(super) fn work_as(
    control: &mut Control,
    on: &str,
    new: impl FnOnce(&TrimParams) -> TrimParams,
) -> Result<(), Error> {
    let (geom, shared) = queue(control, on)?;
    let new = control.topology.with(geom, |g: &mut TrimGeom, _| {
        let TrimParams { granule, zeroes, .. } = g.params;
        g.params = TrimParams { granule, zeroes, ..new(&g.params) };
        g.params.clone()
    });
    if let Some(new) = new {
        shared.desk.configure(new.policy(), new.pacing());
    }
    Ok(())
}

/// With `wait` it answers every now and then how far it is, and is asked again: others can be
/// served meanwhile, such as whoever ends it.
fn now(control: &mut Control, on: &str, asked: &Now) -> Result<Value, Error> {
    let (_, shared) = queue(control, on)?;
    if asked.end {
        let was = shared.desk.end_all();
        let what = if was { "the full trim has ended" } else { "no full trim was going on" };
        return Ok(json!({ "message": format!("{on}: {what}"), "ended": was }));
    }
    if !asked.again {
        shared.desk.all(control.now_ns());
    }
    let done = |_: &Control| shared.desk.fill().told;
    if asked.wait && !control.wait_until(LOOK, done) {
        let (done, all) = shared.desk.fill().done;
        return Ok(json!({ "unfinished": {
            "what": format!("trim {on}"),
            "done": done,
            "total": all,
            "goes_on": format!("ashlar trim now {on} --end"),
            "again": { "name": on, "wait": true, "again": true },
        }}));
    }
    let fill = shared.desk.fill();
    let (ranges, bytes) = (fill.queued.0 + fill.in_flight.0, fill.queued.1 + fill.in_flight.1);
    let seen = if asked.wait { "" } else { "; `trim list` shows how far it is" };
    Ok(json!({
        "message": format!("{on}: {bytes} bytes in {ranges} ranges wait{seen}"),
        "ranges": ranges,
        "bytes": bytes,
    }))
}
