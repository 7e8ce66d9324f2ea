//! Files by their paths: `/usr/rob/x` of the live tree, and of a dump as
//! `/dump/2026/1121/usr/rob/x` or with the dump named apart.

use std::rc::Rc;

use bio::{Errno, Pool, Seg};
use geom::Error;

use super::{about, error};
use crate::fault::{Fault, Stop};
use crate::files::{Change, Files, Ino, Inode, Kind, New, ROOT, Reader, Served};
use crate::service::Host;
use crate::users::{ADM, Id};
use crate::volume::{Dump, View};

/// Bytes read or written together.
const PIECE: usize = 64 << 10;

/// A file and its attributes.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub view: View,
    pub ino: Ino,
    pub inode: Inode,
}

/// A date as people shorten it: a day of this month, or with year and month before it.
fn date(word: &str, today: u32) -> Option<u32> {
    let n: u32 = word.parse().ok().filter(|_| word.bytes().all(|b| b.is_ascii_digit()))?;
    match word.len() {
        1 | 2 => Some(today / 100 * 100 + n),
        6 => Some(today / 1_000_000 * 1_000_000 + n),
        _ => None,
    }
}

/// The dump of a word: `2026/1121`, `2026/11211`, `1121` of the newest year that has one, `21` of
/// this month, `261121`, `yesterday` (the newest of a day before today) or `last`.
pub(super) fn dump(host: &Host, fs: &Served, word: &str) -> Result<Dump, Error> {
    chosen(host, &fs.dumps(), word).ok_or_else(|| {
        let what = format!("no dump {word}; `ashlar fs dumps {}` lists them", host.shared.name);
        Error::new(Errno::NoEnt, what)
    })
}

/// The same among these.
pub(super) fn chosen(host: &Host, all: &[Dump], word: &str) -> Option<Dump> {
    let today = crate::service::today(host);
    let found = match word {
        "last" => all.last(),
        "yesterday" => all.iter().rev().find(|d| d.date < today),
        _ if date(word, today).is_some() => {
            all.iter().rev().find(|d| Some(d.date) == date(word, today))
        }
        _ => {
            let word = word.trim_matches('/');
            all.iter().rev().find(|d| {
                let (year, day) = d.path();
                format!("{year}/{day}") == word || day == word || format!("{year}{day}") == word
            })
        }
    };
    found.copied()
}

/// A path as view and the rest of it.
pub(super) fn split<'p>(host: &Host, fs: &Served, path: &'p str) -> Result<(View, &'p str), Error> {
    let Some(rest) = path.strip_prefix("/dump/") else { return Ok((View::Live, path)) };
    let mut ends = rest.match_indices('/').map(|(i, _)| i).skip(1);
    let end = ends.next().unwrap_or(rest.len());
    let of = dump(host, fs, rest.get(..end).unwrap_or(rest))?;
    Ok((View::Dump(of.number), rest.get(end..).unwrap_or("")))
}

/// Parts of a path.
pub(super) fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|p| !p.is_empty() && *p != ".")
}

fn walk(f: &mut Files<'_, '_>, view: View, path: &str) -> Result<Option<(Ino, Inode)>, Stop> {
    let mut at = ROOT;
    for part in parts(path) {
        if f.inode(view, at)?.kind != Kind::Dir {
            return Ok(None);
        }
        match f.lookup(view, at, part.as_bytes())? {
            Some(ino) => at = ino,
            None => return Ok(None),
        }
    }
    Ok(Some((at, f.inode(view, at)?)))
}

/// The file of a path in a view, if there is one.
pub(super) async fn find(fs: &Served, view: View, path: &str) -> Result<Option<Found>, Fault> {
    let found = fs.run(|f| walk(f, view, path)).await?;
    Ok(found.map(|(ino, inode)| Found { view, ino, inode }))
}

/// The file of a path, which has to be there.
pub(super) async fn find_existing(host: &Host, fs: &Served, path: &str) -> Result<Found, Error> {
    let (view, rest) = split(host, fs, path)?;
    let found = find(fs, view, rest).await.map_err(about(path))?;
    found.ok_or_else(|| Error::new(Errno::NoEnt, format!("{path}: file not found")))
}

/// The same, and it is no directory.
pub(crate) async fn find_file(host: &Host, fs: &Served, path: &str) -> Result<Found, Error> {
    let found = find_existing(host, fs, path).await?;
    match found.inode.kind {
        Kind::File => Ok(found),
        Kind::Dir => Err(Error::inval(format!("{path}: a directory, not a file"))),
    }
}

/// All bytes of a file, if they are at most `most`.
pub(super) async fn bytes(fs: &Served, found: &Found, most: u64) -> Result<Option<Vec<u8>>, Fault> {
    if found.inode.size > most {
        return Ok(None);
    }
    let mut out = Vec::new();
    loop {
        let mut segs = Vec::new();
        let at = out.len() as u64;
        let n = fs
            .run(|f| {
                segs.clear();
                f.read(found.view, found.ino, at, PIECE, &mut segs)
            })
            .await?;
        if n == 0 {
            return Ok(Some(out));
        }
        segs.iter().for_each(|s| s.with(|b| out.extend_from_slice(b)));
    }
}

