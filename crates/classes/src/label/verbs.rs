//! The verbs: `label`, `clear`, `create`, `destroy` (also `stop`), `refresh`.
//!
//! `on` names a provider (`destroy`: the name itself, `label/usb`). The answer is
//! `{"message": ..., "provider": ...}`.

use std::any::Any;

use bio::Errno;
use geom::{Access, Class, Control, Create, Edge, Error, Geom, GeomId, ProviderId, Topology};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::class::{LabelClass, NAME, OWN_PREFIX};
use super::geom::KIND_ATTR;
use super::{clean, generic};

/// What the verbs take.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Request {
    /// The new name: 1 to 15 bytes.
    pub name: String,
    /// Whether what is in the last sector may be lost.
    pub overwrite: bool,
    /// Take a name away from those who have it open.
    pub force: bool,
}

/// Holds the consumer through which a verb writes.
struct Hand;

impl Geom for Hand {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        Err(Errno::NotSup)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Carries out a verb.
pub(super) fn run(
    control: &mut Control,
    verb: &str,
    on: &str,
    given: &Value,
) -> Result<Value, Error> {
    let request = match given {
        Value::Null => Request::default(),
        given => serde_json::from_value(given.clone())
            .map_err(|e| Error::new(Errno::Inval, format!("label {verb}: {e}")))?,
    };
    match verb {
        "label" => label(control, on, &request),
        "clear" => clear(control, on),
        "create" => by_hand(control, on, &request),
        "destroy" | "stop" => destroy(control, on, &request),
        "refresh" => refresh(control, on),
        _ => {
            let what = format!("label has no verb {verb}; use label, clear, create, destroy");
            Err(Error::new(Errno::NotSup, what))
        }
    }
}

fn find(control: &Control, name: &str) -> Result<ProviderId, Error> {
    let missing = || {
        let what = format!("no provider is called {name}; `ashlar list` names them");
        Error::new(Errno::NoEnt, what)
    };
    let on = control.topology.find(name).ok_or_else(missing)?;
    if control.topology.attr(on, KIND_ATTR).is_some() {
        let what = format!("{name} is itself a name for another provider; label that");
        return Err(Error::new(Errno::Inval, what));
    }
    Ok(on)
}

/// What the last sector holds.
enum Last {
    Nothing,
    Label,
    Other,
}

/// Opens a provider for reading and looks with `check`; if that agrees, opens it for writing,
/// runs `f` and closes it, so that everything looks at it again. A refusal disturbs nobody.
fn writing(
    control: &mut Control,
    name: &str,
    on: ProviderId,
    check: impl FnOnce(&mut Control, Edge) -> Outcome,
    f: impl FnOnce(&mut Control, Edge) -> Outcome,
) -> Outcome {
    let busy = |e: Errno| match e {
        Errno::Perm => Error::new(e, format!("{name} is in use; close what uses it first")),
        e => Error::new(e, format!("{name} cannot be opened: {}", e.text())),
    };
    let (geom, consumer) = control.call(|topology| {
        let hand = topology.new_geom(NAME, &format!("writing {name}"), "a verb", Box::new(Hand))?;
        match topology.attach_new(hand, on) {
            Ok(consumer) => Ok((hand, consumer)),
            Err(e) => {
                topology.wither_geom(hand, Errno::NxIo);
                Err(busy(e))
            }
        }
    })?;
    let edge = control.topology.edge(consumer);
    let open = |control: &mut Control, delta| {
        control.call(|topology| topology.access(consumer, delta).map_err(busy))
    };
    let done = open(control, Access::READ)
        .and_then(|()| check(control, edge))
        .and_then(|()| open(control, Access { r: 0, w: 1, e: 1 }))
        .and_then(|()| f(control, edge));
    // The geom goes first: what looks at the provider again must not take it for a name.
    control.call(|topology| {
        topology.wither_geom(geom, Errno::NxIo);
        topology.leave(consumer);
        Ok(())
    })?;
    done
}

fn failed(name: &str) -> impl Fn(Errno) -> Error + '_ {
    move |e| Error::new(e, format!("{name}: its last sector: {}", e.text()))
}

fn last(control: &mut Control, name: &str, edge: Edge, at: u64, len: usize) -> Result<Last, Error> {
    let read = control.run_on_core("label: the last sector", move |core| {
        Box::pin(async move { core.read(edge, at, len).await })
    })?;
    let bytes = read.map_err(failed(name))?;
    Ok(match (generic::is_label(&bytes), bytes.iter().all(|byte| *byte == 0)) {
        (true, _) => Last::Label,
        (_, true) => Last::Nothing,
        _ => Last::Other,
    })
}

