//! Behaviours of the reactor, each on every port of a real kernel.

mod bench;
mod files;
mod frames;
mod loops;
mod mail;
mod sockets;
