//! Allocations of the cores that serve a driver, counted for each thread by the allocator of the
//! process. That allocator makes it a binary of its own, beside `tests/suite`.

mod aoe;
mod iscsi;
mod nbd;
mod steady;

use std::sync::mpsc;

use bio::CountingAlloc;
use geom::{GraphControl, Message};

#[global_allocator]
static COUNTED: CountingAlloc = CountingAlloc;

/// Allocations of the first core. It answers after the turn that it is in; the question takes a
/// few allocations.
fn allocations(control: &GraphControl) -> u64 {
    let (put, answer) = mpsc::channel();
    let count = Message::Call(Box::new(move |_| {
        let _ = put.send(bio::allocations());
    }));
    assert!(control.core(0).expect("a core").send(count).is_ok());
    answer.recv().expect("the core answers")
}
