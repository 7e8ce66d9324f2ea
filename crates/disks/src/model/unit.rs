//! The control path's side of a simulated disk.

use std::sync::Arc;

use bio::Errno;
use bio::sync::Mutex;

use super::Latency;
use super::layer::ModelState;
use crate::kind::Unit;

pub(super) struct ModelUnit {
    pub(super) state: Arc<Mutex<ModelState>>,
    pub(super) latency: Latency,
}

impl Unit for ModelUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        Ok(self.state.lock().disk.size())
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        let state = self.state.lock();
        let (used, dirty) = state.disk.used_and_dirty();
        let latency = match self.latency {
            Latency::Flash => "flash",
            Latency::Spinning => "spinning",
            Latency::Between => "between",
            Latency::None => "none",
        };
        let cache = if state.disk.shape().volatile_cache { "volatile" } else { "none" };
        vec![
            ("latency", latency.to_string()),
            ("extra delay", format!("{} ms", state.extra_ns / 1_000_000)),
            ("write cache", cache.to_string()),
            ("sectors used", used.to_string()),
            ("sectors not flushed", dirty.to_string()),
            ("under way", state.under_way().to_string()),
            ("hangs", if state.hangs { "yes" } else { "no" }.to_string()),
            ("power cuts", state.disk.power_cuts().to_string()),
        ]
    }
}
