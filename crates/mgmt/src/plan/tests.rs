//! Tests of the laws L1 to L5 of planning, over seeded random configurations.

use super::*;
use crate::api::{Error, Kind, SystemState};
use crate::config::{
    AccessConfig, AluaConfig, AluaState, BusConfig, Catalog, Chap, Config, DigestPolicy,
    DiskConfig, GeomConfig, InitiatorChap, LunAddressing, LunConfig, LunMode, TargetConfig,
    UnitConfig, check,
};
use crate::fake::{FakePlant, catalog};
use crate::plant::{Plant, StaleFiles};
use testkit::Seeds;

/// Nothing is known of disks that are made.
fn plan(running: &Config, desired: &Config, state: &SystemState, catalog: &Catalog) -> Vec<Step> {
    super::plan(running, desired, (state, &PredictedSerials::new()), catalog)
}

/// Small seeded generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % n.max(1)
    }
}

/// A configuration without faults, with at most three of everything, so that two of them meet
/// often in some names and differ in others.
pub fn random(dice: &mut Dice) -> Config {
    let mut config = Config::default();
    config.daemon.history_kept = 30 + u32::try_from(dice.below(2)).unwrap_or(0);
    for name in ["b0", "b1"] {
        if dice.below(2) > 0 {
            let kind = "virtual".to_owned();
            let params = [("size_bytes".to_owned(), dice.below(2).into())].into_iter().collect();
            let names = Default::default();
            let bounds =
                BusConfig { retries: [None, Some(1)][dice.below(2)], ..Default::default() };
            config.bus.push(BusConfig { name: name.into(), kind, names, params, ..bounds });
        }
    }
    // One file is one disk, but not always the same one.
    let first = dice.below(2);
    for (n, name) in ["d0", "d1", "d2"].into_iter().enumerate() {
        if dice.below(3) > 0 {
            let kind = ["file", "memory", "null"][dice.below(3)].to_owned();
            let mut params = serde_json::Map::new();
            if kind == "file" {
                params.insert("path".into(), format!("/srv/{}", (n + first) % 3).into());
            }
            config.disk.push(DiskConfig { name: name.into(), kind, params });
        }
    }
    for name in ["g0", "g1", "g2", "g3"] {
        let mut below: Vec<String> = config.disk.iter().map(|d| d.name.clone()).collect();
        below.extend(config.disk.iter().map(|d| format!("{}p1", d.name)));
        below.extend(config.geom.iter().map(|g| g.name.clone()));
        below.extend(config.bus.iter().map(|b| format!("da-{}", b.name)));
        if dice.below(2) > 0 && !below.is_empty() {
            let mut params = serde_json::Map::new();
            params.insert("delay_us".into(), dice.below(2).into());
            let provider = Some(below.swap_remove(dice.below(below.len())));
            let class = "nop".to_owned();
            config.geom.push(GeomConfig {
                class,
                name: name.into(),
                provider,
                members: vec![],
                params,
            });
        }
    }
    // The document's order must not matter.
    if dice.below(2) > 0 {
        config.geom.reverse();
    }
    let mut above: Vec<String> = config.disk.iter().map(|d| d.name.clone()).collect();
    above.extend(config.disk.iter().map(|d| format!("{}p2", d.name)));
    above.extend(config.geom.iter().map(|g| g.name.clone()));
    above.extend(config.bus.iter().map(|b| format!("da-{}", b.name)));
    units(dice, &mut config, &above);
    port_groups(dice, &mut config);
    for name in ["iqn.t:0", "iqn.t:1"] {
        if dice.below(3) == 0 {
            continue;
        }
        let port_group = match dice.below(config.alua.len() + 1) {
            0 => None,
            n => Some(config.alua[n - 1].name.clone()),
        };
        let other = usize::from(dice.below(5) == 0);
        config.target.push(TargetConfig {
            driver: ["iscsi", "other"][other].into(),
            name: name.into(),
            // Drivers have no address in common.
            listen: vec![format!("127.0.0.1:{}", 3260 + dice.below(2) + 10 * other)],
            chap: None,
            mutual_chap: None,
            discovery_chap: None,
            header_digest: Default::default(),
            data_digest: Default::default(),
            port_group,
            port_id: (dice.below(3) == 0).then(|| 1 + config.target.len() as u16),
            params: Default::default(),
        });
        groups(dice, &mut config, name, &above);
    }
    assert_eq!(check(&config, &catalog()), [], "the generator makes faultless configurations");
    config
}

