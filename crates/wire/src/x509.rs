//! The names in a certificate (RFC 5280), and when it expires.
//!
//! Nothing is verified here: TLS has verified the certificates of clients before their names are
//! read, and verifies dates by itself.

use crate::bytes::Reader;
use crate::error::WireError;
use jiff::civil::DateTime;

/// Longest name that is taken, bytes; longer ones are passed over.
pub const NAME_MAX: usize = 255;

/// Alternative names that are taken; further ones are passed over.
pub const ALTERNATIVES_MAX: usize = 64;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// id-at-commonName
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// id-ce-subjectAltName
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The names of a certificate's subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The most specific common name.
    pub common: Option<String>,
    /// Alternative names that are text: DNS names, mail addresses, URIs, in their order.
    pub alternatives: Vec<String>,
}

impl Names {
    /// The common name, or the first alternative name.
    pub fn first(&self) -> Option<&str> {
        self.common.as_deref().or(self.alternatives.first().map(String::as_str))
    }
}

/// One element: its tag and its contents. Lengths of up to four bytes.
fn element<'a>(r: &mut Reader<'a>) -> Result<(u8, &'a [u8]), WireError> {
    let tag = r.u8("tag")?;
    let short = r.u8("length")?;
    let len = match short {
        0..=0x7f => usize::from(short),
        0x81..=0x84 => {
            let mut len = 0usize;
            for _ in 0x80..short {
                len = (len << 8) | usize::from(r.u8("length")?);
            }
            len
        }
        _ => return Err(WireError::bad("length", r.at())),
    };
    Ok((tag, r.take(len, "contents")?))
}

