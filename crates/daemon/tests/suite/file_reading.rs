//! Files of a file server that are read beside the control thread, as the page does.

use mgmt::api::Kind;
use serde_json::{Value, json};

use crate::by_hand::Site;

const TEXT: &str = "
    [[disk]]\nname = 'cache'\nkind = 'memory'\nsize = '32MiB'
    [[disk]]\nname = 'worm'\nkind = 'memory'\nsize = '64MiB'
    [[geom]]\nclass = 'fs'\nname = 'main'\nmembers = ['cache', 'worm']\ncreate = true
";

/// A verb of the file server, to its end.
fn fs(site: &Site, verb: &str, mut params: Value) -> Value {
    loop {
        let run = site.control.change(|plant| plant.verb("fs", verb, &params, &mut |_| {}));
        let answer = run.unwrap_or_else(|e| panic!("fs {verb} {params}: {e}"));
        match answer.pointer("/unfinished/again") {
            Some(again) => params = again.clone(),
            None => return answer,
        }
    }
}

#[test]
fn files_of_a_server_are_listed_compared_and_read() {
    let site = Site::new("file-reading", TEXT);
    fs(&site, "newuser", json!({ "name": "main", "user": "rob" }));
    fs(&site, "dump", json!({ "name": "main" }));
    fs(&site, "newuser", json!({ "name": "main", "user": "ken" }));
    let files = site.control.plant().files();
    assert_eq!(files.servers(), ["main"]);
    let dumps = files.query("main", "dumps", &json!({})).expect("dumps");
    let dump = dumps["dumps"][0]["path"].as_str().expect("a dump").to_owned();
    let old = format!("/dump/{dump}/adm/users");
    let listed = files.query("main", "ls", &json!({ "path": "/usr" })).expect("a listing");
    let names = listed["entries"].to_string();
    assert!(names.contains("\"rob\"") && names.contains("\"ken\""), "{listed}");
    let who = files.query("main", "who", &json!({})).expect("clients");
    assert_eq!(who["who"], json!([]));
    let history = files.query("main", "history", &json!({ "path": "/adm/users" }));
    let versions = history.expect("versions")["versions"].as_array().map(Vec::len);
    assert_eq!(versions, Some(2));

    let found = files.compare("main", &old, "/adm/users").expect("compared");
    let text = found.text.expect("both are text");
    assert!(text.contains("ken") && found.sizes[0] < found.sizes[1], "{text}");
    assert!(found.first_difference.is_some_and(|at| at <= found.sizes[0]));
    let diff = fs(&site, "diff", json!({ "name": "main", "path": "/adm/users" }));
    assert_eq!(diff["first_difference"], json!(found.first_difference), "{diff}");
    let same = files.compare("main", &old, &old).expect("compared");
    assert_eq!((same.first_difference, same.text.as_deref()), (None, Some("")));
    assert_eq!(same.compared, same.sizes[0]);

    let mut file = files.open("main", "/adm/users").expect("open");
    let mut bytes = Vec::new();
    loop {
        let piece = file.read().expect("read");
        if piece.is_empty() {
            break;
        }
        bytes.extend(piece);
    }
    assert_eq!(bytes.len() as u64, file.size());
    assert!(String::from_utf8_lossy(&bytes).contains("ken"));
}

#[test]
fn changed_file_and_wrong_names_are_refused_to_readers() {
    let site = Site::new("file-refusals", TEXT);
    fs(&site, "newuser", json!({ "name": "main", "user": "rob" }));
    let files = site.control.plant().files();
    let mut file = files.open("main", "/adm/users").expect("open");
    fs(&site, "newuser", json!({ "name": "main", "user": "ken" }));
    let kind = file.read().expect_err("it has changed").kind;
    assert!(matches!(kind, Kind::Busy | Kind::NotFound), "{kind:?}");
    let open = |server: &str, path: &str| files.open(server, path).map(drop).map_err(|e| e.kind);
    assert_eq!(open("main", "/adm"), Err(Kind::Usage));
    assert_eq!(open("main", "/none"), Err(Kind::NotFound));
    assert_eq!(open("main", "/dump/1999/0101/x"), Err(Kind::NotFound));
    assert_eq!(open("none", "/adm/users"), Err(Kind::NotFound));
    let refused = files.query("main", "remove", &json!({ "paths": ["/adm/users"] }));
    assert_eq!(refused.map_err(|e| e.kind), Err(Kind::Unsupported));
    assert!(files.open("main", "/adm/users").is_ok());
}
