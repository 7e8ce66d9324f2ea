//! Rules for names of providers.

use crate::probe::Reason;

/// Characters of a provider's name, prefix included; a longer one gives no provider.
pub const NAME_MAX: usize = 63;

/// The provider's name for `label` below `prefix`. Blanks around the label are dropped. Blanks
/// inside, `"`, `%` and characters that are not printable ASCII are written as `%XX`.
///
/// # Errors
/// [`Reason::Unnamed`] when nothing is left, [`Reason::BadName`] when it is too long, or would
/// step out of its directory.
pub fn clean(prefix: &str, label: &[u8]) -> Result<String, Reason> {
    let label = label.trim_ascii();
    if label.is_empty() {
        return Err(Reason::Unnamed);
    }
    if label.split(|&byte| byte == b'/').any(|part| part == b"..") {
        return Err(Reason::BadName);
    }
    let mut name = format!("{prefix}/");
    for &byte in label {
        match byte {
            b'"' | b'%' => name.push_str(&format!("%{byte:02X}")),
            byte if byte.is_ascii_graphic() => name.push(char::from(byte)),
            byte => name.push_str(&format!("%{byte:02X}")),
        }
        if name.len() > NAME_MAX {
            return Err(Reason::BadName);
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_escaped_to_a_provider_name_or_refused() {
        let check = |label: &[u8], want: Result<&str, Reason>| {
            assert_eq!(clean("xfs", label), want.map(str::to_owned), "{label:?}");
        };
        check(b"root", Ok("xfs/root"));
        check(b"  my disk \t", Ok("xfs/my%20disk"));
        check(b"100%\"x\"", Ok("xfs/100%25%22x%22"));
        check("ü".as_bytes(), Ok("xfs/%C3%BC"));
        check(b"a\x01\x7fb", Ok("xfs/a%01%7Fb"));
        check(b"a/b", Ok("xfs/a/b"));
        check(b"a..b", Ok("xfs/a..b"));
        check(b"   ", Err(Reason::Unnamed));
        check(b"", Err(Reason::Unnamed));
        check(b"../x", Err(Reason::BadName));
        check(b"x/..", Err(Reason::BadName));
        check(b"..", Err(Reason::BadName));
        check(&[b'a'; 59], Ok(&format!("xfs/{}", "a".repeat(59))));
        check(&[b'a'; 60], Err(Reason::BadName));
        check(&[0xff; 20], Err(Reason::BadName));
    }
}
