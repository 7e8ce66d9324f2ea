//! NBD clients on the same units as the initiators, over another protocol, under the same model.
//!
//! | file | holds |
//! | --- | --- |
//! | `link` | one connection: handshake, requests, replies, read by a reader of its own |
//! | `client` | actions of a client, and when its requests are over |
//! | `request` | choice and form of its next request |
//! | `judge` | checks of replies |
//!
//! Invariants
//!  B1  A request has one reply, in the form that was agreed on. The pieces of a READ cover its
//!      range once, and there is one only when the client wants one.
//!  B2  Data follow M1 to M4, whichever transport wrote them. A write is over when it was answered,
//!      or when the daemon's list of sessions shows its session no more.
//!  B3  An error has a cause: a disk that failed, a reservation, rights, an access state, a request
//!      that is wrong. A request that did well had none of them all the time.
//!  B4  What BLOCK_STATUS takes for a hole or for zeroes may read as zeroes.
//!  B5  A client that may see a unit enters its export, and gets its size and the permitted
//!      operations. A client that may not see it does not enter.

mod client;
mod judge;
mod link;
mod request;

pub use client::{Client, address};
