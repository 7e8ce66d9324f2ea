//! The tree keeps the rules, and each rule can fail.

use std::path::Path;

use tidy::{Source, Tree, check};

#[test]
fn source_tree_obeys_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let breaches = check(&Tree::read(&root).expect("the checkout is readable"));
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

fn breaches(path: &str, text: &str) -> Vec<String> {
    let dir = path.rsplit_once('/').map_or("", |(d, _)| d);
    let name = path.rsplit('/').next().unwrap_or("").trim_end_matches(".rs");
    let root = format!("#![forbid(unsafe_code)]\nmod {name};\n");
    check(&Tree {
        sources: vec![
            Source { path: path.into(), text: text.into() },
            Source { path: format!("{dir}/lib.rs"), text: root },
        ],
        manifests: Vec::new(),
    })
}

#[track_caller]
fn refuses(path: &str, text: &str, word: &str) {
    let found = breaches(path, text);
    assert!(found.iter().any(|b| b.contains(word)), "{word} not in {found:?}");
}

#[test]
fn panics_in_protocol_code_are_refused_outside_tests() {
    refuses("crates/wire/src/a.rs", "fn f() { x.unwrap(); }\n", "banned");
    let tested = "#[cfg(test)]\nmod tests {\n    fn f() { x.unwrap(); }\n}\n";
    assert_eq!(breaches("crates/wire/src/a.rs", tested), Vec::<String>::new());
    assert_eq!(breaches("crates/mgmt/src/a.rs", "fn f() { x.unwrap(); }\n").len(), 0);
}

#[test]
fn clocks_todo_comments_and_overlong_code_are_refused() {
    refuses("crates/geom/src/a.rs", "let t = Instant::now();\n", "banned");
    refuses("crates/mgmt/src/a.rs", "// TODO later\n", "unfinished");
    refuses("crates/mgmt/src/a.rs", &"\n".repeat(901), "lines");
    refuses("crates/mgmt/src/a.rs", &format!("//{}\n", "x".repeat(99)), "columns");
    let long = format!("fn f() {{\n{}}}\n", "    x();\n".repeat(95));
    refuses("crates/mgmt/src/a.rs", &long, "a function");
}

#[test]
fn class_that_imports_another_is_refused() {
    let list = "vec![crate::nop::Nop, crate::part::Part, crate::inspect::Inspect]\n";
    let found = |path: &str, text: &str| {
        let source = |path: &str, text: &str| Source {
            path: format!("crates/classes/src/{path}"),
            text: text.into(),
        };
        let lib =
            "#![forbid(unsafe_code)]\nmod nop; mod part; mod inspect; mod registry; mod guard;";
        let sources = vec![source("registry.rs", list), source("lib.rs", lib), source(path, text)];
        let all = check(&Tree { sources, manifests: Vec::new() });
        all.iter().filter(|b| b.contains("knows the class")).count()
    };
    assert_eq!(found("part/mod.rs", "use crate::nop::Nop;\n"), 1);
    assert_eq!(found("guard.rs", "use crate::part;\n"), 1);
    assert_eq!(found("inspect/scan.rs", "use crate::nop::Nop;\n"), 1);
    assert_eq!(found("inspect/scan.rs", "use crate::part;\n"), 0);
    assert_eq!(found("part/mod.rs", "use crate::inspect;\nuse crate::part::Table;\n"), 0);
    assert_eq!(found("nop.rs", "#[cfg(test)]\nmod tests {\n    use crate::part;\n}\n"), 0);
}

#[test]
fn kind_or_driver_named_above_its_crate_is_refused() {
    let found = |path: &str, text: &str| {
        breaches(path, text).iter().filter(|b| b.contains("is named")).count()
    };
    let text = "fn f(d: &Disk) -> bool { d.kind == \"file\" || d.kind == \"blockdev\" }\n";
    assert_eq!(found("crates/daemon/src/a.rs", text), 2);
    assert_eq!(found("crates/mgmt/src/a.rs", "let name = \"aoe\";\n"), 1);
    assert_eq!(found("crates/disks/src/a.rs", text), 0);
    assert_eq!(found("crates/mgmt/src/a_tests.rs", text), 0);
    let tested = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
    assert_eq!(found("crates/mgmt/src/a.rs", &tested), 0);
}

