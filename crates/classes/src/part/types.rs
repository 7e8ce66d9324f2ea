//! Partition types: GUIDs, one-byte types, and the names by which people call them.

use super::error::{PartError, PartErrorKind};
use super::table::Scheme;
use std::fmt;

/// A GUID in its on-disk form: the first three groups little-endian, the last two big-endian.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid([u8; 16]);

/// The byte on disk that corresponds to each pair of hex digits of the text.
const TEXT_ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

impl Guid {
    /// All zero: an unused entry.
    pub const ZERO: Guid = Guid([0; 16]);

    /// From the 16 bytes on disk.
    pub const fn from_disk(bytes: [u8; 16]) -> Self {
        Guid(bytes)
    }

    pub const fn to_disk(self) -> [u8; 16] {
        self.0
    }

    /// A version 4 GUID (RFC 9562 5.4) made of 16 random bytes.
    pub fn random(mut bytes: [u8; 16]) -> Self {
        bytes[7] = (bytes[7] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Guid(bytes)
    }

    /// From text such as `0fc63daf-8483-4772-8e79-3d69d8477de4`, in either case; `None` when it
    /// is not of that form.
    pub const fn parse(text: &str) -> Option<Guid> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0; 16];
        let (mut at, mut pair) = (0, 0);
        while at < 36 {
            if at == 8 || at == 13 || at == 18 || at == 23 {
                if text[at] != b'-' {
                    return None;
                }
                at += 1;
                continue;
            }
            let (Some(high), Some(low)) = (digit(text[at]), digit(text[at + 1])) else {
                return None;
            };
            bytes[TEXT_ORDER[pair]] = high << 4 | low;
            pair += 1;
            at += 2;
        }
        Some(Guid(bytes))
    }
}

const fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, &at) in TEXT_ORDER.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{:02x}", self.0.get(at).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The type of a partition, which gives its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A GPT type.
    Guid(Guid),
    /// An MBR or EBR type.
    Byte(u8),
    /// A type of a BSD disklabel.
    Bsd(u8),
}

/// A name for a type, and its value in each scheme that has it.
pub struct Alias {
    /// The name, as in `part add -t NAME`.
    pub name: &'static str,
    /// Its GPT type, if it has one.
    pub guid: Option<Guid>,
    /// Its MBR type, if it has one.
    pub byte: Option<u8>,
}

const fn alias(name: &'static str, guid: &str, byte: u8) -> Alias {
    let guid = Guid::parse(guid);
    let byte = if byte == 0 { None } else { Some(byte) };
    Alias { name, guid, byte }
}

/// The extended partition's types: the one written, the LBA one, Linux's.
pub const EBR_TYPES: [u8; 3] = [0x05, 0x0f, 0x85];

