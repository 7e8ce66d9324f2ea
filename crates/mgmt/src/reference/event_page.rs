//! Parts of the page of events.

use super::marked::Part;
use super::page::Page;
use crate::api::{EVENT_GROUPS, EventGroup, EventKind};

/// A table of texts for each subject.
pub(super) fn parts() -> Vec<Part> {
    EVENT_GROUPS.iter().map(|group| (group.part.to_owned(), table(group))).collect()
}

fn table(group: &EventGroup) -> String {
    let has_classes = group.kinds.iter().any(|kind| !kind.classes.is_empty());
    let skipped = usize::from(!has_classes);
    let row = |kind: &EventKind| -> Vec<String> {
        let cells = [kind.classes, kind.text, kind.level, kind.cause, kind.next];
        cells.iter().skip(skipped).map(|cell| (*cell).to_owned()).collect()
    };
    let columns = ["class", "text", "level", "cause", "what to do"];
    let mut page = Page::part();
    page.table(&columns[skipped..], &group.kinds.iter().map(row).collect::<Vec<_>>());
    page.finish()
}
