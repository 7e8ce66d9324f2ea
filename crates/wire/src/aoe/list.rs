//! Lists of Ethernet addresses: permitted initiators, and those that hold a reservation.

use super::Mac;
use crate::error::WireError;

/// Bytes before a list of masks.
pub const MASKS_LEN: usize = 4;

/// Bytes of a directive with its address.
const MASK_LEN: usize = 8;

/// Bytes before a list of reservers.
pub const RESERVE_LEN: usize = 2;

pub mod mask {
    /// Reads the list.
    pub const READ: u8 = 0;
    /// Carries out the directives in their order, all or none.
    pub const EDIT: u8 = 1;
    /// A directive: nothing.
    pub const NOTHING: u8 = 0;
    /// A directive: the address is in the list from now on.
    pub const ADD: u8 = 1;
    /// A directive: the address is not in the list any more.
    pub const DELETE: u8 = 2;
    /// An error that has no number of its own.
    pub const UNSPECIFIED: u8 = 1;
    /// An error: a directive is not known.
    pub const DIRECTIVE: u8 = 2;
    /// An error: the list is full.
    pub const FULL: u8 = 3;
}

/// The words of a reservation.
pub mod reserve {
    /// Reads the list.
    pub const READ: u8 = 0;
    /// Sets it when it is empty or has the sender; an empty one releases.
    pub const SET: u8 = 1;
    /// Sets it.
    pub const FORCE: u8 = 2;
}

/// A request about masks, or its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Masks<'a> {
    /// [`mask::READ`] or [`mask::EDIT`].
    pub command: u8,
    /// 0, or the reason why the list was not edited.
    pub error: u8,
    list: &'a [[u8; MASK_LEN]],
}

impl<'a> Masks<'a> {
    /// Reads the bytes after the header.
    pub fn decode(body: &'a [u8]) -> Result<Masks<'a>, WireError> {
        let short = WireError::short("MAC mask list", 24);
        let (head, rest) = body.split_first_chunk::<MASKS_LEN>().ok_or(short)?;
        let [_, command, error, count] = *head;
        let list = rest.as_chunks().0.get(..usize::from(count));
        Ok(Masks { command, error, list: list.ok_or(WireError::short("directives", 28))? })
    }

    /// Directives with their addresses, in their order.
    pub fn directives(&self) -> impl ExactSizeIterator<Item = (u8, Mac)> + 'a {
        self.list
            .iter()
            .map(|[_, directive, a, b, c, d, e, f]| (*directive, Mac([*a, *b, *c, *d, *e, *f])))
    }

    /// Bytes of a list; more than 255 directives do not fit, and the rest is left out.
    pub fn encode(command: u8, error: u8, list: &[(u8, Mac)]) -> Vec<u8> {
        let count = u8::try_from(list.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![0, command, error, count];
        for (directive, mac) in list.iter().take(usize::from(count)) {
            bytes.extend([0, *directive]);
            bytes.extend(mac.0);
        }
        bytes
    }
}

/// A request about reservation, or its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve<'a> {
    /// One of [`reserve`].
    pub command: u8,
    list: &'a [[u8; 6]],
}

impl<'a> Reserve<'a> {
    /// Reads the bytes after the header.
    pub fn decode(body: &'a [u8]) -> Result<Reserve<'a>, WireError> {
        let short = WireError::short("reservation", 24);
        let (head, rest) = body.split_first_chunk::<RESERVE_LEN>().ok_or(short)?;
        let [command, count] = *head;
        let list = rest.as_chunks().0.get(..usize::from(count));
        Ok(Reserve { command, list: list.ok_or(WireError::short("addresses", 26))? })
    }

    pub fn addresses(&self) -> impl ExactSizeIterator<Item = Mac> + 'a {
        self.list.iter().map(|mac| Mac(*mac))
    }

    /// Bytes of a list; more than 255 addresses do not fit, and the rest is left out.
    pub fn encode(command: u8, list: &[Mac]) -> Vec<u8> {
        let count = u8::try_from(list.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![command, count];
        list.iter().take(usize::from(count)).for_each(|mac| bytes.extend(mac.0));
        bytes
    }
}