/// Makes settings of some units; also of a provider that does not exist.
fn units(dice: &mut Dice, config: &mut Config, above: &[String]) {
    for provider in above.iter().map(String::as_str).chain(["nobody"]) {
        if dice.below(3) == 0 {
            let mut unit: UnitConfig =
                serde_json::from_value(serde_json::json!({ "provider": provider }))
                    .expect("a unit");
            unit.read_only = dice.below(2) > 0;
            unit.serial = (dice.below(2) > 0).then(|| format!("{provider}-{}", dice.below(2)));
            config.unit.push(unit);
        }
    }
}

/// Groups that swap names and identifiers from one configuration to the next.
fn port_groups(dice: &mut Dice, config: &mut Config) {
    let mut ids = vec![1, 2, 3, 4];
    for name in ["default", "left", "right"] {
        let id = ids.swap_remove(dice.below(ids.len()));
        let described = config.alua.iter().any(|g| g.name == "default");
        if dice.below(2) > 0 && (id != 1 || described || name == "default") {
            let states = [AluaState::Optimized, AluaState::Standby, AluaState::Offline];
            config.alua.push(AluaConfig {
                name: name.into(),
                id,
                state: states[dice.below(3)],
                preferred: dice.below(2) > 0,
                explicit: dice.below(2) > 0,
            });
        }
    }
    if dice.below(2) > 0 {
        config.alua.reverse();
    }
}

fn groups(dice: &mut Dice, config: &mut Config, target: &str, above: &[String]) {
    // Two groups of one pattern, each for its own portals, in some targets.
    let portals = dice.below(4) == 0;
    let mut patterns = vec!["iqn.a:*", "iqn.b:*", "iqn.c:?"];
    for group in ["one", "two"] {
        let mut initiators = vec![patterns.swap_remove(dice.below(patterns.len())).to_owned()];
        if patterns.len() > 1 && dice.below(2) > 0 {
            initiators.push(patterns.swap_remove(dice.below(patterns.len())).to_owned());
        }
        let mut access = AccessConfig {
            target: target.into(),
            group: group.into(),
            initiators,
            ..AccessConfig::default()
        };
        if portals {
            access.initiators = vec!["iqn.a:*".to_owned()];
            let port = if group == "one" { 3260 } else { 3261 };
            access.portals = vec![format!("127.0.0.1:{port}")];
            if dice.below(2) > 0 {
                access.portals.push(format!("10.0.0.{}:{port}", dice.below(2)));
            }
        } else if dice.below(4) == 0 {
            access.portals = vec!["127.0.0.1".to_owned()];
        }
        if dice.below(4) == 0 {
            access.addressing = LunAddressing::Flat;
        }
        for lun in 0..3 {
            if !above.is_empty() && dice.below(2) > 0 {
                let provider = above[dice.below(above.len())].clone();
                let mode = if dice.below(2) > 0 { LunMode::Ro } else { LunMode::Rw };
                access.luns.insert(lun, LunConfig { provider, mode, serial: None });
            }
        }
        if dice.below(4) > 0 {
            config.access.push(access);
        }
    }
}

fn apply(plant: &FakePlant, steps: &[Step], running: &mut Config) -> crate::api::Result<Applied> {
    super::apply((plant, &catalog()), steps, running, &mut |_| {})
}

/// A plant that runs `config`, made by a plan from nothing.
fn plant_with(config: &Config, catalog: &Catalog) -> (FakePlant, Config) {
    let plant = FakePlant::new();
    let mut running = Config::default();
    let steps = plan(&running, config, &plant.state().expect("a state"), catalog);
    apply(&plant, &steps, &mut running).expect("from nothing");
    (plant, running)
}

const SEEDS: u64 = 1000;
/// Of tests that stop a plan at each of its steps.
const STOPPED: u64 = 100;

