//! The servers under load: children of this process, each on a free port of 127.0.0.1.

mod ashlar;
mod bare;
mod child;
mod tgt;

pub use child::ashlar_beside;
pub use child::{Child, Scratch, tool};
pub(crate) use child::{free_address, own_path, pinned};

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::Error;
use crate::options::Peer;

/// Bytes of a memory disk, and of the peer's file that is compared with it.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Bytes of each file behind an idle server.
pub const FILE_BYTES: u64 = 64 << 20;

/// The name in tables of another binary of Ashlar.
pub const BEFORE: &str = "before";

/// Backing store of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing: the cost of everything above.
    Null,
    /// Memory of [`MEMORY_BYTES`]: Ashlar's disk of that kind, a file in memory for peers.
    Memory,
    File(PathBuf),
    /// An export of an NBD server: its address and name. Ashlar alone opens it.
    Nbd(SocketAddr, &'static str),
}

/// Lines that sections of Ashlar's configuration have besides the usual ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    pub daemon: &'static str,
    pub disk: &'static str,
    /// Those of a `[[unit]]` for each disk; empty: no such section.
    pub unit: &'static str,
    /// Those of a `[[geom]]` of class stripe over all disks, which is the only LUN then; empty: no
    /// such section.
    pub stripe: &'static str,
    pub target: &'static str,
}

/// A running server. It is killed and its files are removed when this is dropped.
pub struct Server {
    /// Its name in tables.
    pub name: &'static str,
    /// Where it listens.
    pub portal: SocketAddr,
    /// Its target's name; without digests.
    pub target: String,
    /// The name of the target that has the same units and takes digests; None without any.
    pub digest_target: Option<String>,
    /// Numbers of its logical units, in the order of their backings.
    pub luns: Vec<u32>,
    child: Child,
    /// Files in memory or on disk that live as long as the server.
    _scratch: Vec<Scratch>,
}

impl Server {
    /// Starts `ashlar serve` of the binary given, on one core only when `core` is given.
    pub fn ashlar(binary: &str, core: Option<usize>, backings: &[Backing]) -> Result<Self, Error> {
        Server::with_keys(binary, core, backings, &Keys::default())
    }

    /// Starts `ashlar serve` as [`Server::ashlar`] does, with further lines in its configuration.
    pub fn with_keys(
        binary: &str,
        core: Option<usize>,
        backings: &[Backing],
        keys: &Keys,
    ) -> Result<Self, Error> {
        ashlar::start(binary, core, backings, keys)
    }

    /// Starts another binary of Ashlar to compare with.
    pub fn before(binary: &str, core: Option<usize>, backings: &[Backing]) -> Result<Self, Error> {
        Ok(Server { name: BEFORE, ..Server::ashlar(binary, core, backings)? })
    }

    /// Starts a peer, on one core only when `core` is given.
    pub fn peer(peer: Peer, core: Option<usize>, backings: &[Backing]) -> Result<Self, Error> {
        match peer {
            Peer::Tgt => tgt::start(core, backings),
            Peer::Bare => bare::start(core, backings),
        }
    }

    /// The process to measure.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Output so far.
    pub fn log(&self) -> String {
        self.child.log()
    }
}
