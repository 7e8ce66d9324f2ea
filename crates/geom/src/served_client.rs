//! A client of a geom that serves clients itself: a file server.

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedClient {
    /// Its address without a port, or its user at a Unix socket.
    pub name: String,
    /// The key of the section that lists its listener: `plan9`.
    pub key: &'static str,
    /// Our address that it is connected to.
    pub portal: String,
}