/// The contents of the next element, which must have that tag.
fn expect<'a>(r: &mut Reader<'a>, tag: u8, field: &'static str) -> Result<&'a [u8], WireError> {
    let at = r.at();
    match element(r)? {
        (found, contents) if found == tag => Ok(contents),
        _ => Err(WireError::bad(field, at)),
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let fits = !bytes.is_empty() && bytes.len() <= NAME_MAX;
    let text = std::str::from_utf8(bytes).ok().filter(|_| fits)?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// The fields of a certificate from its validity on.
fn from_validity(certificate: &[u8]) -> Result<Reader<'_>, WireError> {
    let whole = expect(&mut Reader::new(certificate), SEQUENCE, "certificate")?;
    let tbs = expect(&mut Reader::new(whole), SEQUENCE, "tbsCertificate")?;
    let mut r = Reader::new(tbs);
    if r.rest().first() == Some(&VERSION) {
        element(&mut r)?;
    }
    for _ in ["serialNumber", "signature", "issuer"] {
        element(&mut r)?;
    }
    Ok(r)
}

/// The last second in which a certificate in DER is valid, in seconds since 1970.
pub fn expires(certificate: &[u8]) -> Result<i64, WireError> {
    let mut r = from_validity(certificate)?;
    let mut validity = Reader::new(expect(&mut r, SEQUENCE, "validity")?);
    element(&mut validity)?;
    let at = validity.at();
    let (tag, digits) = element(&mut validity)?;
    time(tag, digits).ok_or_else(|| WireError::bad("notAfter", at))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that certificates may have (RFC 5280
/// 4.1.2.5), in seconds since 1970.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let wanted = match tag {
        UTC_TIME => 12,
        GENERALIZED_TIME => 14,
        _ => return None,
    };
    if digits.len() != wanted || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = |digits: &[u8]| digits.iter().fold(0, |n, d| n * 10 + i16::from(d - b'0'));
    let (year, rest) = digits.split_at(wanted - 10);
    let year = match (tag, value(year)) {
        (UTC_TIME, short @ 0..50) => 2000 + short,
        (UTC_TIME, short) => 1900 + short,
        (_, long) => long,
    };
    let fields: Vec<i8> = rest.chunks(2).filter_map(|two| value(two).try_into().ok()).collect();
    let [month, day, hour, minute, second] = fields[..] else { return None };
    let time = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some(time.duration_since(EPOCH).as_secs())
}

/// Reads the names in a certificate in DER.
pub fn names(certificate: &[u8]) -> Result<Names, WireError> {
    let mut r = from_validity(certificate)?;
    let mut out = Names::default();
    element(&mut r)?;
    common_name(expect(&mut r, SEQUENCE, "subject")?, &mut out)?;
    element(&mut r)?;
    while !r.rest().is_empty() {
        if let (EXTENSIONS, contents) = element(&mut r)? {
            let list = expect(&mut Reader::new(contents), SEQUENCE, "extensions")?;
            extensions(list, &mut out)?;
        }
    }
    Ok(out)
}

fn common_name(subject: &[u8], out: &mut Names) -> Result<(), WireError> {
    let mut sets = Reader::new(subject);
    while !sets.rest().is_empty() {
        let mut pairs = Reader::new(expect(&mut sets, SET, "relative name")?);
        while !pairs.rest().is_empty() {
            let mut pair = Reader::new(expect(&mut pairs, SEQUENCE, "attribute")?);
            let kind = expect(&mut pair, OID, "attribute type")?;
            let (tag, value) = element(&mut pair)?;
            if kind == COMMON_NAME && matches!(tag, UTF8 | PRINTABLE | IA5) {
                out.common = text(value).or(out.common.take());
            }
        }
    }
    Ok(())
}

fn extensions(list: &[u8], out: &mut Names) -> Result<(), WireError> {
    let mut all = Reader::new(list);
    while !all.rest().is_empty() {
        let mut one = Reader::new(expect(&mut all, SEQUENCE, "extension")?);
        let kind = expect(&mut one, OID, "extension type")?;
        let (mut tag, mut value) = element(&mut one)?;
        if tag != OCTETS {
            // The first field is whether it is critical.
            (tag, value) = element(&mut one)?;
        }
        if kind != ALTERNATIVE_NAME || tag != OCTETS {
            continue;
        }
        let mut names = Reader::new(expect(&mut Reader::new(value), SEQUENCE, "names")?);
        while !names.rest().is_empty() {
            let (tag, value) = element(&mut names)?;
            // rfc822Name, dNSName, uniformResourceIdentifier
            if matches!(tag, 0x81 | 0x82 | 0x86) && out.alternatives.len() < ALTERNATIVES_MAX {
                out.alternatives.extend(text(value));
            }
        }
    }
    Ok(())
}

/// A certificate with these names and nothing else that makes sense, for tests and seeds.
pub fn sample(common: &str, alternatives: &[&str]) -> Vec<u8> {
    let cn = [der(OID, COMMON_NAME), der(UTF8, common.as_bytes())].concat();
    let subject = der(SEQUENCE, &der(SET, &der(SEQUENCE, &cn)));
    let names: Vec<u8> = alternatives.iter().flat_map(|n| der(0x82, n.as_bytes())).collect();
    let value = der(OCTETS, &der(SEQUENCE, &names));
    let extension = [der(OID, ALTERNATIVE_NAME), der(1, &[0xff]), value].concat();
    let empty = der(SEQUENCE, &[]);
    let time = der(UTC_TIME, b"261127113416Z");
    let validity = der(SEQUENCE, &[time.clone(), time].concat());
    let tbs = [
        der(VERSION, &der(2, &[2])),
        der(2, &[1]),
        empty.clone(),
        empty.clone(),
        validity,
        subject,
        empty,
        der(EXTENSIONS, &der(SEQUENCE, &der(SEQUENCE, &extension))),
    ]
    .concat();
    der(SEQUENCE, &der(SEQUENCE, &tbs))
}

fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(contents.len()) {
        Ok(len @ 0..=0x7f) => out.push(len),
        _ => {
            out.push(0x84);
            out.extend(u32::try_from(contents.len()).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
    out.extend(contents);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_names_are_extracted() {
        let found = names(&sample("client one", &["a.example", "b.example"])).unwrap();
        assert_eq!(found.first(), Some("client one"));
        assert_eq!(found.alternatives, ["a.example", "b.example"]);
        let found = names(&sample("", &["a.example"])).unwrap();
        assert_eq!((found.common.as_deref(), found.first()), (None, Some("a.example")));
        let found = names(&sample("a\nb", &[&"x".repeat(NAME_MAX + 1)])).unwrap();
        assert_eq!(found, Names::default(), "neither fits");
    }

    #[test]
    fn expiry_is_parsed_in_both_time_formats() {
        assert_eq!(expires(&sample("client", &[])), Ok(1_795_779_256));
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (UTC_TIME, "000229120000Z", Some(951_825_600)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "20500101000000Z", None),
            (GENERALIZED_TIME, "500101000000Z", None),
            (UTC_TIME, "501301000000Z", None),
            (UTC_TIME, "500100000000Z", None),
            (UTC_TIME, "270229000000Z", None),
            (UTC_TIME, "500101240000Z", None),
            (UTC_TIME, "5001010000+1Z", None),
            (UTC_TIME, "500101000000", None),
            (UTF8, "500101000000Z", None),
        ] {
            assert_eq!(time(tag, text.as_bytes()), seconds, "{text}");
        }
    }

    #[test]
    fn truncated_and_malformed_certificates_are_refused() {
        let good = sample("client", &["a.example"]);
        for len in 0..good.len() {
            assert!(names(&good[..len]).is_err(), "{len}");
            assert!(expires(&good[..len]).is_err(), "{len}");
        }
        for (at, byte) in [(0, 0x31), (1, 0x80), (1, 0x85), (1, 0xff)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(names(&bad).is_err());
        }
    }
}
