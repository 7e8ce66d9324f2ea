//! The rules.

use crate::source::{Source, Tree, indent_of};

/// Crates and their levels: a crate imports only crates of lower levels.
pub const LEVELS: &[(&str, u32)] = &[
    ("bio", 0),
    ("wire", 0),
    ("extents", 0),
    ("reactor", 1),
    ("tls", 1),
    ("geom", 2),
    ("transport", 2),
    ("classes", 3),
    ("disks", 3),
    ("cam", 3),
    ("engine", 3),
    ("fileserver", 3),
    ("drivers", 4),
    ("mgmt", 5),
    ("daemon", 6),
    ("ashlar", 7),
];

/// Tools that are not part of the daemon: they may import any crate, and no crate imports them.
const TOOLS: &[&str] = &["tidy", "rig", "testkit", "bench"];

/// Files that may contain `unsafe`, with the reason in each block.
const UNSAFE: &[&str] = &[
    "crates/bio/src/buf.rs",
    "crates/bio/src/count.rs",
    "crates/bio/src/parity.rs",
    "crates/bio/src/arena.rs",
    "crates/bio/src/thread_owned.rs",
    "crates/bio/src/resolved_arc.rs",
    "crates/bio/src/pool.rs",
    "crates/reactor/src/backend/",
];

/// Crates that bytes of a peer or a disk reach, where nothing may panic.
const NO_PANIC: &[&str] =
    &["wire", "extents", "classes", "cam", "engine", "transport", "drivers", "fileserver"];

/// Crates that take time and random numbers from the core.
const NO_CLOCK: &[&str] = &[
    "bio",
    "wire",
    "extents",
    "geom",
    "classes",
    "disks",
    "cam",
    "engine",
    "transport",
    "drivers",
    "fileserver",
];

const PANICS: &[(&str, &str)] = &[
    (".unwrap()", "return an error that names the field"),
    (".expect(", "return an error that names the field"),
    ("panic!(", "return an error that names the field"),
    ("unreachable!(", "make the state impossible, or return an error"),
];

const CLOCKS: &[(&str, &str)] = &[
    ("SystemTime::now", "ask the core: core.now()"),
    ("Instant::now", "ask the core: core.now()"),
    ("thread_rng", "ask the core: core.reactor().random()"),
    ("getrandom", "ask the core: core.reactor().fill_random()"),
    ("thread::sleep", "ask the core: core.reactor().sleep()"),
];

const UNFINISHED: &[&str] =
    &["todo!(", "unimplemented!(", "#[ignore", "TODO", "FIXME", "XXX", "HACK"];

/// Methods of a trait that are called only if another one enables them: the beginning of each in
/// the file of an implementation. Their defaults compile, so that one alone has no effect.
const PAIRED: &[(&str, &str)] = &[
    ("fn clean_records(&mut self, ", "fn keeps_records(&self)"),
    ("fn make_durable(&mut self)", "fn must_be_flushed(&self)"),
];

/// The list of classes, the only file that names them all.
const CLASSES: &str = "crates/classes/src/registry.rs";
/// Modules below the classes, which all classes may use: those that the list names.
const BELOW_CLASSES: &[&str] = &["members", "inspect"];
/// Formats that the scanner of disks reads by the code of their class.
const SCANNED: &[&str] = &["part", "label"];

/// Crates that know disk kinds, bus kinds and drivers only by their properties.
const WITHOUT_PARTS: &[&str] = &["mgmt", "daemon"];
/// Code that names one of them.
const NAMED_PARTS: &[&str] = &[
    "\"aoe\"",
    "\"blockdev\"",
    "\"iscsi\"",
    "\"nvme_tcp\"",
    "kind == \"file\"",
    "kind == \"nbd\"",
    "driver == \"local\"",
    "driver == \"nbd\"",
];

