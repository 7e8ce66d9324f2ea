//! The verbs, as geom_sched has them, and `stats`.

use bio::Errno;
use geom::{ArgKind, ArgSpec, Class, Control, Create, Error, GeomId, VerbSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::class::{SchedClass, classify};
use super::geom::SchedGeom;
use super::options::{self, Options};
use super::{NAME, algorithms, hub};
use crate::members::{hand, known};
use crate::words::{FORCE, verb};

const ALGORITHM: ArgSpec = ArgSpec {
    name: "algorithm",
    short: Some('a'),
    kind: ArgKind::Choice(algorithms::NAMES),
    doc: "Which algorithm [default: rr]",
};
const OPTIONS: ArgSpec = ArgSpec {
    name: "options",
    // The letter is that of --output.
    short: None,
    kind: ArgKind::Text,
    doc: "KEY=VALUE, with commas between several: of the algorithm, or weight, iops, kbps of \
          every client, or CLIENT.weight and so on, and CLIENT.burst_ms, of one: 7 is session or \
          process 7, iqn.x an initiator, iqn.x/3 its LUN 3, mirror rebuild gm0 a pass; \
          CLIENT=default takes away what one has of its own",
};
const CLASSIFY: ArgSpec = ArgSpec {
    name: "classify",
    short: Some('c'),
    kind: ArgKind::Choice(super::clients::Classify::WORDS),
    doc: "By what clients are told apart [default: session]; process: of this machine, that \
          work on the file by FUSE which `attach --list --json` names (loop and NBD devices: \
          the kernel)",
};
const DISKS: ArgSpec =
    ArgSpec { name: "disks", short: None, kind: ArgKind::Names(1), doc: "Providers" };
const NODE: ArgSpec = ArgSpec {
    name: "name",
    short: None,
    kind: ArgKind::Name,
    doc: "The scheduler: DISK.sched. or DISK",
};
const NODES: ArgSpec = ArgSpec {
    name: "names",
    short: None,
    kind: ArgKind::Names(1),
    doc: "Schedulers: DISK.sched. or DISK",
};
const ANY_NODES: ArgSpec =
    ArgSpec { name: "names", short: None, kind: ArgKind::Names(0), doc: "Schedulers; absent: all" };

const KNOBS: &str = "Options of the algorithms, from least to most and as they are at first. rr: \
    queue_depth 1 to 50 (1), wait_ms 1 to 30 (10), quantum_ms 1 to 500 (100), quantum_kb 16 to \
    65536 (8192), w_anticipate 0 to 1 (1). as: wait_ms 1 to 30 (5), batch_kb 16 to 65536 (8192). \
    fifo: queue_depth 0 to 1024 (0), 0 being any number. deadline: queue_depth 1 to 256 (1), \
    read_expire_ms 1 to 60000 (500), write_expire_ms 1 to 600000 (5000), batch 1 to 1024 (16), \
    writes_starved 1 to 64 (2). fair: queue_depth 1 to 4096 (32), op_cost 0 to 1048576 (8192), \
    burst_ms 1 to 60000 (100); it alone heeds weight, iops, kbps and a client's burst_ms.";

/// What the class can be asked.
pub(super) const VERBS: &[VerbSpec] = &[
    VerbSpec {
        detail: "Those who use the disk now go on as they are, and their requests go through the \
                 scheduler; they stay open and mounted. The scheduler's provider has the disk's \
                 name from then on, for whoever comes later too, and the disk's is called \
                 DISK.sched. until the scheduler is destroyed. If requests under way do not end \
                 in time, nothing is changed. It is no part of the configuration, in which \
                 DISK.sched. cannot be named, and gone at the next start.",
        ..verb(
            "insert",
            "Slip a scheduler in under those who use a disk, while they work",
            &[DISKS, ALGORITHM, OPTIONS, CLASSIFY],
            "sched insert -a rr d0",
            false,
        )
    },
    VerbSpec {
        detail: "The disk stays as it is; who opens DISK.sched. goes through the scheduler.",
        ..verb(
            "create",
            "Put a scheduler on a disk, with a provider of its own",
            &[DISKS, ALGORITHM, OPTIONS, CLASSIFY],
            "sched create -a deadline d0",
            false,
        )
    },
    VerbSpec {
        detail: KNOBS,
        ..verb(
            "configure",
            "Change the algorithm, its options or what a client is, while requests flow",
            &[NODE, ALGORITHM, OPTIONS, CLASSIFY],
            "sched configure -a as --options wait_ms=3 d0.sched.",
            false,
        )
    },
    VerbSpec {
        detail: "One that was inserted is taken out from under those who use it, while they work; \
                 what waits in it goes to the disk first. If that does not end in time it stays. \
                 One that was created and is open goes only with --force.",
        ..verb(
            "destroy",
            "Take a scheduler away",
            &[NODES, FORCE],
            "sched destroy d0.sched.",
            false,
        )
    },
    verb(
        "stats",
        "Show what every client of a scheduler got, and how long it waited",
        &[ANY_NODES],
        "sched stats d0.sched.",
        false,
    ),
    verb(
        "reset",
        "Start the counters of schedulers again",
        &[NODES],
        "sched reset d0.sched.",
        false,
    ),
];

/// What the verbs take; each uses its own part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    disks: Vec<String>,
    names: Vec<String>,
    algorithm: Option<String>,
    options: Option<String>,
    classify: Option<String>,
    force: bool,
}

