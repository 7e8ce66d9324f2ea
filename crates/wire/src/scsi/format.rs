//! Parameter lists of FORMAT UNIT (SBC-3 section 5.3) and SANITIZE (SBC-3 section 5.19).

use super::codes::asc;
use super::protection::ProtectionType;
use super::sense::Sense;

/// The parameter list of FORMAT UNIT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatList {
    /// PROTECTION FIELD USAGE: selects the type of protection together with FMTPINFO.
    pub usage: u8,
    /// IMMED: the status is sent before the end of the format.
    pub immed: bool,
    /// The pattern of an initialization pattern descriptor of type 01h; None writes zeroes.
    pub pattern: Option<Vec<u8>>,
}

/// Reads a FORMAT UNIT parameter list; `long` is LONGLIST. Defects in the list are refused: the
/// medium has none. An empty list is as good as none.
pub fn parse_format_list(long: bool, data: &[u8], block_len: u32) -> Result<FormatList, Sense> {
    let cut = Sense::new(asc::PARAMETER_LIST_LEN);
    if data.is_empty() {
        return Ok(FormatList::default());
    }
    let head_len = if long { 8 } else { 4 };
    let (head, rest) = data.split_at_checked(head_len).ok_or(cut)?;
    let [usage, flags, ..] = *head else { return Err(cut) };
    let (defects, at) = match *head {
        [_, _, a, b] => (u32::from(u16::from_be_bytes([a, b])), 2),
        [_, _, _, interval, a, b, c, d] => {
            if interval != 0 {
                // One interval a block, and no P_I_INFORMATION.
                return Err(Sense::list_field(3, None));
            }
            (u32::from_be_bytes([a, b, c, d]), 4)
        }
        _ => return Err(cut),
    };
    if usage & !7 != 0 {
        return Err(Sense::list_field(0, None));
    }
    if defects != 0 {
        return Err(Sense::list_field(at, None));
    }
    // FOV is set when DPRY, DCRT, STPF and IP are valid (SBC-3 5.3.2.2).
    let (options, valid) = (flags & 0x78, flags & 0x80 != 0);
    if options != 0 && !valid {
        return Err(Sense::list_field(1, Some(7)));
    }
    let pattern = match flags & 0x08 != 0 {
        true => parse_pattern(rest, head_len, block_len)?,
        false => None,
    };
    Ok(FormatList { usage: usage & 7, immed: flags & 0x02 != 0, pattern })
}

/// The initialization pattern descriptor at offset `at`.
fn parse_pattern(data: &[u8], at: usize, block_len: u32) -> Result<Option<Vec<u8>>, Sense> {
    let field = |n: usize| Sense::list_field(u16::try_from(at + n).unwrap_or(0), None);
    let Some(([modifier, kind, a, b], rest)) = data.split_first_chunk::<4>() else {
        return Err(Sense::new(asc::PARAMETER_LIST_LEN));
    };
    if *modifier != 0 {
        // No block header to modify, and no media that a plain write would not reach.
        return Err(field(0));
    }
    let len = u16::from_be_bytes([*a, *b]);
    match *kind {
        0 if len == 0 => Ok(None),
        1 if len > 0 && u32::from(len) <= block_len => match rest.get(..usize::from(len)) {
            Some(pattern) => Ok(Some(pattern.to_vec())),
            None => Err(Sense::new(asc::PARAMETER_LIST_LEN)),
        },
        0 | 1 => Err(field(2)),
        _ => Err(field(1)),
    }
}

/// The type of protection that FMTPINFO and PROTECTION FIELD USAGE select (SBC-3 table 41); None
/// means no protection. A pair without a meaning is refused, at the invalid field.
pub fn format_protection(info: u8, usage: u8) -> Result<Option<ProtectionType>, Sense> {
    match (info & 3, usage) {
        (0, 0) => Ok(None),
        (2, 0) => Ok(Some(ProtectionType::One)),
        (3, 0) => Ok(Some(ProtectionType::Two)),
        (3, 1) => Ok(Some(ProtectionType::Three)),
        (1, _) => Err(Sense::cdb_field(1, Some(7))),
        _ => Err(Sense::list_field(0, Some(2))),
    }
}

