//! Integration tests of the daemon's library, in one binary.
//!
//! One module of them: `cargo test -p ashlar-daemon --test suite world::`.

mod by_hand;
mod edits;
mod examples;
mod exchanged;
mod file_reading;
mod file_server_edits;
mod first_user;
mod geoms;
mod load;
mod media;
mod members;
mod metrics;
mod mode_edits;
mod own_server;
mod own_verbs;
mod packaged;
mod plan_agreement;
mod rebuild_wait;
mod reference;
mod refusals;
mod sessions_end;
mod silent_server;
mod starts;
mod world;