/// Modules of the engine from the lowest to the highest, each with those that it may import: only
/// modules that are listed before it.
const ENGINE: &[(&str, &str)] = &[
    ("close_reason", ""),
    ("flags", ""),
    ("load", ""),
    ("state_store", ""),
    ("status", ""),
    ("task", ""),
    ("plan", "task"),
    ("reservations", "flags"),
    ("unit", "close_reason flags load reservations status task"),
    ("qos", "load unit"),
    ("gate", "flags plan status unit"),
    ("registry", "close_reason load reservations state_store task unit"),
    ("nexus", "flags gate plan qos registry reservations status task unit"),
    ("task_set", "flags gate nexus plan reservations status task unit"),
    ("job", "nexus qos registry reservations state_store status task task_set unit"),
    ("handlers", "gate job plan registry state_store status unit"),
    ("lun", "handlers job registry state_store unit"),
    ("copy", "flags handlers job registry status unit"),
    (
        "command",
        "copy flags gate handlers job load nexus plan qos registry reservations state_store \
         status task task_set unit",
    ),
];

/// Lines of a file above which it is refused.
const FILE_LINES_MAX: usize = 700;
/// Lines of a function above which it is refused.
const FUNCTION_LINES_MAX: usize = 90;
/// Columns of a line above which it is refused.
const COLUMNS_MAX: usize = 100;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Packages whose library has another name.
const LIBRARIES: &[(&str, &str)] = &[("md-5", "md5")];

/// Every breach of a rule, as `file:line: what, and what to do instead`.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut out = Vec::new();
    for (krate, manifest) in &tree.manifests {
        if krate.is_empty() {
            listed(manifest, tree, &mut out);
        } else {
            edges(krate, manifest, &mut out);
            used(krate, manifest, tree, &mut out);
        }
    }
    for s in &tree.sources {
        if s.krate() == "tidy" {
            continue;
        }
        unsafe_code(s, &mut out);
        banned(s, &mut out);
        sizes(s, &mut out);
        paired(s, &mut out);
        parts(s, &mut out);
        reachable(s, tree, &mut out);
    }
    classes(tree, &mut out);
    engine(tree, &mut out);
    out
}

/// A new disk kind, bus kind or driver needs no edit in the crates above it.
fn parts(s: &Source, out: &mut Vec<String>) {
    // The fake is for tests alone.
    if !WITHOUT_PARTS.contains(&s.krate()) || s.is_test() || s.path.ends_with("/fake.rs") {
        return;
    }
    for (n, line) in s.product_lines() {
        for name in NAMED_PARTS.iter().filter(|name| line.contains(**name)) {
            let what = "describe it by a property of the kind or driver";
            out.push(format!("{}:{n}: {name} is named: {what}", s.path));
        }
    }
}

/// Modules of the own crate that a line names.
fn named(line: &str) -> Vec<String> {
    let module = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect()
    };
    line.split("crate::").skip(1).map(module).collect()
}

/// The module of a crate that a file below its `src/` belongs to.
fn module_of(place: &str) -> &str {
    place.split('/').next().unwrap_or(place).trim_end_matches(".rs")
}

/// A module of the engine imports only those that its line in [`ENGINE`] lists.
fn engine(tree: &Tree, out: &mut Vec<String>) {
    for s in &tree.sources {
        let Some(place) = s.path.strip_prefix("crates/engine/src/") else { continue };
        let own = module_of(place);
        if s.is_test() || matches!(own, "fuzzing" | "lib") {
            continue;
        }
        let Some((_, may)) = ENGINE.iter().find(|(name, _)| *name == own) else {
            out.push(format!("{}:1: module {own} of the engine is not in ENGINE", s.path));
            continue;
        };
        let is_free = |name: &str| name == own || may.split(' ').any(|listed| listed == name);
        for (n, line) in s.product_lines() {
            let others = named(&line).into_iter().filter(|name| !is_free(name));
            for other in others.filter(|name| ENGINE.iter().any(|(known, _)| known == name)) {
                let what = "move what both need to the module that owns it";
                out.push(format!("{}:{n}: {own} imports {other}: {what}", s.path));
            }
        }
    }
}

