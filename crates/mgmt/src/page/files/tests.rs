//! Pages of files: complete without a script, paged, and safe with names of any content.

use super::*;
use crate::fake_files::{EVIL, FakeFiles};

fn page(path: &str, query: &str) -> String {
    let text = render(&FakeFiles, path, &FilesQuery::parse(query));
    text.unwrap_or_else(|e| panic!("{path}?{query}: {e}"))
}

/// The link to a page of the file with a name of any content.
fn of_evil(to: &str, folder: &str) -> String {
    link(to, &[("server", "main"), ("path", &format!("{folder}/{EVIL}"))]).replace('&', "&amp;")
}

#[test]
fn every_page_of_files_is_escaped_and_has_no_script() {
    let evil = encode(&format!("/{EVIL}"));
    let old = encode(&format!("/dump/2026/1121/{EVIL}"));
    let pages = [
        page(FILES, "server=main&path=%22%3E%3Cscript%3E"),
        page(FOLDER, "server=main"),
        page(VERSIONS, &format!("server=main&path={evil}")),
        page(COMPARE, &format!("server=main&old={old}&new={evil}")),
        refusal(&Error::new(Kind::NotFound, "read files", EVIL).at(EVIL)),
    ];
    for text in pages {
        assert!(!text.contains("<script") && !text.contains(" style="), "{text}");
        assert!(!text.contains(['\u{202e}', '\r']), "{text}");
        assert!(text.contains("href=\"/#graph\"") && text.ends_with("</html>"), "{text}");
    }
}

#[test]
fn page_of_a_file_server_has_its_clients_and_the_command_that_closes_each() {
    let text = page(FILES, "server=main");
    assert!(text.contains("Clients of main") && text.contains("1 of 1 clients."), "{text}");
    for part in ["10.0.0.9:4000", ">1234<", "ashlar fs hangup main 7", "ashlar fs who main"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!page(FILES, "").contains("Clients of"), "no file server is selected");
}

#[test]
fn calendar_has_the_dumps_of_a_year_with_links_to_their_folders() {
    let text = page(FILES, "");
    assert!(text.contains("href=\"/files?server=main\""), "{text}");
    let text = page(FILES, "server=main");
    assert!(text.contains("November 2026") && !text.contains("December 2025"), "{text}");
    assert!(text.contains("path=%2Fdump%2F2026%2F1121\""), "{text}");
    assert!(text.contains(">21</a>") && text.contains(">21 (2)</a>"), "{text}");
    assert!(text.contains("on the cache device alone"), "{text}");
    let text = page(FILES, "server=main&year=2025&path=/lib");
    assert!(text.contains("December 2025") && !text.contains("November 2026"), "{text}");
    assert!(text.contains("path=%2Fdump%2F2025%2F1231%2Flib\""), "{text}");
    assert!(text.contains("<code>ashlar fs dumps main</code>"), "{text}");
}

#[test]
fn folder_links_to_versions_and_downloads() {
    for folder in ["", "/dump/2026/1121"] {
        let text = page(FOLDER, &format!("server=main&path={folder}"));
        for to in [VERSIONS, CONTENT] {
            assert!(text.contains(&of_evil(to, folder)), "{text}");
        }
        assert!(text.contains("&lt;script&gt;"), "{text}");
    }
}

#[test]
fn path_of_many_parts_is_refused_before_its_links_are_written() {
    let path = "/.".repeat(8000);
    for page in [FOLDER, COMPARE] {
        let query = FilesQuery::parse(&format!("server=main&path={path}&old={path}&new=/x"));
        let error = render(&FakeFiles, page, &query).expect_err("it would take megabytes");
        assert_eq!(error.kind, Kind::Usage, "{page}: {error}");
        assert!(error.source.contains("8001 parts (limit 256)"), "{error}");
    }
}

#[test]
fn long_folder_is_shown_in_parts() {
    let part = |after: u64| page(FOLDER, &format!("server=main&path=/big&after={after}"));
    for (after, rows) in [(0, 200), (200, 200), (400, 50)] {
        let text = part(after);
        assert_eq!(text.matches(">Download</a>").count(), rows, "{text}");
        let next = format!("after={}\" rel=\"next\"", after + 200);
        assert_eq!(text.contains(&next), after < 400, "{text}");
    }
}

#[test]
fn versions_are_compared_with_the_older_one_or_any_two() {
    let text = page(VERSIONS, "server=main&path=/dump/2026/1121/lib/x");
    assert!(text.contains("Versions of /lib/x"), "{text}");
    let pair = "old=%2Fdump%2F2026%2F1121%2Flib%2Fx&amp;new=%2Flib%2Fx";
    assert_eq!(text.matches(pair).count(), 1, "{text}");
    assert_eq!(text.matches("<option ").count(), 4, "{text}");
    assert!(text.contains("<code>ashlar fs history main /lib/x</code>"), "{text}");
}

#[test]
fn comparison_shows_lines_of_text_or_the_first_difference() {
    let query = "server=main&old=/dump/2026/1121/changing&new=/changing";
    let text = page(COMPARE, query);
    assert!(text.contains("The first difference is at byte 6."), "{text}");
    assert!(!text.contains("<pre>"), "it is not text: {text}");
    let command = "<code>ashlar fs diff main /changing --from 2026/1121</code>";
    assert!(text.contains(command), "{text}");
    let text = page(COMPARE, "server=main&old=/dump/2026/1121/changing&new=/empty");
    assert!(text.contains("+    second &lt;b&gt;\n</pre>"), "{text}");
}

#[test]
fn unknown_servers_and_folders_are_refused_with_advice() {
    for (path, query) in [(FILES, "server=x"), (FOLDER, "server=main&path=/x"), ("/files/x", "")] {
        let error = render(&FakeFiles, path, &FilesQuery::parse(query)).expect_err("not there");
        assert_eq!(error.kind, Kind::NotFound, "{path}");
        assert!(refusal(&error).contains("role=\"alert\""), "{path}");
    }
    let refused = refusal(&Error::new(Kind::Unauthenticated, "log in", "no token"));
    assert!(refused.contains("client certificate"), "{refused}");
}

#[test]
fn live_path_of_a_dump_has_no_date() {
    for (path, live) in [
        ("/lib/x", "/lib/x"),
        ("/dump/2026/1121/lib/x", "/lib/x"),
        ("/dump/2026/1121", "/"),
        ("/dumping/x", "/dumping/x"),
    ] {
        assert_eq!(live_path(path), live);
    }
}
