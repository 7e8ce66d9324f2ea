//! Query of the page: the search text and the selected object, and the link that repeats them.

use schemars::JsonSchema;
use serde::Serialize;

/// Longest search text or identifier that is read, in bytes. Longer ones are ignored.
const VALUE_BYTES_MAX: usize = 1024;

/// Search text and selected object of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ViewQuery")]
pub struct Query {
    /// Part of a name: only matching objects and those above and below them are drawn.
    pub find: String,
    /// Identifier of an object, as nodes have it: the object is shown in detail.
    pub at: String,
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
fn encode(text: &str) -> String {
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

impl Query {
    /// The fields of a query string; unknown ones are ignored.
    pub fn parse(query: &str) -> Query {
        let mut out = Query::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            if value.len() > VALUE_BYTES_MAX {
                continue;
            }
            match key {
                "find" => out.find = decode(value).trim().to_owned(),
                "at" => out.at = decode(value),
                _ => {}
            }
        }
        out
    }
}

/// The link to the detail of an object.
pub fn link(at: &str) -> String {
    format!("/?at={}", encode(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_fields_are_decoded_and_links_lead_back() {
        let query = Query::parse("find=+a%20b+&x=1&at=disk%3Ad0&find");
        assert_eq!(query, Query { find: "a b".into(), at: "disk:d0".into() });
        for id in ["lun:iqn.a:t/all/0", "disk:ä&=?#%", "disk:\u{202e}\"<"] {
            let link = link(id);
            let (_, query) = link.split_once('?').expect("a query");
            assert_eq!(Query::parse(query).at, id);
            assert!(link.is_ascii(), "{link}");
        }
        assert_eq!(Query::parse("at=%4").at, "%4");
        assert_eq!(Query::parse("at=%zz%").at, "%zz%");
        let long = format!("find={}", "x".repeat(VALUE_BYTES_MAX + 1));
        assert_eq!(Query::parse(&long), Query::default());
    }
}
