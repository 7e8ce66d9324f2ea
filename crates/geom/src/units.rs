//! Sizes and durations as people write them, and exact sizes as they can be pasted back.
//!
//! `k M G T P E`, alone or as `KiB MiB ...`, are powers of 1024; `kB MB GB ...` are powers of 1000.

use std::fmt;

/// Why a text is not a size or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// It does not begin with a number.
    NotANumber,
    /// The letters behind the number are no unit.
    UnknownUnit,
    /// It does not fit into 64 bits.
    TooBig,
    /// It is not a whole number of the smallest unit.
    Fraction,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnitError::NotANumber => "not a number",
            UnitError::UnknownUnit => "unknown unit",
            UnitError::TooBig => "too big for 64 bits",
            UnitError::Fraction => "not a whole number of the smallest unit",
        })
    }
}

const SIZES: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("ki", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mi", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gi", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("ti", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pi", 1 << 50),
    ("pib", 1 << 50),
    ("pb", 1_000_000_000_000_000),
    ("e", 1 << 60),
    ("ei", 1 << 60),
    ("eib", 1 << 60),
    ("eb", 1_000_000_000_000_000_000),
];

const DURATIONS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Number, unit and table to the smallest unit. Decimals are taken when nothing is lost.
fn parse(text: &str, table: &[(&str, u64)]) -> Result<u64, UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: String = number.chars().filter(|&c| c != '_').collect();
    let unit = unit.trim().to_lowercase();
    let (integer, decimals) = number.split_once('.').unwrap_or((&number, ""));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(integer) || !(decimals.is_empty() || digits(decimals)) || number.ends_with('.') {
        return Err(UnitError::NotANumber);
    }
    let found = table.iter().find(|(name, _)| *name == unit);
    let &(_, factor) = found.ok_or(UnitError::UnknownUnit)?;
    // 18 decimals are the most whose scale fits into 64 bits.
    let decimals = decimals.trim_end_matches('0');
    let scale = 10u128.checked_pow(u32::try_from(decimals.len()).unwrap_or(u32::MAX));
    let scale = scale.filter(|&s| s <= 1_000_000_000_000_000_000).ok_or(UnitError::Fraction)?;
    let digits = format!("{integer}{decimals}");
    let value: u128 = digits.parse().map_err(|_| UnitError::TooBig)?;
    let scaled = value.checked_mul(u128::from(factor)).ok_or(UnitError::TooBig)?;
    if scaled % scale != 0 {
        return Err(UnitError::Fraction);
    }
    u64::try_from(scaled / scale).map_err(|_| UnitError::TooBig)
}

/// `4k`, `1GiB`, `1GB`, `1.5T`, `512` to bytes.
pub fn size(text: &str) -> Result<u64, UnitError> {
    parse(text, SIZES)
}

/// `10ms`, `1.5s`, `2min` to nanoseconds. A number without a unit is refused.
pub fn duration(text: &str) -> Result<u64, UnitError> {
    parse(text, DURATIONS)
}

const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with the greatest unit of which they are a whole number: `1GiB`, `1000`. Reads back
/// exactly with [`size`].
pub fn exact(bytes: u64) -> String {
    let (mut value, mut name) = (bytes, "");
    for next in NAMES {
        if value == 0 || value % 1024 != 0 {
            break;
        }
        (value, name) = (value / 1024, next);
    }
    format!("{value}{name}")
}

/// Bytes in at most four characters, as the GEOM tools print them: `512B`, `1.5K`, `698G`.
pub fn short(bytes: u64) -> String {
    const LETTERS: [char; 7] = ['B', 'K', 'M', 'G', 'T', 'P', 'E'];
    let mut unit = 0usize;
    let mut scale = 1u128;
    let bytes = u128::from(bytes);
    while (bytes + scale / 2) / scale >= 1000 && unit + 1 < LETTERS.len() {
        (unit, scale) = (unit + 1, scale * 1024);
    }
    let letter = LETTERS.get(unit).copied().unwrap_or('E');
    let tenths = (bytes * 10 + scale / 2) / scale;
    if unit > 0 && tenths < 100 {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    } else {
        format!("{}{letter}", (bytes + scale / 2) / scale)
    }
}

/// Nanoseconds in a few characters: `850ns`, `12.3us`, `4.0ms`, `1.2s`, `3m04s`, `2h05m`, `4d06h`.
pub fn short_ns(ns: u64) -> String {
    let tenths = |unit: u64, name: &str| {
        let t = (u128::from(ns) * 10 + u128::from(unit) / 2) / u128::from(unit);
        format!("{}.{}{name}", t / 10, t % 10)
    };
    let s = ns / 1_000_000_000;
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => tenths(1_000, "us"),
        1_000_000..1_000_000_000 => tenths(1_000_000, "ms"),
        1_000_000_000..60_000_000_000 => tenths(1_000_000_000, "s"),
        _ if s < 3600 => format!("{}m{:02}s", s / 60, s % 60),
        _ if s < 86400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86400, s / 3600 % 24),
    }
}

/// Seconds in a few characters, as [`short_ns`].
pub fn short_seconds(seconds: u64) -> String {
    short_ns(seconds.saturating_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_parsed_and_bad_ones_refused() {
        assert_eq!(size("1G"), Ok(1 << 30));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("1GB"), Ok(1_000_000_000));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size(" 1.5 T "), Ok(3 << 39));
        assert_eq!(size("1_000"), Ok(1000));
        assert_eq!(size("16E"), Err(UnitError::TooBig));
        assert_eq!(size("0.3"), Err(UnitError::Fraction));
        assert_eq!(size("1X"), Err(UnitError::UnknownUnit));
        for bad in ["", "G", "-1", ".", "1.", ".5", "1.2.3", "é"] {
            assert_eq!(size(bad), Err(UnitError::NotANumber), "{bad}");
        }
        assert_eq!(size("0.0000000000000000001E"), Err(UnitError::Fraction));
        assert_eq!(size(&"9".repeat(60)), Err(UnitError::TooBig));
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("10ms"), Ok(10_000_000));
        assert_eq!(duration("1.5s"), Ok(1_500_000_000));
        assert_eq!(duration("2min"), Ok(120_000_000_000));
        assert_eq!(duration("10"), Err(UnitError::UnknownUnit));
    }

    #[test]
    fn exact_size_text_round_trips() {
        for bytes in [0, 1, 1000, 1024, 1 << 30, (1 << 30) + 512, u64::MAX, 3 << 39, 1 << 63] {
            assert_eq!(size(&exact(bytes)), Ok(bytes), "{}", exact(bytes));
        }
        assert_eq!(exact(1 << 30), "1GiB");
        assert_eq!(exact(1000), "1000");
    }

    #[test]
    fn short_forms_have_four_characters() {
        assert_eq!(short(512), "512B");
        assert_eq!(short(512 << 10), "512K");
        assert_eq!(short(506_880), "495K");
        assert_eq!(short(10 << 30), "10G");
        assert_eq!(short(8 << 30), "8.0G");
        assert_eq!(short(1 << 40), "1.0T");
        assert_eq!(short(999), "999B");
        assert_eq!(short(1000), "1.0K");
        let mut seed = 1u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let text = short(seed >> (seed % 64));
            assert!(text.len() <= 4, "{text}");
        }
        assert_eq!(short_ns(12_340), "12.3us");
        assert_eq!(short_ns(184_000_000_000), "3m04s");
    }
}