#[test]
fn plan_of_the_running_configuration_is_empty() {
    for seed in Seeds::of(SEEDS) {
        let config = random(&mut Dice::new(seed));
        let (plant, running) = plant_with(&config, &catalog());
        assert!(running.is_equivalent(&config), "seed {seed}");
        let steps = plan(&running, &config, &plant.state().expect("a state"), &catalog());
        assert_eq!(steps, [], "seed {seed}");
        assert_eq!(plan(&config, &config, &SystemState::default(), &catalog()), [], "seed {seed}");
    }
}

#[test]
fn random_plans_apply_and_revert_without_refusals() {
    let (mut steps_seen, seeds) = (0, Seeds::of(SEEDS));
    for seed in seeds.clone() {
        let mut dice = Dice::new(seed);
        let (a, b) = (random(&mut dice), random(&mut dice));
        let (plant, mut running) = plant_with(&a, &catalog());
        let steps = plan(&running, &b, &plant.state().expect("a state"), &catalog());
        steps_seen += steps.len();
        apply(&plant, &steps, &mut running).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(running.is_equivalent(&b) && plant.config().is_equivalent(&b), "seed {seed}");
        for step in steps.iter().rev() {
            plant
                .carry_out(&step.inverse, &mut |_| {})
                .unwrap_or_else(|e| panic!("seed {seed}: back: {}: {e}", step.what));
        }
        assert!(plant.config().is_equivalent(&a), "seed {seed}");
    }
    assert!(steps_seen > 1000 || !seeds.are_enough(), "{steps_seen}");
}

#[test]
fn stale_files_are_read_again_before_a_disk_grows() {
    let target = |name: &str| {
        format!("[[target]]\ndriver='iscsi'\nname='iqn.a:{name}'\nlisten=['127.0.0.1:0']\n")
    };
    let disk = |size: &str| format!("[[disk]]\nname='d'\nkind='file'\npath='/x'\nsize={size}\n");
    let read =
        |text: String| crate::config::read(&text, "a.toml", &catalog()).expect("well-formed");
    let grown = |a: &str, b: &str| {
        Step::new(
            Action::GrowDisk {
                from: read(disk(a).replace("size", "size_bytes")).disk[0].clone(),
                to: read(disk(b).replace("size", "size_bytes")).disk[0].clone(),
            },
            "",
            Risk::Safe,
        )
    };
    let config = read(target("stays") + &target("new"));
    let made = Action::CreateTarget { target: config.target[1].clone() };
    let mut steps = vec![Step::new(made, "", Risk::Safe), grown("1", "2")];
    let why = "it has changed";
    let stale = |name: &str| StaleFiles {
        of: FileSection::Target(name.into()),
        why: why.into(),
        drops_client_ca: false,
    };
    let all = ["iqn.a:stays", "iqn.a:new", "iqn.a:gone"].map(stale).to_vec();
    renew(&mut steps, all, &config, &SystemState::default());
    let what: Vec<&str> = steps.iter().map(|s| s.what.as_str()).collect();
    let renewed = "read files of target iqn.a:stays anew";
    assert_eq!(what, ["create target iqn.a:new (iscsi)", renewed, "resize disk d (file)"]);
    assert_eq!(steps[1].inverse, steps[1].action);
}

#[test]
fn plan_after_an_interruption_at_any_step_completes() {
    for seed in Seeds::of(STOPPED) {
        let mut dice = Dice::new(seed);
        let (a, b) = (random(&mut dice), random(&mut dice));
        let (plant, running) = plant_with(&a, &catalog());
        let steps = plan(&running, &b, &plant.state().expect("a state"), &catalog());
        for cut in 0..=steps.len() {
            let (plant, mut running) = plant_with(&a, &catalog());
            for step in &steps[..cut] {
                plant.carry_out(&step.action, &mut |_| {}).expect("a prefix of a plan");
                step.action.apply_to(&mut running);
            }
            let rest = plan(&running, &b, &plant.state().expect("a state"), &catalog());
            apply(&plant, &rest, &mut running)
                .unwrap_or_else(|e| panic!("seed {seed}, cut after {cut}: {e}"));
            assert!(plant.config().is_equivalent(&b), "seed {seed}, cut after {cut}");
        }
    }
}

