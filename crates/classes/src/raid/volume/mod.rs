//! What goes on inside a volume of an array: where its bytes are, and how they are read, written,
//! and made whole again.

pub(crate) mod map;

#[cfg(test)]
mod map_tests;
