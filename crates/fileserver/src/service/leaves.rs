//! The disks that a config string names, as providers of the graph.

use bio::{Attr, Errno};
use geom::{Error, ProviderId, Topology};

use crate::config::Device;

/// The disks in a config string, in its order, each once.
pub fn leaves(device: &Device) -> Vec<&Device> {
    let mut out = Vec::new();
    collect(device, &mut out);
    out
}

fn collect<'d>(device: &'d Device, out: &mut Vec<&'d Device>) {
    let is_disk = matches!(
        device,
        Device::Path(_) | Device::Aoe(..) | Device::Named(..) | Device::Disk(..) | Device::None
    );
    match device {
        disk if is_disk => {
            if !out.contains(&disk) {
                out.push(disk);
            }
        }
        other => other.parts().into_iter().for_each(|d| collect(d, out)),
    }
}

/// How many devices of the WORM a volume on the device has.
pub fn worm_devices(device: &Device) -> usize {
    match device {
        Device::Cached(_, worm) => match &**worm {
            Device::Mirror(legs) => legs.len(),
            _ => 1,
        },
        _ => 0,
    }
}

/// The config string of providers in order: the cache device, then each of the WORM.
pub fn device_of(names: &[String]) -> Option<Device> {
    let mut all = names.iter().map(|n| Device::Path(n.clone()));
    let first = all.next()?;
    let mut legs: Vec<Device> = all.collect();
    Some(match legs.len() {
        0 => first,
        1 => Device::Cached(Box::new(first), Box::new(legs.remove(0))),
        _ => Device::Cached(Box::new(first), Box::new(Device::Mirror(legs))),
    })
}

/// The provider of a disk.
pub fn provider(t: &Topology, disk: &Device) -> Result<ProviderId, Error> {
    let missing = |what: String| Error::new(Errno::NoEnt, what);
    match disk {
        Device::Path(name) => t.find(name.strip_prefix("/dev/").unwrap_or(name)).ok_or_else(|| {
            missing(format!("{disk}: no provider of that name; `ashlar list` names them"))
        }),
        Device::Aoe(shelf, slot) => {
            let ends = format!("@e{shelf}.{slot}");
            let is = |p: ProviderId| match t.attr(p, "GEOM::physpath") {
                Some(Attr::Text(path)) => path.ends_with(&ends),
                _ => false,
            };
            find(t, is).ok_or_else(|| {
                missing(format!(
                    "{disk}: no such disk was found on an AoE bus; `ashlar cam devlist` shows what \
                     was, `ashlar cam rescan` looks again"
                ))
            })
        }
        Device::Named(of, label) => {
            let of = provider(t, of)?;
            let prefix = t.provider_name(of).to_owned();
            let is = |p: ProviderId| {
                t.provider_name(p).starts_with(&prefix)
                    && t.attr(p, "PART::label") == Some(Attr::Text(label.clone()))
            };
            find(t, is).ok_or_else(|| {
                missing(format!(
                    "{disk}: {prefix} has no partition of that name; `ashlar part show {prefix}`"
                ))
            })
        }
        other => {
            let why = other.unserved().unwrap_or("not a single disk");
            Err(Error::inval(format!("{other}: {why}")))
        }
    }
}

fn find(t: &Topology, is: impl Fn(ProviderId) -> bool) -> Option<ProviderId> {
    let view = t.view(0);
    let mut all = view.iter().filter(|g| !g.withering).flat_map(|g| &g.providers);
    all.find(|p| is(p.id)).map(|p| p.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_members_becomes_a_config_string() {
        let text = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            device_of(&names).map(|d| d.to_string())
        };
        assert_eq!(text(&[]), None);
        assert_eq!(text(&["a"]).as_deref(), Some("\"a\""));
        assert_eq!(text(&["a", "b"]).as_deref(), Some("c\"a\"\"b\""));
        assert_eq!(text(&["a", "b", "c"]).as_deref(), Some("c\"a\"{\"b\"\"c\"}"));
    }

    #[test]
    fn disk_named_twice_in_a_config_string_is_opened_once() {
        let device: Device = "cp(e565.0)0.50{p(e565.0)50.50e545.1}".parse().unwrap();
        let all: Vec<String> = leaves(&device).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["e565.0", "e545.1"]);
    }
}
