//! Parts of the page of classes: facts, keys and commands of each class, from the registry.

use super::marked::Part;
use super::page::Page;
use crate::cli::ClassVerbs;
use crate::config::{Catalog, ClassFacts, Entry};
use crate::plan::kind_schema;
use crate::verbs::VERBS;

/// An overview, and a part for each class.
pub(super) fn parts(catalog: &Catalog, classes: &[ClassVerbs]) -> Vec<Part> {
    let of_catalog = catalog.classes.iter().map(|entry| {
        let mut page = Page::part();
        page.text(&format!("{}.", entry.doc.trim_end_matches('.')));
        facts(&mut page, entry, catalog.facts(&entry.name));
        if entry.configurable {
            page.keys(&kind_schema("geom", entry, catalog));
        }
        commands(&mut page, &entry.name, classes);
        (entry.name.clone(), page.finish())
    });
    let is_listed = |class: &&ClassVerbs| catalog.classes.iter().any(|e| e.name == class.name);
    let others = classes.iter().filter(|class| !is_listed(class)).map(|class| {
        let mut page = Page::part();
        page.text(&format!("{}.", class.doc.trim_end_matches('.')));
        commands(&mut page, class.name, classes);
        (class.name.to_owned(), page.finish())
    });
    let overview = ("overview".to_owned(), overview(catalog));
    std::iter::once(overview).chain(of_catalog).chain(others).collect()
}

fn yes_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn members(facts: ClassFacts) -> String {
    match facts.member_limits {
        (least, most) if least == most => least.to_string(),
        (0, usize::MAX) => "any number".to_owned(),
        (least, usize::MAX) => format!("{least} and more"),
        (least, most) => format!("{least} to {most}"),
    }
}

fn overview(catalog: &Catalog) -> String {
    let row = |entry: &Entry| {
        let facts = catalog.facts(&entry.name);
        let link = format!("[{}](#{})", entry.name, entry.name);
        let doc = entry.doc.trim_end_matches('.').to_owned();
        let is = [entry.configurable, facts.tastes, facts.keeps_records].map(yes_no);
        [link, doc].into_iter().chain(is).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = catalog.classes.iter().map(row).collect();
    let mut page = Page::part();
    page.table(&["class", "purpose", "in `[[geom]]`", "tasted", "keeps records"], &rows);
    page.finish()
}

fn facts(page: &mut Page, entry: &Entry, facts: ClassFacts) {
    let records = match facts.keeps_records {
        true => "its geoms are found by records on their members, also declared ones",
        false => "a declared geom needs none",
    };
    let opens = match facts.opens_members {
        true => "as soon as the geom is made, exclusively",
        false => "when a user opens the geom, or as the class needs",
    };
    let serial = if facts.passes_serial { "that of the provider below" } else { "its own" };
    let mut rows = vec![
        ("may be in `[[geom]]`", yes_no(entry.configurable)),
        ("is found by tasting", yes_no(facts.tastes)),
        ("records", records.to_owned()),
        ("members are opened", opens.to_owned()),
        ("serial number of its providers", serial.to_owned()),
    ];
    if entry.configurable {
        rows.insert(1, ("members of a declared geom", members(facts)));
    }
    if let Some(lasts) = facts.member_edits_last {
        rows.push(("members that a command changes last", lasts.to_owned()));
    }
    let rows = rows.into_iter().map(|(fact, value)| vec![fact.to_owned(), value]);
    page.table(&["fact", "value"], &rows.collect::<Vec<_>>());
}

/// The commands of a class, those that every class has among them.
fn commands(page: &mut Page, name: &str, classes: &[ClassVerbs]) {
    let row = |words: String, doc: &str, writes: bool| {
        let command = format!("[`ashlar {words}`](verbs.md#ashlar-{})", words.replace(' ', "-"));
        vec![command, doc.to_owned(), yes_no(writes)]
    };
    let of_class = classes.iter().filter(|class| class.name == name);
    let verbs = of_class.flat_map(ClassVerbs::all_verbs);
    let mut rows: Vec<Vec<String>> =
        verbs.map(|verb| row(format!("{name} {}", verb.name), verb.doc, verb.writes)).collect();
    let own = VERBS.iter().filter(|verb| verb.name.split('.').next() == Some(name));
    rows.extend(own.map(|verb| {
        let writes = verb.args().iter().any(|arg| arg.kind == geom::ArgKind::Consent);
        row(verb.words(), verb.doc, writes)
    }));
    if !rows.is_empty() {
        page.table(&["command", "does", "writes to disks"], &rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::catalog;

    #[test]
    fn each_class_has_facts_keys_and_commands() {
        let cam = ClassVerbs { name: "cam", doc: "Devices of a bus", verbs: &[] };
        let parts = parts(&catalog(), &[cam]);
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["overview", "nop", "part", "cam"]);
        for (n, wanted) in [
            (0, "| [part](#part) | Partition tables | no | yes | no |"),
            (1, "| members of a declared geom | 1 |"),
            (1, "| `delay_us` | integer | 0 |"),
            (2, "[`ashlar part add`](verbs.md#ashlar-part-add)"),
            (3, "[`ashlar cam status`](verbs.md#ashlar-cam-status)"),
        ] {
            assert!(parts[n].1.contains(wanted), "{wanted}: {}", parts[n].1);
        }
    }
}
