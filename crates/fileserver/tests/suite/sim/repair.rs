//! Mending of a live tree that was corrupted in any way that an item can be wrong. Afterwards it is
//! consistent, every file that had contents exists with them, and dumps are unchanged.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use fileserver::files::{FileSystem, Ino, Kind, New, ROOT};
use fileserver::tree::{Key, Kind as Item};
use fileserver::volume::View;
use reactor::SeededRandom;
use reactor::sim::World;

use super::disk::Disk;
use super::server::{life, mounted, new_file_system};

const BLOCK: u64 = 4096;

struct Spoiler {
    fs: FileSystem,
    random: SeededRandom,
    dirs: Vec<Ino>,
    files: BTreeMap<Ino, Vec<u8>>,
    /// Their contents were spoiled too.
    holed: BTreeSet<Ino>,
    plants: u32,
}

impl Spoiler {
    fn one_of(&mut self, of: &[Ino]) -> Ino {
        of[self.random.below(of.len() as u64) as usize]
    }

    async fn plant(&mut self, pool: &bio::Pool) {
        self.plants += 1;
        let (times, mut there) = (self.plants, Vec::new());
        for dir in std::mem::take(&mut self.dirs) {
            // One without entries and without attributes is removed.
            let is_dir = |i: fileserver::files::Inode| i.kind == Kind::Dir;
            if self.fs.run(|f| f.inode(View::Live, dir)).await.is_ok_and(is_dir) {
                there.push(dir);
            }
        }
        self.dirs = there;
        for n in 0..3 + self.random.below(6) {
            let dirs = self.dirs.clone();
            let parent = self.one_of(&dirs);
            let new = New { kind: Kind::Dir, mode: 0o755, ..New::default() };
            let name = format!("d{n}.{times}");
            let created = self.fs.run(|f| f.create(parent, name.as_bytes(), &new)).await.unwrap();
            self.dirs.push(created);
        }
        for n in 0..5 + self.random.below(25) {
            let dirs = self.dirs.clone();
            let parent = self.one_of(&dirs);
            let (name, new) = (format!("f{n}.{times}"), New { mode: 0o644, ..New::default() });
            let ino = self.fs.run(|f| f.create(parent, name.as_bytes(), &new)).await.unwrap();
            let len = self.random.below(20_000) as usize;
            let bytes: Vec<u8> = (0..len).map(|i| (i / 5 + n as usize) as u8 | 1).collect();
            if len > 0 {
                let seg = pool.get(len).unwrap().seg(0, len).unwrap();
                seg.copy_from(0, &bytes);
                let wrote = self.fs.run(|f| f.write(ino, 0, std::slice::from_ref(&seg), 0)).await;
                assert_eq!(wrote.unwrap(), len);
            }
            self.files.insert(ino, bytes);
        }
    }

    async fn put(&self, key: Key, value: Option<&[u8]>) {
        self.fs.run(|f| f.set_item(&key, value)).await.unwrap();
    }

    async fn item(&self, key: Key) -> Option<Vec<u8>> {
        self.fs.run(|f| f.item(&key)).await.unwrap()
    }

    async fn set_inode_word(&self, ino: Ino, at: usize, value: u64) {
        let key = Key::new(ino, Item::Inode, 0);
        let Some(mut bytes) = self.item(key).await else { return };
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self.put(key, Some(&bytes)).await;
    }

    async fn key_of(&mut self, kind: Item) -> Option<Key> {
        let first = Key { ino: 0, kind: 0, offset: 0 };
        let all = self.fs.run(|f| f.keys(first, usize::MAX)).await.unwrap();
        let all: Vec<Key> = all.into_iter().filter(|k| k.kind == kind as u8).collect();
        let n = self.random.below(all.len().max(1) as u64) as usize;
        all.get(n).copied()
    }

