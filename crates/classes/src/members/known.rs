//! known: what the verbs of classes with members have in common: names, numbers, refusals.

use bio::Errno;
use geom::{Control, Error, GeomId, ProviderId};
use serde_json::{Value, json};

use super::{Stopped, frame, hand};

/// A geom by its name, with or without the class before it.
pub(crate) fn geom(control: &Control, class: &str, on: &str) -> Result<GeomId, Error> {
    let name = bare(class, on);
    control.topology.find_geom(class, name).ok_or_else(|| {
        let what = format!("there is no {class} {name}; `ashlar {class} status` names them");
        Error::new(Errno::NoEnt, what)
    })
}

/// A name without the class before it.
pub(crate) fn bare<'a>(class: &str, on: &'a str) -> &'a str {
    on.strip_prefix(class).and_then(|rest| rest.strip_prefix('/')).unwrap_or(on)
}

/// A number for a new one, from what is there and the time: two labelled in one daemon differ,
/// and two labelled anywhere differ as 32 bits can.
pub(crate) fn new_id(control: &Control, name: &str) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ control.now_ns();
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    ((hash >> 32) ^ hash) as u32 | 1
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let fits = !name.is_empty() && name.len() < frame::TEXT;
    let good = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    match fits && good {
        true => Ok(()),
        false => Err(Error::new(
            Errno::Inval,
            format!(
                "{name:?} cannot be a name; use 1 to 15 letters, digits and signs, without a stroke"
            ),
        )),
    }
}

/// Whether a provider may be labelled: not in use, and nothing in its last sector that would be
/// lost. `is_own` knows records of the class itself.
pub(crate) fn check_member(
    control: &mut Control,
    class: &str,
    name: &str,
    force: bool,
    is_own: impl Fn(&[u8]) -> bool,
) -> Result<(), Error> {
    hand::reading(control, class, name, |control, edge| {
        let (_, bytes) = hand::last(control, name, edge)?;
        if force || bytes.iter().all(|b| *b == 0) || is_own(&bytes) {
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

/// The answer once the provider is there; otherwise what tasting said of the members.
pub(crate) fn up(
    control: &mut Control,
    class: &str,
    name: &str,
    members: &[String],
) -> Result<Value, Error> {
    control.settle()?;
    let provider = format!("{class}/{name}");
    if control.topology.find(&provider).is_some() {
        return Ok(json!({ "message": format!("{provider} is there"), "provider": provider }));
    }
    let view = control.topology.view(0);
    let said = members.iter().filter_map(|m| {
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == *m)?;
        let (_, why) = found.verdicts.iter().find(|(c, _)| *c == class)?;
        Some(format!("{m}: {why}"))
    });
    let said: Vec<String> = said.collect();
    Err(Error::new(Errno::NxIo, format!("{provider} did not come up: {}", said.join("; "))))
}

/// Every provider is looked at again: what was stopped is found.
pub(crate) fn start(
    control: &mut Control,
    class: &str,
    stopped: &Stopped,
    on: &str,
) -> Result<Value, Error> {
    let name = bare(class, on);
    if !stopped.start(name) {
        let what = format!("{class} {name} was not stopped; `ashlar {class} status` shows all");
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
    match control.topology.find(&format!("{class}/{name}")) {
        Some(_) => Ok(json!({ "message": format!("{class}/{name} is there") })),
        None => {
            let what = format!(
                "{class}/{name} has not all its members; `ashlar {class} status` says how many"
            );
            Err(Error::new(Errno::NxIo, what))
        }
    }
}
