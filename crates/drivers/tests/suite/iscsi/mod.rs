//! iSCSI from outside: tools of other projects, and an initiator of our own that breaks rules.

mod breaking;
mod cold_reset;
mod defects;
mod full;
mod hanging;
mod limits;
mod moving;
mod mutants;
mod order;
mod server;
mod simulated;
mod storm;
mod tools;
