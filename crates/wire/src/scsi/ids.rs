//! Identifiers of logical units as people write them: NAA names (SPC-4 section 7.8.6.6), EUI-64
//! and UUIDs.

/// Longest serial number, bytes: VPD page 80h and the T10 designator carry it whole.
pub const SERIAL_MAX: usize = 64;

/// An NAA name; one of 8 bytes is followed by zeroes. Its first digit is its type.
pub type Naa = [u8; 16];

/// The bytes that an NAA name has: 16 for NAA 6h, else 8.
pub fn naa_bytes(naa: &Naa) -> &[u8] {
    let len = if naa.first().is_some_and(|first| first >> 4 == 6) { 16 } else { 8 };
    naa.get(..len).unwrap_or(naa)
}

/// As it is written in lists: hexadecimal digits.
pub fn show_naa(naa: &Naa) -> String {
    hex(naa_bytes(naa))
}

/// Reads an NAA name of 16 (NAA 3h, 5h) or 32 (NAA 6h) hexadecimal digits.
///
/// # Errors
/// The problem, as a text for the operator.
pub fn parse_naa(text: &str) -> Result<Naa, String> {
    let wanted = || {
        format!(
            "`{text}` is no NAA name: 16 hexadecimal digits that begin with 3 or 5, or 32 that \
             begin with 6"
        )
    };
    let first = text.bytes().next().unwrap_or_default();
    let mut naa = [0; 16];
    match (first, text.len()) {
        (b'3' | b'5', 16) => {
            let short: [u8; 8] = digits(text).ok_or_else(wanted)?;
            naa.iter_mut().zip(short).for_each(|(to, from)| *to = from);
        }
        (b'6', 32) => naa = digits(text).ok_or_else(wanted)?,
        _ => return Err(wanted()),
    }
    Ok(naa)
}

/// Reads a UUID as RFC 9562 writes it.
///
/// # Errors
/// The problem, as a text for the operator.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wanted = || format!("`{text}` is no UUID: 8-4-4-4-12 hexadecimal digits, not all zeroes");
    let is_dash = |(i, b): (usize, u8)| (b == b'-') == matches!(i, 8 | 13 | 18 | 23);
    if text.len() != 36 || !text.bytes().enumerate().all(is_dash) {
        return Err(wanted());
    }
    let uuid: [u8; 16] = digits(&text.replace('-', "")).ok_or_else(wanted)?;
    if uuid == [0; 16] { Err(wanted()) } else { Ok(uuid) }
}

/// As RFC 9562 writes it.
pub fn show_uuid(uuid: &[u8; 16]) -> String {
    let mut text = hex(uuid);
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}

/// Reads an EUI-64 of 16 hexadecimal digits.
///
/// # Errors
/// The problem, as a text for the operator.
pub fn parse_eui64(text: &str) -> Result<[u8; 8], String> {
    let eui = if text.len() == 16 { digits(text) } else { None };
    eui.filter(|eui| *eui != [0; 8])
        .ok_or_else(|| format!("`{text}` is no EUI-64: 16 hexadecimal digits, not all zeroes"))
}

/// Hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 0xf)]).collect()
}

/// As many digits as there are, exactly.
fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (to, [high, low]) in out.iter_mut().zip(pairs) {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *to = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_naa_name_has_the_length_of_its_type() {
        for good in ["5000c500a1b2c3d4", "3000000000000001", "6001405aabbccddeeff0011223344556"] {
            let naa = parse_naa(good).unwrap();
            assert_eq!(show_naa(&naa), good);
            assert_eq!(naa_bytes(&naa).len() * 2, good.len());
        }
        assert_eq!(parse_naa("5000C500A1B2C3D4"), parse_naa("5000c500a1b2c3d4"));
        let long = "5001405aabbccddeeff0011223344556";
        for bad in ["", "5000c500a1b2c3d", "6000c500a1b2c3d4", long, "naa.5000c500a1b2", "+5000c"] {
            assert!(parse_naa(bad).is_err(), "{bad}");
        }
        assert!(parse_naa("5000c500a1b2c3g4").is_err() && parse_naa("5000c500a1b2c3é").is_err());
    }

    #[test]
    fn each_byte_has_two_lower_case_digits() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let wanted: Vec<String> = all.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex(&all), wanted.concat());
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn uuids_and_eui64_have_one_form() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(show_uuid(&parse_uuid(uuid).unwrap()), uuid);
        let zero = "00000000-0000-0000-0000-000000000000";
        for bad in
            [zero, "0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcde-"]
        {
            assert!(parse_uuid(bad).is_err(), "{bad}");
        }
        assert_eq!(hex(&parse_eui64("0123456789abcdeF").unwrap()), "0123456789abcdef");
        for bad in ["0123456789abcde", "0000000000000000", "0123456789abcdeg", "+123456789abcdef"] {
            assert!(parse_eui64(bad).is_err(), "{bad}");
        }
    }
}
