//! Comparison of a block's copies on all devices with its right contents.

use schemars::JsonSchema;
use serde::Serialize;
use wire::iscsi::crc32c;

use super::Volume;
use crate::fault::{Addr, Fault};

/// A device's copy of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "BlockCopy")]
pub struct Copy {
    /// Its name.
    pub device: String,
    /// Where it is there, in blocks; none: it is not there, which is no fault.
    #[serde(rename = "block")]
    pub at: Option<u64>,
    /// The fault of the copy.
    pub fault: Option<String>,
}

impl Volume {
    /// Reads a block from every device that has it: the cache device first, then those of the WORM.
    /// Nothing is repaired.
    ///
    /// # Errors
    /// There is no block of that address, or no device has the proof of its right contents.
    pub async fn copies(&self, addr: Addr) -> Result<Vec<Copy>, Fault> {
        if addr == 0 || !self.was_allocated(addr) {
            return Err(Fault::Invalid("no block has that address"));
        }
        let (slot, sum, is_dumps) = {
            let s = self.0.state.borrow();
            (s.table.slot(addr), s.table.crc(addr), addr < s.space.frozen())
        };
        let (seg, layout) = (self.own_memory().await?, self.0.state.borrow().layout);
        let mut out = Vec::new();
        let mut cached = Copy { device: self.0.cache.name().into(), at: None, fault: None };
        if let Some(slot) = slot {
            let at = layout.slot_at(slot);
            let read = self.0.cache.read(at, seg.clone().into()).await;
            cached.at = Some(at / layout.at(1));
            cached.fault = match read {
                Err(e) => Some(format!("it cannot be read: {e:?}")),
                Ok(()) if Some(seg.with(crc32c)) != sum => Some("its checksum is wrong".into()),
                Ok(()) => None,
            };
        }
        out.push(cached);
        let proof = if is_dumps { Some(self.block_check(addr).await?) } else { None };
        for (leg, medium) in self.0.members.iter().enumerate() {
            let mut copy = Copy { device: medium.name().into(), at: None, fault: None };
            if let Some(proof) = proof.filter(|_| self.is_on_member(leg, addr)) {
                copy.at = Some(addr);
                copy.fault = match medium.read(addr * self.block() as u64, seg.clone().into()).await
                {
                    Err(e) => Some(format!("it cannot be read: {e:?}")),
                    Ok(()) => seg.with(|b| proof.fault(layout.volume, addr, b)).map(Into::into),
                };
            }
            out.push(copy);
        }
        Ok(out)
    }
}
