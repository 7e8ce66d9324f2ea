//! Power cuts at every step of every commit, through the whole graph: afterwards tasting finds the
//! old table or the new one.

use bio::Errno;
use geom::Access;
use serde_json::{Value, json};

use crate::world::{Disk, World};

const MIB: usize = 1 << 20;
const SIZES: [u32; 2] = [512, 4096];

fn bytes(n: usize) -> Value {
    json!({ "bytes": n })
}

/// Partitions as tasting sees them: name and size. None when no table is found.
fn seen(image: Vec<u8>, size: u32) -> Option<Vec<(String, u64)>> {
    let (w, _) = World::with("ada0", image, size);
    let parts = w.names().into_iter().filter(|n| n.starts_with("ada0") && n != "ada0");
    let all = parts.map(|n| (n.clone(), w.size(&n))).collect();
    w.control.topology.find_geom("part", "ada0").map(|_| all)
}

fn arm(disk: &Disk, at: Option<usize>) {
    let mut media = disk.0.lock().expect("media");
    media.steps = 0;
    media.cut_at = at;
}

/// Cuts `verb` at every step. Answers how many steps it has.
fn cut(image: &[u8], size: u32, on: &str, verb: &str, params: &Value) -> usize {
    let old = seen(image.to_vec(), size);
    let (mut w, disk) = World::with("ada0", image.to_vec(), size);
    arm(&disk, None);
    w.part(verb, on, params.clone());
    let steps = disk.0.lock().expect("media").steps;
    let new = seen(disk.bytes(), size);
    assert_ne!(old, new, "{verb} changes something");
    for at in 0..steps {
        let (mut w, disk) = World::with("ada0", image.to_vec(), size);
        arm(&disk, Some(at));
        let error = w.verb("part", verb, on, params.clone()).expect_err("the power is gone");
        assert_eq!(error.kind, Errno::Io, "{error}");
        assert!(error.message.contains("part commit"), "what to do is said: {error}");
        let (kept, lost) = {
            let media = disk.0.lock().expect("media");
            (media.bytes.clone(), media.durable.clone())
        };
        // Everything in the cache was lucky, or nothing was.
        for image in [kept, lost] {
            let now = seen(image, size);
            assert!(now == old || now == new, "{verb} cut at {at} of {steps}: {now:?}");
        }
    }
    steps
}

fn image(size: u32, verbs: &[(&str, &str, Value)]) -> Vec<u8> {
    let (mut w, disk) = World::with("ada0", vec![0; 16 * MIB], size);
    for (verb, on, params) in verbs {
        w.part(verb, on, params.clone());
    }
    disk.bytes()
}

#[test]
fn a_gpt_survives_a_power_cut_at_any_step() {
    for size in SIZES {
        let add = |n| json!({ "kind": "linux-data", "align": bytes(MIB), "size": bytes(n * MIB) });
        let start = [
            ("create", "ada0", json!({ "scheme": "gpt" })),
            ("add", "ada0", add(2)),
            ("add", "ada0", add(3)),
        ];
        let image = image(size, &start);
        let mut steps = 0;
        steps += cut(&image, size, "ada0", "add", &add(1));
        let delete = json!({ "index": 1, "yes_destroy": ["ada0p1"] });
        steps += cut(&image, size, "ada0", "delete", &delete);
        let resize = json!({ "index": 2, "size": bytes(4 * MIB) });
        steps += cut(&image, size, "ada0", "resize", &resize);
        assert!(steps > 15, "{steps} places to cut");
        cut(&image, size, "ada0", "destroy", &json!({ "force": true }));
        let nothing = vec![0; 16 * MIB];
        cut(&nothing, size, "ada0", "create", &json!({ "scheme": "gpt" }));
    }
}

#[test]
fn an_mbr_and_its_chain_survive_a_power_cut_at_any_step() {
    for size in SIZES {
        let logical = json!({ "kind": "linux-data", "size": bytes(MIB) });
        let start = [
            ("create", "ada0", json!({ "scheme": "mbr" })),
            ("add", "ada0", json!({ "kind": "linux-data", "size": bytes(MIB) })),
            ("add", "ada0", json!({ "kind": "ebr", "size": bytes(12 * MIB) })),
            ("create", "ada0s2", json!({ "scheme": "ebr" })),
            ("add", "ada0s2", logical.clone()),
            ("add", "ada0s2", logical.clone()),
        ];
        let image = image(size, &start);
        let delete = json!({ "index": 1, "yes_destroy": ["ada0s1"] });
        cut(&image, size, "ada0", "delete", &delete);
        cut(&image, size, "ada0s2", "add", &logical);
        let (mut w, _) = World::with("ada0", image.clone(), size);
        let table = w.verb("part", "show", "ada0s2", json!({})).expect("show");
        for place in 0..2 {
            let entry = &table["tables"][0]["entries"][place];
            let delete = json!({ "index": entry["index"], "yes_destroy": [entry["name"]] });
            cut(&image, size, "ada0s2", "delete", &delete);
        }
    }
}

#[test]
fn a_failed_commit_can_be_repeated_or_undone() {
    let add = json!({ "kind": "linux-data", "align": bytes(MIB), "size": bytes(2 * MIB) });
    let start = [("create", "ada0", json!({ "scheme": "gpt" })), ("add", "ada0", add.clone())];
    let image = image(512, &start);
    for at in 0..4 {
        let (mut w, disk) = World::with("ada0", image.clone(), 512);
        let user = w.open("ada0p1", Access::WRITE);
        arm(&disk, Some(at));
        w.verb("part", "add", "ada0", add.clone()).expect_err("it cannot write");
        assert_eq!(w.show("part", "ada0", "modified"), ["true"]);
        assert!(w.has("ada0p2") && !user.orphaned());
        // The disk is repaired.
        arm(&disk, None);
        let refused = w.verb("part", "undo", "ada0", json!({})).expect_err("a user");
        assert_eq!(refused.kind, Errno::Busy);
        w.part("commit", "ada0", json!({}));
        assert!(!user.orphaned());
        w.close(user);
        let good = disk.bytes();
        assert_eq!(seen(good, 512).map(|all| all.len()), Some(2));
        // The edit is undone instead: the partitions are those of the table on the media.
        let (mut w, disk) = World::with("ada0", image.clone(), 512);
        arm(&disk, Some(at));
        w.verb("part", "add", "ada0", add.clone()).expect_err("it cannot write");
        arm(&disk, None);
        w.part("undo", "ada0", json!({}));
        let found = seen(disk.bytes(), 512).expect("a table");
        let here: Vec<_> = w.names().into_iter().filter(|n| n.starts_with("ada0p")).collect();
        assert_eq!(found.len(), here.len());
        assert!(w.show("part", "ada0", "modified") == ["false"]);
    }
}

#[test]
fn loss_of_a_disk_discards_its_pending_edits() {
    let (mut w, _) = World::with("ada0", vec![0; 16 * MIB], 512);
    w.part("create", "ada0", json!({ "scheme": "gpt", "no_commit": true }));
    w.part("add", "ada0", json!({ "kind": "linux-data", "no_commit": true }));
    let user = w.open("ada0p1", Access::WRITE);
    w.lose("ada0");
    assert!(w.names().is_empty() && user.orphaned());
    let gone = w.verb("part", "commit", "ada0", json!({})).expect_err("gone");
    assert_eq!(gone.kind, Errno::NoEnt);
    w.close(user);
    assert!(w.control.topology.view(0).is_empty());
}
