//! Tests of the benchmarks: the correctness of the load generator, and the program as its help
//! describes it. Nothing is measured here.

mod command;
mod load;
