//! Cost of a layer: Bios through pass-through layers over a leaf that answers at once.

mod count;
mod stack;

pub(crate) use count::count;
pub(crate) use stack::BIOS;
pub use stack::{LayerRow, layers};