/// The parameter list of SANITIZE OVERWRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overwrite {
    /// INVERT: every other pass writes the complement; the last one writes the pattern.
    pub invert: bool,
    /// Passes, 1 to 31.
    pub passes: u8,
    /// The pattern that is repeated in each block, 1 byte up to a block.
    pub pattern: Vec<u8>,
}

/// Reads the parameter list of SANITIZE OVERWRITE. Errors in it are reported as errors of the CDB,
/// as initiators expect: the list's length is a field of the CDB.
pub fn parse_overwrite(data: &[u8], block_len: u32) -> Result<Overwrite, Sense> {
    let wrong = Sense::new(asc::INVALID_FIELD_IN_CDB);
    let Some(([flags, _, a, b], rest)) = data.split_first_chunk::<4>() else {
        return Err(wrong);
    };
    let (passes, len) = (flags & 0x1f, u16::from_be_bytes([*a, *b]));
    if passes == 0 || len == 0 || u32::from(len) > block_len || flags & 0x60 == 0x60 {
        return Err(wrong);
    }
    match rest.get(..usize::from(len)) {
        Some(pattern) if rest.len() == usize::from(len) => {
            Ok(Overwrite { invert: flags & 0x80 != 0, passes, pattern: pattern.to_vec() })
        }
        _ => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_lists_are_parsed_with_short_and_long_header() {
        let none = FormatList::default();
        assert_eq!(parse_format_list(false, &[], 512), Ok(none.clone()));
        assert_eq!(parse_format_list(false, &[0, 0, 0, 0], 512), Ok(none));
        let list = parse_format_list(true, &[1, 0x82, 0, 0, 0, 0, 0, 0], 512).unwrap();
        assert_eq!((list.usage, list.immed, list.pattern), (1, true, None));
        let list = parse_format_list(false, &[0, 0x88, 0, 0, 0, 1, 0, 2, 7, 8], 512).unwrap();
        assert_eq!(list.pattern, Some(vec![7, 8]));
        let errors: [(bool, &[u8]); 9] = [
            (false, &[0, 0, 0]),
            (true, &[0, 0, 0, 0]),
            (false, &[8, 0, 0, 0]),
            (false, &[0, 0, 0, 8]),
            (true, &[0, 0, 0, 1, 0, 0, 0, 0]),
            (false, &[0, 0x08, 0, 0]),
            (false, &[0, 0x88, 0, 0, 0, 1, 0, 2, 7]),
            (false, &[0, 0x88, 0, 0, 0, 1, 0, 0]),
            (false, &[0, 0x88, 0, 0, 0x20, 1, 0, 1, 1]),
        ];
        for (long, data) in errors {
            assert!(parse_format_list(long, data, 512).is_err(), "{data:?}");
        }
    }

    #[test]
    fn protection_type_is_selected_by_fmtpinfo_and_usage() {
        use ProtectionType::{One, Three, Two};
        assert_eq!(format_protection(0, 0), Ok(None));
        assert_eq!(format_protection(2, 0), Ok(Some(One)));
        assert_eq!(format_protection(3, 0), Ok(Some(Two)));
        assert_eq!(format_protection(3, 1), Ok(Some(Three)));
        for (info, usage) in [(0, 1), (1, 0), (1, 1), (2, 1), (3, 2), (3, 7)] {
            assert!(format_protection(info, usage).is_err(), "{info} {usage}");
        }
    }

    #[test]
    fn overwrite_lists_are_parsed_or_refused() {
        let list = parse_overwrite(&[0x83, 0, 0, 2, 0xaa, 0x55], 512).unwrap();
        assert_eq!(list, Overwrite { invert: true, passes: 3, pattern: vec![0xaa, 0x55] });
        let mut long = vec![1, 0, 2, 1];
        long.resize(4 + 513, 0);
        let errors: [&[u8]; 7] = [
            &[],
            &[1, 0, 0],
            &[0, 0, 0, 1, 0],
            &[1, 0, 0, 0],
            &[1, 0, 0, 2, 0],
            &[1, 0, 0, 1, 0, 0],
            &long,
        ];
        for data in errors {
            let sense = parse_overwrite(data, 512).unwrap_err();
            assert_eq!(sense.code, asc::INVALID_FIELD_IN_CDB);
        }
    }
}