/// C2 of service/mod.rs.
#[test]
fn failed_step_rolls_back_all_steps() {
    let (mut failed, seeds) = (0, Seeds::of(STOPPED));
    for seed in seeds.clone() {
        let mut dice = Dice::new(seed);
        let (a, b) = (random(&mut dice), random(&mut dice));
        let (plant, _) = plant_with(&a, &catalog());
        let steps = plan(&a, &b, &plant.state().expect("a state"), &catalog());
        for k in 0..steps.len() {
            let (plant, mut running) = plant_with(&a, &catalog());
            plant.fail_after(k, 1);
            let error = apply(&plant, &steps, &mut running).expect_err("it fails");
            assert_eq!(error.kind, Kind::RolledBack, "{error}");
            assert_eq!(error.at, steps[k].what);
            assert!(
                plant.config().is_equivalent(&a) && running.is_equivalent(&a),
                "seed {seed}, step {k}"
            );
            failed += 1;
        }
    }
    assert!(failed > 200 || !seeds.are_enough(), "{failed}");
}

#[test]
fn failed_rollback_is_completed_by_a_new_plan() {
    for seed in Seeds::of(STOPPED) {
        let mut dice = Dice::new(seed);
        let (a, b) = (random(&mut dice), random(&mut dice));
        let (plant, mut running) = plant_with(&a, &catalog());
        let steps = plan(&running, &b, &plant.state().expect("a state"), &catalog());
        if steps.len() < 2 {
            continue;
        }
        plant.fail_after(1 + dice.below(steps.len() - 1), 2);
        let error = apply(&plant, &steps, &mut running).expect_err("it fails");
        assert_eq!(error.kind, Kind::HalfDone, "{error}");
        assert!(
            plant.config().is_equivalent(&running),
            "seed {seed}: `running` has all, the awaited objects too"
        );
        let rest = plan(&running, &b, &plant.state().expect("a state"), &catalog());
        apply(&plant, &rest, &mut running).expect("the failure is over");
        assert!(plant.config().is_equivalent(&b), "seed {seed}");
    }
}

#[test]
fn refused_step_changes_nothing() {
    let a = random(&mut Dice::new(3));
    let (plant, mut running) = plant_with(&a, &catalog());
    let calls = plant.calls();
    plant.refuse(Error::new(Kind::System, "open", "no such file").at("/srv/0"));
    let mut b = a.clone();
    b.disk.push(DiskConfig { name: "new".into(), kind: "null".into(), params: Default::default() });
    let steps = plan(&running, &b, &plant.state().expect("a state"), &catalog());
    let error = apply(&plant, &steps, &mut running).expect_err("refused");
    assert_eq!(error.kind, Kind::CannotCarryOut);
    assert!(error.to_string().contains("/srv/0: no such file (ASH-0050)"), "{error}");
    assert_eq!(plant.calls(), calls, "nothing was carried out");
}

#[test]
fn removing_a_memory_disk_destroys_data_and_a_null_disk_is_safe() {
    let mut a = Config::default();
    let disk = |kind: &str, name: &str| DiskConfig {
        name: name.into(),
        kind: kind.into(),
        params: Default::default(),
    };
    a.disk = vec![disk("memory", "m"), disk("null", "n")];
    let (plant, running) = plant_with(&a, &catalog());
    let steps = plan(&running, &Config::default(), &plant.state().expect("a state"), &catalog());
    let risks: Vec<_> = steps.iter().map(|s| (s.action.name(), s.risk)).collect();
    assert_eq!(risks, [("n".to_owned(), Risk::Safe), ("m".to_owned(), Risk::Destroys)]);
}

#[test]
fn missing_configured_disk_is_recreated() {
    let disk = DiskConfig { name: "n".into(), kind: "null".into(), params: Default::default() };
    let a = Config { disk: vec![disk], ..Config::default() };
    let (_, configured) = plant_with(&a, &catalog());
    let left = running_config(&configured, &SystemState::default());
    let steps = plan(&left, &a, &SystemState::default(), &catalog());
    assert_eq!(steps.iter().map(|s| s.what.as_str()).collect::<Vec<_>>(), ["create disk n (null)"]);
}

fn access(group: &str, initiators: &[&str], luns: &[(u64, &str)]) -> AccessConfig {
    let lun = |(number, provider): &(u64, &str)| {
        let (provider, mode) = ((*provider).to_owned(), LunMode::Rw);
        (*number, LunConfig { provider, mode, serial: None })
    };
    AccessConfig {
        target: "iqn.t".into(),
        group: group.into(),
        initiators: initiators.iter().map(|i| (*i).to_owned()).collect(),
        luns: luns.iter().map(lun).collect(),
        ..AccessConfig::default()
    }
}

