//! The graph and its rules, by subject, on simulated cores.

mod access;
mod attach;
mod common;
mod counted;
mod events;
mod flow;
mod gate;
mod label_migration;
mod media_end;
mod names;
mod notices;
mod orders;
mod orphan;
mod records;
mod references;
mod slow_requests;
mod split;
mod statistics;
mod taste;
mod threads;
mod world;
