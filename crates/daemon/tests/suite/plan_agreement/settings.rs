//! Generator of settings of the daemon that are live or need its next start, of webhooks, and of
//! disks on a server elsewhere.

use super::document::Document;
use super::targets::secret;

/// Address of the server of all walks; the walk replaces it.
pub const FAR: &str = "FAR-SERVER";

/// Adds settings and webhooks to a document.
pub fn add(document: &mut Document<'_>) {
    if document.dice.chance(40) {
        daemon(document);
    }
    if document.dice.chance(30) {
        webhook(document);
    }
}

fn daemon(document: &mut Document<'_>) {
    let mut lines: Vec<String> = Vec::new();
    // A token without an address is refused.
    let listens = document.dice.chance(80);
    if listens {
        let at = document.dice.pick(&["127.0.0.6:0", "127.0.0.6:0", "127.0.1.6:0"]);
        lines.push(format!("metrics_listen = '{at}'"));
    }
    if document.dice.chance(if listens { 50 } else { 10 }) {
        lines.push(format!("metrics_token = 'file:{}'", secret(document)));
    }
    if document.dice.chance(30) {
        lines.push("metrics_series_max = 5000".to_owned());
    }
    if document.dice.chance(15) {
        // Of these, the first two are accepted, without a target of the driver `local`.
        let sandboxes = [
            "sandbox = true\nsandbox_folders = ['images']",
            "sandbox = true",
            "sandbox = true\nsandbox_folders = ['/']",
            "sandbox_folders = ['images']",
        ];
        lines.push(document.dice.pick(&sandboxes).to_owned());
    }
    document.add("daemon", &lines.join("\n"));
}

/// Nothing is sent: no thread delivers events in these tests.
fn webhook(document: &mut Document<'_>) {
    let mut lines = match document.dice.chance(50) {
        true => "url = 'http://127.0.0.1:9/events'".to_owned(),
        false => {
            let ca = document.dice.pick(&["ca.pem", "ca.pem", "ca.pem", "missing.pem"]);
            format!("url = 'https://localhost:9/events'\ntls_ca = '{ca}'")
        }
    };
    if document.dice.chance(50) {
        lines += &format!("\nsecret = 'file:{}'", secret(document));
    }
    let level = document.dice.pick(&["info", "warn", "error"]);
    document.add("[webhook]", &format!("name = 'pager'\nlevel = '{level}'\n{lines}"));
}

/// Adds the export of another daemon as a disk; whether it is there.
pub fn remote_disk(document: &mut Document<'_>) -> bool {
    if !document.dice.chance(30) {
        return false;
    }
    let settings = [
        "",
        "",
        "timeout_s = 9\nretries = 2",
        "connections = 1\ndeadline_s = 30",
        "read_only = true",
        // The files of TLS are read before the server is asked.
        "tls_ca = 'missing.pem'",
    ];
    let lines = document.dice.pick(&settings);
    let server = format!("kind = 'nbd'\naddress = '{FAR}'\nexport = '0'");
    document.add("[disk]", &format!("name = 'far'\n{server}\n{lines}"));
    true
}