/// A class does not use another class, and the modules below the classes use none.
fn classes(tree: &Tree, out: &mut Vec<String>) {
    let Some(list) = tree.sources.iter().find(|s| s.path == CLASSES) else { return };
    let mut all = named(&list.text);
    all.retain(|name| !name.is_empty() && !BELOW_CLASSES.contains(&name.as_str()));
    for s in &tree.sources {
        let Some(place) = s.path.strip_prefix("crates/classes/src/") else { continue };
        let own = module_of(place);
        if s.is_test() || matches!(own, "registry" | "fuzzing" | "lib") {
            continue;
        }
        for (n, line) in s.product_lines() {
            for other in named(&line).into_iter().filter(|name| name != own && all.contains(name)) {
                if own != "inspect" || !SCANNED.contains(&other.as_str()) {
                    let what = "move what both need below the classes";
                    out.push(format!("{}:{n}: {own} knows the class {other}: {what}", s.path));
                }
            }
        }
    }
}

/// Dependencies in a section of a manifest, with the number of their line.
fn dependencies<'m>(
    manifest: &'m str,
    section: &str,
) -> impl Iterator<Item = (usize, &'m str)> + use<'m> {
    let wanted = format!("[{section}]");
    let mut inside = false;
    manifest.lines().enumerate().filter_map(move |(i, line)| {
        if line.starts_with('[') {
            inside = line == wanted;
            return None;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or("");
        (inside && !name.is_empty() && !name.starts_with('#')).then_some((i + 1, name))
    })
}

/// Reports dependencies of the workspace that no crate uses.
fn listed(workspace: &str, tree: &Tree, out: &mut Vec<String>) {
    for (n, name) in dependencies(workspace, "workspace.dependencies") {
        let asks = |line: &str| {
            line.strip_prefix(name).is_some_and(|rest| {
                rest.starts_with(".workspace") || rest.starts_with(" = { workspace")
            })
        };
        if !tree.manifests.iter().any(|(_, m)| m.lines().any(asks)) {
            out.push(format!("Cargo.toml:{n}: no crate depends on {name}"));
        }
    }
}

/// Reports dependencies of a crate that its code does not name.
fn used(krate: &str, manifest: &str, tree: &Tree, out: &mut Vec<String>) {
    for (n, name) in dependencies(manifest, "dependencies") {
        let known = LIBRARIES.iter().find(|(package, _)| *package == name);
        let library = known.map_or_else(|| name.replace('-', "_"), |(_, l)| l.to_string());
        let (path, import) = (format!("{library}::"), format!("use {library}"));
        let mut sources = tree.sources.iter().filter(|s| s.krate() == krate);
        if !sources.any(|s| s.text.contains(&path) || s.text.contains(&import)) {
            out.push(format!("crates/{krate}/Cargo.toml:{n}: {name} is not used"));
        }
    }
}

fn level(krate: &str) -> Option<u32> {
    LEVELS.iter().find(|(n, _)| *n == krate).map(|(_, f)| *f)
}

fn edges(krate: &str, manifest: &str, out: &mut Vec<String>) {
    if TOOLS.contains(&krate) {
        return;
    }
    let Some(own) = level(krate) else {
        out.push(format!("crates/{krate}/Cargo.toml:1: crate {krate} has no level in LEVELS"));
        return;
    };
    for (n, name) in dependencies(manifest, "dependencies") {
        let name = name.strip_prefix("ashlar-").unwrap_or(name);
        let at = format!("crates/{krate}/Cargo.toml:{n}");
        if TOOLS.contains(&name) {
            out.push(format!("{at}: {name} is a tool; only dev-dependencies may name it"));
        }
        if level(name).is_some_and(|f| f >= own) {
            out.push(format!("{at}: {krate} (level {own}) imports {name}, which is not below it"));
        }
    }
}

fn unsafe_code(s: &Source, out: &mut Vec<String>) {
    let root = s.path.ends_with("/src/lib.rs") || s.path.ends_with("/src/main.rs");
    let exempt = matches!(s.krate(), "bio" | "reactor");
    if root && !exempt && !s.text.contains("#![forbid(unsafe_code)]") {
        out.push(format!("{}:1: the crate's root lacks #![forbid(unsafe_code)]", s.path));
    }
    if !exempt || UNSAFE.iter().any(|u| s.path.starts_with(u)) {
        return;
    }
    for (n, line) in s.product_lines() {
        if line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl") {
            out.push(format!("{}:{n}: unsafe outside of the files listed in tidy", s.path));
        }
    }
}

fn banned(s: &Source, out: &mut Vec<String>) {
    if s.is_test() {
        return;
    }
    for (n, line) in s.product_lines() {
        let mut ban = |list: &[(&str, &str)]| {
            for (word, instead) in list {
                if line.contains(word) {
                    out.push(format!("{}:{n}: `{word}` is banned here: {instead}", s.path));
                }
            }
        };
        if NO_PANIC.contains(&s.krate()) {
            ban(PANICS);
        }
        if NO_CLOCK.contains(&s.krate()) {
            ban(CLOCKS);
        }
    }
    for (i, line) in s.text.lines().enumerate() {
        for word in UNFINISHED {
            if line.contains(word) {
                out.push(format!("{}:{}: unfinished work: {word}", s.path, i + 1));
            }
        }
    }
}

fn sizes(s: &Source, out: &mut Vec<String>) {
    let lines: Vec<&str> = s.text.lines().collect();
    let excused = LONG_FILES.iter().any(|(p, _)| *p == s.path);
    if lines.len() > FILE_LINES_MAX && !excused {
        out.push(format!("{}:1: {} lines; split it by role", s.path, lines.len()));
    }
    for (i, line) in lines.iter().enumerate() {
        if line.chars().count() > COLUMNS_MAX && !line.contains("http") {
            out.push(format!("{}:{}: more than {COLUMNS_MAX} columns", s.path, i + 1));
        }
        if !s.is_test() && starts_function(line) {
            let close = format!("{}}}", " ".repeat(indent_of(line)));
            let end = lines[i..].iter().position(|l| *l == close).unwrap_or(0);
            if end > FUNCTION_LINES_MAX {
                out.push(format!("{}:{}: a function of {end} lines; cut it", s.path, i + 1));
            }
        }
    }
}

/// A method that is never called because the method that enables it is missing.
fn paired(s: &Source, out: &mut Vec<String>) {
    for (method, other) in PAIRED {
        let at = s.text.lines().position(|line| line.trim_start().starts_with(method));
        if let Some(at) = at.filter(|_| !s.text.contains(other)) {
            out.push(format!("{}:{}: `{method}` without `{other}`", s.path, at + 1));
        }
    }
}

fn starts_function(line: &str) -> bool {
    let t = line.trim_start();
    let t = t.strip_prefix("pub ").unwrap_or(t);
    let t = match t.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or(t, |(_, r)| r),
        None => t,
    };
    ["fn ", "async fn ", "const fn ", "unsafe fn "].iter().any(|p| t.starts_with(p))
}