/// Zeroes first, so that whoever reads meanwhile sees no half of two labels.
fn write(control: &mut Control, name: &str, edge: Edge, at: u64, all: Vec<Vec<u8>>) -> Outcome {
    let written = control.run_on_core("label: writing", move |core| {
        Box::pin(async move {
            for bytes in &all {
                core.write(edge, at, bytes).await?;
                core.flush(edge).await?;
            }
            Ok::<(), Errno>(())
        })
    })?;
    written.map_err(failed(name))
}

type Outcome = Result<(), Error>;

fn sizes(control: &Control, on: ProviderId) -> (u32, u64) {
    control.topology.limits(on).map_or((0, 0), |l| (l.sector_bytes, l.media_bytes))
}

fn label(control: &mut Control, name: &str, request: &Request) -> Result<Value, Error> {
    let on = find(control, name)?;
    let (size, len) = sizes(control, on);
    let bad = |e: generic::LabelError| Error::new(Errno::Inval, e.to_string());
    let (at, sector) = generic::label(&request.name, size, len).map_err(bad)?;
    let (_, zeros) = generic::clear(size, len).map_err(bad)?;
    let provider = clean(OWN_PREFIX, request.name.as_bytes()).map_err(|_| {
        let what = format!("{:?} cannot be a name; use letters and digits", request.name);
        Error::new(Errno::Inval, what)
    })?;
    let taken = control.topology.find(&provider).and_then(|p| control.topology.geom_of(p));
    let other = taken.is_some_and(|g| crate::slice::base(&control.topology, g) != Some(on));
    if other {
        let what = format!("{provider} is the name of another provider; choose another");
        return Err(Error::new(Errno::Exist, what));
    }
    let len = sector.len();
    let check = |control: &mut Control, edge| {
        let found = last(control, name, edge, at, len)?;
        if matches!(found, Last::Other) && !request.overwrite {
            let what = format!(
                "the last sector of {name} holds something else (a GPT, the end of a file \
                 system); make it smaller, or label with overwrite"
            );
            return Err(Error::new(Errno::Exist, what));
        }
        Ok(())
    };
    writing(control, name, on, check, |control, edge| {
        write(control, name, edge, at, vec![zeros, sector])
    })?;
    Ok(json!({ "message": format!("{name} labelled {provider}"), "provider": provider }))
}

fn clear(control: &mut Control, name: &str) -> Result<Value, Error> {
    let on = find(control, name)?;
    let (size, len) = sizes(control, on);
    let (at, zeros) =
        generic::clear(size, len).map_err(|e| Error::new(Errno::Inval, e.to_string()))?;
    let len = zeros.len();
    let check = |control: &mut Control, edge| match last(control, name, edge, at, len)? {
        Last::Label => Ok(()),
        _ => {
            let what = format!("{name} has no label of this kind; nothing was written");
            Err(Error::new(Errno::NoEnt, what))
        }
    };
    writing(control, name, on, check, |control, edge| write(control, name, edge, at, vec![zeros]))?;
    Ok(json!({ "message": format!("{name} cleared"), "provider": name }))
}

fn by_hand(control: &mut Control, name: &str, request: &Request) -> Result<Value, Error> {
    let on = find(control, name)?;
    let create = Create { name: &request.name, members: &[on], params: &Value::Null };
    let geom = control.call(|topology| LabelClass.create(topology, &create))?;
    let provider = control.topology.geom_name(geom);
    Ok(json!({ "message": format!("{provider} created"), "provider": provider }))
}

fn destroy(control: &mut Control, name: &str, request: &Request) -> Result<Value, Error> {
    let Some(geom) = control.topology.find_geom(NAME, name) else {
        let what = format!("there is no name {name}; `ashlar list label` shows them");
        return Err(Error::new(Errno::NoEnt, what));
    };
    control.call(|topology| LabelClass.destroy(topology, geom, request.force))?;
    Ok(json!({ "message": format!("{name} destroyed"), "provider": name }))
}

fn refresh(control: &mut Control, name: &str) -> Result<Value, Error> {
    let on = find(control, name)?;
    control.call(|topology| {
        topology.retaste(on);
        Ok(())
    })?;
    Ok(json!({ "message": format!("{name} refreshed"), "provider": name }))
}