/// Two disks at a target, these groups, and a session of `iqn.h:1` in the first of them.
fn hosted(groups: Vec<AccessConfig>) -> (Config, SystemState) {
    let mut dice = Dice::new(0);
    let mut config = Config { access: groups, ..Config::default() };
    while config.target.is_empty() {
        config.target = random(&mut dice).target;
    }
    config.target.truncate(1);
    let target = &mut config.target[0];
    target.name = "iqn.t".into();
    target.listen = vec!["10.0.0.1:3260".into(), "10.0.0.2:3260".into()];
    (target.port_group, target.port_id) = (None, None);
    let disk = |name: &str| DiskConfig {
        name: name.into(),
        kind: "null".into(),
        params: Default::default(),
    };
    config.disk = vec![disk("a"), disk("b")];
    let (plant, _) = plant_with(&config, &catalog());
    let mut state = plant.state().expect("a state");
    state.targets[0].sessions = vec![crate::api::SessionState {
        initiator: "iqn.h:1".into(),
        portal: "10.0.0.2:3260".into(),
        group: config.access.first().map(|a| a.group.clone()),
        ..Default::default()
    }];
    (config, state)
}

/// How long requests take changes under the disks of a bus.
#[test]
fn a_bus_keeps_its_disks_where_only_its_bounds_change() {
    let bus = |retries: Option<u8>, disks: u64| {
        let params = [("disks".into(), disks.into())].into_iter();
        let (timeout_s, request_deadline_s) = (retries.map(u32::from), retries.map(u32::from));
        let bounds = BusConfig { timeout_s, retries, request_deadline_s, ..Default::default() };
        let bus = BusConfig { params: params.collect(), ..bounds };
        let bus = BusConfig { name: "b".into(), kind: "virtual".into(), ..bus };
        Config { bus: vec![bus], ..Config::default() }
    };
    let from = bus(None, 1);
    let (plant, _) = plant_with(&from, &catalog());
    let state = plant.state().expect("a state");
    for (to, stays) in [(bus(Some(3), 1), true), (bus(Some(3), 2), false)] {
        let steps = plan(&from, &to, &state, &catalog());
        assert_eq!(steps.len(), if stays { 1 } else { 2 }, "{steps:?}");
        let modifies = matches!(steps[0].action, Action::ModifyBus { .. });
        assert_eq!((modifies, steps[0].risk == Risk::Safe), (stays, stays), "{steps:?}");
        let mut config = from.clone();
        steps.iter().for_each(|step| step.action.apply_to(&mut config));
        assert_eq!(config.bus, to.bus);
        steps.iter().rev().for_each(|step| step.inverse.apply_to(&mut config));
        assert_eq!(config.bus, from.bus);
    }
}

/// A host keeps its view when its group is renamed or names the host in another way.
#[test]
fn edits_that_do_not_change_a_host_view_are_one_safe_step() {
    let luns = [(0, "a"), (1, "b")];
    let (config, state) = hosted(vec![access("g", &["iqn.h:1", "iqn.h:2"], &luns)]);
    for (what, groups) in [
        ("renamed", vec![access("other", &["iqn.h:1", "iqn.h:2"], &luns)]),
        ("widened", vec![access("g", &["iqn.h:*"], &luns)]),
        ("moved", vec![access("g", &["iqn.h:2"], &luns), access("own", &["iqn.h:1"], &luns)]),
        ("more", vec![access("g", &["iqn.h:1"], &luns), access("new", &["iqn.h:3"], &luns)]),
    ] {
        let to = Config { access: groups, ..config.clone() };
        let steps = plan(&config, &to, &state, &catalog());
        assert_eq!(steps.len(), 1, "{what}: {steps:?}");
        assert_eq!((steps[0].risk, steps[0].hosts.len()), (Risk::Safe, 0), "{what}");
    }
}

