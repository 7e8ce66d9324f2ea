//! The scan of a medium that is not in the graph.

use super::scan::{InspectReport, step};
use crate::part::TableContext;
use crate::probe::{Sectors, Step};

/// Everything found on a medium of so many bytes. `read` gives the bytes of a range (offset,
/// length), or none where they cannot be read.
pub fn image(
    sector_bytes: u32,
    bytes: u64,
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> InspectReport {
    let mut sectors = Sectors::new(sector_bytes, bytes);
    loop {
        match step(&sectors, &TableContext::default()) {
            Step::Read { offset, len } => match read(offset, len) {
                Some(bytes) => sectors.insert(offset, bytes),
                None => sectors.fail(offset),
            },
            Step::Done(report) => return report,
            // Too much to read: as a range that cannot be read.
            Step::No(why) => {
                return InspectReport { unread: vec![(why.at, 0)], ..InspectReport::default() };
            }
        }
    }
}