    /// Puts a directory into one that is below it.
    async fn circle(&mut self) {
        let inner = self.dirs[self.random.below(self.dirs.len() as u64) as usize];
        let Ok(Some((outer, name))) = self.fs.run(|f| f.name(View::Live, inner)).await else {
            return;
        };
        if outer == ROOT {
            return;
        }
        let Ok(Some((above, own))) = self.fs.run(|f| f.name(View::Live, outer)).await else {
            return;
        };
        let _inner_name = name;
        let first = Key::new(above, Item::Name, 0);
        let keys = self.fs.run(|f| f.keys(first, 10_000)).await.unwrap();
        for key in keys.into_iter().filter(|k| k.ino == above) {
            let Some(value) = self.item(key).await else { continue };
            let has = value.windows(own.len()).any(|w| w == own);
            if !has || (key.kind != Item::Name as u8 && key.kind != Item::Entry as u8) {
                continue;
            }
            let there = Key { ino: inner, ..key };
            if self.item(there).await.is_none() {
                self.put(key, None).await;
                self.put(there, Some(&value)).await;
            }
        }
        self.set_inode_word(outer, 64, inner).await;
    }

    async fn spoil(&mut self) {
        let (files, dirs) = (self.files.keys().copied().collect::<Vec<_>>(), self.dirs.clone());
        let (file, dir) = (self.one_of(&files), self.one_of(&dirs));
        let any = if self.random.below(2) == 0 { file } else { dir };
        let odd = self.random.below(1 << 20);
        match self.random.below(19) {
            0 => self.put(Key::new(file, Item::Inode, 0), None).await,
            1 => self.put(Key::new(dir, Item::Inode, 0), None).await,
            2 => {
                if let Some(key) = self.key_of(Item::Name).await {
                    self.put(key, None).await;
                }
            }
            3 => {
                if let Some(key) = self.key_of(Item::Entry).await {
                    self.put(key, None).await;
                }
            }
            4 => self.set_inode_word(dir, 80, odd).await,
            5 => self.put(Key::new(any, Item::Inode, 0), Some(&[9; 96])).await,
            6 => self.set_inode_word(any, 64, odd).await,
            7 => self.set_inode_word(any, 72, odd).await,
            8 => {
                // Names: owner to last changer, and the flag for none.
                let key = Key::new(file, Item::Inode, 0);
                if let Some(mut bytes) = self.item(key).await {
                    bytes[20..24].fill(0);
                    self.put(key, Some(&bytes)).await;
                }
            }
            9 => {
                if let Some(key) = self.key_of(Item::Run).await {
                    self.put(key, None).await;
                    self.holed.insert(key.ino);
                }
            }
            10 => {
                // Only its name is left, and its blocks belong to no file.
                self.put(Key::new(file, Item::Inode, 0), None).await;
                self.put(Key::new(file, Item::Run, 0), None).await;
                self.files.remove(&file);
            }
            11 => {
                if let Some(key) = self.key_of(Item::Name).await
                    && let Some(value) = self.item(key).await
                {
                    self.put(Key { offset: odd, ..key }, Some(&value)).await;
                }
            }
            12 => {
                let value = [&(odd + 5000).to_le_bytes()[..], b"nobody"].concat();
                self.put(Key::new(dir, Item::Entry, odd), Some(&value)).await;
            }
            13 => self.set_inode_word(dir, 88, u64::MAX).await,
            14 => self.put(Key::new(any, Item::Run, u64::MAX), Some(&[1; 8])).await,
            15 => {
                let value = [&file.to_le_bytes()[..], b"last"].concat();
                self.put(Key::new(dir, Item::Entry, u64::MAX), Some(&value)).await;
            }
            16 => {
                // Its file is nowhere.
                if let Some(key) = self.key_of(Item::Name).await
                    && let Some(value) = self.item(key).await
                    && let Some(cookie) = value.first_chunk()
                {
                    self.put(key, None).await;
                    let entry = Key::new(key.ino, Item::Entry, u64::from_le_bytes(*cookie));
                    self.put(entry, None).await;
                }
            }
            17 => {
                // Its file is in two directories.
                if let Some(key) = self.key_of(Item::Name).await
                    && let Some(value) = self.item(key).await
                    && let Some(cookie) = value.first_chunk()
                {
                    let cookie = u64::from_le_bytes(*cookie);
                    let entry = self.item(Key::new(key.ino, Item::Entry, cookie)).await;
                    let there = Key::new(dir, Item::Entry, cookie);
                    let name = Key { ino: dir, ..key };
                    if self.item(there).await.is_none() && self.item(name).await.is_none() {
                        self.put(name, Some(&value)).await;
                        self.put(there, entry.as_deref()).await;
                    }
                }
            }
            _ => self.circle().await,
        }
        if self.files.is_empty() {
            self.files.insert(ROOT, Vec::new());
            self.files.clear();
        }
    }