#[test]
fn import_that_the_engine_does_not_allow_is_refused() {
    let found = |path: &str, text: &str| {
        let path = format!("crates/engine/src/{path}");
        breaches(&path, text).iter().filter(|b| b.contains(" imports ")).count()
    };
    assert_eq!(found("reservations/state.rs", "use crate::unit::Device;\n"), 1);
    assert_eq!(found("unit/alua.rs", "use crate::nexus::{ItNexus, Path};\n"), 1);
    assert_eq!(found("status.rs", "fn f(d: &crate::unit::Device) {}\n"), 1);
    assert_eq!(found("unit/mod.rs", "use crate::handlers::Handler;\n"), 1);
    assert_eq!(found("registry/mod.rs", "use crate::command::spc;\n"), 1);
    assert_eq!(found("nexus/mod.rs", "use crate::task_set::aca;\n"), 1);
    assert_eq!(found("handlers/disk/mode.rs", "use crate::command::spc;\n"), 1);
    assert_eq!(found("reservations/state.rs", "use crate::flags;\nuse crate::ItNexus;\n"), 0);
    assert_eq!(found("reservations/tests.rs", "use crate::unit::Device;\n"), 0);
    let tested = "#[cfg(test)]\nmod tests {\n    use crate::unit::Device;\n}\n";
    assert_eq!(found("status.rs", tested), 0);
    refuses("crates/engine/src/new.rs", "use crate::unit::Device;\n", "not in ENGINE");
}

#[test]
fn unsafe_code_outside_the_listed_files_is_refused() {
    refuses("crates/bio/src/a.rs", "fn f() { unsafe { g() } }\n", "unsafe");
    assert_eq!(breaches("crates/bio/src/pool.rs", "fn f() { unsafe { g() } }\n").len(), 0);
    let bare = Source { path: "crates/geom/src/lib.rs".into(), text: "//! x\n".into() };
    let found = check(&Tree { sources: vec![bare], manifests: Vec::new() });
    assert!(found[0].contains("forbid"), "{found:?}");
}

#[test]
fn imports_from_a_higher_layer_are_refused() {
    let up = "[dependencies]\ngeom.workspace = true\n";
    let manifests = vec![("reactor".into(), up.into()), ("new".into(), String::new())];
    let code = Source { path: "crates/reactor/src/lib.rs".into(), text: "use geom::X;".into() };
    let found = check(&Tree { sources: vec![code], manifests });
    assert!(found[0].contains("not below"), "{found:?}");
    assert!(found[1].contains("no level"), "{found:?}");
}

#[test]
fn file_without_a_mod_item_is_reported() {
    let lone = Source { path: "crates/geom/src/dead.rs".into(), text: String::new() };
    let found = check(&Tree { sources: vec![lone], manifests: Vec::new() });
    assert!(found[0].contains("mod dead"), "{found:?}");
}

#[test]
fn method_that_no_other_asks_for_is_refused() {
    let clean = "    fn clean_records(&mut self, _: &mut Topology, _: GeomId) -> bool {}\n";
    refuses("crates/geom/src/a.rs", clean, "without `fn keeps_records");
    let both = format!("    fn keeps_records(&self) -> bool {{}}\n{clean}");
    assert_eq!(breaches("crates/geom/src/a.rs", &both).len(), 0);
}

#[test]
fn unused_dependency_is_reported() {
    let tree = |code: &str| Tree {
        sources: vec![Source { path: "crates/geom/src/lib.rs".into(), text: code.into() }],
        manifests: vec![
            ("".into(), "[workspace.dependencies]\nserde-x = \"=1\"\nold = \"=1\"\n".into()),
            ("geom".into(), "[dependencies]\nserde-x.workspace = true\n".into()),
        ],
    };
    let found = check(&tree("#![forbid(unsafe_code)]\nuse serde_x::X;\n"));
    assert_eq!(found, ["Cargo.toml:3: no crate depends on old"]);
    let found = check(&tree("#![forbid(unsafe_code)]\n"));
    assert!(found[1].contains("serde-x is not used"), "{found:?}");
}
