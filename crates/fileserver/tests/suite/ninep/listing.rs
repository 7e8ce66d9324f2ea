//! Listings of directories that are long.

use bio::Errno;
use serde_json::{Value, json};

use super::plant::Plant;

fn names(listed: &Value) -> Vec<String> {
    let entries = listed["entries"].as_array().expect("entries");
    entries.iter().map(|e| e["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn long_directory_is_listed_in_parts() {
    for is_image in [false, true] {
        let mut plant = Plant::new(82, is_image);
        for n in 0..5 {
            let path = format!("/f{n}");
            let new = json!({ "path": path, "user": "sys", "group": "sys", "perm": "664" });
            plant.verb("create", new).unwrap();
        }
        let whole = plant.verb("ls", json!({ "path": "/" })).unwrap();
        assert!(whole.get("next").is_none() && names(&whole).len() >= 5, "{whole}");
        let (mut parts, mut after) = (Vec::new(), Some(0));
        while let Some(from) = after {
            let part = json!({ "path": "/", "limit": 2, "after": from });
            let listed = plant.verb("ls", part).unwrap();
            assert!(names(&listed).len() <= 2, "{listed}");
            parts.extend(names(&listed));
            after = listed.get("next").and_then(Value::as_u64);
        }
        assert_eq!(parts, names(&whole));
        for limit in [0, 10_001] {
            let e = plant.verb("ls", json!({ "path": "/", "limit": limit })).unwrap_err();
            let limit = format!("limit is {limit}, not 1 to 10000");
            assert!(e.kind == Errno::Inval && e.message.contains(&limit), "{e}");
        }
    }
}
