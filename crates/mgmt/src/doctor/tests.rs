//! Each check on a machine that is made up: once well, once not.

use super::*;
use crate::api::{
    BusState, CertificateState, CoreState, DeviceState, DiskState, Health, Kind, ListenerState,
    SandboxFolder, TargetState, TroubleState,
};
use crate::config::read;
use crate::fake::catalog;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use testkit::Folder;

struct Machine(Folder);

impl Machine {
    fn new(name: &str) -> Machine {
        let folder = Folder::new(&format!("doc-{name}"));
        fs::create_dir_all(folder.join("sys/kernel")).expect("scratch");
        fs::create_dir_all(folder.join("self")).expect("scratch");
        Machine(folder)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::write(&path, text).expect("scratch");
        path
    }

    fn facts(&self, document: Option<&str>) -> Facts {
        let file = self.0.join("ashlar.toml");
        if let Some(text) = document {
            self.write("ashlar.toml", text);
        }
        Facts {
            proc: self.0.to_path_buf(),
            file,
            config: document.map(|text| read(text, "ashlar.toml", &catalog())),
            catalog: catalog(),
            socket: self.0.join("ashlar.sock"),
            daemon: Err(Error::new(Kind::Unreachable, "connect", "nobody")),
            refused_steps: Vec::new(),
            version: "1.2.3".to_owned(),
        }
    }
}

/// The same, with a further parameter of the first disk.
fn with_disk_param(mut facts: Facts, key: &str, value: impl Into<serde_json::Value>) -> Facts {
    let config = facts.config.as_mut().and_then(|config| config.as_mut().ok());
    let disk = &mut config.expect("well-formed").disk[0];
    disk.params.insert(key.to_owned(), value.into());
    facts
}

/// The grades that a check gives, and that its words are there when it has a finding.
fn grades(id: &str, facts: &Facts) -> Vec<Severity> {
    let check = CHECKS.iter().find(|c| c.id == id).expect("a check");
    let found = check.run(facts);
    for f in &found {
        assert_eq!(f.check, id);
        assert!(!f.finding.is_empty());
        assert_eq!(f.grade == Severity::Ok, f.fix.is_empty(), "{f:?}");
        assert_eq!(f.grade == Severity::Ok, f.consequence.is_empty(), "{f:?}");
    }
    found.iter().map(|f| f.grade).collect()
}

#[test]
fn kernel_settings_and_limits_are_graded() {
    let machine = Machine::new("kernel");
    let mut facts = machine.facts(None);
    for (text, grade) in [("0\n", Severity::Ok), ("1\n", Severity::Warn), ("2\n", Severity::Warn)] {
        machine.write("sys/kernel/io_uring_disabled", text);
        assert_eq!(grades("io_uring", &facts), [grade]);
    }
    let mut state = SystemState::default();
    state.daemon.cores = vec![CoreState { port_kind: "uring".to_owned(), ..CoreState::default() }];
    facts.daemon = Ok(state);
    assert_eq!(grades("io_uring", &facts), [Severity::Ok], "what runs says more");
    let core =
        |why: &str| CoreState { port_kind: "poll".to_owned(), why: why.to_owned(), busy_ns: 0 };
    for (why, grade) in [("poll, as configured", Severity::Ok), ("poll, refused", Severity::Warn)] {
        let mut state = SystemState::default();
        state.daemon.cores = vec![core(why)];
        facts.daemon = Ok(state);
        assert_eq!(grades("io_uring", &facts), [grade], "{why}");
    }
    let limit = |fds: &str| {
        machine.write("self/limits", &format!("Max open files  {fds}  524288  files\n"));
    };
    limit("1024");
    assert_eq!(grades("fds", &facts), [Severity::Warn]);
    limit("524288");
    assert_eq!(grades("fds", &facts), [Severity::Ok]);
}

