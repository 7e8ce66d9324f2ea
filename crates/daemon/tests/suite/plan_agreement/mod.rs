//! Agreement of `plan` and `apply` over random configurations, on a daemon in this process. A plan
//! without refusals is carried out wholly and leaves nothing to do. A plan with a refusal is
//! refused and changes nothing. A start serves all of a document without a refusal, and omits
//! something of the others. `doctor` without a daemon refuses none of the former, and reports disks
//! and buses that a plan refuses.
//!
//! | file | holds |
//! | --- | --- |
//! | `document` | disks, layers, buses, units |
//! | `targets` | targets of every driver, port groups, the API |
//! | `settings` | settings of the daemon, webhooks, disks on a server elsewhere |
//! | `site` | files that a document names |
//!
//! More of them: see `testkit::seeds`.

mod document;
mod settings;
mod site;
mod targets;

use std::path::Path;
use std::sync::LazyLock;

use daemon::{Daemon, catalog};
use mgmt::api::Kind;
use mgmt::config::{Catalog, Config, DaemonConfig, Port, read};
use mgmt::plan::{Action, refusals};
use mgmt::{Archive, Consent, Control};
use reactor::SeededRandom;
use rig::papers::Papers;
use serde_json::json;
use testkit::nbd::Client;
use testkit::{Seeds, until};

use crate::by_hand::Site as Server;
use document::document;
use site::{Site, papers};

/// Walks with every run.
const SEEDS: u64 = 4;
/// Configurations of a walk.
const STEPS: u32 = 40;
/// Every so many of them, a start is compared with the plan of an empty daemon.
const START_EACH: u32 = 8;

/// The daemon with the export that is a disk of the others.
const FAR_SERVER: &str = "
    [[disk]]\nname = 'd0'\nkind = 'memory'\nsize = '1MiB'
    [[target]]\ndriver = 'nbd'\nname = 'far'\nlisten = ['127.0.0.9:0']
    [[access]]\ntarget = 'far'\ngroup = 'all'\ninitiators = ['*']\nluns = { 0 = 'd0' }
";

/// Made once: that takes longer than to read a configuration.
static CATALOG: LazyLock<Catalog> = LazyLock::new(catalog);

/// Random choices of a walk.
pub struct Dice(SeededRandom);

impl Dice {
    fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.below(of.len() as u64) as usize]
    }
}

/// A random document with the server at `far`, and what it says.
fn config(
    dice: &mut Dice,
    folder: &Path,
    (has_partition, far): (bool, &str),
) -> (String, Option<Config>) {
    let text = document(dice, has_partition).replace(settings::FAR, far);
    let file = folder.join("ashlar.toml");
    let config = read(&text, file.to_str().expect("a path"), &CATALOG).ok();
    (text, config)
}

/// A client of NBD whose session stays while the configuration changes under it.
fn client(control: &Control, dice: &mut Dice) -> Option<Client> {
    let state = control.plant().state().expect("a state");
    let target = state.targets.iter().find(|t| t.driver == "nbd")?;
    let at = target.portals.first()?.parse().ok()?;
    Client::try_enter(at, dice.pick(&["0", "1", "2"])).ok()?.ok()
}

/// A member of the mirror is put out of use, as one that is away is. The last one is refused.
fn degrade(control: &Control, dice: &mut Dice) {
    let params = json!({ "name": "r", "members": [dice.pick(&["k0", "k1", "k2"])] });
    let _ = control.change(|plant| plant.verb("mirror", "deactivate", &params, &mut |_| {}));
}

/// Settings are changed by hand, if the geom is there.
fn configure(control: &Control, dice: &mut Dice) {
    let (class, name) = if dice.chance(50) { ("nop", "n") } else { ("mirror", "r") };
    let params = match class {
        "nop" => json!({ "name": name, "delay_ms": dice.0.below(3) }),
        _ => json!({ "name": name, "balance": dice.pick(&["load", "split"]) }),
    };
    let _ = control.change(|plant| plant.verb(class, "configure", &params, &mut |_| {}));
}