/// The bytes of a file from `offset` on, a piece of it, for a reader at that position; none behind
/// the end. Refused if the contents have changed, or the name was removed, since the file was
/// found.
pub(crate) async fn piece(
    host: &Host,
    (found, path): (&Found, &str),
    offset: u64,
    mut reader: Reader,
) -> Result<(Vec<u8>, Reader), Error> {
    let (fs, mut segs) = (host.files()?, Vec::new());
    let read = fs.run(|f| {
        segs.clear();
        // The blocks of a file without a name are given back one after the other.
        let now = f.inode(found.view, found.ino)?;
        if now.version != found.inode.version || now.links == 0 {
            return Ok(None);
        }
        let range = (offset, PIECE);
        f.read_on(found.view, found.ino, range, &mut reader, &mut segs).map(Some)
    });
    let Some(n) = read.await.map_err(about(path))? else {
        let what = format!(
            "{path}: the file has changed while it was read; read it again, or read the \
             version of a dump"
        );
        return Err(Error::new(Errno::Busy, what));
    };
    let mut out = Vec::with_capacity(n);
    segs.iter().for_each(|s| s.with(|b| out.extend_from_slice(b)));
    Ok((out, reader))
}

/// Buffers with so many bytes.
pub(super) fn buffer(pool: &Pool, bytes: &[u8]) -> Result<Seg, Fault> {
    let seg = pool.get(bytes.len()).and_then(|b| b.seg(0, bytes.len()));
    let seg = seg.ok_or(Fault::NoSpace("the core's buffers are all in use"))?;
    seg.copy_from(0, bytes);
    Ok(seg)
}

/// Makes `bytes` the contents of a file in a directory of the live tree, at once. It is written
/// beside and takes the name when it is whole.
pub(super) async fn replace(
    host: &Rc<Host>,
    fs: &Served,
    (dir, name): (Ino, &str),
    new: New,
    from: Contents<'_>,
) -> Result<(), Fault> {
    let beside = format!(".{}.new", name.get(..120).unwrap_or(name));
    let ino = fs
        .run(|f| {
            if f.lookup(View::Live, dir, beside.as_bytes())?.is_some() {
                f.remove(dir, beside.as_bytes(), new.uid)?;
            }
            f.create(dir, beside.as_bytes(), &new)
        })
        .await?;
    let written = copy(host, fs, ino, new.uid, from).await;
    let renamed = match written {
        Ok(()) => fs.run(|f| f.rename(dir, beside.as_bytes(), dir, name.as_bytes(), true, new.uid)),
        Err(fault) => {
            // An unfinished file is removed.
            let _ = fs.run(|f| f.remove(dir, beside.as_bytes(), new.uid)).await;
            return Err(fault);
        }
    };
    renamed.await?;
    fs.sync().await
}

/// The new contents of a file.
pub(super) enum Contents<'a> {
    Bytes(&'a [u8]),
    CopyOf(&'a Found),
}

async fn copy(
    host: &Rc<Host>,
    fs: &Served,
    ino: Ino,
    by: Id,
    from: Contents<'_>,
) -> Result<(), Fault> {
    let pool = &host.options().pool;
    match from {
        Contents::Bytes(all) => {
            for (i, some) in all.chunks(PIECE).enumerate() {
                let segs = [buffer(pool, some)?];
                fs.run(|f| f.write(ino, (i * PIECE) as u64, &segs, by)).await?;
            }
        }
        Contents::CopyOf(found) => {
            let mut at = 0;
            while at < found.inode.size {
                let mut segs = Vec::new();
                let n = fs
                    .run(|f| {
                        segs.clear();
                        f.read(found.view, found.ino, at, PIECE, &mut segs)
                    })
                    .await?;
                if n == 0 {
                    break;
                }
                let mut content = Vec::with_capacity(n);
                segs.iter().for_each(|s| s.with(|b| content.extend_from_slice(b)));
                // Holes stay holes.
                if content.iter().any(|b| *b != 0) {
                    let segs = [buffer(pool, &content)?];
                    fs.run(|f| f.write(ino, at, &segs, by)).await?;
                }
                at += n as u64;
            }
            let size = Change { size: Some(found.inode.size), by, ..Change::default() };
            fs.run(|f| f.set(ino, &size)).await?;
        }
    }
    Ok(())
}

/// The directory of a path's last part, and that part.
pub(super) async fn parent_dir<'p>(fs: &Served, path: &'p str) -> Result<(Ino, &'p str), Error> {
    let trimmed = path.trim_end_matches('/');
    let (above, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    if name.is_empty() {
        return Err(Error::inval(format!("{path}: no file name")));
    }
    let found = find(fs, View::Live, above).await.map_err(about(above))?;
    let dir = found.filter(|f| f.inode.kind == Kind::Dir);
    let dir = dir.ok_or_else(|| Error::new(Errno::NoEnt, format!("{above}: no such directory")))?;
    Ok((dir.ino, name))
}

/// A directory by its path, made where it is missing.
pub(super) async fn ensure_dir(fs: &Served, name: &str, mode: u32) -> Result<Ino, Error> {
    let new = New { kind: Kind::Dir, mode, uid: ADM, gid: ADM, ..New::default() };
    let result = fs.run(|f| match f.lookup(View::Live, ROOT, name.as_bytes())? {
        Some(ino) => Ok(ino),
        None => f.create(ROOT, name.as_bytes(), &new),
    });
    result.await.map_err(|fault| error(&fault))
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn abbreviated_dates_are_completed_from_today() {
        let today = 20_261_124;
        for (word, is) in [
            ("3", Some(20_261_103)),
            ("21", Some(20_261_121)),
            ("251231", Some(20_251_231)),
            // These are looked up unchanged.
            ("1121", None),
            ("20261121", None),
            ("2026/1121", None),
            ("+1", None),
            ("", None),
        ] {
            assert_eq!(date(word, today), is, "{word}");
        }
    }
}
