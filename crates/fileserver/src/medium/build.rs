//! Construction of media from a config string.

use std::rc::Rc;

use super::{Joined, LooseMirror, Medium, Part};
use crate::config::Device;

/// The devices of a file system.
pub struct VolumeDevices {
    /// The cache device; of a plain file system all there is.
    pub cache: Rc<dyn Medium>,
    /// Devices of the WORM, each with all of it; none for a plain file system.
    pub members: Vec<Rc<dyn Medium>>,
}

/// Finds the disk or provider of a string's leaf. The error has the reason.
pub type Find<'a> = &'a mut dyn FnMut(&Device) -> Result<Rc<dyn Medium>, String>;

/// The devices of a file system. The members of a mirror at the WORM's top are its legs: each is
/// copied to by itself, at its own pace.
pub fn volume_devices(
    device: &Device,
    block: u32,
    find: Find<'_>,
) -> Result<VolumeDevices, String> {
    let Device::Cached(cache, worm) = device else {
        return Ok(VolumeDevices { cache: medium(device, block, find)?, members: Vec::new() });
    };
    let cache = medium(cache, block, find)?;
    let legs = match &**worm {
        Device::Mirror(legs) => legs.iter().collect(),
        one => vec![one],
    };
    let legs = legs.into_iter().map(|leg| medium(leg, block, find)).collect::<Result<_, _>>()?;
    Ok(VolumeDevices { cache, members: legs })
}

/// The devices of an image of cwfs64x, and whether its WORM is a fake one. A mirror is one device
/// here: a write is on all of it, or it failed.
pub fn image_devices(device: &Device, find: Find<'_>) -> Result<(VolumeDevices, bool), String> {
    const BLOCK: u32 = crate::image::format::BLOCK as u32;
    let Device::Cached(cache, worm) = device else {
        return Ok((
            VolumeDevices { cache: medium(device, BLOCK, find)?, members: Vec::new() },
            false,
        ));
    };
    let cache = medium(cache, BLOCK, find)?;
    let (worm, once) = match &**worm {
        Device::Once(of) => (of, true),
        _ => (worm, false),
    };
    Ok((VolumeDevices { cache, members: vec![medium(worm, BLOCK, find)?] }, once))
}

fn medium(device: &Device, block: u32, find: Find<'_>) -> Result<Rc<dyn Medium>, String> {
    let name = device.to_string();
    let mut all = |members: &[Device]| {
        members.iter().map(|m| medium(m, block, find)).collect::<Result<Vec<_>, _>>()
    };
    Ok(match device {
        Device::Cat(v) => Rc::new(Joined::cat(&name, block, all(v)?)),
        Device::Interleave(v) => Rc::new(Joined::interleave(&name, block, all(v)?)),
        Device::Mirror(v) => Rc::new(LooseMirror::new(&name, all(v)?)),
        Device::Part(of, first, second) => {
            let of = medium(of, block, find)?;
            Rc::new(Part::new(&name, block, of, *first, *second)?)
        }
        Device::Cached(..)
        | Device::Dumps
        | Device::Once(_)
        | Device::Swapped(_)
        | Device::Jukebox(..)
        | Device::Side(_)
        | Device::Labelled(_) => {
            return Err(format!("{name}: {}", device.unserved().unwrap_or("not a device")));
        }
        leaf => find(leaf)?,
    })
}
