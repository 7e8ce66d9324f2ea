//! Format language of camcontrol: the fields of buffers to send and to show.
//!
//! A field to send is a number in hexadecimal, or `v`: the next argument. A field to show is a
//! letter. Behind `:`, or behind the letter, is its width. Bits are counted from the highest down.

use std::collections::VecDeque;
use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

/// Longest buffer that can be written so.
const BUFFER_MAX: usize = 65_536;

/// Most fields.
const FIELDS_MAX: usize = 4096;

/// Widths are no longer than an integer of SCSI.
const BITS_MAX: u32 = 32;

/// Splits into fields: their name in `{}`, and the text of each. Comments are `/* */`.
fn fields(format: &str) -> Result<Vec<(Option<&str>, &str)>, String> {
    let (mut out, mut name, mut rest) = (Vec::new(), None, format);
    loop {
        rest = rest.trim_start_matches([' ', ',', '\t', '\n']);
        let until = |open: &str, close: &'static str| {
            let inner = rest.strip_prefix(open)?;
            Some(inner.split_once(close).ok_or(format!("a {open} without its {close}")))
        };
        if let Some(comment) = until("/*", "*/") {
            rest = comment?.1;
        } else if let Some(named) = until("{", "}") {
            let (word, after) = named?;
            (name, rest) = (Some(word.trim()), after);
        } else if rest.is_empty() {
            return Ok(out);
        } else {
            let end = rest.find([' ', ',', '\t', '\n', '{']).unwrap_or(rest.len());
            let (field, after) = rest.split_at(end);
            out.push((name.take(), field));
            rest = after;
        }
        if out.len() > FIELDS_MAX {
            return Err(format!("more than {FIELDS_MAX} fields"));
        }
    }
}

/// `b3`, `t3`: bits; `i2`: so many bytes of 8 bits.
fn width(text: &str) -> Option<(bool, u32)> {
    let mut chars = text.chars();
    let kind = chars.next()?;
    let n: u32 = chars.as_str().parse().ok()?;
    let (bits, aligned) = match kind {
        'b' | 't' => (n, false),
        'i' => (n.checked_mul(8)?, true),
        _ => return None,
    };
    (1..=BITS_MAX).contains(&bits).then_some((aligned, bits))
}

/// An argument: decimal, or hexadecimal behind `0x`.
fn argument(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Bits that are written, the highest first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Of the last byte, that are free.
    free: u32,
}

impl Bits {
    fn put(&mut self, value: u64, bits: u32) {
        for n in (0..bits).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> n & 1) as u8) << self.free;
            }
        }
    }
}

/// The bytes of a format to send; the value of `v` is taken from `words`.
pub(super) fn encode(format: &str, words: &mut VecDeque<&str>) -> Result<Vec<u8>, String> {
    let mut out = Bits::default();
    for (name, field) in fields(format)? {
        let called = name.unwrap_or(field);
        let (value, wide) = match field.split_once(':') {
            Some((value, wide)) => {
                (value, width(wide).ok_or(format!("{field}: b1 to b32 or i1 to i4 is wanted"))?)
            }
            None => (field, (true, 8)),
        };
        let value = match value {
            "v" => {
                let word = words.pop_front().ok_or(format!("{called}: no value is left for it"))?;
                argument(word).ok_or(format!("{called}: {word} is no number"))?
            }
            hex => u64::from_str_radix(hex.trim_start_matches("0x"), 16)
                .map_err(|_| format!("{field}: bytes in hexadecimal are wanted, or v"))?,
        };
        let (aligned, bits) = wide;
        if value >> bits != 0 {
            return Err(format!("{called}: {value:#x} has more than {bits} bits, in hexadecimal"));
        }
        if aligned && out.free != 0 {
            return Err(format!("{called}: the field does not begin at a whole byte"));
        }
        out.put(value, bits);
        if out.bytes.len() > BUFFER_MAX {
            return Err(format!("more than {BUFFER_MAX} bytes"));
        }
    }
    match (out.free, out.bytes.is_empty()) {
        (0, false) => Ok(out.bytes),
        (0, true) => Err("no bytes: bytes in hexadecimal are wanted".into()),
        (free, _) => Err(format!("the last byte lacks {free} bits")),
    }
}