/// An array and a partition, if their disks are there: no section makes them.
fn label(control: &Control, dice: &mut Dice) {
    let members = ["q0", "q1"];
    let array = json!({ "name": "v", "format": "Intel", "level": "RAID1", "members": members });
    let table = json!({ "provider": "p0", "scheme": "gpt" });
    let entry = json!({ "geom": "p0", "kind": "linux-data", "size": { "bytes": 1 << 20 } });
    let verbs = match dice.chance(50) {
        true => vec![("raid", "label", array)],
        false => vec![("part", "create", table), ("part", "add", entry)],
    };
    for (class, verb, params) in &verbs {
        let _ = control.change(|plant| plant.verb(class, verb, params, &mut |_| {}));
    }
}

/// Settings without which tests would disturb each other.
fn with_one_core(settings: DaemonConfig) -> DaemonConfig {
    DaemonConfig { cores: Some(1), port: Port::Poll, ..settings }
}

/// A daemon that has carried out nothing.
fn launch(site: &Site) -> Control {
    let daemon = with_one_core(DaemonConfig::default());
    let plant = Daemon::start(&daemon).expect("a daemon");
    let launched = Config { daemon, ..Config::default() };
    Control::new(
        Box::new(plant),
        CATALOG.clone(),
        &launched,
        Archive::new(&site.0.join("history"), 2),
    )
}

/// The judgement of a plan on a daemon without objects.
struct Judgement {
    /// Steps that are refused or need consent, each with the reason.
    refused: Vec<String>,
    /// A provider of a LUN is missing: a start adds the group and waits for the provider.
    awaits_provider: bool,
    /// A disk or a bus is refused.
    refuses_disk: bool,
}

fn judge(site: &Site, desired: &Config) -> Judgement {
    let control = launch(site);
    control.plant().open();
    let plan = control.plan(desired).expect("a plan");
    let errors = refusals((control.plant(), &CATALOG), &plan.steps, &control.config().0);
    let mut judged = Judgement { refused: Vec::new(), awaits_provider: false, refuses_disk: false };
    for (step, error) in plan.steps.iter().zip(errors) {
        // A start waits for the files of these.
        let waits = matches!(step.action, Action::Api { .. } | Action::Webhooks { .. });
        let is_group = matches!(step.action, Action::CreateAccess { .. });
        judged.awaits_provider |=
            is_group && error.as_ref().is_some_and(|e| e.kind == Kind::NotFound);
        if !waits && (error.is_some() || !step.consent_names.is_empty()) {
            let consent = &step.consent_names;
            judged.refused.push(format!("{}: {error:?}, consent {consent:?}", step.action.name()));
        }
        // For `doctor`, an absent file is a finding of another check.
        let is_disk = matches!(step.action, Action::CreateBus { .. } | Action::CreateDisk { .. });
        judged.refuses_disk |= is_disk && error.is_some_and(|e| e.kind != Kind::NotFound);
    }
    control.plant().stop();
    judged
}

/// The refusals that `doctor` reports where no daemon runs.
fn doctor(desired: &Config) -> Vec<String> {
    let (start, target) = CATALOG.check_start.zip(CATALOG.check_target).expect("the checks");
    let targets = desired.target.iter().filter_map(|section| target(section).err());
    start(desired).into_iter().chain(targets.map(|e| e.to_string())).collect()
}

/// Starts a daemon with a document as `serve` does, and compares the result with the plan. Compares
/// the plan with `doctor`.
fn start(site: &Site, desired: &Config, at: &dyn Fn(&str) -> String) {
    // Nothing was carried out before.
    let _ = std::fs::remove_dir_all(site.0.join("history"));
    let judged = judge(site, desired);
    let found = doctor(desired);
    let is_accepted = judged.refused.is_empty();
    assert!(!is_accepted || found.is_empty(), "{}: {found:?}", at("doctor refuses it"));
    assert!(!judged.refuses_disk || !found.is_empty(), "{}", at("doctor finds no problem"));
    let control = launch(site);
    control.set_starting(true);
    let begun = control.start(desired);
    let left = begun.unwrap_or_else(|e| panic!("{}: {e}", at("no start"))).deferred;
    control.set_starting(false);
    control.plant().open();
    if is_accepted {
        // Disks of a bus may be found a moment later.
        until(&at("the start of an accepted document"), || {
            control.plan(desired).expect("a plan").steps.is_empty()
        });
    } else if !judged.awaits_provider {
        let refused = judged.refused.join("; ");
        assert!(
            !left.is_empty(),
            "{}",
            at(&format!("all is served, and a plan refuses {refused}"))
        );
    }
    control.plant().stop();
}

