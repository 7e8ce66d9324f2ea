//! Reservation state encoded for the state store. The state store protects the bytes (length,
//! checksum, generations of files), but the decoder still checks their meaning, which a checksum
//! does not cover.
//!
//! Layout 1, DON'T TOUCH, big-endian:
//!
//! ```text
//!   u16 layout   u8 flags (1: APTPL)   u8 type (0: no reservation)   u32 PRgeneration   u32 count
//!   count times: u8 holder   u8 0   u16 target port   u64 key   u16 length   TransportID
//! ```

use wire::scsi::{PrType, TransportId};

use super::state::{Identity, PersistentReservation, REGISTRATIONS_MAX, Reservations};

const LAYOUT: u16 = 1;

/// Why a record is no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// Written by a later version.
    Layout(u16),
    /// The record is too short, or data follows its end.
    Length,
    /// Its parts contradict each other.
    Contradiction,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordError::Layout(n) => write!(f, "layout {n} is of a later version"),
            RecordError::Length => f.write_str("the length is wrong"),
            RecordError::Contradiction => f.write_str("the fields contradict each other"),
        }
    }
}

impl Reservations {
    /// State that survives a restart: everything when APTPL is active, else only PRgeneration.
    pub fn record(&self) -> Vec<u8> {
        let keep = if self.aptpl { self.keys.len() } else { 0 };
        let held = self.held.as_ref().filter(|_| self.aptpl);
        let mut out = LAYOUT.to_be_bytes().to_vec();
        out.push(u8::from(self.aptpl));
        out.push(held.map_or(0, |h| h.kind.code()));
        out.extend(self.generation.to_be_bytes());
        out.extend(u32::try_from(keep).unwrap_or(0).to_be_bytes());
        for (id, key) in self.keys.iter().take(keep) {
            let holder = held.is_some_and(|h| h.holder.as_ref() == Some(id));
            out.extend([u8::from(holder), 0]);
            out.extend(id.target.to_be_bytes());
            out.extend(key.to_be_bytes());
            let port = id.port.bytes();
            out.extend(u16::try_from(port.len()).unwrap_or(0).to_be_bytes());
            out.extend(port);
        }
        out
    }

    pub fn of_record(bytes: &[u8]) -> Result<Reservations, RecordError> {
        let (head, mut rest) = bytes.split_first_chunk::<12>().ok_or(RecordError::Length)?;
        let layout = u16::from_be_bytes([head[0], head[1]]);
        if layout != LAYOUT {
            return Err(RecordError::Layout(layout));
        }
        let count = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > REGISTRATIONS_MAX {
            return Err(RecordError::Contradiction);
        }
        let mut state = Reservations {
            generation: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            aptpl: head[2] & 1 != 0,
            ..Reservations::default()
        };
        let mut holder = None;
        for _ in 0..count {
            let (fixed, more) = rest.split_first_chunk::<14>().ok_or(RecordError::Length)?;
            let [holds, _, t0, t1, key @ .., l0, l1] = *fixed;
            let len = usize::from(u16::from_be_bytes([l0, l1]));
            let (port, more) = more.split_at_checked(len).ok_or(RecordError::Length)?;
            rest = more;
            let Some((port, used)) = TransportId::decode(port) else {
                return Err(RecordError::Contradiction);
            };
            let id = Identity { port, target: u16::from_be_bytes([t0, t1]) };
            if holds != 0 && holder.replace(id.clone()).is_some() || used != len {
                return Err(RecordError::Contradiction);
            }
            if state.keys.insert(id, u64::from_be_bytes(key)).is_some() {
                return Err(RecordError::Contradiction);
            }
        }
        if !rest.is_empty() {
            return Err(RecordError::Length);
        }
        state.held = match (head[3], PrType::from_code(head[3])) {
            (0, _) if holder.is_none() => None,
            (_, Some(kind)) => Some(PersistentReservation { kind, holder }),
            _ => return Err(RecordError::Contradiction),
        };
        if state.is_sound() { Ok(state) } else { Err(RecordError::Contradiction) }
    }
}
