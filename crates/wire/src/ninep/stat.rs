//! Directory entries that describe a file (stat(5)).

use super::{Fields, put_text};
use crate::error::WireError;

/// Bits of [`Stat::mode`] above the permissions.
pub mod mode {
    /// A directory.
    pub const DIR: u32 = 0x8000_0000;
    /// Writes append.
    pub const APPEND: u32 = 0x4000_0000;
    /// One opener at a time.
    pub const EXCL: u32 = 0x2000_0000;
    /// An authentication file.
    pub const AUTH: u32 = 0x0800_0000;
    /// Not in dumps.
    pub const TMP: u32 = 0x0400_0000;
    /// All permissions of a file server.
    pub const KNOWN: u32 = DIR | APPEND | EXCL | TMP | 0o777;
}

/// Bits of [`Qid::kind`]: the top byte of the mode.
pub mod qtype {
    /// A directory.
    pub const DIR: u8 = 0x80;
    pub const APPEND: u8 = 0x40;
    /// One opener at a time.
    pub const EXCL: u8 = 0x20;
    /// An authentication file.
    pub const AUTH: u8 = 0x08;
    /// Not in dumps.
    pub const TMP: u8 = 0x04;
}

/// Which file, and which version of it: 13 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qid {
    /// See [`qtype`].
    pub kind: u8,
    /// Another one each time the contents change.
    pub version: u32,
    /// The file's own, for ever.
    pub path: u64,
}

impl Qid {
    pub(crate) fn decode(f: &mut Fields<'_>) -> Result<Qid, WireError> {
        Ok(Qid { kind: f.u8("qid.type")?, version: f.u32("qid.vers")?, path: f.u64("qid.path")? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.path.to_le_bytes());
    }
}

/// A file's attributes. In a Twstat, fields of all ones and empty strings are left as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat<'a> {
    /// For the kernel's use.
    pub kind: u16,
    /// For the kernel's use.
    pub dev: u32,
    /// Which file.
    pub qid: Qid,
    /// Permissions and bits of [`mode`].
    pub mode: u32,
    /// When it was read, s since 1970.
    pub atime: u32,
    /// When it was changed, s since 1970.
    pub mtime: u32,
    /// Bytes; 0 for a directory.
    pub length: u64,
    /// Its name; "/" for the root.
    pub name: &'a str,
    /// Owner.
    pub uid: &'a str,
    /// Group.
    pub gid: &'a str,
    /// The user that changed it last.
    pub muid: &'a str,
}

impl<'a> Stat<'a> {
    /// One that changes nothing.
    pub const KEEP: Stat<'static> = Stat {
        kind: u16::MAX,
        dev: u32::MAX,
        qid: Qid { kind: u8::MAX, version: u32::MAX, path: u64::MAX },
        mode: u32::MAX,
        atime: u32::MAX,
        mtime: u32::MAX,
        length: u64::MAX,
        name: "",
        uid: "",
        gid: "",
        muid: "",
    };

    /// Bytes of the entry, its count included.
    pub fn len(&self) -> usize {
        49 + self.name.len() + self.uid.len() + self.gid.len() + self.muid.len()
    }

    /// Never: a stat has fields of fixed length.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends it in the format of a directory entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&((self.len() - 2) as u16).to_le_bytes());
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.dev.to_le_bytes());
        self.qid.encode(out);
        for word in [self.mode, self.atime, self.mtime] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.length.to_le_bytes());
        for text in [self.name, self.uid, self.gid, self.muid] {
            put_text(out, text);
        }
    }

    pub(crate) fn decode_in(f: &mut Fields<'a>) -> Result<Stat<'a>, WireError> {
        let at = f.place();
        let size = f.u16("stat.size")?;
        let body = f.take(usize::from(size), "stat")?;
        let mut f = Fields::new(body, 0);
        let stat = Stat {
            kind: f.u16("stat.type")?,
            dev: f.u32("stat.dev")?,
            qid: Qid::decode(&mut f)?,
            mode: f.u32("stat.mode")?,
            atime: f.u32("stat.atime")?,
            mtime: f.u32("stat.mtime")?,
            length: f.u64("stat.length")?,
            name: f.text("stat.name")?,
            uid: f.text("stat.uid")?,
            gid: f.text("stat.gid")?,
            muid: f.text("stat.muid")?,
        };
        f.end("stat").map_err(|_| WireError::long("stat.size", at))?;
        Ok(stat)
    }

    /// The entry at the front of `bytes`, and how many bytes it takes.
    pub fn decode(bytes: &'a [u8]) -> Result<(Stat<'a>, usize), WireError> {
        let mut f = Fields::new(bytes, 0);
        let stat = Stat::decode_in(&mut f)?;
        Ok((stat, f.place() as usize))
    }
}