    /// Every file is below the root, with its former contents.
    async fn compare(&self, seed: u64) {
        for (ino, bytes) in &self.files {
            if bytes.is_empty() {
                // Without contents and without attributes it is no file any more.
                continue;
            }
            let holed = self.holed.contains(ino);
            let inode = match self.fs.run(|f| f.inode(View::Live, *ino)).await {
                Err(_) if holed => continue,
                found => found.unwrap_or_else(|e| panic!("seed {seed}: file {ino}: {e}")),
            };
            let path = self.fs.path(View::Live, *ino).await.unwrap();
            assert!(path.starts_with('/'), "seed {seed}: {path}");
            let mut out = Vec::new();
            let n = self.fs.run(|f| {
                out.clear();
                f.read(View::Live, *ino, 0, 40_000, &mut out)
            });
            n.await.unwrap();
            let found: Vec<u8> = out.iter().flat_map(|s| s.with(<[u8]>::to_vec)).collect();
            let rest = found.get(bytes.len()..).unwrap_or_default();
            assert!(inode.size >= bytes.len() as u64 || holed, "seed {seed}: {path} is shorter");
            assert!(inode.size < bytes.len() as u64 + 33 * BLOCK, "seed {seed}: {path} is longer");
            assert!(rest.iter().all(|b| *b == 0), "seed {seed}: {path} has more");
            assert!(holed || found.starts_with(bytes), "seed {seed}: {path} is another");
        }
    }
}

pub fn play(seed: u64, done: &Cell<usize>) {
    let mut random = SeededRandom::new(seed ^ 0x6d65_6e64);
    let cache = Disk::new("cache", 12 << 20, random.next_u64());
    let legs = [Disk::new("leg", 60 << 20, random.next_u64())];
    let did = life(&World::new(seed), &cache, &legs, |o| async move {
        let fs = new_file_system(&o).await;
        let (dirs, files, holed) = (vec![ROOT], BTreeMap::new(), BTreeSet::new());
        let mut s = Spoiler { fs, random, dirs, files, holed, plants: 0 };
        s.plant(&o.pool).await;
        let dump = s.fs.volume().dump(20_261_121).await.unwrap();
        s.fs.volume().copied(&dump).await.unwrap();
        let before = s.fs.check(View::Dump(dump.number), true).await.unwrap();
        s.plant(&o.pool).await;
        for _ in 0..1 + s.random.below(6) {
            s.spoil().await;
        }
        let did = s.fs.repair().await.unwrap();
        if std::env::var_os("ASHLAR_TRACE").is_some() {
            eprintln!("{did:#?}");
        }
        // Other tasks free the lost blocks.
        let mut found = s.fs.check(View::Live, true).await.unwrap();
        for _ in 0..50 {
            if found.orphans == 0 {
                break;
            }
            o.reactor.sleep(10_000_000).await;
            found = s.fs.check(View::Live, true).await.unwrap();
        }
        let more = s.fs.repair().await.unwrap();
        assert!(
            more.iter().all(|m| m.contains("without an owner")),
            "seed {seed}: {did:?}\n{more:?}"
        );
        found = s.fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty(), "seed {seed}: {:?}\nafter {did:?}", found.faults);
        assert_eq!((found.orphans, found.leaked), (0, 0), "seed {seed}: {did:?}");
        s.compare(seed).await;
        let after = s.fs.check(View::Dump(dump.number), true).await.unwrap();
        assert_eq!(before, after, "seed {seed}: the dump");
        // It is durable, and can be written on.
        s.fs.volume().close().await.unwrap();
        s.fs = mounted(&o).await;
        s.compare(seed).await;
        s.plant(&o.pool).await;
        let found = s.fs.check(View::Live, true).await.unwrap();
        assert!(found.faults.is_empty() && found.leaked == 0, "seed {seed}: {found:?}");
        did.len() + more.len()
    });
    done.set(done.get() + did);
}