#[test]
fn configuration_and_secrets_are_graded() {
    let machine = Machine::new("config");
    assert_eq!(grades("config", &machine.facts(None)), [Severity::Warn]);
    assert_eq!(grades("config", &machine.facts(Some("x = 1\n"))), [Severity::Fail]);
    assert_eq!(grades("config", &machine.facts(Some(""))), [Severity::Ok]);
    let target = |secret: &str| {
        format!(
            "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['127.0.0.1:0']\n\
             chap={{user='u',secret='{secret}'}}\n"
        )
    };
    let facts = machine.facts(Some(&target("0123456789abc")));
    let mode = |path: &Path, m| {
        fs::set_permissions(path, fs::Permissions::from_mode(m)).expect("mode");
    };
    mode(&facts.file, 0o644);
    assert_eq!(grades("secrets", &facts), [Severity::Fail]);
    mode(&facts.file, 0o600);
    assert_eq!(grades("secrets", &facts), [Severity::Ok]);
    assert_eq!(grades("secrets", &machine.facts(Some(&target("short")))), [Severity::Fail]);
    let path = machine.write("secret", "0123456789abc\n");
    mode(&path, 0o640);
    let facts = machine.facts(Some(&target(&format!("file:{}", path.display()))));
    assert_eq!(grades("secrets", &facts), [Severity::Fail]);
    mode(&path, 0o600);
    assert_eq!(grades("secrets", &facts), [Severity::Ok]);
    let facts = machine.facts(Some(&target("credential:web")));
    assert_eq!(grades("secrets", &facts), [Severity::Ok], "only the daemon can read it");
}

#[test]
fn certificates_are_reported_thirty_days_ahead() {
    const DAY_S: i64 = 24 * 3600;
    for (expires_s, grade, words) in [
        (31 * DAY_S, None, ""),
        (30 * DAY_S, Some(Severity::Warn), "expires in 30 days"),
        (DAY_S, Some(Severity::Warn), "expires in 1 day"),
        (-DAY_S, Some(Severity::Fail), "expired 1 day ago"),
    ] {
        let (key, path) = ("tls_certificate".to_owned(), "/x".to_owned());
        let at = "target t".to_owned();
        let file = CertificateState { at, key, path, expires_s, expires_at: 1_800_000_000 };
        let found = certificates::validity(&file);
        assert_eq!(found.as_ref().map(|f| f.grade), grade);
        let finding = found.map(|f| f.finding).unwrap_or_default();
        assert!(finding.ends_with(words), "{finding}");
    }
}

#[test]
fn tls_files_of_disks_are_checked_as_those_of_targets() {
    let machine = Machine::new("tls");
    let key = machine.write("key.pem", "a key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("mode");
    let facts = machine.facts(Some("[[disk]]\nname='d'\nkind='null'\n"));
    let facts = with_disk_param(facts, "tls_ca", "/nowhere/ca.pem");
    let facts = with_disk_param(facts, "tls_key", key.display().to_string());
    assert_eq!(grades("certificates", &facts), [Severity::Fail], "there is no ca.pem");
    assert_eq!(grades("secrets", &facts), [Severity::Warn], "others can read the key");
}

#[test]
fn backing_files_are_graded() {
    let machine = Machine::new("backing");
    let disk = |path: &Path, more: &str| {
        format!("[[disk]]\nname='d'\nkind='file'\npath='{}'\n{more}\n", path.display())
    };
    let none = machine.0.join("none.img");
    assert_eq!(grades("backing", &machine.facts(Some(&disk(&none, "")))), [Severity::Fail]);
    // The daemon has it still: a new file in its place would lose the data.
    let health = Health::Failed;
    let served = DiskState {
        name: "d".into(),
        health,
        troubles: vec![TroubleState { health, ..TroubleState::default() }],
        ..DiskState::default()
    };
    let mut facts = machine.facts(Some(&disk(&none, "")));
    facts.daemon = Ok(SystemState { disks: vec![served], ..SystemState::default() });
    let check = CHECKS.iter().find(|c| c.id == "backing").expect("a check");
    assert!(check.run(&facts)[0].finding.ends_with("though the daemon serves it"));
    let lost = machine.0.join("nowhere/none.img");
    let facts = machine.facts(Some(&disk(&lost, "size_bytes='1M'")));
    assert_eq!(grades("backing", &facts), [Severity::Fail]);
    let small = machine.write("small.img", "x");
    assert_eq!(grades("backing", &machine.facts(Some(&disk(&small, "")))), [Severity::Fail]);
    let read_only =
        |path: &Path| with_disk_param(machine.facts(Some(&disk(path, ""))), "read_only", true);
    // Kernels refuse to write a program that runs, also for root (ETXTBSY).
    let program = std::env::current_exe().expect("this test");
    if fs::OpenOptions::new().write(true).open(&program).is_err() {
        let facts = machine.facts(Some(&disk(&program, "")));
        assert_eq!(grades("backing", &facts), [Severity::Fail], "it cannot be written");
        let grade = grades("backing", &read_only(&program));
        assert!(!grade.contains(&Severity::Fail), "{grade:?}");
    }
    assert_eq!(grades("backing", &read_only(&machine.0)), [Severity::Fail], "a folder is no disk");
    let there = machine.write("there.img", &"x".repeat(512));
    let grade = grades("backing", &machine.facts(Some(&disk(&there, ""))));
    assert!(!grade.contains(&Severity::Fail), "{grade:?}");
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        let facts = machine.facts(Some(&disk(&shm.join("none.img"), "size_bytes='1M'")));
        assert_eq!(grades("backing", &facts), [Severity::Warn]);
    }
}

