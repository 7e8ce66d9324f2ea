//! Replies: a header, then the result of the operation. The kernel may not cache anything about the
//! file, so that a change of size is seen at once.

pub const REPLY_HEAD: usize = 16;

/// Bytes of the longest reply besides data and entries of a folder.
pub const REPLY_MAX: usize = REPLY_HEAD + 128;

/// Code of the notice that invalidates the kernel's cache of a node.
const NOTIFY_INVAL_INODE: u32 = 2;

const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// The header of a reply with `len` bytes behind it.
pub fn head(unique: u64, len: usize) -> [u8; REPLY_HEAD] {
    let total = u32::try_from(len.saturating_add(REPLY_HEAD)).unwrap_or(u32::MAX);
    header(total, 0, unique)
}

/// An error reply: one of [`super::codes::errno`], or any other of Linux.
pub fn error(unique: u64, errno: u32) -> [u8; REPLY_HEAD] {
    let errno = i32::try_from(errno).unwrap_or(5);
    header(16, errno.wrapping_neg(), unique)
}

fn header(len: u32, error: i32, unique: u64) -> [u8; REPLY_HEAD] {
    let [a, b, c, d] = len.to_ne_bytes();
    let [e, f, g, h] = error.to_ne_bytes();
    let [i, j, k, l, m, n, o, p] = unique.to_ne_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub node: u64,
    /// Bytes.
    pub size: u64,
    /// A folder; else a file.
    pub folder: bool,
    /// Write protected.
    pub read_only: bool,
    /// Best size of a request, bytes.
    pub block: u32,
}

/// A body under construction.
struct Body<'a>(&'a mut Vec<u8>);

impl Body<'_> {
    fn long(&mut self, words: &[u64]) -> &mut Self {
        words.iter().for_each(|w| self.0.extend(w.to_ne_bytes()));
        self
    }

    fn word(&mut self, words: &[u32]) -> &mut Self {
        words.iter().for_each(|w| self.0.extend(w.to_ne_bytes()));
        self
    }

    fn short(&mut self, words: &[u16]) -> &mut Self {
        words.iter().for_each(|w| self.0.extend(w.to_ne_bytes()));
        self
    }

    fn attributes(&mut self, a: &Attributes) -> &mut Self {
        let mode = match (a.folder, a.read_only) {
            (true, _) => FOLDER | 0o500,
            (false, true) => REGULAR | 0o400,
            (false, false) => REGULAR | 0o600,
        };
        let links = if a.folder { 2 } else { 1 };
        self.long(&[a.node, a.size, a.size / 512, 0, 0, 0]);
        self.word(&[0, 0, 0, mode, links, 0, 0, 0, a.block, 0])
    }
}

/// Appends the whole reply whose body `fill` makes.
fn write_reply(unique: u64, out: &mut Vec<u8>, fill: impl FnOnce(&mut Body<'_>)) {
    let start = out.len();
    out.extend([0; REPLY_HEAD]);
    fill(&mut Body(out));
    let len = out.len().saturating_sub(start).saturating_sub(REPLY_HEAD);
    let head = head(unique, len);
    out.iter_mut().skip(start).zip(head).for_each(|(to, from)| *to = from);
}

/// The parameters of the reply to INIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// Longest read ahead, bytes.
    pub readahead: u32,
    /// Capabilities that both sides have.
    pub flags: u32,
    /// Background requests at once.
    pub background: u16,
    /// Longest WRITE, bytes.
    pub write_max: u32,
    /// Longest request, pages of 4096 bytes.
    pub pages_max: u16,
}

/// Answers INIT.
pub fn init(unique: u64, i: &Init, out: &mut Vec<u8>) {
    write_reply(unique, out, |b| {
        b.word(&[super::codes::MAJOR, super::codes::MINOR, i.readahead, i.flags]);
        b.short(&[i.background, i.background / 4 * 3]);
        b.word(&[i.write_max, 1]).short(&[i.pages_max, 0]).word(&[0; 8]);
    });
}

/// Answers INIT of a kernel that speaks a later major version: the kernel repeats it with ours.
pub fn init_version(unique: u64, out: &mut Vec<u8>) {
    write_reply(unique, out, |b| {
        b.word(&[super::codes::MAJOR, super::codes::MINOR]);
    });
}

/// Answers LOOKUP.
pub fn entry(unique: u64, a: &Attributes, out: &mut Vec<u8>) {
    write_reply(unique, out, |b| {
        b.long(&[a.node, 0, 0, 0]).word(&[0, 0]).attributes(a);
    });
}

/// Answers GETATTR.
pub fn attributes(unique: u64, a: &Attributes, out: &mut Vec<u8>) {
    write_reply(unique, out, |b| {
        b.long(&[0]).word(&[0, 0]).attributes(a);
    });
}

