//! The verbs: `label`, `create`, `append`, `stop`, `start`, `clear`, `dump`.

use bio::Errno;
use geom::{Class, Control, Create, Error, GeomId, ProviderId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::class::SpanClass;
use super::geom::SpanGeom;
use super::{Span, SpanLabel};
use crate::members::{frame, hand};

/// What the verbs take; each uses its own part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    members: Vec<String>,
    member: Option<String>,
    strip: Option<u64>,
    hardcode: bool,
    force: bool,
}

fn inval(what: impl Into<String>) -> Error {
    Error::new(Errno::Inval, what)
}

/// Carries out a verb on the geom or provider called `on`.
pub(super) fn run<S: Span>(
    class: &SpanClass<S>,
    control: &mut Control,
    verb: &str,
    on: &str,
    params: &Value,
) -> Result<Value, Error> {
    let request: Request = match params {
        Value::Null => Request::default(),
        given => serde_json::from_value(given.clone())
            .map_err(|e| inval(format!("{} {verb}: {e}", S::NAME)))?,
    };
    let known = S::VERBS.iter().any(|v| v.name == verb);
    match verb {
        "label" => label(class, control, on, &request),
        "create" => create(class, control, on, &request),
        "append" if known => append::<S>(control, on, &request),
        "stop" | "destroy" => stop(class, control, on, &request),
        "start" => start(class, control, on),
        "clear" => clear::<S>(control, &request),
        "dump" => dump::<S>(control, &request),
        _ => {
            let names: Vec<&str> = S::VERBS.iter().map(|v| v.name).collect();
            let what = format!("{} has no verb {verb}; {}", S::NAME, names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

fn geom_called<S: Span>(control: &Control, on: &str) -> Result<GeomId, Error> {
    let prefix = format!("{}/", S::NAME);
    let name = on.strip_prefix(&prefix).unwrap_or(on);
    control.topology.find_geom(S::NAME, name).ok_or_else(|| {
        let what = format!("there is no {0} {name}; `ashlar {0} status` names them", S::NAME);
        Error::new(Errno::NoEnt, what)
    })
}

/// A number for a new one, from what is there and the time: two labelled in one daemon differ,
/// and two labelled anywhere differ as 32 bits can.
fn new_id(control: &Control, name: &str) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ control.now_ns();
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    ((hash >> 32) ^ hash) as u32 | 1
}

fn check_name(name: &str) -> Result<(), Error> {
    let fits = !name.is_empty() && name.len() < frame::TEXT;
    let good = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    match fits && good {
        true => Ok(()),
        false => Err(inval(format!(
            "{name:?} cannot be a name; use 1 to 15 letters, digits and signs, without a stroke"
        ))),
    }
}

/// Whether a provider may be labelled: not in use, and nothing in its last sector that would be
/// lost.
fn check_member<S: Span>(control: &mut Control, name: &str, force: bool) -> Result<(), Error> {
    let class = S::NAME;
    hand::reading(control, class, name, |control, edge| {
        let (_, bytes) = hand::last(control, name, edge)?;
        if force || bytes.iter().all(|b| *b == 0) || S::decode(&bytes).is_ok() {
            return Ok(());
        }
        let what = format!(
            "the last sector of {name} holds something (`ashlar inspect {name}` says what); give \
             --force if it may be lost"
        );
        Err(Error::new(Errno::Exist, what))
    })?;
    // Open for writing, if only for a moment, is what labelling needs.
    hand::writing(control, class, name, |_, _| Ok(()), |_, _| Ok(()))
}

fn write_label<S: Span>(
    control: &mut Control,
    member: &str,
    label: Option<&SpanLabel>,
) -> Result<(), Error> {
    hand::writing(
        control,
        S::NAME,
        member,
        |_, _| Ok(()),
        |control, edge| {
            let (at, old) = hand::last(control, member, edge)?;
            let mut sector = label.map(S::encode).unwrap_or_default();
            sector.resize(old.len(), 0);
            hand::write(control, member, edge, at, sector)
        },
    )
}

fn label<S: Span>(
    class: &SpanClass<S>,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    check_name(name)?;
    if control.topology.find_geom(S::NAME, name).is_some() {
        let what = format!("a {0} {name} is there already; `ashlar {0} stop {name}`", S::NAME);
        return Err(Error::new(Errno::Exist, what));
    }
    let members = &request.members;
    if members.len() < S::LEAST || members.len() > usize::from(u16::MAX) {
        return Err(inval(format!("{} takes at least {} members", S::NAME, S::LEAST)));
    }
    let mut sector = 1;
    for (i, member) in members.iter().enumerate() {
        if members.iter().take(i).any(|m| m == member) {
            return Err(inval(format!("{member} is named twice")));
        }
        let on = hand::find(control, member)?;
        sector = sector.max(u64::from(hand::sizes(control, on).0));
        check_member::<S>(control, member, request.force)?;
    }
    let strip = request.strip.unwrap_or(S::STRIP);
    S::check_strip(strip, sector)?;
    let id = new_id(control, name);
    class.stopped.start(name);
    // Labels of another life go first, so that no half of two of them is ever put together.
    for member in members {
        write_label::<S>(control, member, None)?;
    }
    for (number, member) in members.iter().enumerate() {
        let on = hand::find(control, member)?;
        let label = SpanLabel {
            name: name.to_owned(),
            id,
            number: number as u16,
            count: members.len() as u16,
            strip,
            home: if request.hardcode { member.clone() } else { String::new() },
            provider_bytes: hand::sizes(control, on).1,
        };
        write_label::<S>(control, member, Some(&label))?;
    }
    up::<S>(control, name, members)
}

/// The answer once the provider is there; otherwise what tasting said.
fn up<S: Span>(control: &mut Control, name: &str, members: &[String]) -> Result<Value, Error> {
    control.settle()?;
    let provider = format!("{}/{name}", S::NAME);
    if control.topology.find(&provider).is_some() {
        return Ok(json!({ "message": format!("{provider} is there"), "provider": provider }));
    }
    let view = control.topology.view(0);
    let said = members.iter().filter_map(|m| {
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == *m)?;
        let (_, why) = found.verdicts.iter().find(|(c, _)| *c == S::NAME)?;
        Some(format!("{m}: {why}"))
    });
    let said: Vec<String> = said.collect();
    Err(Error::new(Errno::NxIo, format!("{provider} did not come up: {}", said.join("; "))))
}

fn create<S: Span>(
    class: &SpanClass<S>,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    check_name(name)?;
    let members: Result<Vec<ProviderId>, Error> =
        request.members.iter().map(|m| hand::find(control, m)).collect();
    let members = members?;
    let params = request.strip.map_or(Value::Null, |strip| json!({ "strip": strip }));
    control.call(|t| class.create(t, &Create { name, members: &members, params: &params }))?;
    up::<S>(control, name, &request.members)
}

fn stop<S: Span>(
    class: &SpanClass<S>,
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    let geom = geom_called::<S>(control, on)?;
    control.call(|t| class.destroy(t, geom, request.force))?;
    Ok(json!({ "message": format!("{on} stopped") }))
}

fn start<S: Span>(class: &SpanClass<S>, control: &mut Control, on: &str) -> Result<Value, Error> {
    let prefix = format!("{}/", S::NAME);
    let name = on.strip_prefix(&prefix).unwrap_or(on);
    if !class.stopped.start(name) {
        let what = format!("{0} {name} was not stopped; `ashlar {0} status` shows all", S::NAME);
        return Err(Error::new(Errno::NoEnt, what));
    }
    let all: Vec<ProviderId> = {
        let view = control.topology.view(0);
        view.iter().flat_map(|g| g.providers.iter().map(|p| p.id)).collect()
    };
    control.call(|t| {
        all.iter().for_each(|p| t.retaste(*p));
        Ok(())
    })?;
    match control.topology.find(&format!("{}/{name}", S::NAME)) {
        Some(_) => Ok(json!({ "message": format!("{}/{name} is there", S::NAME) })),
        None => {
            let what = format!(
                "{0}/{name} has not all its members; `ashlar {0} status` says how many",
                S::NAME
            );
            Err(Error::new(Errno::NxIo, what))
        }
    }
}

fn clear<S: Span>(control: &mut Control, request: &Request) -> Result<Value, Error> {
    for member in &request.members {
        let check = |control: &mut Control, edge| {
            let (_, bytes) = hand::last(control, member, edge)?;
            match S::decode(&bytes) {
                Err(frame::FrameError::Foreign) => {
                    let what = format!("{member} has no label of {}; nothing was written", S::NAME);
                    Err(Error::new(Errno::NoEnt, what))
                }
                _ => Ok(()),
            }
        };
        hand::writing(control, S::NAME, member, check, |control, edge| {
            let (at, bytes) = hand::last(control, member, edge)?;
            hand::write(control, member, edge, at, vec![0; bytes.len()])
        })?;
    }
    Ok(json!({ "message": format!("{} cleared", request.members.join(", ")) }))
}

fn dump<S: Span>(control: &mut Control, request: &Request) -> Result<Value, Error> {
    let mut text = String::new();
    let mut all = Vec::new();
    for member in &request.members {
        let bytes = hand::reading(control, S::NAME, member, |control, edge| {
            Ok(hand::last(control, member, edge)?.1)
        })?;
        let label = S::decode(&bytes).map_err(|e| inval(format!("{member}: {e}")))?;
        text += &format!(
            "Metadata on {member}:\n    name: {}\n      id: {}\n      no: {}\n     all: {}\n",
            label.name, label.id, label.number, label.count
        );
        if S::STRIP > 0 {
            text += &format!("   strip: {}\n", label.strip);
        }
        text += &format!("provider: {}\nprovsize: {}\n\n", label.home, label.provider_bytes);
        all.push(json!({
            "provider": member, "name": label.name, "id": label.id, "number": label.number,
            "count": label.count, "strip": label.strip, "hardcoded": label.home,
            "provider_bytes": label.provider_bytes,
        }));
    }
    Ok(json!({ "text": text, "labels": all }))
}

fn append<S: Span>(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let geom = geom_called::<S>(control, on)?;
    let name = control.topology.geom_name(geom).to_owned();
    let member = request.member.clone().unwrap_or_default();
    let new = hand::find(control, &member)?;
    check_member::<S>(control, &member, request.force)?;
    let (sector, media) = hand::sizes(control, new);
    let known = control
        .topology
        .with(geom, |g: &mut SpanGeom<S>, t| (g.is_manual(), g.identity(), g.members(t)));
    let Some((manual, (id, strip), olds)) = known else {
        return Err(Error::new(Errno::NxIo, format!("{name} is going")));
    };
    let bytes = if manual { media } else { media.saturating_sub(u64::from(sector)) };
    let joined = control.call(|t| {
        t.with(geom, |g: &mut SpanGeom<S>, t| g.append(t, geom, new, bytes))
            .unwrap_or_else(|| Err(Error::new(Errno::NxIo, format!("{name} is going"))))
    });
    joined?;
    if !manual {
        relabel::<S>(control, geom, &name, (id, strip), olds.len() + 1, request.hardcode)?;
    }
    Ok(json!({ "message": format!("{member} appended to {}/{name}", S::NAME) }))
}

/// Writes the labels of all members again, the newest member's first: until the last of the
/// others is written, what is found after a power cut is the old whole or none.
fn relabel<S: Span>(
    control: &mut Control,
    geom: GeomId,
    name: &str,
    (id, strip): (u32, u64),
    count: usize,
    hardcode: bool,
) -> Result<(), Error> {
    let ways = control.topology.with(geom, |g: &mut SpanGeom<S>, t| g.ways(t)).unwrap_or_default();
    for (number, (edge, member, sector, media)) in ways.into_iter().enumerate().rev() {
        let Some(at) = frame::last_sector(sector, media) else { continue };
        let newest = number + 1 == count;
        let old = hand::read(control, &member, edge, at, sector as usize)?;
        let home = match S::decode(&old) {
            Ok(label) if !newest => label.home,
            _ if newest && hardcode => member.clone(),
            _ => String::new(),
        };
        let label = SpanLabel {
            name: name.to_owned(),
            id,
            number: number as u16,
            count: count as u16,
            strip,
            home,
            provider_bytes: media,
        };
        let mut bytes = S::encode(&label);
        bytes.resize(sector as usize, 0);
        hand::write(control, &member, edge, at, bytes)?;
    }
    Ok(())
}
