//! Disks as drivers see them.

use std::sync::Arc;

use bio::Attr;
use geom::{GraphControl, Layer};
use testkit::disk::{self, Provider};

/// Adds a disk of `len` bytes in sectors of 512. It accepts data in any memory: drivers lend it the
/// received data.
pub fn add(control: &mut GraphControl, name: &str, len: u64, layer: Arc<dyn Layer>) {
    add_with(control, name, len, layer, &[]);
}

/// The same, with more properties.
pub fn add_with(
    control: &mut GraphControl,
    name: &str,
    len: u64,
    layer: Arc<dyn Layer>,
    more: &[(&'static str, Attr)],
) {
    let any = [("ASHLAR::any_memory", Attr::Int(1))];
    disk::add(control, Provider::new(name, len).with_attrs(&any).with_attrs(more), layer);
}
