//! What connections of every protocol have in common.
//!
//! | file | holds |
//! | --- | --- |
//! | `address` | addresses as other machines are told of them |
//! | `cause` | how connections end without a word of their protocol |
//! | `inbox` | bytes that came, and who else looks at them |
//! | `pump` | reading and writing as one task, and when a peer that does not read is let go |
//! | `pace` | the deadline for data that has begun to come |
//! | `spares` | empty lists of segments |
//! | `cores` | a driver's value on each core, and what they tell each other |
//! | `hall` | the connections and portals of one core, their number, their watch |
//! | `entrance` | listening and accepting |
//! | `journal` | lines about bad peers, not too many |
//!
//! A protocol brings its own handshake, requests and answers, and nothing of the above.

pub(crate) mod address;
pub(crate) mod cause;
pub(crate) mod cores;
pub(crate) mod entrance;
pub(crate) mod hall;
pub(crate) mod inbox;
pub(crate) mod journal;
pub(crate) mod pace;
pub(crate) mod pump;
pub(crate) mod spares;
