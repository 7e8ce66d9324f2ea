//! Files that are disks.

use bio::Errno;
use serde_json::json;

use super::plant::Plant;

#[test]
fn live_file_is_one_disk_whatever_its_path_looks_like() {
    let mut plant = Plant::new(81, false);
    plant.verb("disk", json!({ "path": "/x", "size": 1 << 20 })).unwrap();
    for path in ["/x", "//./x"] {
        let e = plant.verb("disk", json!({ "path": path, "as": "other" })).unwrap_err();
        assert!(e.kind == Errno::Busy && e.message.contains("the file is the disk x"), "{e}");
    }
    plant.verb("undisk", json!({ "disk": "x" })).unwrap();
    plant.verb("disk", json!({ "path": "/x", "as": "other" })).unwrap();
}
