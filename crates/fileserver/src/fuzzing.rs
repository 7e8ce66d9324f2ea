//! Entry points for fuzzing typed input and data of a medium. Whole connections and whole devices
//! are in `tests/suite/fuzz`.

use std::collections::HashMap;

use bio::{Pool, PoolConfig, Seg};

use crate::config::{Device, Settings};
use crate::console;
use crate::fault::{Addr, Stop};
use crate::files;
use crate::tree::{self, Blocks, Key, node};
use crate::users::Users;

/// Takes any bytes and must return.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("fs_line", fuzz_line),
    ("fs_config", fuzz_config),
    ("fs_users", fuzz_users),
    ("fs_node", fuzz_node),
];

/// A line of the console, up to what its verb gets.
pub fn fuzz_line(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    text.lines().for_each(|line| drop(console::parse_line(line)));
}

/// A config string, and lines of config mode: what reads is printed as something that reads the
/// same.
pub fn fuzz_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(device) = text.parse::<Device>() {
        let again = device.to_string().parse();
        assert!(again.as_ref() == Ok(&device), "{device}: {again:?}");
    }
    if let Ok(settings) = Settings::parse(&text) {
        let again = Settings::parse(&settings.to_string());
        assert!(again.as_ref() == Ok(&settings), "{settings}: {again:?}");
    }
}

/// A users file: what reads is printed as something that prints the same.
pub fn fuzz_users(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(users) = Users::parse(&text) {
        let printed = users.text();
        let again = Users::parse(&printed).map(|u| u.text());
        assert!(again.as_ref() == Ok(&printed), "{printed}: {again:?}");
    }
}

/// Address and volume of the nodes that are tried.
pub const NODE: (Addr, u64) = (5, 9);
/// Bytes of such a node.
pub const NODE_BYTES: usize = 4096;

/// A good node, for the corpus.
pub fn node(items: u64, level: u8) -> Vec<u8> {
    let mut out = vec![0; NODE_BYTES];
    node::format(&mut out, level, NODE.0, NODE.1);
    for i in 0..items {
        let key = Key { ino: i / 5 + 1, kind: (i % 5) as u8 + 1, offset: 0 };
        let value = if level > 0 { NODE.0.to_le_bytes().to_vec() } else { vec![i as u8; 90] };
        node::insert(&mut out, i as usize, &key, &value);
    }
    out
}

/// A node of the tree as a block of a disk. One that passes its check is searched, changed and
/// walked, and its items are read. The nodes below it are missing, or are the node itself.
pub fn fuzz_node(data: &[u8]) {
    let pool = Pool::new(PoolConfig { limit_bytes: 1 << 20 });
    let Some(seg) = block(&pool) else { return };
    seg.with_mut(|b| {
        b.fill(0);
        let n = data.len().min(b.len());
        b[..n].copy_from_slice(&data[..n]);
    });
    if seg.with(|b| tree::check(b, NODE.0, NODE.1)).is_err() {
        return;
    }
    let mut keys = Vec::new();
    seg.with(|b| {
        for i in 0..tree::count(b) {
            keys.push(tree::key(b, i));
            files::look_at_item(&tree::key(b, i), tree::value(b, i));
        }
    });
    let mut heap = Heap { pool, blocks: HashMap::from([(NODE.0, seg)]), next: NODE.0 };
    let mut root = NODE.0;
    let mut waiting = vec![(root, None)];
    while let Some((at, level)) = waiting.pop() {
        waiting.extend(tree::below(&mut heap, at, level).unwrap_or_default());
    }
    let mut left = 1000;
    let first = Key { ino: 0, kind: 0, offset: 0 };
    let _ = tree::scan(&mut heap, root, first, |_, _| {
        left -= 1;
        left > 0
    });
    for (i, key) in keys.iter().enumerate().take(50) {
        let _ = tree::get(&mut heap, root, key, <[u8]>::len);
        let long = vec![7; i * 37 % tree::value_max(NODE_BYTES)];
        let _ = tree::insert(&mut heap, &mut root, key, &long);
        if let Some(next) = key.next() {
            let _ = tree::insert(&mut heap, &mut root, &next, &long[..long.len() / 2]);
        }
        let _ = tree::remove(&mut heap, &mut root, key);
    }
}

fn block(pool: &Pool) -> Option<Seg> {
    pool.get(NODE_BYTES).and_then(|b| b.seg(0, NODE_BYTES))
}

/// A node, and the blocks that are made from it.
struct Heap {
    pool: Pool,
    blocks: HashMap<Addr, Seg>,
    next: Addr,
}

impl Blocks for Heap {
    fn read_node(&mut self, at: Addr) -> Result<Seg, Stop> {
        self.blocks.get(&at).cloned().ok_or(Stop::Missing(at))
    }

    fn cow(&mut self, at: Addr) -> Result<(Addr, Seg), Stop> {
        self.read_node(at).map(|seg| (at, seg))
    }

    fn fresh(&mut self) -> Result<(Addr, Seg), Stop> {
        let seg = block(&self.pool).ok_or(Stop::Wait(crate::fault::Wait::Memory))?;
        self.next += 1;
        self.blocks.insert(self.next, seg.clone());
        Ok((self.next, seg))
    }

    fn free(&mut self, at: Addr) {
        self.blocks.remove(&at);
    }

    fn resident(&mut self, at: Addr) -> Option<Seg> {
        self.blocks.get(&at).cloned()
    }

    fn volume(&self) -> u64 {
        NODE.1
    }
}
