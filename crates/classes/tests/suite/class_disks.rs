//! Tables and names on a file and on a modelled disk, where nothing is done at once.

use disks::DiskClass;
use geom::Access;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::support::{Scratch, run_on};
use crate::world::World;

const SIZES: [u32; 2] = [512, 4096];
const MIB: u64 = 1 << 20;

fn add_disk(w: &mut World, kind: &str, name: &str, params: &Value) -> Arc<DiskClass> {
    let disks = Arc::new(DiskClass::new(w.control.inbox().clone(), 1));
    let class = disks.clone();
    let made = w.control.call(|t| {
        t.load(disks.clone())?;
        disks.add(t, kind, name, params)
    });
    made.expect("a disk");
    class
}

fn bytes(n: u64) -> Value {
    json!({ "bytes": n })
}

#[test]
fn an_image_file_can_be_partitioned_and_written() {
    for size in SIZES {
        let scratch = Scratch::new(&format!("class-file-{size}"));
        let path = scratch.image("disk", 64 * MIB);
        let mut w = World::new();
        add_disk(&mut w, "file", "ada0", &json!({ "path": path, "sector_size": size }));
        w.part("create", "ada0", json!({ "scheme": "gpt" }));
        for label in ["one", "two"] {
            let add = json!({ "kind": "linux-data", "align": bytes(MIB), "size": bytes(16 * MIB),
                "label": label });
            w.part("add", "ada0", add);
        }
        assert!(w.has("ada0p2") && w.has("gpt/two"), "{:?}", w.names());
        // A file system made by others is carried into the partition through the graph.
        let volume = scratch.image("volume", 16 * MIB);
        run_on(&volume, size, "mkfs.ext4", &["-q", "-F", "-L", "root", "@"], "");
        let image = std::fs::read(&volume).expect("volume");
        let part = w.open("ada0p2", Access::WRITE);
        for (n, piece) in image.chunks(MIB as usize).enumerate() {
            w.write(&part, n as u64 * MIB, piece).expect("write");
        }
        w.close(part);
        assert!(w.has("ext2fs/root"), "{:?} {}", w.names(), w.taste_outcome("ada0p2", "label"));
        let name = w.open("ext2fs/root", Access::READ);
        assert_eq!(w.read(&name, 0, 65536), Ok(image[..65536].to_vec()));
        w.close(name);
        w.part("resize", "ada0", json!({ "index": 2, "size": bytes(24 * MIB) }));
        w.part("delete", "ada0", json!({ "index": 1 }));
        drop(w);
        let text = run_on(&path, size, "sgdisk", &["-v", "@"], "");
        assert!(text.contains("No problems found"), "{text}");
        let text = run_on(&path, size, "sfdisk", &["--verify", "@"], "");
        assert!(text.contains("No errors detected"), "{text}");
        let file = std::fs::read(&path).expect("disk");
        let start = 17 * MIB as usize;
        assert!(file[start..start + image.len()] == image[..], "where the table says it is");
        // The next daemon finds it all.
        let mut w = World::new();
        add_disk(&mut w, "file", "da7", &json!({ "path": path, "sector_size": size }));
        assert!(w.has("da7p2") && w.has("ext2fs/root") && !w.has("da7p1"), "{:?}", w.names());
    }
}

#[test]
fn a_committed_table_survives_the_loss_of_the_disk_cache() {
    let mut w = World::new();
    let params = json!({ "size": 16 * MIB });
    let disks = add_disk(&mut w, "model", "ada0", &params);
    w.part("create", "ada0", json!({ "scheme": "gpt" }));
    w.part("add", "ada0", json!({ "kind": "linux-data" }));
    let cut = geom::Class::verb(&*disks, &mut w.control, "power-cut", "ada0", &json!({}));
    cut.unwrap_or_else(|e| panic!("power cut: {e}"));
    // The close of the last writer makes all classes taste again.
    let writer = w.open("ada0", Access::WRITE);
    assert_eq!(w.names(), ["ada0"]);
    w.close(writer);
    assert!(w.has("ada0p1"), "{:?} {}", w.names(), w.taste_outcome("ada0", "part"));
    assert_eq!(w.show("part", "ada0", "state"), ["OK"]);
}
