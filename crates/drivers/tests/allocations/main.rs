//! Allocations of the cores that serve a driver, counted for each thread by the allocator of the
//! process. That allocator makes it a binary of its own, beside `tests/suite`.

mod aoe;
mod iscsi;
mod nbd;
mod steady;

use bio::CountingAlloc;

#[global_allocator]
static COUNTED: CountingAlloc = CountingAlloc;