/// Every type known by name, in the order in which a value is looked up: where several names
/// have one value, the first is shown.
pub const ALIASES: &[Alias] = &[
    alias("efi", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", 0xef),
    alias("bios-boot", "21686148-6449-6e6f-744e-656564454649", 0),
    alias("mbr", "024dee41-33e7-11d3-9d69-0008c781f39f", 0),
    alias("ebr", "", 0x05),
    alias("fat16", "", 0x06),
    alias("ntfs", "", 0x07),
    alias("fat32", "", 0x0b),
    alias("fat32lba", "", 0x0c),
    alias("freebsd", "516e7cb4-6ecf-11d6-8ff8-00022d09712b", 0xa5),
    alias("freebsd-boot", "83bd6b9d-7f41-11dc-be0b-001560b84f0f", 0),
    alias("freebsd-swap", "516e7cb5-6ecf-11d6-8ff8-00022d09712b", 0),
    alias("freebsd-ufs", "516e7cb6-6ecf-11d6-8ff8-00022d09712b", 0),
    alias("freebsd-vinum", "516e7cb8-6ecf-11d6-8ff8-00022d09712b", 0),
    alias("freebsd-zfs", "516e7cba-6ecf-11d6-8ff8-00022d09712b", 0),
    alias("freebsd-nandfs", "74ba7dd9-a689-11e1-bd04-00e081286acf", 0),
    alias("ms-basic-data", "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", 0),
    alias("ms-reserved", "e3c9e316-0b5c-4db8-817d-f92df00215ae", 0),
    alias("ms-recovery", "de94bba4-06d1-4d40-a16a-bfd50179d6ac", 0),
    alias("ms-ldm-data", "af9b60a0-1431-4f62-bc68-3311714a69ad", 0x42),
    alias("ms-ldm-metadata", "5808c8aa-7e8f-42e0-85d2-e1e90434cfb3", 0),
    alias("ms-spaces", "e75caf8f-f680-4cee-afa3-b001e56efc2d", 0),
    alias("linux-data", "0fc63daf-8483-4772-8e79-3d69d8477de4", 0x83),
    alias("linux-swap", "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", 0x82),
    alias("linux-lvm", "e6d6d379-f507-44c2-a23c-238f2a3df928", 0x8e),
    alias("linux-raid", "a19d880f-05fc-4d3b-a006-743f0f84911e", 0xfd),
    alias("apple-hfs", "48465300-0000-11aa-aa11-00306543ecac", 0xaf),
    alias("apple-ufs", "55465300-0000-11aa-aa11-00306543ecac", 0xa8),
    alias("apple-apfs", "7c3457ef-0000-11aa-aa11-00306543ecac", 0),
    alias("apple-boot", "426f6f74-0000-11aa-aa11-00306543ecac", 0xab),
    alias("apple-core-storage", "53746f72-6167-11aa-aa11-00306543ecac", 0),
    alias("prep-boot", "9e1a2d38-c612-4316-aa26-8b49521e5a8b", 0x41),
    alias("vmware-vmfs", "aa31e02a-400f-11db-9590-000c2911d1b8", 0xfb),
    alias("vmware-vmkdiag", "9d275380-40ad-11db-bf97-000c2911d1b8", 0xfc),
    alias("vmware-reserved", "9198effc-31c0-11db-8f78-000c2911d1b8", 0),
    alias("netbsd-ffs", "49f48d5a-b10e-11dc-b99b-0019d1879648", 0),
    alias("netbsd-swap", "49f48d32-b10e-11dc-b99b-0019d1879648", 0),
    alias("netbsd-raid", "49f48daa-b10e-11dc-b99b-0019d1879648", 0),
    alias("netbsd-lfs", "49f48d82-b10e-11dc-b99b-0019d1879648", 0),
    alias("netbsd-ccd", "2db519c4-b10f-11dc-b99b-0019d1879648", 0),
    alias("netbsd-cgd", "2db519ec-b10f-11dc-b99b-0019d1879648", 0),
    alias("openbsd-data", "824cc7a0-36a8-11e3-890a-952519ad3f61", 0),
    alias("solaris-root", "6a85cf4d-1dd2-11b2-99a6-080020736631", 0),
    alias("solaris-swap", "6a87c46f-1dd2-11b2-99a6-080020736631", 0),
    alias("solaris-usr", "6a898cc3-1dd2-11b2-99a6-080020736631", 0),
];

/// Types of a BSD disklabel by name.
const BSD_TYPES: [(&str, u8); 7] = [
    ("freebsd-swap", 1),
    ("freebsd-ufs", 7),
    ("freebsd-vinum", 14),
    ("dragonfly-hammer", 22),
    ("dragonfly-hammer2", 23),
    ("freebsd-zfs", 27),
    ("freebsd-nandfs", 30),
];

impl Kind {
    /// From an alias, `!uuid` (GPT) or `!number` (MBR, EBR; decimal or 0x hexadecimal).
    ///
    /// # Errors
    /// [`PartErrorKind::BadType`] when `scheme` has no such type, or it means "unused".
    pub fn parse(scheme: Scheme, text: &str, op: &'static str) -> Result<Kind, PartError> {
        let bad = || PartError::new(PartErrorKind::BadType, op, format!("type {text:?}"));
        let kind = match (scheme, text.strip_prefix('!')) {
            (Scheme::Gpt, Some(raw)) => Kind::Guid(Guid::parse(raw).ok_or_else(bad)?),
            (Scheme::Mbr | Scheme::Ebr | Scheme::Bsd, Some(raw)) => {
                let byte = match raw.strip_prefix("0x") {
                    Some(hex) => u8::from_str_radix(hex, 16),
                    None => raw.parse(),
                };
                let byte = byte.map_err(|_| bad())?;
                if scheme == Scheme::Bsd { Kind::Bsd(byte) } else { Kind::Byte(byte) }
            }
            (Scheme::Bsd, None) => {
                let name = text.to_ascii_lowercase();
                let known = BSD_TYPES.iter().find(|known| known.0 == name);
                Kind::Bsd(known.ok_or_else(bad)?.1)
            }
            (_, None) => {
                let name = text.to_ascii_lowercase();
                let known = ALIASES.iter().find(|alias| alias.name == name).ok_or_else(bad)?;
                match scheme {
                    Scheme::Gpt => Kind::Guid(known.guid.ok_or_else(bad)?),
                    _ => Kind::Byte(known.byte.ok_or_else(bad)?),
                }
            }
        };
        match kind {
            Kind::Guid(Guid::ZERO) | Kind::Byte(0 | 0xee) | Kind::Bsd(0) => Err(bad()),
            Kind::Byte(byte) if scheme == Scheme::Ebr && EBR_TYPES.contains(&byte) => Err(bad()),
            kind => Ok(kind),
        }
    }

    /// The alias, if the type has one.
    pub fn alias(self) -> Option<&'static str> {
        let found = ALIASES.iter().find(|alias| match self {
            Kind::Guid(guid) => alias.guid == Some(guid),
            Kind::Byte(byte) => alias.byte == Some(byte),
            Kind::Bsd(_) => false,
        });
        match self {
            Kind::Byte(byte) if EBR_TYPES.contains(&byte) => Some("ebr"),
            Kind::Bsd(byte) => BSD_TYPES.iter().find(|known| known.1 == byte).map(|known| known.0),
            _ => found.map(|alias| alias.name),
        }
    }

    /// The type as it is stored: `!uuid` or `!number`.
    pub fn raw(self) -> String {
        match self {
            Kind::Guid(guid) => format!("!{guid}"),
            Kind::Byte(byte) | Kind::Bsd(byte) => format!("!{byte}"),
        }
    }
}