/// A value that was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum FieldValue {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// Where in a buffer, in bits.
struct BitCursor<'a> {
    bytes: &'a [u8],
    bit: usize,
}

impl BitCursor<'_> {
    fn round_up(&mut self) {
        self.bit = self.bit.next_multiple_of(8);
    }

    fn take(&mut self, bits: usize) -> Option<u64> {
        let end = self.bit.checked_add(bits).filter(|end| *end <= self.bytes.len() * 8)?;
        let one = |value: u64, at: usize| {
            let byte = self.bytes.get(at / 8).copied().unwrap_or(0);
            value << 1 | u64::from(byte >> (7 - at % 8) & 1)
        };
        let value = (self.bit..end).fold(0, one);
        self.bit = end;
        Some(value)
    }

    fn text(&mut self, len: usize) -> Option<String> {
        self.round_up();
        let first = self.bit / 8;
        let bytes = self.bytes.get(first..first.checked_add(len)?)?;
        self.bit += len * 8;
        let plain = |b: &u8| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' };
        Some(bytes.iter().map(plain).collect())
    }

    /// `+n`, `-n`: so many bytes from here; `n`: from the start.
    fn seek(&mut self, to: &str) -> Option<()> {
        self.round_up();
        let current = self.bit / 8;
        let at = match (to.strip_prefix('+'), to.strip_prefix('-')) {
            (Some(n), _) => current.checked_add(n.parse().ok()?)?,
            (_, Some(n)) => current.checked_sub(n.parse().ok()?)?,
            _ => to.parse().ok()?,
        };
        self.bit = at.checked_mul(8).filter(|_| at <= self.bytes.len())?;
        Some(())
    }
}

/// One field that is shown: none where it is only passed over.
fn show(place: &mut BitCursor<'_>, field: &str) -> Result<Option<FieldValue>, String> {
    let bad =
        || format!("{field}: i1 to i4, b1 to b32, t1 to t32, cN, zN, sN, s+N or s-N is wanted");
    let short = || format!("{field}: only {} bytes were received", place.bytes.len());
    let (hidden, spec) = match field.strip_prefix('*') {
        Some(spec) => (true, spec),
        None => (false, field),
    };
    let short = short();
    let mut chars = spec.chars();
    let letter = chars.next().ok_or_else(bad)?;
    let value = match letter {
        's' => {
            let to = chars.as_str();
            if to.trim_start_matches(['+', '-']).parse::<u32>().is_err() {
                return Err(bad());
            }
            place.seek(to).ok_or(short)?;
            return Ok(None);
        }
        'c' | 'z' => {
            let len = chars.as_str().parse().map_err(|_| bad())?;
            let text = place.text(len).ok_or(short)?;
            FieldValue::Text(if letter == 'z' { text.trim_end().to_owned() } else { text })
        }
        _ => {
            let (aligned, bits) = width(spec).ok_or_else(bad)?;
            if aligned {
                place.round_up();
            }
            FieldValue::Number(place.take(bits as usize).ok_or(short)?)
        }
    };
    Ok(Some(value).filter(|_| !hidden))
}

/// Decodes received bytes by a format: the fields with their names.
pub(super) fn decode(format: &str, bytes: &[u8]) -> Result<Vec<(String, FieldValue)>, String> {
    let mut place = BitCursor { bytes, bit: 0 };
    let mut out = Vec::new();
    for (name, field) in fields(format)? {
        if let Some(value) = show(&mut place, field)? {
            out.push((name.unwrap_or("").to_owned(), value));
        }
    }
    Ok(out)
}

/// As camcontrol has it: the values in a line, or each behind its name in a line of its own.
pub(super) fn text(values: &[(String, FieldValue)], verbose: bool) -> String {
    let mut out = String::new();
    for (name, value) in values {
        let value = match value {
            FieldValue::Number(n) => n.to_string(),
            FieldValue::Text(text) => text.clone(),
        };
        let _ = match (verbose, name.is_empty()) {
            (true, false) => writeln!(out, "{name}: {value}"),
            (true, true) => writeln!(out, "{value}"),
            (false, _) => write!(out, "{value} "),
        };
    }
    if !verbose {
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
