//! iSCSI from outside: tools of other projects, and an initiator of our own that breaks rules.

mod server;
mod tools;
