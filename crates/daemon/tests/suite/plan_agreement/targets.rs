//! Generator of target port groups, targets of every driver with their groups of initiators, and
//! the API over TCP.

use super::document::Document;

/// Driver, name and host of a target; drivers have no address in common.
const TARGETS: [(&str, &str, &str); 5] = [
    ("iscsi", "iqn.2026-11.test:t", "127.0.0.1"),
    ("nbd", "n", "127.0.0.2"),
    ("nvme_tcp", "nqn.2026-11.test:t", "127.0.0.3"),
    ("aoe", "shelf", ""),
    ("local", "here", ""),
];

/// Adds them to a document.
pub fn add(document: &mut Document<'_>) {
    let has_group = document.dice.chance(40);
    if has_group {
        port_groups(document);
    }
    for target in TARGETS {
        let percent = if ["iscsi", "nbd"].contains(&target.0) { 70 } else { 35 };
        if document.dice.chance(percent) {
            one(document, target, has_group);
        }
    }
    if document.dice.chance(15) {
        local_bus(document);
    }
    if document.dice.chance(30) {
        api(document);
    }
}

/// The group `near`, and sometimes the default one.
fn port_groups(document: &mut Document<'_>) {
    let states = ["optimized", "non-optimized", "standby"];
    if document.dice.chance(30) {
        let state = document.dice.pick(&states);
        document.add("[alua]", &format!("name = 'default'\nid = 1\nstate = '{state}'"));
    }
    let (id, state) = (document.dice.pick(&["2", "3"]), document.dice.pick(&states));
    let preferred = document.dice.chance(50);
    let lines = format!("id = {id}\nstate = '{state}'\npreferred = {preferred}");
    document.add("[alua]", &format!("name = 'near'\n{lines}"));
}

/// A target, and its group of initiators.
fn one(document: &mut Document<'_>, (driver, name, host): (&str, &str, &str), has_group: bool) {
    let name = if document.dice.chance(4) { "iqn." } else { name };
    let listen = match driver {
        "local" => String::new(),
        "aoe" => {
            let interface = document.dice.pick(&["lo", "lo", "nowhere0"]);
            format!("listen = ['ether:{interface}']")
        }
        _ => {
            let second = host.replace(".0.0.", ".0.1.");
            let both = document.dice.pick(&["'@:0'", "'@:0'", "'#:0'", "'@:0', '#:0'"]);
            format!("listen = [{}]", both.replace('@', host).replace('#', &second))
        }
    };
    let group = if has_group && document.dice.chance(50) { "port_group = 'near'" } else { "" };
    let own = settings(document, driver);
    let lines = format!("driver = '{driver}'\nname = '{name}'\n{listen}\n{group}\n{own}");
    document.add("[target]", &lines);
    let luns = luns(document);
    let group = document.dice.pick(&["g", "h"]);
    // No station on the loopback interface has this address.
    let initiator = if driver == "aoe" { "mac:02:00:00:00:00:01" } else { "*" };
    let accounts = if driver == "iscsi" { accounts(document) } else { String::new() };
    let portals = if !host.is_empty() && document.dice.chance(15) {
        let rule = document.dice.pick(&["@", "@", "@:3260", "127.9.9.9", "everywhere"]);
        format!("\nportals = ['{}']", rule.replace('@', host))
    } else {
        String::new()
    };
    let lines = format!("target = '{name}'\ngroup = '{group}'\ninitiators = ['{initiator}']");
    document.add("[access]", &format!("{lines}\nluns = {{ {luns} }}{portals}{accounts}"));
}

/// Accounts of a group of iSCSI initiators: of all of them, and of a single one.
fn accounts(document: &mut Document<'_>) -> String {
    let mut lines = String::new();
    if document.dice.chance(15) {
        let secret = secret(document);
        let mutual = "mutual = { user = 't', secret = 'file:back' }";
        lines += &format!("\nchap = {{ user = 'w', secret = 'file:{secret}', {mutual} }}");
    }
    if document.dice.chance(15) {
        let account = format!("user = 'one', secret = 'file:{}'", secret(document));
        lines += &format!("\ninitiator_chap = {{ 'iqn.2026-11.test:one' = {{ {account} }} }}");
    }
    lines
}

