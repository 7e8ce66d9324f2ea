//! The graph and its rules, theme by theme, on simulated cores.

mod access;
mod common;
