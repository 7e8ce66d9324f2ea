//! Helpers shared by the tests of algorithms.

use super::{Algorithm, Request, Step};

pub(in crate::sched) fn request(id: u32, client: u16, offset: u64, bytes: u64) -> Request {
    Request { id, serial: u64::from(id), client, write: false, offset, bytes, arrived_ns: 0 }
}

pub(in crate::sched) fn write(id: u32, client: u16, offset: u64, bytes: u64) -> Request {
    Request { write: true, ..request(id, client, offset, bytes) }
}

/// The requests that the algorithm starts now.
pub(in crate::sched) fn started(algorithm: &mut dyn Algorithm, now: u64) -> Vec<u32> {
    let mut all = Vec::new();
    while let Step::Start(id) = algorithm.next(now, false) {
        all.push(id);
    }
    all
}

/// The requests that it starts at `now` if each ends at once.
pub(in crate::sched) fn one_by_one(algorithm: &mut dyn Algorithm, now: u64) -> Vec<u32> {
    let mut all = Vec::new();
    while let Step::Start(id) = algorithm.next(now, false) {
        all.push(id);
        algorithm.ended(&request(id, 0, 0, 4096), now);
    }
    all
}
