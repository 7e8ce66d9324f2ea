//! Image files of an owner whose quota is used up, on a file system of their own.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use bio::{Errno, Op};
use reactor::PortChoice;
use serde_json::json;

use crate::host::{is_mounted, run};
use crate::place::examined;
use crate::world::{Folder, World};

const MIB: u64 = 1 << 20;
/// The least that mkfs.xfs takes.
const XFS_BYTES: u64 = 320 * MIB;
/// Owner of the files: limits do not apply to the group 0, but to all users of this one.
const GROUP: u32 = 54_321;
/// Its limits. The folder of the files is the first of its inodes.
const LIMITS: &str = "limit -g bhard=4m ihard=3 54321";

/// XFS with these limits; it is unmounted when this is dropped.
struct Limited {
    place: String,
    _folder: Folder,
}

impl Limited {
    /// `None` where the user or the kernel does not permit such a file system.
    fn mount() -> Option<Limited> {
        let folder = Folder::new();
        let (image, place) = (folder.path("fs.img"), folder.path("fs"));
        std::fs::create_dir(&place).unwrap();
        std::fs::File::create(&image).unwrap().set_len(XFS_BYTES).unwrap();
        run(&["mkfs.xfs", "-q", &image]).unwrap();
        if !is_mounted(&["-o", "loop,gquota", &image, &place]) {
            return None;
        }
        let limited = Limited { place, _folder: folder };
        // New files have the group of the folder.
        chown(&limited.place, None, Some(GROUP)).unwrap();
        let mode = std::fs::Permissions::from_mode(0o2775);
        std::fs::set_permissions(&limited.place, mode).unwrap();
        run(&["xfs_quota", "-x", "-c", LIMITS, &limited.place]).unwrap();
        Some(limited)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        run(&["umount", "--lazy", &self.place]);
    }
}

#[test]
fn used_up_quota_fails_writes_and_creations_and_is_named() {
    let Some(limited) = Limited::mount() else { return };
    let path = |name: &str| format!("{}/{name}", limited.place);
    let mut w = World::new(PortChoice::Poll);
    let params = |name: &str| json!({ "path": path(name), "create": true, "size": 16 * MIB });
    w.disk("file", "a", params("a")).unwrap();
    w.disk("file", "b", params("b")).unwrap();
    // A third file is one inode too many.
    let refused = w.disk("file", "c", params("c")).unwrap_err();
    assert!(refused.kind == Errno::NoSpc && refused.message.contains(&path("c")), "{refused}");
    assert!(refused.message.contains("quota") && refused.message.contains("repquota"), "{refused}");
    assert!(!Path::new(&path("c")).exists(), "an empty file is left");
    // More data than the blocks allow.
    let edge = w.open("a");
    let piece = vec![7; MIB as usize];
    let wrote: Vec<_> = (0..16).map(|n| w.write(edge, n * MIB, &piece)).collect();
    assert_eq!((wrote[0], wrote[15]), (Ok(()), Err(Errno::NoSpc)), "{wrote:?}");
    let found = examined(&mut w, "a");
    let is_named = found.iter().any(|trouble| {
        trouble.why.contains("a quota is used up") && trouble.action.contains("repquota")
    });
    assert!(is_named, "{found:?}");
    assert_eq!(w.read(edge, 0, MIB), Ok(piece.clone()), "reads go on");
    // Deleted space may be written again.
    assert_eq!(w.plain(edge, Op::Delete, 0, MIB), Ok(()));
    assert_eq!(w.write(edge, 0, &piece[..4096]), Ok(()));
}
