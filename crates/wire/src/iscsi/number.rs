//! Numbers and binary values in text (RFC 7143 section 6.1): decimal, `0x` hexadecimal, `0b`
//! base64.

use crate::error::WireError;

/// Reads a number in decimal, hexadecimal or base64 form. None when it is malformed or does not fit
/// in 64 bits. A decimal number has no leading zero.
pub fn parse_number(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    match bytes {
        [b'0', b'x' | b'X', digits @ ..] => fold(digits, 16, hex_digit),
        [b'0', b'b' | b'B', ..] => {
            let mut out = [0u8; 16];
            let binary = decode_binary(text, &mut out).ok()?;
            fold(binary, 256, |b| Some(u64::from(b)))
        }
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => fold(bytes, 10, |b| match b {
            b'0'..=b'9' => Some(u64::from(b - b'0')),
            _ => None,
        }),
        _ => None,
    }
}

/// Reads a range `low~high`, both ends as in [`parse_number`]. None when malformed or empty.
pub fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (low, high) = text.split_once('~')?;
    let range = (parse_number(low)?, parse_number(high)?);
    (range.0 <= range.1).then_some(range)
}

fn fold(digits: &[u8], base: u64, value: impl Fn(u8) -> Option<u64>) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| sum.checked_mul(base)?.checked_add(value(*digit)?))
}

fn hex_digit(b: u8) -> Option<u64> {
    char::from(b).to_digit(16).map(u64::from)
}

/// Decodes a binary value, `0x` hexadecimal (an even number of digits) or `0b` base64 (padded),
/// into `out`. A value longer than `out` is an error before anything beyond it is touched.
pub fn decode_binary<'a>(text: &str, out: &'a mut [u8]) -> Result<&'a [u8], WireError> {
    let len = match text.as_bytes() {
        [b'0', b'x' | b'X', digits @ ..] => decode_hex(digits, out)?,
        [b'0', b'b' | b'B', digits @ ..] => decode_base64(digits, out)?,
        _ => return Err(WireError::bad("binary value", 0)),
    };
    out.get(..len).ok_or(WireError::long("binary value", 0))
}

fn decode_hex(digits: &[u8], out: &mut [u8]) -> Result<usize, WireError> {
    let (pairs, odd) = digits.as_chunks::<2>();
    if !odd.is_empty() || pairs.is_empty() {
        return Err(WireError::bad("hexadecimal value", 0));
    }
    if pairs.len() > out.len() {
        return Err(WireError::long("hexadecimal value", 0));
    }
    for (to, pair) in out.iter_mut().zip(pairs) {
        let value = fold(pair, 16, hex_digit).and_then(|v| u8::try_from(v).ok());
        *to = value.ok_or(WireError::bad("hexadecimal value", 0))?;
    }
    Ok(pairs.len())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64_digit(b: u8) -> Option<u32> {
    Some(u32::from(match b {
        b'A'..=b'Z' => b - b'A',
        b'a'..=b'z' => b - b'a' + 26,
        b'0'..=b'9' => b - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

fn decode_base64(digits: &[u8], out: &mut [u8]) -> Result<usize, WireError> {
    let bad = WireError::bad("base64 value", 0);
    let (groups, odd) = digits.as_chunks::<4>();
    if !odd.is_empty() || groups.is_empty() {
        return Err(bad);
    }
    let mut len = 0;
    for (i, group) in groups.iter().enumerate() {
        let pads = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 1,
            _ => 0,
        };
        if pads > 0 && i + 1 != groups.len() {
            return Err(bad);
        }
        let mut bits = 0u32;
        for (k, digit) in group.iter().enumerate() {
            let value = if k >= 4 - pads { 0 } else { base64_digit(*digit).ok_or(bad)? };
            bits = bits << 6 | value;
        }
        let [_, bytes @ ..] = bits.to_be_bytes();
        let (real, spill) = bytes.split_at(3 - pads);
        if spill.iter().any(|b| *b != 0) {
            return Err(bad);
        }
        for b in real {
            *out.get_mut(len).ok_or(WireError::long("base64 value", 0))? = *b;
            len += 1;
        }
    }
    Ok(len)
}

/// Writes a binary value as `0x` and hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    let digit = |v: u8| char::from_digit(u32::from(v), 16).unwrap_or('0');
    let mut out = String::with_capacity(2 + bytes.len() * 2);
    out.push_str("0x");
    for b in bytes {
        out.push(digit(b >> 4));
        out.push(digit(b & 15));
    }
    out
}

/// Writes a binary value as `0b` and padded base64.
pub fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + bytes.len().div_ceil(3) * 4);
    out.push_str("0b");
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for k in 0..4u32 {
            let digit = (bits >> (18 - 6 * k)) & 63;
            let spare = usize::try_from(k).is_ok_and(|k| k > group.len());
            let symbol = usize::try_from(digit).ok().and_then(|d| BASE64.get(d));
            out.push(if spare { '=' } else { symbol.map_or('=', |s| char::from(*s)) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::Prng;

    #[test]
    fn numbers_are_parsed_in_three_forms() {
        for (text, want) in [
            ("0", Some(0)),
            ("8192", Some(8192)),
            ("0x2000", Some(8192)),
            ("0X2aF", Some(0x2af)),
            ("0bIAA=", Some(8192)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0x10000000000000000", None),
            ("007", None),
            ("", None),
            ("0x", None),
            ("0b", None),
            ("-1", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("12a", None),
        ] {
            assert_eq!(parse_number(text), want, "{text}");
        }
        assert_eq!(parse_range("1~0x10"), Some((1, 16)));
        assert_eq!(parse_range("2~1"), None);
        assert_eq!(parse_range("2"), None);
    }

    #[test]
    fn base64_matches_rfc_4648() {
        let cases = [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in cases {
            let text = format!("0b{coded}");
            assert_eq!(encode_base64(plain.as_bytes()), text);
            assert_eq!(decode_binary(&text, &mut [0; 16]).unwrap(), plain.as_bytes());
        }
        for bad in ["0bZg=", "0bZg==Zg==", "0bZ===", "0b====", "0bZh==", "0b Zg=", "Zg=="] {
            assert!(decode_binary(bad, &mut [0; 16]).is_err(), "{bad}");
        }
    }

    #[test]
    fn binary_values_decode_as_encoded_and_never_overflow() {
        let mut rng = Prng::new(7);
        for _ in 0..500 {
            let mut bytes = vec![0; rng.below(40) + 1];
            rng.fill(&mut bytes);
            let mut out = vec![0; bytes.len()];
            for text in [encode_hex(&bytes), encode_base64(&bytes)] {
                assert_eq!(decode_binary(&text, &mut out).unwrap(), &bytes[..]);
                let short = &mut out[1..];
                assert!(decode_binary(&text, short).is_err());
            }
        }
    }
}
