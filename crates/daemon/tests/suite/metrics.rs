//! The listener of metrics: it follows edits of `[daemon]`, and an address in use stops nothing.
//! The figures that metrics and samples are made from.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use mgmt::Consent;
use mgmt::api::{DiskState, GeomState, Kind, LunState, SystemState, WebhookState};
use mgmt::config::{Config, DaemonConfig};
use mgmt::http::metrics::{self, Format};
use mgmt::plan::Risk;

use crate::by_hand::Site;

/// The running configuration, with metrics at this address.
fn listening(site: &Site, at: Option<&str>) -> Config {
    let (running, _) = site.control.config();
    let metrics_listen = at.map(str::to_owned);
    Config { daemon: DaemonConfig { metrics_listen, ..running.daemon }, ..running }
}

/// Where metrics are served.
fn address(site: &Site) -> Option<String> {
    site.control.state().expect("a state").daemon.metrics_listen
}

fn scrape(at: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("a listener");
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a page");
    text
}

#[test]
fn metrics_listener_follows_edits_without_a_restart() {
    let site = Site::launched("metrics-edits");
    let config = listening(&site, Some("127.0.0.1:0"));
    let plan = site.control.plan(&config).expect("a plan");
    assert_eq!(plan.steps.iter().map(|step| step.risk).collect::<Vec<_>>(), [Risk::Safe]);
    let consent = Consent::default();
    let (_, applied) = site.control.apply(&config, &consent, &mut |_| {}).expect("it is free");
    assert!(applied.notes.is_empty(), "{:?}", applied.notes);
    let at = address(&site).expect("it listens");
    assert!(scrape(&at).contains("ashlar_build_info{"));
    assert!(site.control.plan(&config).expect("a plan").steps.is_empty());

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let busy = listening(&site, Some(&taken.local_addr().expect("bound").to_string()));
    let plan = site.control.plan(&busy).expect("a plan");
    let (refused, _) = site.control.refused_steps(&plan);
    assert_eq!(refused.len(), 1, "`plan` shows what `apply` would refuse: {refused:?}");
    let error = site.control.apply(&busy, &consent, &mut |_| {}).err().expect("it is in use");
    assert_eq!(error.kind, Kind::CannotCarryOut);
    assert!(error.advice().contains("ss -ltnp"), "{error}");
    assert_eq!(address(&site).as_ref(), Some(&at), "the former listener stays");
    assert!(scrape(&at).contains("ashlar_build_info{"));

    site.apply(&listening(&site, None));
    assert_eq!(address(&site), None);
    assert!(TcpStream::connect(&at).is_err());
}

#[test]
fn metrics_address_in_use_does_not_stop_a_start() {
    let site = Site::launched("metrics-start");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("bound").to_string();
    let disk = site.read("[[disk]]\nname = 'm0'\nkind = 'memory'\nsize = '1MiB'\n");
    let config = Config { disk: disk.disk, ..listening(&site, Some(&at)) };
    let applied = site.control.start(&config).expect("the disk is served");
    let [left] = applied.deferred.as_slice() else { panic!("{:?}", applied.deferred) };
    assert!(left.why.contains(&at), "{left:?}");
    assert!(site.control.state().expect("a state").provider("m0").is_some());
    // An edit of other sections is not refused because of it.
    let without = Config { disk: Vec::new(), ..config.clone() };
    let consent = Consent { destroy: vec!["m0".to_owned()], ..Consent::default() };
    let edited = site.control.apply(&without, &consent, &mut |_| {});
    let (_, applied) = edited.expect("the address may wait");
    assert_eq!(applied.deferred.len(), 1, "{:?}", applied.deferred);
    drop(taken);
    site.apply(&without);
    assert!(scrape(&at).contains("ashlar_build_info{"));
}

#[test]
fn scrape_over_tcp_shows_listeners_and_webhooks() {
    let site = Site::launched("metrics-parts");
    site.apply(&listening(&site, Some("127.0.0.1:0")));
    let states = vec![WebhookState { name: "pager".into(), delivered: 3, ..Default::default() }];
    site.control.set_webhook_states(states);
    let at = address(&site).expect("it listens");
    let text = scrape(&at);
    for line in [
        format!("ashlar_listener_up{{listener=\"metrics\",address=\"{at}\"}} 1"),
        "ashlar_webhook_deliveries_total{webhook=\"pager\"} 3".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

/// A disk with a layer and a LUN.
const SECTIONS: &str = "[[disk]]\nname = 'm0'\nkind = 'memory'\nsize = '1MiB'\n\
    [[geom]]\nclass = 'nop'\nname = 'n'\nprovider = 'm0'\n\
    [[target]]\ndriver = 'nbd'\nname = 't'\nlisten = ['127.0.0.1:0']\n\
    [[access]]\ntarget = 't'\ngroup = 'g'\ninitiators = ['*']\nluns = { 0 = 'n' }\n";

fn page(state: SystemState) -> String {
    let page = metrics::render(&state, u32::MAX, Format::Text);
    String::from_utf8(page).expect("text")
}

/// The objects of a state without the details that figures lack.
fn without_details(mut state: SystemState) -> SystemState {
    for geom in &mut state.geoms {
        geom.consumers.iter_mut().for_each(|consumer| consumer.state.clear());
        geom.providers.iter_mut().for_each(|provider| provider.why_not.clear());
        *geom = GeomState {
            why: String::new(),
            configured: false,
            state: String::new(),
            config: Default::default(),
            settings: Default::default(),
            transients: Vec::new(),
            clients: Vec::new(),
            ..std::mem::take(geom)
        };
    }
    for disk in &mut state.disks {
        let whole = std::mem::take(disk);
        *disk = DiskState {
            name: whole.name,
            kind: whole.kind,
            size_bytes: whole.size_bytes,
            sector_bytes: whole.sector_bytes,
            used_bytes: whole.used_bytes,
            free_bytes: whole.free_bytes,
            ..DiskState::default()
        };
    }
    let groups = state.targets.iter_mut().flat_map(|target| &mut target.groups);
    for lun in groups.flat_map(|group| &mut group.luns) {
        let names = (String::new(), String::new(), String::new());
        (lun.serial, lun.naa, lun.uuid) = names;
    }
    state
}

#[test]
fn figures_are_the_state_without_details_and_give_the_same_page() {
    let site = Site::new("metrics-figures", SECTIONS);
    let figures = site.control.figures().expect("figures");
    let state = site.control.state().expect("a state");
    // Times and memory have changed in between.
    let state = SystemState { daemon: figures.daemon.clone(), ..state };
    assert_eq!(page(state.clone()), page(figures.clone()));
    assert!(page(figures.clone()).contains("ashlar_provider_size_bytes{provider=\"n\""));
    let disk = |state: &SystemState| state.geoms.iter().find(|g| g.class == "disk").cloned();
    let (whole, lean) = (disk(&state).expect("a geom"), disk(&figures).expect("a geom"));
    assert!(!whole.config.is_empty() && whole.configured && lean.config.is_empty());
    let lun = |state: &SystemState| -> LunState { state.targets[0].groups[0].luns[0].clone() };
    assert!(!lun(&state).serial.is_empty() && lun(&figures).serial.is_empty());
    let expected = without_details(state);
    assert_eq!(figures.health, expected.health);
    assert_eq!(figures.geoms, expected.geoms);
    assert_eq!(figures.disks, expected.disks);
    assert_eq!(figures.targets, expected.targets);
}
