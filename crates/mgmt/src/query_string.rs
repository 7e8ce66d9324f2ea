//! Query strings of URLs: their fields are read and written here.

/// Longest value of most fields, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 1024;

/// Names and decoded values of a query string. Values of more than `bytes_max` bytes are left out.
pub(crate) fn fields(query: &str, bytes_max: usize) -> impl Iterator<Item = (&str, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let short = pairs.filter(move |(_, value)| value.len() <= bytes_max);
    short.map(|(key, value)| (key, decode(value)))
}

/// Value of a query field: `+` is a space, `%41` is a byte.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let hex = (byte == b'%').then(|| after.get(..2)).flatten();
        let hex = hex.and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, hex.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', _) => out.push(b' '),
            (plain, _) => out.push(plain),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A value for a link: every byte that is not a letter, a digit or one of `-._~` as `%41`.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
