//! Sequential reader and writer of little-endian fields.

use super::super::fault::Fault;
use crate::probe::array;

/// Reads fields in order; an end too early is an error that names the field.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Fault> {
        match array(self.bytes, self.at) {
            Some(found) => {
                self.at = self.at.saturating_add(N);
                Ok(found)
            }
            None => Err(Fault::value(field, "is beyond the end of the record")),
        }
    }

    pub(super) fn skip(&mut self, count: usize, field: &'static str) -> Result<(), Fault> {
        self.at = self.at.saturating_add(count);
        match self.at <= self.bytes.len() {
            true => Ok(()),
            false => Err(Fault::value(field, "is beyond the end of the record")),
        }
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, Fault> {
        self.array(field).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, Fault> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Fault> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, Fault> {
        self.array(field).map(u64::from_le_bytes)
    }
}

/// Writes fields in order.
#[derive(Default)]
pub(super) struct FieldWriter {
    bytes: Vec<u8>,
}

impl FieldWriter {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(super) fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len().saturating_add(count), 0);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.bytes
    }
}
