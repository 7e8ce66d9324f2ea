//! Reservations of one logical unit: RESERVE and RELEASE (SPC-2), persistent reservations (SPC-4
//! 5.12). This is a state machine without I/O: an action on a state gives the next state and the
//! effects of the change. The engine saves the state, swaps it in and applies the effects
//! (`command/spc/persistent.rs`).
//!
//! ```text
//!                    PR OUT, RESERVE, RELEASE
//!   Reservations ----------------------------> Change { next, attentions, aborts, saves }
//!        ^                                        |  saved by the state store if APTPL requires it
//!        +----------------------------------------+  then swapped in, flags of nexuses set anew
//! ```
//!
//! Invariants
//!  P1  A refused action changes nothing, PRgeneration included.
//!  P2  A reservation that is not "all registrants" has a holder, and the holder is registered; an
//!      "all registrants" one exists while a nexus is registered.
//!  P3  There is never a SPC-2 reservation beside a registration.
//!  P4  Registrations belong to initiator port and target port, not to a session: they outlive it.
//!      A SPC-2 reservation belongs to a session and dies with it.

mod actions;
mod preempt;
mod record;
mod state;

pub use actions::Request;
pub use record::RecordError;
pub use state::{
    Change, Effects, Identity, PersistentReservation, PortContext, REGISTRATIONS_MAX, Refusal,
    RequestingNexus, Reservations, Restriction, Spc2Reservation,
};

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
