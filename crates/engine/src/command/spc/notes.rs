//! What a unit remembers for its initiators: its timestamp, the information that they gave it, and
//! the buffers of WRITE BUFFER. All of it is small and read rarely: one lock a unit.

use std::collections::BTreeMap;

use bio::sync::{Mutex, MutexGuard};

/// Bytes of a nexus' data buffer and of its echo buffer.
pub(crate) const BUFFER_BYTES: usize = 4096;

/// The buffers of one nexus.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Mode 02h: all of it can be read at any time.
    pub data: Vec<u8>,
    /// Mode 0Ah: what was written last; None before that.
    pub echo: Option<Vec<u8>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// What SET TIMESTAMP said and when, ms; None before that.
    pub timestamp: Option<(u64, u64)>,
    /// Identifying information by type.
    pub identifying: BTreeMap<u8, Vec<u8>>,
    /// By the number of the session; gone with the nexus.
    pub buffers: BTreeMap<u64, Buffers>,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Notes(Mutex<State>);

impl Notes {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}
