//! The verbs: `label`, `clear`, `create`, `destroy` (also `stop`), `refresh`.
//!
//! `on` names a provider (`destroy`: the name itself, `label/usb`). The answer is
//! `{"message": ..., "provider": ...}`.

use bio::Errno;
use geom::{Class, Control, Create, Edge, Error, ProviderId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::class::{LabelClass, NAME, OWN_PREFIX};
use super::geom::KIND_ATTR;
use super::{clean, generic};
use crate::guard;
use crate::members::hand;

/// What the verbs take.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Request {
    /// The new name: 1 to 15 bytes.
    pub name: String,
    /// Whether what is in the last sector may be lost.
    pub overwrite: bool,
    /// The provider's name, if what it holds may be lost.
    pub yes_destroy: Vec<String>,
    /// Take a name away from those who have it open.
    pub force: bool,
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
            .map_err(|e| Error::inval(format!("label {verb}: {e}")))?,
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
    let on = hand::find(control, name)?;
    if control.topology.attr(on, KIND_ATTR).is_some() {
        let what = format!("{name} is itself a name for another provider; label that");
        return Err(Error::inval(what));
    }
    Ok(on)
}

/// What the last sector holds.
enum Last {
    Nothing,
    Label,
    Other,
}

fn last(control: &mut Control, name: &str, edge: Edge) -> Result<Last, Error> {
    let (_, bytes) = hand::last(control, name, edge)?;
    Ok(match (generic::is_label(&bytes), bytes.iter().all(|byte| *byte == 0)) {
        (true, _) => Last::Label,
        (_, true) => Last::Nothing,
        _ => Last::Other,
    })
}

fn label(control: &mut Control, name: &str, request: &Request) -> Result<Value, Error> {
    let on = find(control, name)?;
    let overwrite = request.overwrite || request.yes_destroy.iter().any(|given| given == name);
    let (size, len) = hand::sizes(control, on);
    let bad = |e: generic::LabelError| Error::inval(e.to_string());
    let (at, sector) = generic::label(&request.name, size, len).map_err(bad)?;
    let (_, zeros) = generic::clear(size, len).map_err(bad)?;
    let provider = clean(OWN_PREFIX, request.name.as_bytes()).map_err(|_| {
        let what = format!("{:?} cannot be a name; use letters and digits", request.name);
        Error::inval(what)
    })?;
    let taken = control.topology.find(&provider).and_then(|p| control.topology.geom_of(p));
    let other = taken.is_some_and(|g| crate::slice::base(&control.topology, g) != Some(on));
    if other {
        let what = format!("{provider} is the name of another provider; choose another");
        return Err(Error::new(Errno::Exist, what));
    }
    let check = |control: &mut Control, edge| {
        let found = last(control, name, edge)?;
        if matches!(found, Last::Other) && !overwrite {
            let what = format!(
                "the last sector of {name} holds something else (a GPT, the end of a file \
                 system); make it smaller, or label with overwrite"
            );
            return Err(Error::new(Errno::Exist, what));
        }
        Ok(())
    };
    if !overwrite {
        guard::check(control, guard::By { class: NAME, geom: name, force: false }, &[name], &[])?;
    }
    hand::writing(control, NAME, name, check, |control, edge| {
        // Zeroes first, so that whoever reads meanwhile sees no half of two labels.
        hand::write(control, name, edge, at, zeros)?;
        hand::write(control, name, edge, at, sector)
    })?;
    Ok(json!({ "message": format!("{name} labelled {provider}"), "provider": provider }))
}

fn clear(control: &mut Control, name: &str) -> Result<Value, Error> {
    let on = find(control, name)?;
    let (size, len) = hand::sizes(control, on);
    let (at, zeros) = generic::clear(size, len).map_err(|e| Error::inval(e.to_string()))?;
    let check = |control: &mut Control, edge| match last(control, name, edge)? {
        Last::Label => Ok(()),
        _ => {
            let what = format!(
                "{name} has no label of this kind; nothing was written (`ashlar inspect {name}` \
                 says what it has)"
            );
            Err(Error::new(Errno::NoEnt, what))
        }
    };
    hand::writing(control, NAME, name, check, |control, edge| {
        hand::write(control, name, edge, at, zeros)
    })?;
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
