//! iSCSI names (RFC 7143 section 4.2.7).

use crate::error::WireError;

/// Longest iSCSI name, bytes of UTF-8; a longer one is refused.
pub const NAME_LEN_MAX: usize = 223;

/// Checks an iSCSI name (`iqn.`, `eui.` or `naa.`) and brings ASCII letters to lower case, so that
/// names can be compared byte by byte. Refused: no or another type, more than [`NAME_LEN_MAX`]
/// bytes, control characters, spaces and the signs that would be dangerous in logs, file names or
/// text (`/ \ % , = * ? " ' < > | ; & $`).
pub fn normalise_name(name: &str) -> Result<String, WireError> {
    if name.len() > NAME_LEN_MAX {
        return Err(WireError::long("iSCSI name", 0));
    }
    let lower = name.to_ascii_lowercase();
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
    fn good_and_bad_names() {
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
