//! Buses and geoms that cannot be opened: `plan` refuses them as `apply` does.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::by_hand::Site;
use crate::members::refused;

/// Kind and keys of a bus that cannot be opened, and why.
const BUSES: [(&str, &str, &str); 6] = [
    ("iscsi", "portals = ['10.0.0.1:3260']\ntarget = 'disk1'", "`disk1` is no iSCSI name"),
    (
        "iscsi",
        "portals = ['10.0.0.1:3260']\ntarget = 'iqn.2026-11.test:t'\n\
         chap = { user = 'u', secret = 'file:open' }",
        "mode is 0644",
    ),
    (
        "iscsi",
        "portals = ['10.0.0.1:3260']\ntarget = 'iqn.2026-11.test:t'\n\
         chap = { user = 'u', secret = 'short' }",
        "the secret is too short",
    ),
    ("aoe", "interfaces = ['lo']\ntargets = ['one']", "is not SHELF.SLOT"),
    ("sg", "devices = ['sg0']", "`sg0` is not an absolute path"),
    ("virtual", "multiplier = true\ntransport = 'sas'", "a port multiplier has up to 15 ports"),
];

#[test]
fn plan_refuses_a_bus_that_cannot_be_opened() {
    let site = Site::launched("refused-bus");
    let secret = site.folder.join("open");
    std::fs::write(&secret, "a secret that is long enough").expect("a secret");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o644)).expect("ours");
    for (kind, keys, why) in BUSES {
        let bus = format!("[[bus]]\nname = 'b'\nkind = '{kind}'\n{keys}\n");
        refused(&site, &bus, (why, ""));
        assert!(site.control.config().0.bus.is_empty(), "{why}");
    }
}

#[test]
fn plan_refuses_an_aoe_target_at_a_missing_interface() {
    let site = Site::launched("refused-interface");
    let shelf = "[[target]]\ndriver = 'aoe'\nname = 'shelf'\nlisten = ['ether:nowhere0']\n";
    refused(&site, shelf, ("nowhere0: ", "`ip link show nowhere0`"));
    assert!(site.control.config().0.target.is_empty());
}

#[test]
fn plan_refuses_a_geom_whose_keys_its_class_refuses() {
    let site = Site::launched("refused-keys");
    let disk = |name: &str| {
        format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '1MiB'\nserial = 'S'\n")
    };
    let paths = disk("d0")
        + &disk("d1")
        + "[[geom]]\nclass = 'multipath'\nname = 'm'\nmembers = ['d0', 'd1']\nmode = 'fast'\n";
    refused(&site, &paths, ("no mode fast", ""));
    assert!(site.control.config().0.disk.is_empty(), "nothing is made");
}

#[test]
fn plan_refuses_a_lun_whose_disk_is_removed() {
    let disk = |name: &str| {
        format!(
            "[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{name}.img'\nsize = '1MiB'\n\
             create = true\n"
        )
    };
    let shown = "[[target]]\ndriver = 'local'\nname = 'here'\n\
                 [[access]]\ntarget = 'here'\ngroup = 'g'\ninitiators = ['*']\n\
                 luns = { 0 = 'd0', 1 = 'd1' }\n";
    let site = Site::new("refused-lun", &(disk("d0") + &disk("d1") + shown));
    refused(&site, &(disk("d0") + shown), ("no such provider", ""));
    assert_eq!(site.control.config().0.disk.len(), 2, "d1 stays");
}

#[test]
fn plan_refuses_a_file_server_whose_certificates_cannot_be_read() {
    let site = Site::launched("refused-fs");
    let disk = |name: &str| format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '32MiB'\n");
    let served = disk("cache")
        + &disk("worm")
        + "[[geom]]\nclass = 'fs'\nname = 'm'\nmembers = ['cache', 'worm']\ncreate = true\n\
           plan9_tls = ['127.0.0.1:0']\n";
    refused(&site, &served, ("tls_certificate is missing", ""));
    let keys = ["tls_certificate", "tls_key", "tls_client_ca"];
    let keys = keys.map(|key| format!("{key} = 'nowhere.pem'\n")).concat();
    refused(&site, &(served + &keys), ("nowhere.pem", ""));
}
