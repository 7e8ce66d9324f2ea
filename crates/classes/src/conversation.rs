//! conversation: what the classes say to a disk on a core: probes that read, plans that write.

use crate::probe::{Sectors, Step, Why};
use bio::Errno;

/// Runs a probe until it has found or given up; every range it asks for is read with `read`.
/// A range that comes back short counts as unreadable.
pub(crate) async fn drive<T>(
    sectors: &mut Sectors,
    read: impl AsyncFn(u64, usize) -> Result<Vec<u8>, Errno>,
    probe: impl Fn(&Sectors) -> Step<T>,
) -> Result<T, Why> {
    loop {
        match probe(sectors) {
            Step::Read { offset, len } => match read(offset, len).await {
                Ok(bytes) if bytes.len() == len => sectors.insert(offset, bytes),
                _ => sectors.fail(offset),
            },
            Step::Done(found) => return Ok(found),
            Step::No(why) => return Err(why),
        }
    }
}
