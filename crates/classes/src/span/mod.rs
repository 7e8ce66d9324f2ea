//! span: common part of stripe and concat, classes whose provider needs every member.
//!
//! Their members have a label in the last sector ("automatic") or are named by a verb ("manual",
//! removed when the daemon ends). The two classes differ in the bytes of their label, in the size
//! of the whole and in the place of a byte. That is [`Span`], one file each; all else is here.
//!
//! ```text
//!                 claim, claim ...             last one claimed
//!   (no geom) ----------------------> WAITING ------------------> UP
//!                                        ^                         |
//!                                        +---- a member is lost ---+   the provider withers
//! ```
//!
//! Invariants
//!  S1  There is a provider only while every slot has a member, and it is removed with the first
//!      that is lost. The data on the others stays unchanged; the provider is back when the member
//!      returns.
//!  S2  Members are open r1w1e1 from the moment they are claimed. No other consumer writes them,
//!      and no class takes the content of a single one for a table or file system of its own.
//!  S3  A slot has one member. A second disk that claims the same slot is refused, and reported.
//!  S4  Nothing is written to a member by assembling.
//!  S5  Labels are written before their values are used: a growing geom keeps its old size until
//!      the last label with the new one is durable. If labels disagree after a power cut amid
//!      `append`, the smaller number of members is valid.
//!  S6  If a label write has not ended, no other label is written there. Two writes of one sector
//!      that are in flight together may end differently on the copies below.

mod class;
mod geom;
pub(crate) mod label;
mod map;
mod moved;
pub(crate) mod verbs;

#[cfg(test)]
mod tests;

pub use class::SpanClass;
pub use geom::BEGINS_ON;
pub use label::SpanLabel;
pub use map::Piece;

pub(crate) use label::{pack, unpack};

use ::geom::{ClassParams, ClassVerb, Error};

use crate::members::{Divisor, frame::FrameError};

/// The properties in which such classes differ.
pub trait Span: Sized + Send + Sync + 'static {
    /// Of the class, and of its providers before the stroke.
    const NAME: &'static str;
    /// One sentence.
    const DOC: &'static str;
    /// Fewest members.
    const LEAST: usize;
    const VERBS: &'static [ClassVerb<SpanClass<Self>>];
    /// One sentence of `label`, without the point at its end.
    const LABEL_DOC: &'static str;
    /// The same of `create`.
    const CREATE_DOC: &'static str;
    /// Whether a member may be added at the end, which leaves the others where they are.
    const APPENDS: bool;

    /// The parameters of its creation, besides name and members.
    type Params: ClassParams;

    /// The strip size, bytes; zero for a class without strips.
    fn strip(params: &Self::Params) -> u64;

    /// Where members' bytes are, in words ([`geom::Class::layout`]).
    fn layout(strip: u64, members: &[u64]) -> String;

    /// Reads a member's last sector.
    fn decode(sector: &[u8]) -> Result<SpanLabel, FrameError>;

    /// The label's bytes, to be padded to a sector.
    fn encode(label: &SpanLabel) -> Vec<u8>;

    fn check_strip(strip: u64, sector_bytes: u64) -> Result<(), Error>;

    /// Bytes of the whole, from the bytes that each member gives.
    fn media_bytes(strip: u64, members: &[u64]) -> u64;

    /// Calls `f` for each piece of a range, at most one a member, in the order of their first
    /// bytes.
    fn pieces(strip: u64, members: &[u64], offset: u64, length: u64, f: &mut dyn FnMut(Piece));

    /// The piece of a range inside one strip, or on one member where there are no strips. The
    /// members are given with their number.
    fn single_piece(
        strip: Divisor,
        members: (&[u64], Divisor),
        offset: u64,
        length: u64,
    ) -> Option<Piece>;

    /// Calls `f` for the bytes of a member's piece, with offset in the request and length, in their
    /// order on the member.
    fn gather(
        strip: u64,
        members: &[u64],
        request: (u64, u64),
        piece: Piece,
        f: &mut dyn FnMut(u64, u64),
    );
}