/// Answers OPEN and OPENDIR; flags of [`super::codes::open_flag`].
pub fn open(unique: u64, flags: u32, out: &mut Vec<u8>) {
    write_reply(unique, out, |b| {
        b.long(&[0]).word(&[flags, 0]);
    });
}

/// Answers WRITE.
pub fn written(unique: u64, bytes: u32) -> [u8; REPLY_HEAD + 8] {
    let mut out = [0; REPLY_HEAD + 8];
    let all = head(unique, 8).into_iter().chain(bytes.to_ne_bytes());
    out.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    out
}

/// Answers LSEEK.
pub fn offset(unique: u64, offset: u64, out: &mut Vec<u8>) {
    write_reply(unique, out, |b| {
        b.long(&[offset]);
    });
}

/// Answers STATFS of a file system that one file of `bytes` fills; `block` is the unit in which
/// space is freed.
pub fn statfs(unique: u64, bytes: u64, block: u32, out: &mut Vec<u8>) {
    let blocks = bytes / u64::from(block.max(1));
    write_reply(unique, out, |b| {
        b.long(&[blocks, 0, 0, 2, 0]).word(&[block, 255, block, 0]).word(&[0; 6]);
    });
}

/// A name in a folder.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub node: u64,
    pub name: &'a [u8],
    /// A folder; else a file.
    pub folder: bool,
}

/// Answers READDIR with the entries after the first `skip`, as many as fit in `size` bytes.
pub fn entries(unique: u64, all: &[Entry<'_>], skip: u64, size: u32, out: &mut Vec<u8>) {
    let room = usize::try_from(size).unwrap_or(usize::MAX);
    write_reply(unique, out, |b| {
        let mut used = 0usize;
        for (next, e) in (1u64..).zip(all).skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            let padded = e.name.len().next_multiple_of(8);
            used = used.saturating_add(24).saturating_add(padded);
            if used > room {
                break;
            }
            let kind = if e.folder { FOLDER } else { REGULAR } >> 12;
            b.long(&[e.node, next]);
            b.word(&[u32::try_from(e.name.len()).unwrap_or(0), kind]);
            b.0.extend(e.name);
            b.0.extend(std::iter::repeat_n(0, padded - e.name.len()));
        }
    });
}

/// The notice that the attributes of a node have changed.
pub fn changed(node: u64, out: &mut Vec<u8>) {
    let start = out.len();
    write_reply(0, out, |b| {
        b.long(&[node, u64::MAX, 0]);
    });
    let code = NOTIFY_INVAL_INODE.to_ne_bytes();
    out.iter_mut().skip(start + 4).zip(code).for_each(|(to, from)| *to = from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len_of(out: &[u8]) -> usize {
        u32::from_ne_bytes(out[..4].try_into().unwrap()) as usize
    }

    #[test]
    fn replies_have_the_lengths_that_the_kernel_expects() {
        let a = Attributes { node: 2, size: 1 << 30, block: 4096, ..Attributes::default() };
        let reply_len = |f: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            f(&mut out);
            assert_eq!(len_of(&out), out.len());
            assert!(out.len() <= REPLY_MAX);
            out.len() - REPLY_HEAD
        };
        assert_eq!(reply_len(&|o| init(1, &Init::default(), o)), 64);
        assert_eq!(reply_len(&|o| init_version(1, o)), 8);
        assert_eq!(reply_len(&|o| entry(1, &a, o)), 128);
        assert_eq!(reply_len(&|o| attributes(1, &a, o)), 104);
        assert_eq!(reply_len(&|o| open(1, 1, o)), 16);
        assert_eq!(reply_len(&|o| o.extend(written(1, 512))), 8);
        assert_eq!(reply_len(&|o| offset(1, 512, o)), 8);
        assert_eq!(reply_len(&|o| statfs(1, 1 << 20, 4096, o)), 80);
        assert_eq!(reply_len(&|o| changed(2, o)), 24);
        assert_eq!(len_of(&error(1, 5)), 16);
        assert_eq!(i32::from_ne_bytes(error(1, 5)[4..8].try_into().unwrap()), -5);
    }

    #[test]
    fn directory_entries_stop_at_the_reply_size() {
        let all = [
            Entry { node: 1, name: b".", folder: true },
            Entry { node: 1, name: b"..", folder: true },
            Entry { node: 2, name: b"a-longer-name", folder: false },
        ];
        for (skip, size, want) in [(0, 4096, 32 + 32 + 40), (2, 4096, 40), (3, 4096, 0)] {
            let mut out = Vec::new();
            entries(9, &all, skip, size, &mut out);
            assert_eq!(out.len() - REPLY_HEAD, want);
        }
        let mut out = Vec::new();
        entries(9, &all, 0, 70, &mut out);
        assert_eq!(out.len() - REPLY_HEAD, 64);
    }
}