#[test]
fn address_of_a_file_server_that_no_interface_has_is_a_warning() {
    let machine = Machine::new("fs-ports");
    // RFC 5737: no machine has the first one.
    for (at, grade) in [("192.0.2.77:564", Severity::Warn), ("127.0.0.1:564", Severity::Ok)] {
        let section = serde_json::json!({
            "class": "fs", "name": "main", "members": ["ssd", "near"], "plan9": [at],
        });
        let geom = serde_json::from_value(section).expect("a geom");
        let config = Config { geom: vec![geom], ..Config::default() };
        let facts = Facts { config: Some(Ok(config)), ..machine.facts(None) };
        assert_eq!(grades("ports", &facts), [grade], "{at}");
    }
}

#[test]
fn ports_socket_and_version_are_graded() {
    let machine = Machine::new("ports");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = busy.local_addr().expect("bound").to_string();
    let target = |address: &str| {
        format!("[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['{address}']\n")
    };
    // RFC 5737: no machine has it.
    let foreign = machine.facts(Some(&target("192.0.2.77:3260")));
    assert_eq!(grades("ports", &foreign), [Severity::Warn]);
    let mut facts = machine.facts(Some(&target(&address)));
    assert_eq!(grades("ports", &facts), [Severity::Fail]);
    assert_eq!(grades("socket", &facts), [Severity::Ok], "no daemon runs");
    machine.write("ashlar.sock", "");
    assert_eq!(grades("socket", &facts), [Severity::Warn], "stale");
    let mut state = SystemState { schema_version: 1, ..SystemState::default() };
    state.targets = vec![TargetState { portals: vec![address], ..TargetState::default() }];
    state.daemon.version = "1.2.3".to_owned();
    facts.daemon = Ok(state.clone());
    assert_eq!(grades("ports", &facts), [Severity::Ok], "it is ours");
    let every = format!("0.0.0.0:{}", busy.local_addr().expect("bound").port());
    let wider = Facts { daemon: Ok(state.clone()), ..machine.facts(Some(&target(&every))) };
    assert_eq!(grades("ports", &wider), [Severity::Ok], "its target listens there more widely");
    assert_eq!(grades("ports", &machine.facts(Some(&target(&every)))), [Severity::Fail]);
    assert_eq!(grades("version", &facts), [Severity::Ok]);
    state.daemon.version = "1.0.0".to_owned();
    facts.daemon = Ok(state.clone());
    assert_eq!(grades("version", &facts), [Severity::Warn]);
    facts.daemon = Ok(SystemState { schema_version: 9, ..state });
    assert_eq!(grades("version", &facts), [Severity::Fail]);
    let check = CHECKS.iter().find(|c| c.id == "version").expect("a check");
    let fix = check.run(&facts).remove(0).fix;
    assert!(fix.contains("`systemctl restart ashlar`") && fix.contains("`ashlar serve`"), "{fix}");
}

#[test]
fn address_and_token_of_metrics_are_graded() {
    let machine = Machine::new("metrics");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = busy.local_addr().expect("bound").to_string();
    let token = machine.0.join("token");
    let token = token.display();
    let text = format!("[daemon]\nmetrics_listen='{address}'\nmetrics_token='file:{token}'\n");
    let mut facts = machine.facts(Some(&text));
    assert_eq!(grades("ports", &facts), [Severity::Fail]);
    assert_eq!(grades("secrets", &facts), [Severity::Fail], "there is no such file");
    let mut state = SystemState { schema_version: 1, ..SystemState::default() };
    state.daemon.metrics_listen = Some(address);
    facts.daemon = Ok(state);
    assert_eq!(grades("ports", &facts), [Severity::Ok], "it is ours");
}

