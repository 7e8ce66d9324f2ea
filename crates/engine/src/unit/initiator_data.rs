//! Initiators' data that a unit stores: its timestamp, its identifying information, and the buffers
//! of WRITE BUFFER. All of it is small and read rarely: one lock for each unit.

use std::collections::BTreeMap;

use bio::sync::{Mutex, MutexGuard};

/// Bytes of a nexus' data buffer and of its echo buffer.
pub(crate) const BUFFER_BYTES: usize = 4096;

#[derive(Default)]
pub(crate) struct NexusBuffers {
    /// Mode 02h: all of it can be read at any time.
    pub data: Vec<u8>,
    /// Mode 0Ah: the last written data; None before that.
    pub echo: Option<Vec<u8>>,
}

#[derive(Default)]
pub(crate) struct StoredInitiatorData {
    /// Value of SET TIMESTAMP and the time when it was set, ms; None before that.
    pub timestamp: Option<(u64, u64)>,
    /// Identifying information by type.
    pub identifying: BTreeMap<u8, Vec<u8>>,
    /// By the number of the session; dropped with the nexus.
    pub buffers: BTreeMap<u64, NexusBuffers>,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct InitiatorData(Mutex<StoredInitiatorData>);

impl InitiatorData {
    pub fn state(&self) -> MutexGuard<'_, StoredInitiatorData> {
        self.0.lock()
    }
}
