//! iSCSI names (RFC 7143 section 4.2.7).

use crate::error::WireError;

/// Longest iSCSI name, bytes of UTF-8; a longer one is refused.
pub const NAME_LEN_MAX: usize = 223;

/// Checks an iSCSI name (`iqn.`, `eui.` or `naa.`) and folds it as RFC 3722 specifies (letters to
/// lower case, compatible characters to one form). Names can then be compared byte by byte.
///
/// Refused: no or another type, more than [`NAME_LEN_MAX`] bytes, control characters, spaces and
/// the signs that would be dangerous in logs, file names or text (`/ \ % , = * ? " ' < > | ; & $`).
pub fn normalise_name(name: &str) -> Result<String, WireError> {
    if name.len() > NAME_LEN_MAX {
        return Err(WireError::long("iSCSI name", 0));
    }
    let lower = fold(name)?;
    if lower.len() > NAME_LEN_MAX {
        return Err(WireError::long("iSCSI name", 0));
    }
    let good = if let Some(rest) = lower.strip_prefix("iqn.") {
        !rest.is_empty() && rest.chars().all(allowed)
    } else if let Some(rest) = lower.strip_prefix("eui.") {
        rest.len() == 16 && rest.bytes().all(|b| b.is_ascii_hexdigit())
    } else if let Some(rest) = lower.strip_prefix("naa.") {
        matches!(rest.len(), 16 | 32) && rest.bytes().all(|b| b.is_ascii_hexdigit())
    } else {
        false
    };
    if good { Ok(lower) } else { Err(WireError::bad("iSCSI name", 0)) }
}

/// The profile of RFC 3722 for names that are not ASCII: tables B.1 and B.2 of RFC 3454, form KC,
/// and no character that those prohibit. It equals the profile of internationalized domain names.
fn fold(name: &str) -> Result<String, WireError> {
    if name.is_ascii() {
        return Ok(name.to_ascii_lowercase());
    }
    match stringprep::nameprep(name) {
        Ok(folded) => Ok(folded.into_owned()),
        Err(_) => Err(WireError::bad("iSCSI name", 0)),
    }
}

/// A pattern of iSCSI names, folded as [`normalise_name`] folds the names that it is compared with.
/// `None`: it contains a character that no name has.
pub fn fold_pattern(pattern: &str) -> Option<String> {
    fold(pattern).ok()
}

fn allowed(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_' | '+' | '@' | '#')
    } else {
        c.is_alphanumeric()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_ascii_letters_are_folded_as_in_rfc_3722() {
        let fold = |name: &str| normalise_name(name).unwrap();
        assert_eq!(fold("iqn.2001-04.de.B\u{dc}RO:disk"), "iqn.2001-04.de.b\u{fc}ro:disk");
        // Composed and not, fullwidth, and the long s: one name.
        assert_eq!(fold("iqn.2001-04.de.bu\u{308}ro:disk"), "iqn.2001-04.de.b\u{fc}ro:disk");
        assert_eq!(fold("iqn.2001-04.de.\u{ff21}:disk"), "iqn.2001-04.de.a:disk");
        assert!(normalise_name("iqn.2001-04.de.a\u{2028}b").is_err());
        let pattern = fold_pattern("iqn.2001-04.de.B\u{dc}RO:*");
        assert_eq!(pattern.as_deref(), Some("iqn.2001-04.de.b\u{fc}ro:*"));
        assert_eq!(fold_pattern("iqn.a\u{2028}*"), None);
    }

    #[test]
    fn names_are_normalised_or_refused() {
        let good = "iqn.2001-04.com.Example:Disk_1";
        assert_eq!(normalise_name(good).unwrap(), "iqn.2001-04.com.example:disk_1");
        assert!(normalise_name("eui.02004567A425678D").is_ok());
        assert!(normalise_name("naa.52004567BA64678D").is_ok());
        assert!(normalise_name("naa.62004567BA64678D0123456789ABCDEF").is_ok());
        assert!(normalise_name(&format!("iqn.{}", "a".repeat(219))).is_ok());
        assert!(normalise_name(&format!("iqn.{}", "a".repeat(220))).is_err());
        for bad in [
            "",
            "iqn.",
            "iqn",
            "eui.12",
            "naa.5",
            "disk",
            "iqn.a b",
            "iqn.../../etc",
            "iqn.%s",
            "iqn.a\nb",
            "iqn.a\u{7f}",
            "iqn.a,b",
            "eui.02004567a425678g",
        ] {
            assert!(normalise_name(bad).is_err(), "{bad:?}");
        }
    }
}