#[test]
fn locks_and_ports_are_not_checked_while_the_daemon_gives_no_state() {
    let machine = Machine::new("silent");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = busy.local_addr().expect("bound").to_string();
    let listen = format!("[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['{address}']\n");
    machine.write("ashlar.sock", "");
    for (kind, source, why) in [
        (Kind::Silent, "no answer within 10s", "the running daemon does not answer"),
        (Kind::Forbidden, "denied", "the daemon does not report its state: denied"),
    ] {
        let daemon = Err(Error::new(kind, "ask", source));
        let facts = Facts { daemon, ..machine.facts(Some(&listen)) };
        assert_eq!(grades("socket", &facts), [Severity::Fail]);
        for id in ["config", "ports"] {
            assert_eq!(grades(id, &facts), [Severity::Warn], "{id}");
            let check = CHECKS.iter().find(|c| c.id == id).expect("a check");
            let found = check.run(&facts).remove(0).finding;
            assert!(found.ends_with(&format!(" are not checked: {why}")), "{found}");
        }
        for id in ["buses", "names"] {
            assert_eq!(grades(id, &facts), [Severity::Ok], "{id}");
        }
    }
}

#[test]
fn unix_socket_addresses_are_graded() {
    let machine = Machine::new("unix");
    let at = |name: &str| {
        let path = machine.0.join(name);
        let listen = format!("listen=['unix:{}']\n", path.display());
        machine.facts(Some(&format!("[[target]]\ndriver='other'\nname='t'\n{listen}")))
    };
    assert_eq!(grades("ports", &at("free.sock")), [Severity::Ok]);
    let busy = std::os::unix::net::UnixListener::bind(machine.0.join("busy.sock")).expect("bind");
    let facts = at("busy.sock");
    assert_eq!(grades("ports", &facts), [Severity::Fail], "another process listens");
    drop(busy);
    assert_eq!(grades("ports", &facts), [Severity::Ok], "left behind: it is taken away");
    machine.write("file.sock", "not a socket");
    assert_eq!(grades("ports", &at("file.sock")), [Severity::Fail]);
    assert_eq!(grades("ports", &at("no/such/folder.sock")), [Severity::Fail]);
}

/// A connection to it would wait until the listener accepts one.
#[test]
fn unix_socket_whose_listener_accepts_nothing_is_graded_at_once() {
    use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let machine = Machine::new("full");
    let path = machine.0.join("full.sock");
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket")
    };
    let (listener, at) = (socket(), SocketAddrUnix::new(path.as_path()).expect("an address"));
    net::bind(&listener, &at).expect("bind");
    net::listen(&listener, 0).expect("listen");
    let mut waiting = Vec::new();
    let last = loop {
        let client = socket();
        match net::connect(&client, &at) {
            Ok(()) => waiting.push(client),
            Err(e) => break e,
        }
    };
    assert_eq!(last, rustix::io::Errno::AGAIN, "it has no place");
    let listen = format!("listen=['unix:{}']\n", path.display());
    let facts = machine.facts(Some(&format!("[[target]]\ndriver='other'\nname='t'\n{listen}")));
    let (to, graded) = std::sync::mpsc::channel();
    std::thread::spawn(move || to.send(grades("ports", &facts)));
    let graded = graded.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(graded, Ok(vec![Severity::Fail]));
}

