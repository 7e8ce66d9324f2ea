//! The verb `fstat`: all metadata of a file.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, about, answers, paths};
use crate::files::{Flags, Kind};
use crate::service::format_time;

/// Addresses of a file's blocks that `fstat` shows; `clean` lists them all.
const BLOCKS_SHOWN: usize = 8;

answers! {
    /// The metadata of a file.
    OfFile {
        /// Result for people.
        text: String,
        /// Number of the file.
        file: u64,
        /// Version, which each change of the file raises.
        version: u64,
        /// Permission bits.
        mode: u32,
        /// Whether it is a directory.
        directory: bool,
        /// Owner.
        uid: String,
        /// Group.
        gid: String,
        /// User that changed it last.
        muid: String,
        /// Size, bytes.
        bytes: u64,
        /// Entries of a directory.
        entries: u64,
        /// Time of the last change, ns since 1970.
        mtime_ns: u64,
        /// Time of the last read, ns since 1970.
        atime_ns: u64,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Fstat {
    /// Path from the root; /dump/2026/1121/... for a file of a dump
    path: String,
}

impl Verb<FileServer> for Fstat {
    const NAME: &'static str = "fstat";
    const DOC: &'static str = "Show all metadata of a file";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs fstat main /adm/users";
    type Answer = OfFile;

    fn run(self, Call { host, .. }: Call) -> Running<OfFile> {
        Box::pin(async move {
            let fs = host.files()?;
            let found = paths::find_existing(&host, &fs, &self.path).await?;
            let (i, users) = (&found.inode, host.server.users());
            let some = fs.run(|f| f.blocks(found.view, found.ino, BLOCKS_SHOWN)).await;
            let some = some.map_err(about(&self.path))?;
            let mut t = String::new();
            let (uid, gid, muid) = (users.name(i.uid), users.name(i.gid), users.name(i.muid));
            let _ = writeln!(t, "file      {} version {}", found.ino, i.version);
            let _ = writeln!(t, "mode      {}", mode_text(i.kind, i.flags, i.mode));
            let _ = writeln!(t, "owner     {uid}, group {gid}; {muid} changed it last");
            let _ = writeln!(t, "size      {} bytes, {} entries", i.size, i.entries);
            if i.kind == Kind::File {
                let addresses = some.iter().map(|(_, addr)| addr.to_string());
                let addresses: Vec<String> = addresses.collect();
                let more = if some.len() == BLOCKS_SHOWN { " ..." } else { "" };
                let _ = writeln!(t, "blocks    {}{more}", addresses.join(" "));
            }
            let _ = writeln!(t, "modified  {}", format_time(&host, i.mtime_ns));
            let _ = writeln!(t, "read      {}", format_time(&host, i.atime_ns));
            Ok(OfFile {
                text: t,
                file: found.ino,
                version: i.version,
                mode: i.mode,
                directory: i.kind == Kind::Dir,
                uid,
                gid,
                muid,
                bytes: i.size,
                entries: i.entries,
                mtime_ns: i.mtime_ns,
                atime_ns: i.atime_ns,
            })
        })
    }
}

/// As ls has it: `d-rwxrwxr-x`, with a, l and t of Plan 9.
pub(super) fn mode_text(kind: Kind, flags: Flags, bits: u32) -> String {
    let first = match kind {
        Kind::Dir => 'd',
        Kind::File if flags.has(Flags::APPEND) => 'a',
        Kind::File => '-',
    };
    let second = match () {
        () if flags.has(Flags::EXCL) => 'l',
        () if flags.has(Flags::TMP) => 't',
        () => '-',
    };
    let letters = "rwxrwxrwx".chars().zip((0..9).rev());
    let bits = letters.map(|(c, bit)| if bits >> bit & 1 == 1 { c } else { '-' });
    [first, second].into_iter().chain(bits).collect()
}
