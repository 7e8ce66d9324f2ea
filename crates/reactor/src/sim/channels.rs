//! Channels of the simulated world: the other end is a kernel that a test plays.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bio::sync::{Mutex, MutexGuard};

/// Errno of Linux for a file system that is mounted no longer.
const ENODEV: i32 = 19;

#[derive(Default)]
struct ChannelState {
    requests: VecDeque<Vec<u8>>,
    replies: VecDeque<Vec<u8>>,
    unmounted: bool,
    closed: bool,
}

type SharedState = Arc<Mutex<ChannelState>>;

fn state(shared: &SharedState) -> MutexGuard<'_, ChannelState> {
    shared.lock()
}

/// The kernel's end.
pub struct Kernel(SharedState);

/// The requester's end, on its way to a reactor.
pub struct ChannelEnd(SharedState);

/// The same as a channel.
pub(crate) struct SimChannel(SharedState);

/// A channel between a test and a reactor.
pub fn channel() -> (Kernel, ChannelEnd) {
    let shared = SharedState::default();
    (Kernel(shared.clone()), ChannelEnd(shared))
}

impl Kernel {
    pub fn request(&self, message: Vec<u8>) {
        state(&self.0).requests.push_back(message);
    }

    pub fn reply(&self) -> Option<Vec<u8>> {
        state(&self.0).replies.pop_front()
    }

    /// Unmounts: requests that were not read are lost, and replies are discarded.
    pub fn unmount(&self) {
        let mut state = state(&self.0);
        state.unmounted = true;
        state.requests.clear();
        state.replies.clear();
    }

    pub fn is_closed(&self) -> bool {
        state(&self.0).closed
    }
}

impl SimChannel {
    pub(crate) fn new(end: ChannelEnd) -> SimChannel {
        SimChannel(end.0)
    }

    pub(crate) fn is_ready(&self) -> bool {
        let state = state(&self.0);
        state.unmounted || !state.requests.is_empty()
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut state = state(&self.0);
        match state.requests.pop_front() {
            Some(message) => Ok(message),
            None if state.unmounted => Err(io::Error::from_raw_os_error(ENODEV)),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(crate) fn write(&self, message: Vec<u8>) -> io::Result<()> {
        let mut state = state(&self.0);
        if state.unmounted {
            return Err(io::Error::from_raw_os_error(ENODEV));
        }
        state.replies.push_back(message);
        Ok(())
    }
}

impl Drop for SimChannel {
    fn drop(&mut self) {
        state(&self.0).closed = true;
    }
}
