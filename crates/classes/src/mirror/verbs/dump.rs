//! `dump`: the content of the records on providers.

use geom::{Error, GraphControl};
use serde_json::{Value, json};

use crate::members::verb_util;
use crate::mirror::metadata::Metadata;
use crate::mirror::{NAME, flag_words};

/// Shows the content of the records.
pub(super) fn dump(control: &mut GraphControl, members: &[String]) -> Result<Value, Error> {
    let mut text = String::new();
    let mut all = Vec::new();
    for member in members {
        let m = verb_util::read(control, NAME, member, Metadata::decode)?;
        text += &format!(
            "Metadata on {member}:\n     name: {}\n      mid: {}\n      did: {}\n\
             \u{20}     all: {}\n    genid: {}\n   syncid: {}\n priority: {}\n    slice: {}\n\
             \u{20} balance: {}\nmediasize: {}\nsectorsize: {}\nsyncoffset: {}\n\
             \u{20}  mflags: {}\n   dflags: {:#x}\nhcprovider: {}\n provsize: {}\n\n",
            m.name,
            m.id,
            m.disk,
            m.all,
            m.genid,
            m.syncid,
            m.priority,
            m.slice,
            m.balance.as_str(),
            m.media_bytes,
            m.sector_bytes,
            m.sync_offset,
            flag_words(m.flags),
            m.disk_flags,
            m.home,
            m.provider_bytes
        );
        if let Some(shape) = m.bitmap {
            text += &format!("   bitmap: {} bytes, regions of {}\n\n", shape.bytes, shape.region());
        }
        all.push(json!({
            "provider": member, "name": m.name, "id": m.id, "disk": m.disk, "all": m.all,
            "genid": m.genid, "syncid": m.syncid, "priority": m.priority, "slice": m.slice,
            "balance": m.balance.as_str(), "media_bytes": m.media_bytes,
            "sector_bytes": m.sector_bytes, "sync_offset": m.sync_offset, "flags": m.flags,
            "region_bytes": m.bitmap.map(|s| s.region()), "disk_flags": m.disk_flags,
            "hardcoded": m.home, "provider_bytes": m.provider_bytes,
        }));
    }
    Ok(json!({ "text": text, "records": all }))
}