/// A host without the new proof works on, until it has to log in again.
#[test]
fn hosts_whose_next_login_fails_are_named() {
    let luns = [(0, "a"), (1, "b")];
    let (config, state) = hosted(vec![access("g", &["iqn.h:*"], &luns)]);
    let worst = |from: &Config, to: &Config, state: &SystemState| {
        let steps = plan(from, to, state, &catalog());
        steps.iter().max_by_key(|s| s.risk).expect("a step").risk_text()
    };
    let risk_of = |from: &Config, to: &Config| worst(from, to, &state);
    let account =
        |secret: &str| InitiatorChap { user: "u".into(), secret: secret.into(), mutual: None };
    let with = |change: &dyn Fn(&mut Config)| {
        let mut to = config.clone();
        change(&mut to);
        to
    };
    let common = with(&|c| {
        c.target[0].chap = Some(Chap { user: "u".into(), secret: "file:/a".into() });
    });
    let own = with(&|c| c.access[0].chap = Some(account("file:/a")));
    let others = with(&|c| {
        c.access[0].initiator_chap.insert("iqn.h:2".into(), account("file:/b"));
    });
    let digests = with(&|c| c.target[0].data_digest = DigestPolicy::Require);
    for to in [&common, &own, &others, &digests] {
        assert_eq!(risk_of(&config, to), "disruptive: iqn.h:1");
        assert_eq!(risk_of(to, &config), "safe", "it is asked for less");
    }
    assert_eq!(risk_of(&common, &own), "safe", "the same account, at another place");
    let renewed = with(&|c| c.access[0].chap = Some(account("file:/new")));
    assert_eq!(risk_of(&own, &renewed), "disruptive: iqn.h:1");
    // A host with TLS has a certificate of the former CA, or none.
    let mut encrypted = state.clone();
    encrypted.targets[0].sessions[0].tls = Some("TLS 1.3".into());
    let trusting =
        |ca: &str| with(&|c| drop(c.target[0].params.insert("tls_client_ca".into(), ca.into())));
    let (one, other) = (trusting("/one.pem"), trusting("/other.pem"));
    for (from, to) in [(&config, &one), (&one, &other)] {
        assert_eq!(worst(from, to, &encrypted), "disruptive: iqn.h:1");
        assert_eq!(risk_of(from, to), "safe", "a host in the clear shows no certificate");
    }
    assert_eq!(worst(&one, &config, &encrypted), "safe", "it is asked for less");
}

#[test]
fn permissions_of_a_group_change_without_cost_and_are_shown() {
    let (config, state) = hosted(vec![access("g", &["iqn.h:*"], &[(0, "a")])]);
    let mut to = config.clone();
    to.access[0].read_only_reserves = true;
    to.access[0].cold_resets_target = true;
    for (from, to, shown) in [(&config, &to, "false -> true"), (&to, &config, "true -> false")] {
        let steps = plan(from, to, &state, &catalog());
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert_eq!(steps[0].risk_text(), "safe");
        let why = format!("read_only_reserves {shown}, cold_resets_target {shown}");
        assert_eq!(steps[0].why, why);
    }
}

