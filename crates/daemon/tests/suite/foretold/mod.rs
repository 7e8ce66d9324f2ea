//! Agreement of `plan` and `apply` over random configurations, on a daemon in this process. A plan
//! without refusals is carried out wholly and leaves nothing to do. A plan with a refusal is
//! refused and changes nothing.
//!
//! More of them: see `testkit::seeds`.

use std::path::{Path, PathBuf};

use daemon::{Daemon, catalog};
use mgmt::api::Kind;
use mgmt::config::{Config, DaemonConfig, Port, read};
use mgmt::{Archive, Consent, Control};
use reactor::SeededRandom;
use testkit::Seeds;
use testkit::nbd::Client;

/// Walks with every run.
const SEEDS: u64 = 4;
/// Configurations of a walk.
const STEPS: u32 = 40;

/// A folder with what configurations name; gone when it is dropped.
struct Site(PathBuf);

impl Site {
    fn new(seed: u64) -> Site {
        use std::os::unix::fs::PermissionsExt;
        let name = format!("ashlar-foretold-{}-{seed}", std::process::id());
        let site = Site(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&site.0).expect("a folder");
        std::os::unix::fs::symlink("image", site.0.join("alias")).expect("a link");
        for (name, mode) in [("good", 0o600), ("open", 0o644)] {
            let path = site.0.join(name);
            std::fs::write(&path, "a secret that is long enough").expect("a secret");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).expect("its mode");
        }
        site
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Dice(SeededRandom);

impl Dice {
    fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.below(of.len() as u64) as usize]
    }
}

/// A mirror, which has records on its disks, a bus, and a file server.
fn recorded(dice: &mut Dice, add: &mut impl FnMut(&str, &[String]), units: &mut Vec<String>) {
    let mut memory = |dice: &mut Dice, name: &str, size: &str| {
        let is = dice.chance(80);
        if is {
            add("disk", &[format!("name = '{name}'\nkind = 'memory'\nsize = '{size}'")]);
        }
        is
    };
    let legs: Vec<&str> =
        ["k0", "k1", "k2"].into_iter().filter(|name| memory(dice, name, "1MiB")).collect();
    let served = memory(dice, "cache", "32MiB") & memory(dice, "worm", "32MiB");
    let has = |name| legs.contains(&name);
    if has("k0") && has("k1") && dice.chance(70) {
        let pairs = ["'k0', 'k1'", "'k0', 'k1'", "'k1', 'k0'", "'k0'"];
        let more = ["'k0', 'k2'", "'k0', 'k1', 'k2'", "'k2'", "'k2', 'k1'"];
        let members =
            if has("k2") && dice.chance(50) { dice.pick(&more) } else { dice.pick(&pairs) };
        let name = dice.pick(&["r", "r", "r", "q"]);
        let balance = dice.pick(&["", "balance = 'prefer'", "no_failsync = true"]);
        let members = format!("members = [{members}]\n{balance}");
        add("geom", &[format!("class = 'mirror'\nname = '{name}'\n{members}")]);
        units.push(format!("mirror/{name}"));
    }
    if dice.chance(40) {
        let (name, disks) = (dice.pick(&["v", "w0"]), dice.pick(&["1", "2"]));
        add("bus", &[format!("name = '{name}'\nkind = 'virtual'\ndisks = {disks}\nsize = '1MiB'")]);
        units.push("da0".into());
    }
    if served && dice.chance(40) {
        let at = dice.pick(&["03:00", "never"]);
        let more = format!("create = true\ndump_at = '{at}'");
        add(
            "geom",
            &[format!("class = 'fs'\nname = 'files'\nmembers = ['cache', 'worm']\n{more}")],
        );
    }
}

