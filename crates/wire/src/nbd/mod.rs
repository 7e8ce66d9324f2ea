//! NBD, the network block device protocol: fixed newstyle handshake, and transmission with simple
//! replies, structured ones, and extended headers. Names are those of the protocol's document
//! (`doc/proto.md` of the NBD project).
//!
//! * [`Handshake`]: the server's side until transmission begins. Bytes in, bytes out.
//! * [`Request`] and [`Head`]: headers of transmission; [`chunk`]: payloads of a structured reply;
//!   [`reply`]: replies as a client reads them.
//! * [`client::ClientHandshake`]: the client's side of the handshake; [`dial`]: its options one by
//!   one.
//! * [`command`]: the SCSI commands that carry out requests.

pub mod chunk;
pub mod client;
pub mod codes;
pub mod command;
pub mod dial;
mod handshake;
mod option;
pub mod reply;
mod transmission;

pub use codes::Error;
pub use handshake::{
    Agreed, Export, Exports, Handshake, Hangup, Listed, Settings, Step, Tls, Unavailable,
};
pub use option::{
    DRAIN_MAX, LISTED_MAX, NAME_MAX, OPTION_MAX, OPTIONS_MAX, OptionReply, QUERIES_MAX,
};
pub use transmission::{
    EXTENDED_REQUEST_LEN, Form, HEAD_MAX, Head, REQUEST_LEN, Request, request_len,
};