#[test]
fn hosts_that_lose_access_are_named() {
    let (config, state) = hosted(vec![access("g", &["iqn.h:*"], &[(0, "a"), (1, "b")])]);
    let risk_of = |to: Config| {
        let steps = plan(&config, &to, &state, &catalog());
        let worst = steps.iter().max_by_key(|s| s.risk).expect("a step");
        assert!(worst.hosts.len() < 2, "{worst:?}");
        worst.risk_text()
    };
    let groups = |access: Vec<AccessConfig>| Config { access, ..config.clone() };
    let less = groups(vec![access("g", &["iqn.h:*"], &[(0, "a")])]);
    assert_eq!(risk_of(less), "disruptive: iqn.h:1");
    let swapped = groups(vec![access("g", &["iqn.h:*"], &[(0, "b"), (1, "a")])]);
    assert_eq!(risk_of(swapped), "destroys: in use by iqn.h:1");
    // Also when the disk that was there is removed, and the LUN is withdrawn before.
    let mut gone = groups(vec![access("g", &["iqn.h:*"], &[(0, "b"), (1, "b")])]);
    gone.disk.remove(0);
    assert_eq!(risk_of(gone), "destroys: in use by iqn.h:1");
    let out = groups(vec![access("g", &["iqn.x:*"], &[(0, "a"), (1, "b")])]);
    assert_eq!(risk_of(out), "disruptive: iqn.h:1");
    let mut portals = access("g", &["iqn.h:*"], &[(0, "a"), (1, "b")]);
    portals.portals = vec!["10.0.0.1".into()];
    assert_eq!(risk_of(groups(vec![portals.clone()])), "disruptive: iqn.h:1");
    portals.portals = vec!["10.0.0.2".into()];
    assert_eq!(risk_of(groups(vec![portals])), "safe");
    let listens = |at: &[&str]| {
        let mut to = config.clone();
        to.target[0].listen = at.iter().map(|a| (*a).to_owned()).collect();
        to
    };
    assert_eq!(risk_of(listens(&["10.0.0.1:3260"])), "disruptive: iqn.h:1");
    assert_eq!(risk_of(listens(&["0.0.0.0:3260"])), "safe");
    let mut thresholds = config.clone();
    let unit =
        UnitConfig { provider: "a".into(), thresholds: Some(vec![70]), ..Default::default() };
    thresholds.unit.push(unit);
    assert_eq!(risk_of(thresholds.clone()), "safe");
    assert_eq!(plan(&config, &thresholds, &state, &catalog()).len(), 1, "under the LUN");
    let mut serial = config.clone();
    serial.access[0].luns.get_mut(&0).expect("LUN 0").serial = Some("S1".into());
    assert_eq!(risk_of(serial), "destroys: in use by iqn.h:1", "hosts see another disk");
}

/// A state without access concerns the hosts of the targets in its port group only.
#[test]
fn hosts_of_a_target_in_a_standby_port_group_are_named() {
    let (config, state) = hosted(vec![access("g", &["iqn.h:*"], &[(0, "a")])]);
    let with = |name: &str, group: Option<&str>| {
        let mut to = config.clone();
        let (name, state) = (name.to_owned(), AluaState::Standby);
        to.alua = vec![AluaConfig { name, id: 20, state, preferred: false, explicit: false }];
        to.target[0].port_group = group.map(str::to_owned);
        to
    };
    let risk_of = |from: &Config, to: &Config| {
        let steps = plan(from, to, &state, &catalog());
        steps.iter().max_by_key(|s| s.risk).expect("a step").risk_text()
    };
    let (spare, side) = (with("side", None), with("side", Some("side")));
    assert_eq!(risk_of(&config, &spare), "safe", "no target is in it");
    for (from, to) in [(&spare, &side), (&config, &side), (&config, &with("default", None))] {
        assert_eq!(risk_of(from, to), "disruptive: iqn.h:1");
    }
}