/// A file that no `mod` line names is dead.
fn reachable(s: &Source, tree: &Tree, out: &mut Vec<String>) {
    let Some((dir, file)) = s.path.rsplit_once('/') else { return };
    let in_src = s.path.contains("/src/");
    if !in_src || matches!(file, "lib.rs" | "main.rs") || s.path.contains("/src/bin/") {
        return;
    }
    let (parent_dir, module) = match file {
        "mod.rs" => dir.rsplit_once('/').unwrap_or((dir, "")),
        _ => (dir, file.trim_end_matches(".rs")),
    };
    let mut parents = vec![
        format!("{parent_dir}/mod.rs"),
        format!("{parent_dir}/lib.rs"),
        format!("{parent_dir}/main.rs"),
        format!("{parent_dir}.rs"),
    ];
    parents.retain(|p| *p != s.path);
    let by_mod = tree.sources.iter().filter(|x| parents.contains(&x.path));
    let declared = by_mod.into_iter().any(|x| x.text.contains(&format!("mod {module};")));
    let siblings = tree.sources.iter().filter(|x| x.path.starts_with(dir));
    let by_path = siblings.into_iter().any(|x| x.text.contains(&format!("path = \"{file}\"")));
    let named = declared || by_path;
    if !named {
        out.push(format!("{}:1: no `mod {module};` names this file", s.path));
    }
}

#[cfg(test)]
mod tests {
    use super::ENGINE;

    #[test]
    fn engine_modules_may_import_only_lower_ones() {
        for (at, (name, may)) in ENGINE.iter().enumerate() {
            for other in may.split_whitespace() {
                let is_lower = ENGINE[..at].iter().any(|(lower, _)| *lower == other);
                assert!(is_lower, "{name} imports {other}, which is not listed before it");
            }
        }
    }
}
