//! AoE from outside: frames of our own making over simulated segments.

mod commands;
mod rules;
mod simulated;
mod stage;
mod volatile;
