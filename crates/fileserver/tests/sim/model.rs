//! What the files should hold.

use std::collections::BTreeMap;
use std::rc::Rc;

use bio::Seg;
use fileserver::files::{FileSystem, Files, Ino, Kind, ROOT, Reader};
use fileserver::volume::View;
use fileserver::{Fault, Stop};

/// Path to contents; a directory has none.
pub type Tree = BTreeMap<String, Option<Rc<Vec<u8>>>>;

/// Every state that the files were in, the newest last.
pub struct History {
    pub states: Vec<Rc<Tree>>,
}

impl History {
    pub fn new() -> History {
        History { states: vec![Rc::default()] }
    }

    pub fn now(&self) -> &Tree {
        &self.states[self.states.len() - 1]
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn change(&mut self, f: impl FnOnce(&mut Tree)) {
        let mut next = self.now().clone();
        f(&mut next);
        self.states.push(Rc::new(next));
    }
}

pub fn read_all(f: &mut Files<'_, '_>, view: View, ino: Ino) -> Result<Vec<u8>, Stop> {
    let size = f.inode(view, ino)?.size as usize;
    let mut segs: Vec<Seg> = Vec::new();
    // In two pieces, so that it is read ahead.
    let (first, mut reader) = (size / 3, Reader::default());
    let mut n = f.read_on(view, ino, (0, first), &mut reader, &mut segs)?;
    n += f.read_on(view, ino, (first as u64, size - first), &mut reader, &mut segs)?;
    let bytes: Vec<u8> = segs.iter().flat_map(|s| s.with(<[u8]>::to_vec)).collect();
    assert_eq!((n, bytes.len()), (size, size), "a file of {size} bytes");
    Ok(bytes)
}

/// All of a view; with a few blocks in memory this takes many steps, so that it must not change
/// meanwhile.
pub async fn tree(fs: &FileSystem, view: View) -> Result<Tree, Fault> {
    let mut out = Tree::new();
    let mut waiting = vec![(String::new(), ROOT)];
    while let Some((path, dir)) = waiting.pop() {
        let mut after = 0;
        loop {
            let some = match fs.run(|f| f.entries(view, dir, after, 5)).await {
                // A dump of a file system in which nothing had been made yet.
                Err(Fault::NotFound) if path.is_empty() => return Ok(out),
                some => some?,
            };
            let Some(last) = some.last() else { break };
            after = last.cookie;
            for e in some {
                let name = format!("{path}/{}", String::from_utf8_lossy(&e.name));
                let inode = fs.run(|f| f.inode(view, e.ino)).await?;
                let found = fs.run(|f| f.lookup(view, dir, &e.name)).await?;
                assert_eq!(found, Some(e.ino), "{name} is found by its name");
                if inode.kind == Kind::Dir {
                    out.insert(name.clone(), None);
                    waiting.push((name, e.ino));
                } else {
                    let bytes = fs.run(|f| read_all(f, view, e.ino)).await?;
                    out.insert(name, Some(Rc::new(bytes)));
                }
            }
        }
    }
    Ok(out)
}
