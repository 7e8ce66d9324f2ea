//! The configurations in `examples/`: a daemon accepts each one, and the description in its
//! comments is true.

use std::path::{Path, PathBuf};

use rig::papers::{Good, Papers};
use testkit::cable::Cable;

use crate::fixture::Fixture;

/// The interface of a target in an example.
const CARD: &str = "ether:eth3";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn each_example_is_accepted_by_plan() {
    let mut fixture = Fixture::new("examples");
    fixture.configure("", "");
    fixture.start();
    // `plan` reads the files that an example names, and looks for the interface of a target.
    let cable = Cable::create("1500");
    let papers = Papers::new("examples").unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "client", "client", "subjectAltName=DNS:client", Good::Now).unwrap();
    let files = [
        ("/etc/ashlar/ca.pem", "ca.pem"),
        ("/etc/ashlar/client.pem", "client/client-cert.pem"),
        ("/etc/ashlar/client.key", "client/client-key.pem"),
    ];
    let mut names = Vec::new();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let mut text = std::fs::read_to_string(&path).unwrap();
        let mut read = path.clone();
        let is_changed = files.iter().any(|(named, _)| text.contains(named)) || text.contains(CARD);
        if is_changed {
            for (named, made) in files {
                text = text.replace(named, papers.file(made).to_str().unwrap());
            }
            text = text.replace(CARD, &format!("ether:{}", cable.ends[0]));
            read = fixture.path(path.file_name().unwrap().to_str().unwrap());
            std::fs::write(&read, text).unwrap();
        }
        // 6: there are changes, and they can be listed.
        let plan = fixture.ashlar(&["plan", read.to_str().unwrap()]).ends(6);
        assert!(plan.out.contains("create "), "{plan}");
        names.push(path);
    }
    assert!(names.len() >= 4, "{names:?}");
    fixture.stop();
}

/// Configurations of pages without a session: blocks of TOML that begin with `# ashlar.toml`.
fn blocks_of_the_manual() -> Vec<(PathBuf, String)> {
    let root = examples().join("..");
    let mut pages = Vec::new();
    for folder in ["docs", "docs/cookbook", "docs/concepts"].map(|folder| root.join(folder)) {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    let mut blocks = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        // Sessions of a page are run with its configuration: see `manual.rs`.
        if text.contains("```console\n") {
            continue;
        }
        for block in text.split("```toml\n# ashlar.toml\n").skip(1) {
            let (toml, _) = block.split_once("\n```").expect("the block ends");
            blocks.push((page.clone(), toml.to_owned()));
        }
    }
    blocks
}

#[test]
fn each_configuration_of_the_manual_is_planned() {
    let mut fixture = Fixture::new("manual");
    fixture.configure("", "");
    fixture.start();
    let blocks = blocks_of_the_manual();
    assert!(!blocks.is_empty());
    for (page, toml) in blocks {
        let file = fixture.path("page.toml");
        std::fs::write(&file, toml).unwrap();
        let plan = fixture.ashlar(&["plan", file.to_str().unwrap()]);
        assert_eq!(plan.code, 6, "{}: {plan}", page.display());
    }
    fixture.stop();
}

/// The listing as FreeBSD's camcontrol prints it, from the talk that CAM was taken from.
#[test]
fn sas_and_sata_are_listed_side_by_side() {
    let mut fixture = Fixture::new("diversity");
    let text = std::fs::read_to_string(examples().join("unified-diversity.toml")).unwrap();
    fixture.configure(&text, "");
    fixture.start();
    let want = include_str!("../../../../examples/unified-diversity.txt");
    assert_eq!(fixture.ok(&["cam", "devlist", "-v"]), want);
    fixture.stop();
}