/// The identity by which hosts know a disk decides whether a LUN has become another disk.
#[test]
fn lun_with_another_identity_counts_as_another_disk() {
    let (config, mut state) = hosted(vec![access("g", &["iqn.h:1"], &[(0, "a")])]);
    state.targets[0].groups[0].luns[0].serial = "A".into();
    let risk_of = |to: &Config, foreseen: &[(&str, &str)]| {
        let known = foreseen.iter().map(|(d, s)| ((*d).to_owned(), (*s).to_owned())).collect();
        let steps = super::plan(&config, to, (&state, &known), &catalog());
        let worst = steps.iter().max_by_key(|s| s.risk).expect("a step").risk;
        let why: Vec<String> = steps.into_iter().map(|s| s.why).collect();
        (worst, why.join("; "))
    };
    // Another section for the same image.
    let mut renamed = config.clone();
    renamed.disk[0].name = "r".into();
    renamed.access[0].luns.get_mut(&0).expect("LUN 0").provider = "r".into();
    let (risk, why) = risk_of(&renamed, &[("r", "A")]);
    assert_eq!(risk, Risk::Disruptive, "{why}");
    assert!(why.contains("LUN 0 is the same disk for hosts: serial number A"), "{why}");
    let (risk, why) = risk_of(&renamed, &[("r", "B")]);
    assert_eq!(risk, Risk::Destroys, "{why}");
    assert!(why.contains("LUN 0 is another disk for hosts: serial number A -> B"), "{why}");
    let (_, why) = risk_of(&renamed, &[]);
    assert!(why.contains("LUN 0 is another disk for hosts: provider a -> r"), "{why}");
    // The same section for another image.
    let mut other = config.clone();
    other.disk[0].params.insert("serial".into(), "B".into());
    let (_, why) = risk_of(&other, &[("a", "B")]);
    assert!(why.contains("serial number A -> B"), "{why}");
    let steps = plan(&config, &other, &state, &catalog());
    let of_disk = steps.iter().find(|s| s.action.name() == "a").expect("a step");
    assert_eq!(of_disk.what, "change the identity of disk a (null)");
    assert_eq!(of_disk.risk_text(), "disruptive: iqn.h:1");
    let (_, why) = risk_of(&other, &[("a", "")]);
    assert!(why.contains("serial number A -> B"), "what is written counts: {why}");
    // The same disk with sectors of another length: a host would continue with other bytes.
    let mut sectors = config.clone();
    sectors.disk[0].params.insert("sector_size".into(), 4096.into());
    let (risk, why) = risk_of(&sectors, &[("a", "A")]);
    assert_eq!(risk, Risk::Destroys);
    assert!(why.contains("another disk for hosts: sector_size 512 -> 4096"), "{why}");
    let unit = |unit: UnitConfig| {
        let unit = vec![UnitConfig { provider: "a".into(), ..unit }];
        risk_of(&Config { unit, ..config.clone() }, &[])
    };
    let (risk, why) = unit(UnitConfig { serial: Some("A".into()), ..UnitConfig::default() });
    assert_eq!(risk, Risk::Safe, "written down as hosts see it: {why}");
    let (risk, why) = unit(UnitConfig { serial: Some("a".into()), ..UnitConfig::default() });
    assert_eq!(risk, Risk::Destroys, "the case counts: {why}");
    let (risk, why) = unit(UnitConfig { uuid: Some("U".into()), ..UnitConfig::default() });
    assert_eq!(risk, Risk::Destroys);
    assert!(why.contains("LUN 0 is another disk for hosts: uuid default -> U"), "{why}");
}

/// A file that becomes larger does so in place; each other change removes and adds it.
#[test]
fn image_files_grow_in_place() {
    let file = |size: u64, path: &str| DiskConfig {
        name: "f".to_owned(),
        kind: "file".to_owned(),
        params: serde_json::json!({ "size": size, "path": path })
            .as_object()
            .cloned()
            .unwrap_or_default(),
    };
    let config = |disk| Config { disk: vec![disk], ..Config::default() };
    let state = SystemState::default();
    let steps = |from, to| {
        let steps = plan(&config(from), &config(to), &state, &catalog());
        steps.into_iter().map(|s| (s.what, s.risk)).collect::<Vec<_>>()
    };
    let grown = steps(file(1 << 20, "/a"), file(2 << 20, "/a"));
    assert_eq!(grown, [("grow disk f (file)".to_owned(), Risk::Safe)]);
    // Without `size` a file keeps the size that it has, and `create` does not matter any more.
    let mut made = file(1 << 20, "/a");
    made.params.insert("create".into(), true.into());
    // A size that is written down may be that of the disk. The daemon refuses a smaller one.
    let bare = || {
        let mut disk = file(0, "/a");
        disk.params.remove("size");
        disk
    };
    let (plant, from) = plant_with(&config(bare()), &catalog());
    let now = plant.state().expect("a state").disks[0].size_bytes;
    assert_eq!(steps(made.clone(), bare()), []);
    assert_eq!(steps(made, file(1 << 20, "/a")), []);
    for (size, what) in [(now, None), (now + 512, Some("resize")), (now - 512, Some("resize"))] {
        let to = config(file(size, "/a"));
        let steps = plan(&from, &to, &plant.state().expect("a state"), &catalog());
        let texts: Vec<String> = steps.into_iter().map(|s| s.what).collect();
        let wanted = what.map(|what| format!("{what} disk f (file)"));
        assert_eq!(texts, wanted.into_iter().collect::<Vec<_>>(), "{size}");
    }
    let smaller = steps(file(2 << 20, "/a"), file(1 << 20, "/a"));
    assert_eq!(smaller, [("resize disk f (file)".to_owned(), Risk::Safe)]);
    assert_eq!(steps(file(1, "/a"), file(2, "/b")).len(), 2, "it goes and comes");
}