/// At most three LUNs, of different providers.
fn luns(document: &mut Document<'_>) -> String {
    let mut luns: Vec<String> = Vec::new();
    for lun in 0..3 {
        if !document.dice.chance(60) || document.units.is_empty() {
            continue;
        }
        let at = document.dice.0.below(document.units.len() as u64) as usize;
        let unit = match document.dice.chance(4) {
            true => "nothing",
            false => &document.units[at],
        };
        let quoted = format!("'{unit}'");
        if luns.iter().any(|lun| lun.contains(&quoted)) {
            continue;
        }
        luns.push(match document.dice.chance(15) {
            true => format!("{lun} = {{ provider = {quoted}, mode = 'ro' }}"),
            false => format!("{lun} = {quoted}"),
        });
    }
    luns.join(", ")
}

/// The file of a secret: one that may be used, one that others may read, or none.
pub fn secret(document: &mut Document<'_>) -> &'static str {
    match document.dice.0.below(20) {
        0 => "open",
        1 => "none",
        _ => "good",
    }
}

/// Settings of a driver; some are refused.
fn settings(document: &mut Document<'_>, driver: &str) -> String {
    let of =
        |document: &mut Document<'_>, usual: &[&'static str], wrong: &'static str| match document
            .dice
            .chance(5)
        {
            true => wrong.to_owned(),
            false => document.dice.pick(usual).to_owned(),
        };
    match driver {
        "iscsi" if document.dice.chance(40) => {
            let secret = secret(document);
            format!("chap = {{ user = 'u', secret = 'file:{secret}' }}")
        }
        "nbd" if document.dice.chance(50) => tls_of_nbd(document),
        "nvme_tcp" => {
            let usual = ["", "queues_max = 8", "model = 'Other'", "controller_id_min = 7"];
            of(document, &usual, "controller_id_min = 70\ncontroller_id_max = 60")
        }
        "aoe" => of(document, &["shelf = 7", "shelf = 8", "buffers = 9"], "shelf = 65535"),
        "local" => of(document, &["", "reconnect = 60"], "chap = { user = 'u', secret = 'x' }"),
        _ => String::new(),
    }
}

/// The files of TLS; some are missing, or do not belong together.
pub fn tls_files(document: &mut Document<'_>) -> String {
    let (certificate, key) = match document.dice.0.below(12) {
        0 => ("own.pem", "other.key"),
        1 => ("missing.pem", "own.key"),
        _ => ("own.pem", "own.key"),
    };
    let ca = if document.dice.chance(30) { "\ntls_client_ca = 'ca.pem'" } else { "" };
    format!("tls_certificate = '{certificate}'\ntls_key = '{key}'{ca}")
}

fn tls_of_nbd(document: &mut Document<'_>) -> String {
    let tls = document.dice.pick(&["allow", "allow", "require"]);
    format!("tls = '{tls}'\n{}", tls_files(document))
}

/// LUN 0 of a target of this daemon as the disk `i0`, which no LUN shows.
fn local_bus(document: &mut Document<'_>) {
    let Some(unit) = document.units.first().cloned() else { return };
    document.add("[target]", "driver = 'local'\nname = 'inner'");
    let luns = format!("luns = {{ 0 = '{unit}' }}");
    document.add("[access]", &format!("target = 'inner'\ngroup = 'g'\ninitiators = ['*']\n{luns}"));
    let lines = "driver = 'local'\ntarget = 'inner'\nnames = { i0 = '0:0' }";
    document.add("[bus]", &format!("name = 'b'\nkind = 'local'\n{lines}"));
}

fn api(document: &mut Document<'_>) {
    let files = if document.dice.chance(60) { tls_files(document) } else { String::new() };
    // Without TLS it is refused beyond loopback.
    let at = document.dice.pick(&["127.0.0.4:0", "127.0.0.4:0", "127.0.0.5:0", "0.0.0.0:0"]);
    document.add("api", &format!("listen = ['{at}']\n{files}"));
    if files.contains("tls_client_ca") && document.dice.chance(50) {
        let role = document.dice.pick(&["viewer", "admin"]);
        document.add("[api_client]", &format!("subject = 'laptop'\nrole = '{role}'"));
    }
}
