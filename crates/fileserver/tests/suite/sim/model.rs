//! Model of the expected contents of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use bio::Seg;
use fileserver::files::{Files, Ino, Kind, ROOT, Reader, Served};
use fileserver::volume::View;
use fileserver::{Fault, Stop};

/// A file's; a directory has none.
pub type Contents = Option<Rc<Vec<u8>>>;
/// Path to contents.
pub type Tree = BTreeMap<String, Contents>;

/// Contents of a path before and after; none: there was no such path.
struct Swap {
    path: String,
    before: Option<Contents>,
    after: Option<Contents>,
}

/// Every state that the files were in: the newest, and how each became the next one.
///
/// Copies of all states took most of a simulation's time. A state is therefore found from the
/// newest one backwards, by the number of paths in which it differs from the wanted one.
#[derive(Default)]
pub struct History {
    now: Tree,
    changes: Vec<Vec<Swap>>,
}

impl History {
    pub fn now(&self) -> &Tree {
        &self.now
    }

    /// States so far.
    pub fn len(&self) -> usize {
        self.changes.len() + 1
    }

    fn swap(&mut self, path: &str, after: Option<Contents>) -> Swap {
        let before = match &after {
            Some(contents) => self.now.insert(path.into(), contents.clone()),
            None => self.now.remove(path),
        };
        Swap { path: path.into(), before, after }
    }

    /// Adds the next state, in which a path has other contents or does not exist.
    pub fn put(&mut self, path: &str, after: Option<Contents>) {
        let swap = self.swap(path, after);
        self.changes.push(vec![swap]);
    }

    /// The next state: a path and all below it have moved.
    pub fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moves = |p: &&String| *p == from || p.starts_with(&below);
        let moved: Vec<String> = self.now.keys().filter(moves).cloned().collect();
        assert!(!moved.is_empty(), "{from} was moved");
        let mut swaps = vec![self.swap(to, None)];
        for path in moved {
            let out = self.swap(&path, None);
            let into = self.swap(&format!("{to}{}", &path[from.len()..]), out.before.clone());
            swaps.extend([out, into]);
        }
        self.changes.push(swaps);
    }

    /// The next state: all of it is as in `tree`.
    pub fn become_as(&mut self, tree: &Tree) {
        let paths: BTreeSet<String> = self.now.keys().chain(tree.keys()).cloned().collect();
        let differ = |p: &String| self.now.get(p) != tree.get(p);
        let other: Vec<String> = paths.into_iter().filter(differ).collect();
        let swaps = other.iter().map(|p| self.swap(p, tree.get(p).cloned())).collect();
        self.changes.push(swaps);
    }

    /// The newest of some states that is `tree`.
    pub fn find(&self, states: Range<usize>, tree: &Tree) -> Option<usize> {
        let other = |path: &str, c: Option<&Contents>| i64::from(tree.get(path) != c);
        let changed: i64 = self.now.iter().map(|(p, c)| other(p, Some(c))).sum();
        let missing = tree.keys().filter(|p| !self.now.contains_key(*p)).count();
        let mut differing = changed + missing as i64;
        let mut state = self.changes.len();
        loop {
            if states.contains(&state) && differing == 0 {
                return Some(state);
            }
            if state <= states.start {
                return None;
            }
            state -= 1;
            for s in self.changes[state].iter().rev() {
                differing += other(&s.path, s.before.as_ref()) - other(&s.path, s.after.as_ref());
            }
        }
    }

    /// How many directories there are below the root, and the path of one of them.
    pub fn directory(&self, nth: impl FnOnce(u64) -> u64) -> String {
        let dirs = || self.now.iter().filter(|(_, c)| c.is_none());
        let at = nth(dirs().count() as u64) as usize;
        dirs().nth(at).map(|(p, _)| p.clone()).unwrap_or_default()
    }
}

/// Whether a directory is there; the root, whose path is empty, always is.
pub fn is_dir(tree: &Tree, path: &str) -> bool {
    path.is_empty() || tree.get(path) == Some(&None)
}

/// Whether there is anything below a path.
pub fn has_below(tree: &Tree, path: &str) -> bool {
    let below = format!("{path}/");
    tree.range(below.clone()..).next().is_some_and(|(p, _)| p.starts_with(&below))
}

/// The first path in which two trees differ, and the lengths of its contents.
pub fn differ(a: &Tree, b: &Tree) -> Option<String> {
    let mut keys = a.keys().chain(b.keys());
    let k = keys.find(|k| a.get(*k) != b.get(*k))?;
    let len = |t: &Tree| t.get(k).map(|c| c.as_ref().map(|c| c.len()));
    Some(format!("{k}: {:?} {:?}", len(a), len(b)))
}

/// The file of a path.
pub fn walk(f: &mut Files<'_, '_>, view: View, path: &str) -> Result<Ino, Stop> {
    let mut at = ROOT;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        at = f.lookup(view, at, part.as_bytes())?.ok_or(Stop::Fail(Fault::NotFound))?;
    }
    Ok(at)
}

pub fn read_all(f: &mut Files<'_, '_>, view: View, ino: Ino) -> Result<Vec<u8>, Stop> {
    let size = f.inode(view, ino)?.size as usize;
    let mut segs: Vec<Seg> = Vec::new();
    // In two pieces, so that it is read ahead.
    let (first, mut reader) = (size / 3, Reader::default());
    let mut n = f.read_on(view, ino, (0, first), &mut reader, &mut segs)?;
    n += f.read_on(view, ino, (first as u64, size - first), &mut reader, &mut segs)?;
    let mut bytes = Vec::with_capacity(size);
    segs.iter().for_each(|s| s.with(|b| bytes.extend_from_slice(b)));
    assert_eq!((n, bytes.len()), (size, size), "a file of {size} bytes");
    Ok(bytes)
}

/// All of a view; with a few blocks in memory this takes many steps, so that it must not change
/// meanwhile.
pub async fn tree(fs: &(impl Clone + Into<Served>), view: View) -> Result<Tree, Fault> {
    let fs: Served = fs.clone().into();
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
                let contents = match inode.kind {
                    Kind::Dir => {
                        waiting.push((name.clone(), e.ino));
                        None
                    }
                    Kind::File => Some(Rc::new(fs.run(|f| read_all(f, view, e.ino)).await?)),
                };
                assert!(out.insert(name, contents).is_none(), "a name that was there already");
            }
        }
    }
    Ok(out)
}

/// FNV-1a, 64 bits: the hash of contents in the listings of images.
pub fn fnv(bytes: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
