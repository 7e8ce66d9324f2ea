//! Layers that are inserted under the users of a provider, and removed again, while requests flow.
//!
//! They are no part of the configuration: made for an hour, to slow a disk down or to make it
//! fail, and removed at the next start.

use geom::{Create, GeomId, GraphControl, Topology};
use mgmt::api::{Error, Kind, Result};
use serde_json::{Map, Value, json};

use crate::errors::{from_geom, no_provider};

/// `insert name=N provider=P ...`: a new geom of `class` over `P`, under all users of `P`. The
/// other keys of `params` are the class's own.
pub fn insert(
    control: &mut GraphControl,
    class: &str,
    mut params: Map<String, Value>,
) -> Result<Value> {
    let op = format!("{class} insert");
    let mut take = |key: &str| match params.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => {
            let error = Error::new(Kind::Usage, op.clone(), format!("`{key}` is missing"));
            let next = format!("ashlar geom {class} insert name=NAME provider=PROVIDER");
            Err(error.next(format!("Write `{next}`.")))
        }
    };
    let (name, provider) = (take("name")?, take("provider")?);
    let Some(below) = control.topology.find(&provider) else {
        return Err(no_provider(&control.topology, &op, &provider));
    };
    let params = Value::Object(params);
    let request = Create { name: &name, members: &[], params: &params };
    control.insert(class, below, &request).map_err(|e| from_geom(&op, &provider, e))?;
    Ok(json!({ "message": format!("{name} inserted over {provider}") }))
}

/// `remove name=N`: takes it out from under those who use it.
pub fn remove(control: &mut GraphControl, class: &str, name: &str) -> Result<Value> {
    let op = format!("{class} remove");
    let Some(geom) = control.topology.find_geom(class, name) else {
        return Err(Error::new(Kind::NotFound, op, "no such geom").at(name));
    };
    if !transparent(&control.topology, geom) {
        let why = "not a transparent layer: its contents differ from the provider below; destroy \
                   the geom instead";
        return Err(Error::new(Kind::Unsupported, op, why).at(name));
    }
    control.remove(geom).map_err(|e| from_geom(&op, name, e))?;
    Ok(json!({ "message": format!("{name} removed") }))
}

/// Whether the users above see the same bytes at the same places without the layer, judged by
/// sizes.
fn transparent(topology: &Topology, geom: GeomId) -> bool {
    let limits = |p| topology.limits(p).map(|l| (l.media_bytes, l.sector_bytes));
    let above: Vec<_> = topology.providers_of(geom).iter().map(|p| limits(*p)).collect();
    let consumers = topology.consumers_of(geom).iter();
    let below: Vec<_> = consumers.map(|c| topology.below(*c).and_then(limits)).collect();
    above.len() == 1 && above == below && above[0].is_some()
}
