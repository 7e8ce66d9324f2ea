//! Runbooks of the alerts as a document: the section of the manual to which the alert rules of
//! `contrib/monitoring` link.

use super::html::Html;

/// Path of the document. A fragment is the name of an alert in lower case.
pub const RUNBOOK: &str = "/runbook";

const MANUAL: &str = include_str!("../../../../docs/monitoring.md");

/// The alerts with the text of each.
fn alerts() -> impl Iterator<Item = (&'static str, &'static str)> {
    let section = MANUAL.split_once("\n## Alerts\n").map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or_default();
    section.split("\n### ").skip(1).filter_map(|part| part.split_once('\n'))
}

/// The document. It contains nothing about the daemon.
pub fn runbook() -> String {
    let mut html = Html::document();
    html.open("html", &[("lang", "en")]);
    html.open("head", &[]);
    html.void("meta", &[("charset", "utf-8")]);
    html.element("title", &[], "Runbooks of Ashlar");
    html.close();
    html.open("body", &[]);
    html.open("main", &[]);
    html.element("h1", &[], "Runbooks of Ashlar");
    for (alert, text) in alerts() {
        html.open("section", &[("id", &alert.to_lowercase())]);
        html.element("h2", &[], alert);
        html.open("pre", &[]);
        text.trim().lines().for_each(|line| html.line(line));
        html.close();
        html.close();
    }
    html.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runbook_has_the_steps_of_each_alert() {
        let text = runbook();
        assert!(alerts().count() > 10 && alerts().all(|(_, steps)| !steps.trim().is_empty()));
        for part in ["<section id=\"ashlarsilent\"><h2>AshlarSilent</h2>", "`ashlar status`"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