#[test]
fn unix_socket_that_keeps_out_a_named_user_is_reported() {
    let machine = Machine::new("users");
    let path = machine.0.join("t.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    let address = format!("unix:{}", path.display());
    let text = format!(
        "[[disk]]\nname='d0'\nkind='file'\npath='/a'\n\
         [[target]]\ndriver='other'\nname='t'\nlisten=['{address}']\n\
         [[access]]\ntarget='t'\ngroup='g'\ninitiators=['unix:uid=65533']\nluns={{ 0='d0' }}\n"
    );
    let targets = vec![TargetState { portals: vec![address], ..TargetState::default() }];
    let daemon = Ok(SystemState { targets, ..SystemState::default() });
    let facts = Facts { daemon, ..machine.facts(Some(&text)) };
    for (mode, grade) in [(0o755, Severity::Warn), (0o660, Severity::Ok), (0o666, Severity::Ok)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        assert_eq!(grades("ports", &facts), [grade], "{mode:o}");
    }
}

#[test]
fn bus_troubles_are_graded() {
    let machine = Machine::new("buses");
    let mut facts = machine.facts(None);
    assert_eq!(grades("buses", &facts), [Severity::Ok], "no daemon to ask");
    let noted = TroubleState { why: "sda is mounted".into(), ..TroubleState::default() };
    let well = BusState { name: "mps0".into(), troubles: vec![noted], ..BusState::default() };
    let why = |n: u8| TroubleState {
        health: Health::Failed,
        why: format!("iqn.x at 10.0.0.{n}:3260: connection refused"),
        ..TroubleState::default()
    };
    let one = BusState {
        name: "iscsi0".into(),
        number: 7,
        troubles: vec![why(1)],
        devices: vec![DeviceState::default()],
        ..BusState::default()
    };
    let none = BusState { troubles: vec![why(2), why(3)], devices: Vec::new(), ..one.clone() };
    let state = |buses| Ok(SystemState { buses, ..SystemState::default() });
    facts.daemon = state(vec![well.clone()]);
    assert_eq!(grades("buses", &facts), [Severity::Ok]);
    facts.daemon = state(vec![well, one, none]);
    assert_eq!(grades("buses", &facts), [Severity::Fail; 3], "each is said");
    let check = CHECKS.iter().find(|c| c.id == "buses").expect("a check");
    let finding = &check.run(&facts)[0];
    assert_eq!(finding.finding, "iscsi0: iqn.x at 10.0.0.1:3260: connection refused");
    assert!(finding.fix.contains("ashlar cam rescan 7"), "{finding:?}");
}

#[test]
fn disk_names_that_depend_on_scan_order_are_warned_about() {
    let machine = Machine::new("names");
    let document = |names: &str, provider: &str| {
        format!(
            "[[bus]]\nname='iscsi0'\nkind='far'\n{names}\n\
             [[target]]\nname='iqn.2026-11.a:b'\ndriver='iscsi'\nlisten=['127.0.0.1:3260']\n\
             [[access]]\ntarget='iqn.2026-11.a:b'\ngroup='g'\ninitiators=['*']\n\
             luns={{ 0 = '{provider}' }}\n"
        )
    };
    let disk = |name: &str| DeviceState { name: name.into(), lun: 7, ..DeviceState::default() };
    let facts = |text: &str, names: &[&str]| {
        let devices = names.iter().map(|name| disk(name)).collect();
        let bus = BusState { name: "iscsi0".into(), devices, ..BusState::default() };
        let mut facts = machine.facts(Some(text));
        assert!(matches!(facts.config, Some(Ok(_))), "{text}");
        facts.daemon = Ok(SystemState { buses: vec![bus], ..SystemState::default() });
        facts
    };
    let by_order = document("", "da1");
    assert_eq!(grades("names", &facts(&by_order, &["da0", "da1"])), [Severity::Warn]);
    assert_eq!(grades("names", &facts(&by_order, &["ada0", "da1"])), [Severity::Ok], "alone");
    let mut kept = facts(&by_order, &["da0", "da1"]);
    let devices = kept.daemon.as_mut().map(|state| &mut state.buses[0].devices);
    devices.expect("a daemon").iter_mut().for_each(|disk| disk.kept = true);
    assert_eq!(grades("names", &kept), [Severity::Ok], "kept");
    let pinned = document("names = { da1 = 'S1' }", "da1");
    assert_eq!(grades("names", &facts(&pinned, &["da0", "da1"])), [Severity::Ok]);
    let label = document("", "gpt/store");
    assert_eq!(grades("names", &facts(&label, &["da0", "da1"])), [Severity::Ok], "not in use");
    let check = CHECKS.iter().find(|c| c.id == "names").expect("a check");
    let finding = &check.run(&facts(&by_order, &["da0", "da1"]))[0];
    assert!(finding.fix.contains("names = { da1 = \"0:7\" }"), "{finding:?}");
}

#[test]
fn listeners_without_token_or_tls_beyond_loopback_are_warned_about() {
    let machine = Machine::new("listeners");
    let facts = |at: &str, token: &str| {
        machine.facts(Some(&format!("[daemon]\nmetrics_listen='{at}'\n{token}")))
    };
    assert_eq!(grades("listeners", &facts("127.0.0.1:9464", "")), [Severity::Ok]);
    assert_eq!(grades("listeners", &facts("0.0.0.0:9464", "")), [Severity::Warn]);
    let token = "metrics_token='file:/etc/ashlar/metrics.token'\n";
    assert_eq!(grades("listeners", &facts("0.0.0.0:9464", token)), [Severity::Warn], "no TLS");
    let check = CHECKS.iter().find(|c| c.id == "listeners").expect("a check");
    let finding = &check.run(&facts("0.0.0.0:9464", ""))[0];
    assert!(finding.finding.starts_with("metrics at 0.0.0.0:9464: no token"), "{finding:?}");
    assert!(finding.fix.contains("metrics_token"), "{finding:?}");
}

#[test]
fn listener_that_the_daemon_cannot_open_fails() {
    let machine = Machine::new("listeners-closed");
    let mut facts = machine.facts(None);
    let listener = ListenerState {
        name: "api".into(),
        address: "127.0.0.1:7320".into(),
        authenticated: true,
        callers: Some(1),
        ..ListenerState::default()
    };
    let state = |l: ListenerState| Ok(SystemState { listeners: vec![l], ..SystemState::default() });
    facts.daemon = state(listener.clone());
    assert_eq!(grades("listeners", &facts), [Severity::Ok]);
    facts.daemon = state(ListenerState { why: "address in use".into(), ..listener.clone() });
    assert_eq!(grades("listeners", &facts), [Severity::Fail]);
    facts.daemon = state(ListenerState { callers: Some(0), ..listener });
    assert_eq!(grades("listeners", &facts), [Severity::Warn], "no caller can log in");
}

#[test]
fn folder_of_the_sandbox_that_was_replaced_is_named() {
    let machine = Machine::new("sandbox");
    let folder = machine.0.join("7/root/srv/images");
    fs::create_dir_all(&folder).expect("scratch");
    let about = fs::metadata(&folder).expect("scratch");
    let with = |device: u64, inode: u64, path: &str| {
        let mut state = SystemState::default();
        state.daemon.pid = 7;
        state.daemon.sandbox = vec![SandboxFolder { path: path.to_owned(), device, inode }];
        Facts { daemon: Ok(state), ..machine.facts(None) }
    };
    let (device, inode, path) = (about.dev(), about.ino(), "/srv/images");
    assert_eq!(grades("sandbox", &machine.facts(None)), [Severity::Ok], "no daemon");
    assert_eq!(grades("sandbox", &with(device, inode, path)), [Severity::Ok]);
    let off = Facts { daemon: Ok(SystemState::default()), ..machine.facts(None) };
    let check = CHECKS.iter().find(|c| c.id == "sandbox").expect("a check");
    assert!(check.run(&off)[0].finding.starts_with("off: `sandbox = true`"));
    let mut unenforced = with(device, inode, path);
    if let Ok(state) = &mut unenforced.daemon {
        state.daemon.sandbox_problem = Some("the kernel has no Landlock".to_owned());
    }
    assert_eq!(grades("sandbox", &unenforced), [Severity::Warn]);
    assert_eq!(grades("sandbox", &with(device, inode, "/srv/gone")), [Severity::Fail]);
    for (device, inode, words) in
        [(device + 1, inode, "was mounted over it"), (device, inode + 1, "was replaced")]
    {
        let found = check.run(&with(device, inode, path));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].finding.starts_with("/srv/images: "), "{found:?}");
        assert!(found[0].finding.contains(words) && found[0].fix.contains("restart"), "{found:?}");
    }
}

#[test]
fn checks_of_a_remote_daemon_read_nothing_of_this_machine() {
    let machine = Machine::new("remote");
    let mut facts = machine.facts(None);
    let expired = CertificateState {
        at: "api".into(),
        key: "tls_certificate".into(),
        path: "/etc/ashlar/api.pem".into(),
        expires_s: -1,
        expires_at: 0,
    };
    let mut state = SystemState { certificates: vec![expired], ..SystemState::default() };
    state.daemon.cores = vec![CoreState { port_kind: "uring".to_owned(), ..CoreState::default() }];
    facts.daemon = Ok(state);
    // No file of this machine exists there.
    facts.proc = "/nonexistent".into();
    assert_eq!(grades("certificates", &facts), [Severity::Fail], "the daemon reports it");
    assert_eq!(grades("io_uring", &facts), [Severity::Ok]);
    for id in STATE_CHECKS {
        assert!(!grades(id, &facts).is_empty(), "{id}");
    }
}
