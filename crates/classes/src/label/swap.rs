//! Linux swap space: version 1 at byte 1024, UUID +1036, name +1052. The magic "SWAPSPACE2" ends
//! the first page, whose size is the machine's that made it.

use super::Volume;
use crate::probe::{ProbeStop, Reason, Sectors, le32, span};

/// Page sizes that machines have.
const PAGES: [u64; 5] = [4096, 8192, 16_384, 32_768, 65_536];
/// The signature at the end of the first page.
const MAGIC: &[u8] = b"SWAPSPACE2";

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    const FIELD: &str = "swap signature (SWAPSPACE2)";
    let mut found = false;
    for page in PAGES {
        // A page beyond the end of small media is no reason against the smaller ones.
        if let Some(tail) = sectors.get(page - 10, MAGIC.len())? {
            found |= tail == MAGIC;
        }
    }
    if !found {
        return Err(ProbeStop::no(Reason::Signature, 4086, FIELD));
    }
    let head = sectors.need(1024, 512, "swap header")?;
    if le32(head, 0) != 1 {
        return Err(ProbeStop::no(Reason::Value, 1024, "version of the swap space"));
    }
    Ok(Volume::of_media(sectors, span(head, 28, 16), super::uuid(span(head, 12, 16))))
}
