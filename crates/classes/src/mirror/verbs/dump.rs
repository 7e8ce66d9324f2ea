//! `dump`: the content of the records on providers.

use geom::{Error, GraphControl, JsonSchema};
use serde::Serialize;

use crate::members::verb_util;
use crate::mirror::metadata::Metadata;
use crate::mirror::{NAME, flag_words};

/// The content of the records.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MirrorRecords")]
pub(crate) struct Records {
    /// Result for people.
    text: String,
    /// The record of each provider.
    records: Vec<Record>,
}

/// The record of a member.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MirrorRecord")]
struct Record {
    /// Name of the provider.
    provider: String,
    /// Name of the mirror.
    name: String,
    /// Number of the mirror.
    id: u32,
    /// Number of the member.
    disk: u32,
    /// Number of members.
    all: u8,
    /// Generation, which grows when a member fails.
    genid: u32,
    /// Generation, which grows when a member is absent.
    syncid: u32,
    /// Priority of the member; the highest is read first.
    priority: u8,
    /// Part of a split read, bytes.
    slice: u32,
    /// Balance algorithm.
    balance: &'static str,
    /// Size of the mirror, bytes.
    media_bytes: u64,
    /// Size of a sector, bytes.
    sector_bytes: u32,
    /// End of the rebuilt part, bytes.
    sync_offset: u64,
    /// Flags of the mirror.
    flags: u64,
    /// Size of a region of the bitmap, bytes; null: there is no bitmap.
    region_bytes: Option<u64>,
    /// Flags of the member.
    disk_flags: u64,
    /// Name of the provider that the record must be on; empty: any.
    hardcoded: String,
    /// Size of the provider that the record was written for, bytes; 0: any.
    provider_bytes: u64,
}

/// Shows the content of the records.
pub(super) fn dump(control: &mut GraphControl, members: &[String]) -> Result<Records, Error> {
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
        all.push(Record {
            provider: member.clone(),
            name: m.name,
            id: m.id,
            disk: m.disk,
            all: m.all,
            genid: m.genid,
            syncid: m.syncid,
            priority: m.priority,
            slice: m.slice,
            balance: m.balance.as_str(),
            media_bytes: m.media_bytes,
            sector_bytes: m.sector_bytes,
            sync_offset: m.sync_offset,
            flags: m.flags,
            region_bytes: m.bitmap.map(|s| s.region()),
            disk_flags: m.disk_flags,
            hardcoded: m.home,
            provider_bytes: m.provider_bytes,
        });
    }
    Ok(Records { text, records: all })
}
