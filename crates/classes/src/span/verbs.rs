//! The verbs: `label`, `create`, `append`, `stop`, `start`, `clear`, `dump`.

use bio::Errno;
use geom::{Class, Control, Create, Error, GeomId, ProviderId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::class::SpanClass;
use super::geom::{SpanGeom, Way};
use super::{Span, SpanLabel};
use crate::members::follow::{self, Ask, Placed};
use crate::members::frame::FrameError;
use crate::members::{hand, known};
use crate::words;

/// What the verbs take; each uses its own part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    names: Vec<String>,
    members: Vec<String>,
    member: Option<String>,
    strip: Option<u64>,
    hardcode: bool,
    force: bool,
    was: Option<u64>,
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
            .map_err(|e| Error::inval(format!("{} {verb}: {e}", S::NAME)))?,
    };
    let known = S::VERBS.iter().any(|v| v.name == verb);
    match verb {
        "label" => label(class, control, on, &request),
        "create" => create(class, control, on, &request),
        "append" if known => append::<S>(control, on, &request),
        "stop" | "destroy" => {
            words::each(on, &request.names, |on| stop(class, control, on, &request))
        }
        "start" => known::start(control, S::NAME, &class.stopped, on),
        "clear" => {
            let noun = format!("label of {}", S::NAME);
            known::clear(control, S::NAME, &request.members, &noun, S::decode)
        }
        "follow" => follow::follow(
            control,
            &Ask {
                class: S::NAME,
                member: request.member.as_deref().unwrap_or_default(),
                was: request.was,
                force: request.force,
                read: placed::<S>,
            },
        ),
        "dump" => dump::<S>(control, &request),
        _ => {
            let names: Vec<&str> = S::VERBS.iter().map(|v| v.name).collect();
            let what = format!("{} has no verb {verb}; {}", S::NAME, names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

/// A member's label, as what can be brought elsewhere.
pub(crate) fn placed<S: Span>(sector: &[u8]) -> Result<Placed, FrameError> {
    let mut label = S::decode(sector)?;
    let inner = S::APPENDS && label.number + 1 < label.count;
    Ok(Placed {
        provider_bytes: label.provider_bytes,
        ahead: 0,
        alone: None,
        stays: inner.then_some("what lies behind an inner member of a concat would move"),
        renewed: Box::new(move |bytes| {
            label.provider_bytes = bytes;
            S::encode(&label)
        }),
    })
}

fn is_own<S: Span>(sector: &[u8]) -> bool {
    S::decode(sector).is_ok()
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
    known::check_name(name)?;
    if control.topology.find_geom(S::NAME, name).is_some() {
        let what = format!("a {0} {name} is there already; `ashlar {0} stop {name}`", S::NAME);
        return Err(Error::new(Errno::Exist, what));
    }
    let members = &request.members;
    if members.len() < S::LEAST || members.len() > usize::from(u16::MAX) {
        return Err(Error::inval(format!("{} takes at least {} members", S::NAME, S::LEAST)));
    }
    let mut sector = 1;
    for (i, member) in members.iter().enumerate() {
        if members.iter().take(i).any(|m| m == member) {
            return Err(Error::inval(format!("{member} is named twice")));
        }
        let on = hand::find(control, member)?;
        sector = sector.max(u64::from(hand::sizes(control, on).0));
        known::check_member(control, S::NAME, member, request.force, is_own::<S>)?;
    }
    let strip = request.strip.unwrap_or(S::STRIP);
    S::check_strip(strip, sector)?;
    let id = known::new_id(control, name);
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
    known::up(control, S::NAME, name, members)
}

fn create<S: Span>(
    class: &SpanClass<S>,
    control: &mut Control,
    name: &str,
    request: &Request,
) -> Result<Value, Error> {
    known::check_name(name)?;
    let members: Result<Vec<ProviderId>, Error> =
        request.members.iter().map(|m| hand::find(control, m)).collect();
    let members = members?;
    let params = request.strip.map_or(Value::Null, |strip| json!({ "strip": strip }));
    control.call(|t| class.create(t, &Create { name, members: &members, params: &params }))?;
    known::up(control, S::NAME, name, &request.members)
}

fn stop<S: Span>(
    class: &SpanClass<S>,
    control: &mut Control,
    on: &str,
    request: &Request,
) -> Result<Value, Error> {
    let geom = known::geom(control, S::NAME, on)?;
    control.call(|t| class.destroy(t, geom, request.force))?;
    Ok(json!({ "message": format!("{on} stopped") }))
}

fn dump<S: Span>(control: &mut Control, request: &Request) -> Result<Value, Error> {
    let mut text = String::new();
    let mut all = Vec::new();
    for member in &request.members {
        let label = known::read(control, S::NAME, member, S::decode)?;
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
    let geom = known::geom(control, S::NAME, on)?;
    let name = control.topology.geom_name(geom).to_owned();
    let member = request.member.clone().unwrap_or_default();
    let new = hand::find(control, &member)?;
    known::check_member(control, S::NAME, &member, request.force, is_own::<S>)?;
    let (sector, media) = hand::sizes(control, new);
    let known = control.topology.with(geom, |g: &mut SpanGeom<S>, _| (g.is_manual(), g.identity()));
    let going = || Error::new(Errno::NxIo, format!("{name} is going"));
    let Some((manual, identity)) = known else { return Err(going()) };
    let bytes = if manual { media } else { media.saturating_sub(u64::from(sector)) };
    control.call(|t| {
        t.with(geom, |g: &mut SpanGeom<S>, t| g.admit(t, geom, new, bytes))
            .unwrap_or_else(|| Err(going()))
    })?;
    let written = match manual {
        true => Ok(()),
        false => relabel::<S>(control, geom, &name, identity, request.hardcode),
    };
    control.call(|t| {
        t.with(geom, |g: &mut SpanGeom<S>, t| match &written {
            Ok(()) => g.append(t, geom),
            Err(_) => {
                g.dismiss(t, geom);
                Ok(())
            }
        })
        .unwrap_or_else(|| Err(going()))
    })?;
    written?;
    Ok(json!({ "message": format!("{member} appended to {}/{name}", S::NAME) }))
}

/// Writes the labels of all members anew, that of the one to come first. Until the last of the
/// others is written, what is found after a power cut is the old whole. When one cannot be written
/// the old ones are put back.
fn relabel<S: Span>(
    control: &mut Control,
    geom: GeomId,
    name: &str,
    (id, strip): (u32, u64),
    hardcode: bool,
) -> Result<(), Error> {
    let ways = control.topology.with(geom, |g: &mut SpanGeom<S>, t| g.ways(t)).unwrap_or_default();
    let count = ways.len();
    if ways.iter().enumerate().any(|(at, way)| at != way.number) {
        return Err(Error::new(Errno::NxIo, format!("a member of {name} is gone")));
    }
    let mut before: Vec<(&Way, u64, Vec<u8>)> = Vec::new();
    for way in ways.iter().rev() {
        // Where it stands, though its provider may have grown since: what lies behind it stays.
        let (sector, at) = (way.sector_bytes, way.bytes);
        let newest = way.number + 1 == count;
        let written =
            hand::read(control, &way.name, way.edge, at, sector as usize).and_then(|old| {
                let home = match S::decode(&old) {
                    Ok(label) if !newest => label.home,
                    _ if newest && hardcode => way.name.clone(),
                    _ => String::new(),
                };
                before.push((way, at, old));
                let label = SpanLabel {
                    name: name.to_owned(),
                    id,
                    number: way.number as u16,
                    count: count as u16,
                    strip,
                    home,
                    provider_bytes: at + u64::from(sector),
                };
                let mut bytes = S::encode(&label);
                bytes.resize(sector as usize, 0);
                hand::write(control, &way.name, way.edge, at, bytes)
            });
        let Err(e) = written else { continue };
        if e.kind == Errno::TimedOut {
            // S6: nothing is put back. What is found later is what a power cut would have left.
            let what = format!(
                "{}; labels may say {count} members from now on, which is believed when all do: \
                 `ashlar {} append` it again when {} answers",
                e.what,
                S::NAME,
                way.name
            );
            return Err(Error::new(Errno::TimedOut, what));
        }
        for (way, at, old) in before {
            // What cannot be put back stays: one old label is enough for the old whole.
            let _ = hand::write(control, &way.name, way.edge, at, old);
        }
        return Err(e);
    }
    Ok(())
}
