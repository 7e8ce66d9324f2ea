//! Text of Login and Text PDUs: `key=value` pairs, each ended by a NUL (RFC 7143 section 6.1).

use crate::error::{Kind, WireError};

/// Longest key name, bytes; a longer one is an error.
pub const KEY_LEN_MAX: usize = 63;

/// Longest value, bytes, unless the key is known to hold more; a longer one is an error.
pub const VALUE_LEN_MAX: usize = 255;

/// Longest value of the keys that hold binary data: 1024 bytes as hexadecimal digits (RFC 7143
/// section 6.1, large binary values), plus the prefix.
const LARGE_VALUE_LEN_MAX: usize = 2 + 2 * 1024;

/// Most bytes of text in one negotiation step, all continued PDUs together; more is an error
/// and the login or the text exchange is refused.
pub const TEXT_LEN_MAX: usize = 32 * 1024;

/// Most pairs in one negotiation step; more is an error.
pub const PAIRS_MAX: usize = 1024;

/// Reads the pairs of a whole text. It must end in a NUL; further NULs at the end are ignored, for
/// some initiators count padding as text. Values may be empty. Keys are printable ASCII, values
/// UTF-8 without control characters.
pub fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, WireError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(WireError::long("text", 0));
    }
    let mut out = Vec::new();
    let mut rest = trim(text)?;
    while !rest.is_empty() {
        if out.len() == PAIRS_MAX {
            return Err(WireError::long("number of keys", place(text, rest)));
        }
        let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        let (line, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        out.push(pair(line).map_err(|e| WireError { at: place(text, rest), ..e })?);
        rest = tail.get(1..).unwrap_or(&[]);
    }
    Ok(out)
}

/// The text without its final NULs; an unfinished last pair is an error.
fn trim(text: &[u8]) -> Result<&[u8], WireError> {
    let end = text.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    if end == text.len() && end > 0 {
        return Err(WireError::short("text without final NUL", place(text, &[])));
    }
    Ok(text.get(..end).unwrap_or(&[]))
}

fn place(whole: &[u8], rest: &[u8]) -> u32 {
    u32::try_from(whole.len().saturating_sub(rest.len())).unwrap_or(u32::MAX)
}

fn pair(line: &[u8]) -> Result<(&str, &str), WireError> {
    let split = line.iter().position(|b| *b == b'=').ok_or(WireError::bad("key without =", 0))?;
    let (key, value) = line.split_at_checked(split).ok_or(WireError::bad("key", 0))?;
    let value = value.get(1..).unwrap_or(&[]);
    if key.is_empty() || !key.iter().all(u8::is_ascii_graphic) {
        return Err(WireError::bad("key name", 0));
    }
    if key.len() > KEY_LEN_MAX {
        return Err(WireError::long("key name", 0));
    }
    let key = str::from_utf8(key).map_err(|_| WireError::bad("key name", 0))?;
    let value = str::from_utf8(value).map_err(|_| WireError::bad("value", 0))?;
    if value.len() > value_len_max(key) {
        return Err(WireError::long("value", 0));
    }
    if value.chars().any(char::is_control) {
        return Err(WireError::bad("value", 0));
    }
    Ok((key, value))
}

fn value_len_max(key: &str) -> usize {
    match key {
        "CHAP_C" | "CHAP_R" => LARGE_VALUE_LEN_MAX,
        _ => VALUE_LEN_MAX,
    }
}

/// Builds text. It holds at most [`TEXT_LEN_MAX`] bytes and refuses more, so that answers to many
/// keys cannot grow without bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextBuilder {
    text: Vec<u8>,
}

impl TextBuilder {
    /// No pairs yet.
    pub fn new() -> TextBuilder {
        TextBuilder::default()
    }

    /// Adds `key=value` and its NUL.
    pub fn push(&mut self, key: &str, value: &str) -> Result<(), WireError> {
        if self.text.len() + key.len() + value.len() + 2 > TEXT_LEN_MAX {
            return Err(WireError::long("text", 0));
        }
        self.text.extend_from_slice(key.as_bytes());
        self.text.push(b'=');
        self.text.extend_from_slice(value.as_bytes());
        self.text.push(0);
        Ok(())
    }

