//! Paths of the files of a view, and files that are removed because of their letter.
//!
//! The letter t means that no dump has a file. In an image it also applies to all files below such
//! a directory with any letters: cwfs64x skips the directory. After a recovery from the WORM the
//! names of both exist, but their contents do not. In a volume such files are removed at the start,
//! in an image on request.

use std::collections::HashSet;

use super::{Flags, Ino, Inode, Kind, ROOT, Served};
use crate::fault::{Fault, Stop};
use crate::volume::View;

/// Entries of a directory at a time.
const ENTRIES: usize = 62;

/// A file, by the name that it has in a directory.
struct Named {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
    inode: Inode,
    path: String,
}

impl Named {
    fn is_dir(&self) -> bool {
        self.inode.kind == Kind::Dir
    }

    fn is_temporary(&self) -> bool {
        self.inode.flags.has(Flags::TMP)
    }
}

impl Served {
    /// The entries of a directory, and whether all of them could be read.
    async fn read_dir(
        &self,
        view: View,
        (dir, path): (Ino, &str),
    ) -> Result<(Vec<Named>, bool), Fault> {
        let (mut out, mut after) = (Vec::new(), 0);
        loop {
            let some = self.run(|f| {
                let mut some = Vec::new();
                for e in f.entries(view, dir, after, ENTRIES)? {
                    match f.inode(view, e.ino) {
                        // A check reports the fault.
                        Err(Stop::Fail(Fault::NotFound)) => some.push((e, None)),
                        inode => some.push((e, Some(inode?))),
                    }
                }
                Ok(some)
            });
            let some = match some.await {
                // It was removed.
                Err(Fault::NotFound) => return Ok((out, true)),
                Err(Fault::Corrupt(_) | Fault::Io(..)) => return Ok((out, false)),
                some => some?,
            };
            let Some((last, _)) = some.last() else { return Ok((out, true)) };
            after = last.cookie;
            for (e, inode) in some {
                let path = format!("{path}/{}", String::from_utf8_lossy(&e.name));
                let named = |inode| Named { dir, name: e.name, ino: e.ino, inode, path };
                out.extend(inode.map(named));
            }
        }
    }

    /// Paths of the files that `wanted` selects, at most so many. Unreadable files are left out: a
    /// check reports them.
    pub async fn paths_of(
        &self,
        view: View,
        wanted: impl Fn(&Inode) -> bool,
        most: usize,
    ) -> Result<Vec<String>, Fault> {
        let root = self.run(|f| f.inode(view, ROOT)).await?;
        let mut out: Vec<String> = wanted(&root).then(|| "/".to_owned()).into_iter().collect();
        let (mut open, mut seen) = (vec![(ROOT, String::new())], HashSet::from([ROOT]));
        while let Some((dir, path)) = open.pop().filter(|_| out.len() < most) {
            for n in self.read_dir(view, (dir, &path)).await?.0 {
                // Directories may lead in a circle.
                if n.is_dir() && seen.insert(n.ino) {
                    open.push((n.ino, n.path.clone()));
                }
                if wanted(&n.inode) && out.len() < most {
                    out.push(n.path);
                }
            }
        }
        Ok(out)
    }

    /// Removes what dumps do not show; the paths. Temporary directories stay, and in an image
    /// nothing is left in them.
    pub async fn remove_temporary(&self, by: u32) -> Result<Vec<String>, Fault> {
        let (mut out, mut open) = (Vec::new(), vec![(ROOT, String::new())]);
        let mut seen = HashSet::from([ROOT]);
        while let Some((dir, path)) = open.pop() {
            for n in self.read_dir(View::Live, (dir, &path)).await?.0 {
                match self {
                    _ if n.is_temporary() && !n.is_dir() => {
                        self.discard(&n, by).await?;
                        out.push(n.path);
                    }
                    Served::Image(_) if n.is_temporary() => {
                        out.extend(self.remove_contents(&n, by).await?)
                    }
                    _ if n.is_dir() && seen.insert(n.ino) => open.push((n.ino, n.path)),
                    _ => {}
                }
            }
        }
        Ok(out)
    }

    /// Removes all below a directory of an image; returns it.
    async fn remove_contents(&self, top: &Named, by: u32) -> Result<Vec<String>, Fault> {
        let (mut below, is_complete) = self.read_dir(View::Live, (top.ino, &top.path)).await?;
        let mut next = 0;
        while let Some(n) = below.get(next) {
            if n.is_dir() {
                let more = self.read_dir(View::Live, (n.ino, &n.path)).await?.0;
                below.extend(more);
            }
            next += 1;
        }
        // The contents of a directory follow it.
        for n in below.iter().rev() {
            self.discard(n, by).await?;
        }
        let mut gone: Vec<String> = below.into_iter().map(|n| n.path).collect();
        if let Served::Image(image) = self
            && !is_complete
        {
            image.clear_dir(top.ino).await?;
            gone.push(format!("{}/*, which does not read,", top.path));
        }
        Ok(gone)
    }

    /// Removes a file, if it is still the same. Of one that does not read, or a directory that is
    /// not empty because of that, the name alone.
    async fn discard(&self, n: &Named, by: u32) -> Result<(), Fault> {
        let done = self.run(|f| {
            let is_it = f.lookup(View::Live, n.dir, &n.name)? == Some(n.ino)
                && f.inode(View::Live, n.ino)?.flags == n.inode.flags;
            if is_it { f.remove(n.dir, &n.name, by).map(drop) } else { Ok(()) }
        });
        match done.await {
            Err(Fault::NotFound) => Ok(()),
            Err(Fault::Corrupt(_) | Fault::Io(..) | Fault::NotEmpty) => {
                self.forget(n.dir, &n.name).await.map(drop)
            }
            done => done,
        }
    }
}
