//! NVMe over TCP in a simulated world: a host of our own, made of the wire's codecs, that keeps
//! the rules and breaks them. A real Linux host: `crates/ashlar/tests/live/real_nvme.rs`.

mod attacks;
mod commands;
mod connect;
mod deletes;
mod exchange;
mod host;
mod simulated;
mod stage;