/// A document; most can be carried out.
fn document(dice: &mut Dice) -> String {
    let mut text = String::new();
    let mut add = |section: &str, lines: &[String]| {
        text.push_str(&format!("[[{section}]]\n{}\n", lines.join("\n")));
    };
    let mut present = Vec::new();
    for name in ["m0", "m1", "m2"] {
        if dice.chance(70) {
            let size = dice.pick(&["1MiB", "2MiB"]);
            let lines =
                [format!("name = '{name}'"), "kind = 'memory'".into(), format!("size = '{size}'")];
            add("disk", &lines);
            present.push(name);
        }
    }
    // One image under one of two names, and one that may not be there.
    if dice.chance(70) {
        let name = dice.pick(&["f0", "g0"]);
        let size = dice.pick(&["1MiB", "1MiB", "2MiB"]);
        let more = "create = true\npath = 'image'";
        let lines = [format!("name = '{name}'"), format!("kind = 'file'\n{more}\nsize = '{size}'")];
        add("disk", &lines);
        present.push(name);
    }
    // The same image by another path.
    if dice.chance(10) {
        let more = "create = true\npath = 'alias'\nsize = '1MiB'";
        add("disk", &["name = 'h0'".to_owned(), format!("kind = 'file'\n{more}")]);
        present.push("h0");
    }
    if dice.chance(10) {
        add("disk", &["name = 'away'\nkind = 'file'\npath = 'nowhere'".to_owned()]);
        present.push("away");
    }
    // Each layer has disks of its own.
    let mut units: Vec<String> = Vec::new();
    recorded(dice, &mut add, &mut units);
    if present.contains(&"m2") && dice.chance(50) {
        let offset = dice.pick(&["0", "4096", "0\ndelay_ms = 1"]);
        add("geom", &[format!("class = 'nop'\nname = 'n'\nprovider = 'm2'\noffset = {offset}")]);
        present.retain(|name| *name != "m2");
        units.push("n".into());
    }
    if present.contains(&"m0") && present.contains(&"m1") && dice.chance(40) {
        let order = dice.pick(&["'m0', 'm1'", "'m1', 'm0'"]);
        let class = dice.pick(&["stripe", "concat"]);
        add("geom", &[format!("class = '{class}'\nname = 'w'\nmembers = [{order}]")]);
        present.retain(|name| !["m0", "m1"].contains(name));
        units.push(format!("{class}/w"));
    }
    units.extend(present.iter().filter(|name| **name != "away").map(|name| (*name).to_owned()));
    // Drivers have no address in common.
    let drivers = [("iscsi", "iqn.2026-11.test:t", 1), ("nbd", "n", 2)];
    for (driver, name, host) in drivers {
        if !dice.chance(70) {
            continue;
        }
        let name = if dice.chance(5) { "iqn." } else { name };
        let secret = match dice.0.below(20) {
            0 => "open",
            1 => "none",
            _ => "good",
        };
        let chap = format!("chap = {{ user = 'u', secret = 'file:{secret}' }}");
        let chap = if driver == "iscsi" && dice.chance(40) { chap } else { String::new() };
        let head = format!("driver = '{driver}'\nname = '{name}'\nlisten = ['127.0.0.{host}:0']");
        add("target", &[head, chap]);
        let mut luns = Vec::new();
        for lun in 0..3 {
            if dice.chance(60) && !units.is_empty() {
                let unit = &units[dice.0.below(units.len() as u64) as usize];
                let unit = if dice.chance(5) { "nothing" } else { unit };
                if !luns.iter().any(|l: &String| l.ends_with(&format!("'{unit}'"))) {
                    luns.push(format!("{lun} = '{unit}'"));
                }
            }
        }
        let group = dice.pick(&["g", "h"]);
        let luns = luns.join(", ");
        add(
            "access",
            &[format!(
                "target = '{name}'\ngroup = '{group}'\ninitiators = ['*']\nluns = {{ {luns} }}"
            )],
        );
    }
    text
}

fn config(dice: &mut Dice, folder: &Path) -> (String, Option<Config>) {
    let text = document(dice);
    let file = folder.join("ashlar.toml");
    let config = read(&text, file.to_str().expect("a path"), &catalog()).ok();
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
    let params = serde_json::json!({ "name": "r", "members": [dice.pick(&["k0", "k1", "k2"])] });
    let _ = control.change(|plant| plant.verb("mirror", "deactivate", &params, &mut |_| {}));
}

/// Settings are changed by hand, if the geom is there.
fn configure(control: &Control, dice: &mut Dice) {
    let (class, name) = if dice.chance(50) { ("nop", "n") } else { ("mirror", "r") };
    let params = match class {
        "nop" => serde_json::json!({ "name": name, "delay_ms": dice.0.below(3) }),
        _ => serde_json::json!({ "name": name, "balance": dice.pick(&["load", "split"]) }),
    };
    let _ = control.change(|plant| plant.verb(class, "configure", &params, &mut |_| {}));
}

fn walk(seed: u64) -> [u32; 4] {
    let site = Site::new(seed);
    let settings = DaemonConfig { cores: Some(1), port: Port::Poll, ..DaemonConfig::default() };
    let launched = Config { daemon: settings.clone(), ..Config::default() };
    let plant = Daemon::start(&settings).expect("a daemon");
    let control = Control::new(
        Box::new(plant),
        catalog(),
        &launched,
        Archive::new(&site.0.join("history"), 2),
    );
    control.plant().open();
    let mut dice = Dice(SeededRandom::new(seed));
    let mut seen = [0; 4];
    let mut clients: Vec<Client> = Vec::new();
    for step in 0..STEPS {
        let (text, desired) = config(&mut dice, &site.0);
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
        desired.daemon = settings.clone();
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
    }
    control.plant().stop();
    seen
}

#[test]
fn plan_predicts_the_result_of_apply() {
    let mut all = [0; 4];
    for seen in Seeds::of(SEEDS).each(walk) {
        all.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen);
    }
    let [done, refused, unread, used] = all;
    println!("{done} carried out, {refused} refused, {unread} not read, {used} with sessions");
    assert!(done > 0 && refused > 0 && used > 0, "{all:?}");
}