/// Carries out a verb.
pub(super) fn run(
    class: &SchedClass,
    control: &mut Control,
    verb: &str,
    on: &str,
    params: &Value,
) -> Result<Value, Error> {
    let mut request: Request = match params {
        Value::Null => Request::default(),
        given => serde_json::from_value(given.clone())
            .map_err(|e| Error::inval(format!("sched {verb}: {e}")))?,
    };
    if !on.is_empty() {
        request.disks.push(on.to_owned());
        request.names.push(on.to_owned());
    }
    match verb {
        "insert" | "create" => place(class, control, verb, &request),
        "configure" => configure(control, on, &request),
        "destroy" | "remove" => destroy(class, control, &request),
        "stats" => stats(control, &request),
        "reset" => reset(control, &request),
        _ => {
            let names: Vec<&str> = VERBS.iter().map(|v| v.name).collect();
            let what = format!("sched has no verb {verb}; {}", names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

/// A scheduler by its own name or that of its disk.
fn find(control: &Control, name: &str) -> Result<GeomId, Error> {
    let own = control.topology.find_geom(NAME, known::bare(NAME, name));
    match own.or_else(|| control.topology.find_geom(NAME, &format!("{name}.{NAME}."))) {
        Some(geom) => Ok(geom),
        None => known::geom(control, NAME, name),
    }
}

fn with<R>(
    control: &mut Control,
    geom: GeomId,
    f: impl FnOnce(&mut SchedGeom) -> R,
) -> Result<R, Error> {
    let going = || Error::new(Errno::NxIo, "the scheduler is going");
    control.topology.with(geom, |g: &mut SchedGeom, _| f(g)).ok_or_else(going)
}

fn place(
    class: &SchedClass,
    control: &mut Control,
    verb: &str,
    request: &Request,
) -> Result<Value, Error> {
    let Request { algorithm, options, classify, .. } = request;
    let params = json!({ "algorithm": algorithm, "options": options, "classify": classify });
    let below: Vec<_> =
        request.disks.iter().map(|disk| hand::find(control, disk)).collect::<Result<_, _>>()?;
    let (mut made, mut geoms) = (Vec::new(), Vec::new());
    for (disk, below) in request.disks.iter().zip(below) {
        let name = format!("{disk}.{NAME}.");
        let placed = if verb == "create" {
            let create = Create { name: &name, members: &[below], params: &params };
            control.call(|t| class.create(t, &create))
        } else {
            let create = Create { name: &name, members: &[], params: &params };
            let geom = control.insert(NAME, below, &create);
            geom.and_then(|geom| with(control, geom, |g| g.inserted = true).map(|()| geom))
        };
        match placed {
            Ok(geom) => geoms.push(geom),
            Err(e) => return Err(taken_back(class, control, geoms, e)),
        }
        made.push(name);
    }
    let what = if verb == "create" { "created" } else { "inserted" };
    Ok(json!({ "message": format!("{} {what}", made.join(", ")), "names": made }))
}

/// All or none: those that were made before the one that failed go again.
fn taken_back(class: &SchedClass, control: &mut Control, geoms: Vec<GeomId>, why: Error) -> Error {
    for geom in geoms.into_iter().rev() {
        let name = control.topology.geom_name(geom).to_owned();
        if let Err(e) = take_away(class, control, geom, false) {
            let what = format!("{}; and {name} is there and did not go: {}", why.what, e.what);
            return Error::new(why.kind, what);
        }
    }
    why
}

fn take_away(
    class: &SchedClass,
    control: &mut Control,
    geom: GeomId,
    force: bool,
) -> Result<(), Error> {
    match with(control, geom, |g| g.inserted)? {
        true => control.remove(geom),
        false => control.call(|t| class.destroy(t, geom, force)),
    }
}

fn configure(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let Options { knobs, shares } = options::read(request.options.as_deref())?;
    let classify = classify(request.classify.as_deref())?;
    let new = request.algorithm.as_deref().map(|name| hub::algorithm(name, &knobs)).transpose()?;
    let geom = work_as(control, on, |hub, now| {
        // All or nothing: what can be refused is refused first.
        options::has_room(hub, &shares)?;
        match new {
            Some(new) => hub.change(new, now),
            None => set(hub, &knobs)?,
        }
        if let Some(classify) = classify {
            hub.set_classify(classify);
        }
        options::set_shares(hub, &shares)
    })?;
    Ok(json!({ "message": format!("{} configured", control.topology.geom_name(geom)) }))
}

/// Changes a scheduler while requests flow.
pub(super) fn work_as(
    control: &mut Control,
    on: &str,
    change: impl FnOnce(&mut hub::Hub, u64) -> Result<(), Error>,
) -> Result<GeomId, Error> {
    let (geom, now) = (find(control, on)?, control.now_ns());
    with(control, geom, |g| g.shared.change(|hub| change(hub, now)))??;
    // Another algorithm may share the disk out, or no longer.
    let providers = control.topology.providers_of(geom).to_vec();
    control.call(|t| {
        providers.iter().for_each(|p| t.below_changed(*p));
        Ok(())
    })?;
    Ok(geom)
}

/// Sets knobs, all of them or none.
fn set(hub: &mut hub::Hub, knobs: &[(String, u64)]) -> Result<(), Error> {
    hub::algorithm(hub.algorithm_name, knobs)?;
    hub.configure(|algorithm, _| {
        for (key, value) in knobs {
            algorithm.knobs_mut().set(key, *value).map_err(Error::inval)?;
        }
        Ok(())
    })
}

fn destroy(class: &SchedClass, control: &mut Control, request: &Request) -> Result<Value, Error> {
    let geoms: Vec<_> =
        request.names.iter().map(|name| find(control, name)).collect::<Result<_, _>>()?;
    let mut gone: Vec<String> = Vec::new();
    for geom in geoms {
        let name = control.topology.geom_name(geom).to_owned();
        if let Err(e) = take_away(class, control, geom, request.force) {
            let before = match gone.is_empty() {
                true => String::new(),
                false => format!("; destroyed before that: {}", gone.join(", ")),
            };
            return Err(Error::new(e.kind, format!("{name}: {}{before}", e.what)));
        }
        gone.push(name);
    }
    Ok(json!({ "message": format!("{} destroyed", gone.join(", ")) }))
}

fn chosen(control: &Control, names: &[String]) -> Result<Vec<GeomId>, Error> {
    if names.is_empty() {
        let view = control.topology.view(0);
        let ours = view.iter().filter(|g| g.class == NAME && !g.withering);
        return Ok(ours.filter_map(|g| control.topology.find_geom(NAME, &g.name)).collect());
    }
    names.iter().map(|name| find(control, name)).collect()
}

fn stats(control: &mut Control, request: &Request) -> Result<Value, Error> {
    let (mut text, mut all) = (String::new(), Vec::new());
    for geom in chosen(control, &request.names)? {
        let name = control.topology.geom_name(geom).to_owned();
        let stats = with(control, geom, |g| g.stats(&name))?;
        text += &table(&stats);
        all.push(stats);
    }
    Ok(json!({ "text": text, "geoms": all }))
}

/// A table of one scheduler's clients.
fn table(stats: &Value) -> String {
    let word = |key: &str| stats.get(key).and_then(Value::as_str).unwrap_or("");
    let mut out = format!("{}: {}\n", word("name"), word("algorithm"));
    out += &format!(
        "{:<40} {:>10} {:>12} {:>12} {:>10} {:>10} {:>7} {:>7} {:>9}\n",
        "CLIENT",
        "REQUESTS",
        "READ KB",
        "WRITTEN KB",
        "WAIT US",
        "MAX US",
        "WEIGHT",
        "IOPS",
        "KB/S"
    );
    let clients = stats.get("clients").and_then(Value::as_array);
    for client in clients.into_iter().flatten() {
        let number = |key: &str| client.get(key).and_then(Value::as_u64).unwrap_or_default();
        let mean = number("wait_ns").checked_div(number("requests")).unwrap_or_default() / 1000;
        out += &format!(
            "{:<40} {:>10} {:>12} {:>12} {mean:>10} {:>10} {:>7} {:>7} {:>9}\n",
            client.get("client").and_then(Value::as_str).unwrap_or(""),
            number("requests"),
            number("read_bytes") / 1024,
            number("written_bytes") / 1024,
            number("wait_max_ns") / 1000,
            number("weight"),
            number("iops"),
            number("kbps"),
        );
    }
    out
}

fn reset(control: &mut Control, request: &Request) -> Result<Value, Error> {
    for geom in chosen(control, &request.names)? {
        with(control, geom, |g| g.shared.reset())?;
    }
    Ok(json!({ "message": "counters reset" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_options_is_what_they_are() {
        let parts: Vec<&str> = KNOBS.split(". ").collect();
        for kind in algorithms::ALL {
            let head = format!("{}: ", kind.name);
            let part = parts.iter().find(|p| p.starts_with(&head)).expect("an algorithm");
            assert_eq!(part.matches(" to ").count(), kind.knobs.len(), "{part}");
            for k in kind.knobs {
                let said = format!("{} {} to {} ({})", k.name, k.min, k.max, k.default);
                assert!(part.contains(&said), "{said}: {part}");
            }
        }
    }
}