    /// Adds a pair with a number in decimal.
    pub fn push_number(&mut self, key: &str, value: u64) -> Result<(), WireError> {
        self.push(key, &value.to_string())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.text
    }

    /// Whether no pair was added.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Collects text that continues over several PDUs (the C bit).
#[derive(Clone, Debug, Default)]
pub struct TextInput {
    text: Vec<u8>,
}

impl TextInput {
    /// Adds the data of a PDU. Answers the whole text when `more` is false, None when it continues.
    /// More than [`TEXT_LEN_MAX`] bytes, or a continued PDU without data, is an error.
    pub fn append(&mut self, data: &[u8], more: bool) -> Result<Option<Vec<u8>>, WireError> {
        if self.text.len() + data.len() > TEXT_LEN_MAX {
            return Err(WireError::long("text", 0));
        }
        if more && data.is_empty() {
            return Err(WireError::new(Kind::Truncated, "continued text", 0));
        }
        self.text.extend_from_slice(data);
        Ok(if more { None } else { Some(std::mem::take(&mut self.text)) })
    }

    pub fn is_pending(&self) -> bool {
        !self.text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_in_order() {
        let text = b"A=1\0Long.key-2=x=y\0Empty=\0\0\0";
        assert_eq!(pairs(text).unwrap(), [("A", "1"), ("Long.key-2", "x=y"), ("Empty", "")]);
        assert_eq!(pairs(b"").unwrap(), []);
        assert_eq!(pairs(b"\0\0").unwrap(), []);
    }

    #[test]
    fn malformed_text_is_refused_with_the_field() {
        let long_key = [b"k".repeat(64), b"=1\0".to_vec()].concat();
        let long_value = [b"k=".to_vec(), b"v".repeat(256), vec![0]].concat();
        let many = b"a=1\0".repeat(PAIRS_MAX + 1);
        let large = vec![b'a'; TEXT_LEN_MAX + 1];
        for (text, field) in [
            (&b"A=1"[..], "text without final NUL"),
            (b"\0A=1\0", "key without ="),
            (b"A\0", "key without ="),
            (b"=1\0", "key name"),
            (b"A b=1\0", "key name"),
            (b"A=\xff\0", "value"),
            (b"A=\x07\0", "value"),
            (&long_key, "key name"),
            (&long_value, "value"),
            (&many, "number of keys"),
            (&large, "text"),
        ] {
            assert_eq!(pairs(text).unwrap_err().field, field);
        }
        let max_value = [b"k=".to_vec(), b"v".repeat(255), vec![0]].concat();
        assert!(pairs(&max_value).is_ok());
        let chap = [b"CHAP_C=0x".to_vec(), b"0".repeat(2048), vec![0]].concat();
        assert!(pairs(&chap).is_ok());
    }

    #[test]
    fn continued_text_is_joined_and_bounded() {
        let mut input = TextInput::default();
        assert_eq!(input.append(b"Ke", true), Ok(None));
        assert!(input.is_pending());
        assert_eq!(input.append(b"y=1\0", false), Ok(Some(b"Key=1\0".to_vec())));
        assert!(!input.is_pending());
        assert!(input.append(b"", true).is_err());
        for _ in 0..4 {
            input.append(&[b'a'; 8192], true).unwrap();
        }
        assert_eq!(input.append(b"a", true).unwrap_err().field, "text");
    }

    #[test]
    fn the_builder_is_bounded() {
        let mut out = TextBuilder::new();
        out.push("A", "b").unwrap();
        out.push_number("N", 42).unwrap();
        assert_eq!(out.bytes(), b"A=b\0N=42\0");
        let result = (0..TEXT_LEN_MAX).try_for_each(|_| out.push("Key", "NotUnderstood"));
        assert!(result.is_err());
        assert!(out.bytes().len() <= TEXT_LEN_MAX);
    }
}