fn walk(seed: u64, papers: &Papers, far: &str) -> [u32; 4] {
    let site = Site::new(seed, papers);
    let others = Site::new(seed | 1 << 63, papers);
    let control = launch(&site);
    control.plant().open();
    let mut dice = Dice(SeededRandom::new(seed));
    let mut seen = [0; 4];
    let mut clients: Vec<Client> = Vec::new();
    for step in 0..STEPS {
        if dice.chance(25) {
            label(&control, &mut dice);
        }
        let state = control.plant().state().expect("a state");
        let has_partition = state.provider("p0p1").is_some();
        let (text, desired) = config(&mut dice, &site.0, (has_partition, far));
        if dice.chance(30) {
            clients.clear();
        }
        clients.extend(client(&control, &mut dice));
        if dice.chance(25) {
            degrade(&control, &mut dice);
        }
        if dice.chance(25) {
            configure(&control, &mut dice);
        }
        seen[3] += u32::from(control.plant().state().expect("a state").sessions().next().is_some());
        let Some(mut desired) = desired else {
            seen[2] += 1;
            continue;
        };
        desired.daemon = with_one_core(desired.daemon);
        let at = |what: &str| format!("seed {seed}, step {step}: {what}\n{text}");
        let plan = control.plan(&desired).unwrap_or_else(|e| panic!("{}: {e}", at("no plan")));
        let (refused, _) = control.refused_steps(&plan);
        let destroy: Vec<String> =
            plan.steps.iter().flat_map(|s| s.action.consent_names()).collect();
        let consent = Consent { destroy, ..Consent::default() };
        let before = control.config().0;
        let done = control.apply(&desired, &consent, &mut |_| {});
        match (done, refused.is_empty()) {
            (Ok(_), true) => {
                let left = control.plan(&desired).expect("a plan").steps;
                let left: Vec<&str> = left.iter().map(|s| s.what.as_str()).collect();
                assert!(left.is_empty(), "{}: {left:?}", at("it is done, and to be done"));
                seen[0] += 1;
            }
            (Err(e), false) => {
                assert_eq!(e.kind, Kind::CannotCarryOut, "{}: {e}", at("refused otherwise"));
                assert_eq!(control.config().0, before, "{}", at("refused, and changed"));
                seen[1] += 1;
            }
            (Ok(_), false) => panic!("{}: {refused:?}", at("done though the plan refused it")),
            (Err(e), true) => {
                let steps: Vec<&str> = plan.steps.iter().map(|s| s.what.as_str()).collect();
                panic!("{}: {e}\n{steps:#?}\n{before:#?}", at("the plan refused nothing"))
            }
        }
        // In a folder of its own: images are locked by the daemon that has them open. A start waits
        // for interfaces of the network.
        let file = others.0.join("ashlar.toml");
        if step.is_multiple_of(START_EACH)
            && !text.contains("p0p1")
            && !text.contains("nowhere0")
            && let Ok(own) = read(&text, file.to_str().expect("a path"), &catalog())
        {
            let daemon = with_one_core(own.daemon.clone());
            start(&others, &Config { daemon, ..own }, &at);
        }
    }
    control.plant().stop();
    seen
}

#[test]
fn plan_predicts_the_result_of_apply() {
    let mut all = [0; 4];
    let papers = papers();
    let server = Server::new("plan-agreement-far", FAR_SERVER);
    let state = server.control.plant().state().expect("a state");
    let far = &state.targets[0].portals[0];
    for seen in Seeds::of(SEEDS).each(|seed| walk(seed, &papers, far)) {
        all.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen);
    }
    let [done, refused, unread, used] = all;
    println!("{done} carried out, {refused} refused, {unread} not read, {used} with sessions");
    assert!(done > 0 && refused > 0 && used > 0, "{all:?}");
}
