//! Tests of the benchmarks: the load generator is right, and the program does what its help says.
//! Nothing is measured here.

mod command;
mod load;
