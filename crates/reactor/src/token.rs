//! The identifier under which a completion is reported.

/// The caller's name for an operation; the reactor hands it back and never looks inside.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Token {
    /// Which kind of receiver, as the caller counts them.
    pub kind: u32,
    /// The receiver's word.
    pub user_data: u64,
}