/// The alias, or else the raw form.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alias() {
            Some(name) => f.write_str(name),
            None => f.write_str(&self.raw()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_has_a_value_and_round_trips() {
        for known in ALIASES {
            assert!(known.guid.is_some() || known.byte.is_some(), "{}", known.name);
            if let Some(guid) = known.guid {
                assert_eq!(Guid::parse(&guid.to_string()), Some(guid));
                let kind = Kind::parse(Scheme::Gpt, known.name, "add").map(|k| k.to_string());
                assert_eq!(kind.as_deref(), Ok(known.name));
                assert_eq!(
                    Kind::parse(Scheme::Gpt, &format!("!{guid}"), "add"),
                    Ok(Kind::Guid(guid))
                );
            }
            if let Some(byte) = known.byte {
                assert_eq!(Kind::Byte(byte).to_string(), known.name);
            }
        }
    }

    #[test]
    fn guid_on_disk_is_mixed_endian() {
        let guid = Guid::parse("00112233-4455-6677-8899-aabbccddeeff").map(Guid::to_disk);
        let want = [
            0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee,
            0xff,
        ];
        assert_eq!(guid, Some(want));
        assert_eq!(Guid::parse("00112233x4455-6677-8899-aabbccddeeff"), None);
        assert_eq!(Guid::parse("00112233-4455-6677-8899-aabbccddeefg"), None);
    }

    #[test]
    fn raw_types_are_parsed_and_invalid_types_refused() {
        assert_eq!(Kind::parse(Scheme::Mbr, "!131", "add"), Ok(Kind::Byte(0x83)));
        assert_eq!(Kind::parse(Scheme::Mbr, "!0x9f", "add"), Ok(Kind::Byte(0x9f)));
        assert_eq!(Kind::Byte(0x9f).to_string(), "!159");
        for (scheme, text) in [
            (Scheme::Mbr, "!256"),
            (Scheme::Mbr, "!0"),
            (Scheme::Mbr, "!0xee"),
            (Scheme::Mbr, "freebsd-ufs"),
            (Scheme::Ebr, "ebr"),
            (Scheme::Gpt, "ebr"),
            (Scheme::Gpt, "!131"),
            (Scheme::Gpt, "!00000000-0000-0000-0000-000000000000"),
            (Scheme::Gpt, "nothing"),
        ] {
            let error = Kind::parse(scheme, text, "add").map_err(|e| e.kind);
            assert_eq!(error, Err(PartErrorKind::BadType), "{text}");
        }
    }
}
