//! Settings of running geoms that verbs change: each change is reported. `status` and `plan` report
//! that the next start gives another value, `export` writes it, and `apply` sets it back. A verb,
//! an argument or a section key that is in none of the lists here fails, so that no class omits
//! one.

use std::collections::BTreeSet;

use daemon::{Daemon, catalog, class_verbs};
use geom::{ArgKind, ArgSpec};
use mgmt::config::{Config, DaemonConfig, Port, read};
use mgmt::plan::{manual_changes, settings};
use mgmt::{Archive, Consent, Control};
use serde_json::{Map, Value, json};
use testkit::Folder;

/// A daemon in this process that has carried out a configuration.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    pub(crate) control: Control,
}

impl Site {
    pub(crate) fn new(name: &str, text: &str) -> Site {
        let site = Site::launched(name);
        site.apply(&site.read(text));
        site
    }

    /// A daemon that has carried out nothing yet.
    pub(crate) fn launched(name: &str) -> Site {
        let folder = Folder::new(name);
        let settings = DaemonConfig { cores: Some(1), port: Port::Poll, ..DaemonConfig::default() };
        let launched = Config { daemon: settings.clone(), ..Config::default() };
        let plant = Daemon::start(&settings).expect("a daemon");
        let archive = Archive::new(&folder.join("history"), 2);
        let control = Control::new(Box::new(plant), catalog(), &launched, archive);
        control.complete_scrapes();
        let site = Site { folder, control };
        site.control.plant().open();
        site
    }

    pub(crate) fn read(&self, text: &str) -> Config {
        let file = self.folder.join("ashlar.toml");
        let config = read(text, file.to_str().expect("a path"), &catalog()).expect("well-formed");
        Config { daemon: self.control.config().0.daemon, ..config }
    }

    pub(crate) fn apply(&self, config: &Config) {
        let consent = Consent::default();
        self.control.apply(config, &consent, &mut |_| {}).expect("it is carried out");
    }

    pub(crate) fn verb(&self, class: &str, verb: &str, params: &Value) {
        let done = self.control.change(|plant| plant.verb(class, verb, params, &mut |_| {}));
        done.unwrap_or_else(|e| panic!("{class} {verb} {params}: {e}"));
    }

    /// The reported changes of a geom.
    fn reported(&self, at: &str) -> Vec<String> {
        let state = self.control.plant().state().expect("a state");
        let config = self.control.config().0;
        let changes = manual_changes(&config, &state, self.control.catalog()).into_iter();
        changes
            .filter(|change| change.object == at)
            .map(|change| format!("{}. {}", change.why, change.fix))
            .collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.control.plant().stop();
    }
}

/// The form in which a change by a verb is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReportedAs {
    /// As a setting: also as a step of `plan`, and by `export`.
    Setting,
    /// As members that the section does not name.
    Members,
    /// As a layer or geom that no section makes, or as something until the next start.
    Transient,
}
use ReportedAs::{Members, Setting, Transient};

/// In the place of the name that an array gets when it is labelled.
const ARRAY: &str = "raid ARRAY";

/// Disks, and a geom of each class over some of them.
const TEXT: &str = "
    [[geom]]\nclass = 'sched'\nname = 's'\nprovider = 's0'\noptions = 'quantum_kb=64,weight=5'
    [[geom]]\nclass = 'trim'\nname = 't'\nprovider = 't0'\nshare = 7
    [[geom]]\nclass = 'multipath'\nname = 'p'\nmembers = ['p0', 'p1']\nfailback = 4
    [[geom]]\nclass = 'concat'\nname = 'c'\nmembers = ['c0', 'c1']
    [[geom]]\nclass = 'mirror'\nname = 'm'\nmembers = ['m0', 'm1']
    [[geom]]\nclass = 'label'\nname = 'label/l'\nprovider = 'l0'
    [[geom]]\nclass = 'stripe'\nname = 'r'\nmembers = ['r0', 'r1']\nstrip = 8192
    [[geom]]\nclass = 'fs'\nname = 'f'\nmembers = ['big0', 'big1']\ncreate = true
    [[bus]]\nname = 'v'\nkind = 'virtual'\ndisks = 1\nsize = '1MiB'
";

fn text() -> String {
    let disk = |name: &str, size: &str| {
        format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '{size}'\n")
    };
    let small = "s0 t0 p0 p1 c0 c1 m0 m1 l0 r0 r1 x0 x1 x2 x3 x4 x5 x6 x7 x8 x9 y0 y1 y2 y3 z0 z1";
    let small = small.split(' ').map(|name| disk(name, "1MiB"));
    let big = ["big0", "big1"].into_iter().map(|name| disk(name, "32MiB"));
    let filters = filters().into_iter().map(|(class, _)| {
        disk(&format!("f{class}"), "1MiB")
            + &format!("[[geom]]\nclass = '{class}'\nname = '{class}'\nprovider = 'f{class}'\n")
    });
    small.chain(big).chain(filters).collect::<String>() + TEXT
}

/// The classes of `geom::Filter`, whose schema defines their verbs and settings, each with the
/// options of its `configure`.
fn filters() -> Vec<(&'static str, &'static [ArgSpec])> {
    let all = class_verbs().into_iter();
    let of = all.filter(|class| class.verbs.iter().map(|v| v.name).eq(["configure", "reset"]));
    of.map(|class| (class.name, &class.verbs[0].args[1..])).collect()
}

/// Each setting of each of them, with a value that is not its default.
fn filter_changes() -> Vec<(&'static str, &'static str, Value, &'static str, ReportedAs)> {
    let each = filters().into_iter().flat_map(|(class, args)| args.iter().map(move |a| (class, a)));
    each.map(|(class, arg)| {
        let value = match arg.kind {
            ArgKind::Choice(words) => json!(words.last()),
            _ => json!(7),
        };
        let params = Value::Object(Map::from_iter([
            ("name".to_owned(), json!(class)),
            (arg.name.to_owned(), value),
        ]));
        let at: &str = String::leak(format!("{class} {class}"));
        (class, "configure", params, at, Setting)
    })
    .collect()
}

/// Class, verb, its arguments, the changed geom, and the form of the report.
fn changes() -> Vec<(&'static str, &'static str, Value, &'static str, ReportedAs)> {
    vec![
        ("sched", "configure", json!({ "name": "s", "algorithm": "fair" }), "sched s", Setting),
        ("sched", "configure", json!({ "name": "s", "options": "weight=9" }), "sched s", Setting),
        ("sched", "configure", json!({ "name": "s", "classify": "lun" }), "sched s", Setting),
        ("sched", "insert", json!({ "disks": ["x0"] }), "sched x0.sched.", Transient),
        ("sched", "create", json!({ "disks": ["x1"] }), "sched x1.sched.", Transient),
        ("trim", "configure", json!({ "name": "t", "share": 9 }), "trim t", Setting),
        ("trim", "configure", json!({ "name": "t", "short": 4096 }), "trim t", Setting),
        ("trim", "configure", json!({ "name": "t", "batch": 9 }), "trim t", Setting),
        ("trim", "configure", json!({ "name": "t", "quiet_ms": 9 }), "trim t", Setting),
        ("trim", "configure", json!({ "name": "t", "expire_ms": 9 }), "trim t", Setting),
        ("trim", "insert", json!({ "name": "x2", "zeroes": "drop" }), "trim x2.trim", Transient),
        ("trim", "create", json!({ "name": "x3" }), "trim x3.trim", Transient),
        ("nop", "insert", json!({ "name": "slow", "provider": "x4" }), "nop slow", Transient),
        ("multipath", "configure", json!({ "name": "p", "active": true }), "multipath p", Setting),
        ("multipath", "configure", json!({ "name": "p", "read": true }), "multipath p", Setting),
        ("multipath", "configure", json!({ "name": "p", "checker": 9 }), "multipath p", Setting),
        ("multipath", "configure", json!({ "name": "p", "failback": 9 }), "multipath p", Setting),
        (
            "multipath",
            "configure",
            json!({ "name": "p", "no_failback": true }),
            "multipath p",
            Setting,
        ),
        ("multipath", "configure", json!({ "name": "p", "queue": 9 }), "multipath p", Setting),
        ("mirror", "configure", json!({ "name": "m", "balance": "prefer" }), "mirror m", Setting),
        ("mirror", "configure", json!({ "name": "m", "slice": 8192 }), "mirror m", Setting),
        ("mirror", "configure", json!({ "name": "m", "no_failsync": true }), "mirror m", Setting),
        ("mirror", "configure", json!({ "name": "m", "no_autosync": true }), "mirror m", Setting),
        ("mirror", "configure", json!({ "name": "m", "sync_rate": 9 }), "mirror m", Setting),
        ("mirror", "pause", json!({ "name": "m" }), "mirror m", Transient),
        ("mirror", "create", json!({ "name": "h", "members": ["x5"] }), "mirror h", Transient),
        (
            "stripe",
            "create",
            json!({ "name": "h", "members": ["x6", "y0"] }),
            "stripe h",
            Transient,
        ),
        (
            "multipath",
            "create",
            json!({ "name": "h", "members": ["x9"] }),
            "multipath h",
            Transient,
        ),
        (
            "concat",
            "create",
            json!({ "name": "h", "members": ["y1", "y2"] }),
            "concat h",
            Transient,
        ),
        ("label", "create", json!({ "name": "n", "provider": "y3" }), "label label/n", Transient),
        ("fs", "disk", json!({ "name": "f", "path": "/vm0", "size": 1 << 20 }), "fs f", Setting),
        ("fs", "attaches", json!({ "name": "f", "what": "off" }), "fs f", Transient),
        ("fs", "dumpctl", json!({ "name": "f", "what": "off" }), "fs f", Transient),
        ("fs", "copying", json!({ "name": "f", "what": "off" }), "fs f", Transient),
        ("fs", "ahead", json!({ "name": "f", "workers": 9 }), "fs f", Transient),
        ("fs", "ahead", json!({ "name": "f", "bytes": 65536 }), "fs f", Transient),
        ("fs", "allow", json!({ "name": "f" }), "fs f", Transient),
        ("fs", "duallow", json!({ "name": "f", "user": "adm" }), "fs f", Transient),
        ("cam", "tags", json!({ "name": "da0", "number": 3 }), "cam da0", Transient),
        ("fs", "trace", json!({ "name": "f", "what": "on" }), "fs f", Transient),
        ("cam", "fault", json!({ "name": "da0", "hangs": 3 }), "cam da0", Transient),
        ("cam", "fault", json!({ "name": "da0", "bad": "8+2" }), "cam da0", Transient),
        ("cam", "fault", json!({ "name": "da0", "forge": "12=00" }), "cam da0", Transient),
        ("cam", "attach", json!({ "name": "v9", "params": ["disks=1"] }), "bus v9", Transient),
        ("raid", "configure", json!({ "name": ARRAY, "sync_rate": 9 }), ARRAY, Transient),
        ("raid", "pause", json!({ "name": ARRAY }), ARRAY, Transient),
        // Members last: they stay.
        ("mirror", "insert", json!({ "name": "m", "members": ["x7"] }), "mirror m", Members),
        ("multipath", "remove", json!({ "name": "p", "member": "p1" }), "multipath p", Members),
        ("concat", "append", json!({ "name": "c", "member": "x8" }), "concat c", Members),
    ]
}

/// Verbs that change no setting: their effect is momentary, or is stored on the disks.
const OTHERS: &str = "
    sched: destroy stats reset
    trim: destroy now stats
    concat: label stop destroy start clear dump relocate
    stripe: label stop destroy start clear dump relocate
    mirror: label remove forget rebuild deactivate activate resize verify resume stop destroy start
        clear dump relocate
    label: label clear destroy stop refresh
    multipath: label add fail restore prefer rotate getactive stop destroy start clear dump
        relocate
    raid: label add delete insert remove fail consistency verify resume relocate stop destroy start
        clear dump
    disk: resize fail delay lie hang release power-cut heal
    cam: devlist rescan inquiry identify readcap reportluns reset modepage defects cmd smpphylist
        enclosure locate discover aoeconfig aoemask aoereserve detach
    lun: forget-name
    fs: dump dumps history yesterday diff check sync grow halt start ream recover replace stats
        statw acct fstat printconf version who files hangup users newuser disallow ls cat
        create remove clri clean blockcmp undisk cons help
";

/// Arguments of verbs of the table that are no settings, or are kept on the disks.
const OTHER_ARGS: &str = "
    sched insert: algorithm options classify
    sched create: algorithm options classify
    trim insert: as share short batch quiet_ms expire_ms granule zeroes
    trim create: as share short batch quiet_ms expire_ms granule zeroes
    multipath configure: passive
    mirror configure: member autosync failsync priority hardcode dynamic bitmap no_bitmap region
    multipath create: active passive read
    mirror create: balance slice no_failsync no_autosync sync_rate yes_destroy
    mirror insert: priority inactive hardcode yes_destroy force wait
    stripe create: strip yes_destroy
    concat create: yes_destroy
    concat append: hardcode yes_destroy force
    cam tags: quiet verbose
    cam fault: fails lies echoes full deaf mute dark quiet clear stop cut_power pull push
    fs trace: connection
    fs disk: as
    fs allow: user
";

/// Keys of sections that determine how a geom is created and change only with it.
const FIXED: &str = "
    trim: granule zeroes
    stripe: strip
    fs: block core device image layout read_only settings
";

/// The words of a list, each behind the head of its line.
fn listed(list: &str) -> BTreeSet<String> {
    let mut head = "";
    let mut all = BTreeSet::new();
    for line in list.lines().map(str::trim) {
        let (of, words) = line.split_once(':').unwrap_or((head, line));
        head = of;
        all.extend(words.split_whitespace().map(|word| format!("{head} {word}")));
    }
    all
}

fn keys(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().into_iter().flat_map(|all| all.keys())
}

#[test]
fn every_class_setting_is_tested_or_listed_as_no_setting() {
    let (others, other_args, fixed) = (listed(OTHERS), listed(OTHER_ARGS), listed(FIXED));
    let changes = [filter_changes(), changes()].concat();
    let mut unknown = Vec::new();
    for class in class_verbs().into_iter().filter(|c| filters().iter().all(|f| f.0 != c.name)) {
        for verb in class.verbs {
            let called = format!("{} {}", class.name, verb.name);
            let of =
                |c: &&(&str, &str, Value, &str, ReportedAs)| (c.0, c.1) == (class.name, verb.name);
            let changed: BTreeSet<&String> =
                changes.iter().filter(of).flat_map(|c| keys(&c.2)).collect();
            if changed.is_empty() && !others.contains(&called) {
                unknown.push(called.clone());
            }
            let args = verb.args.iter().filter(|_| !changed.is_empty());
            let places = ["name", "names", "members", "disks"];
            let args = args.filter(|arg| !places.contains(&arg.name));
            let is_new = |name: &str| !changed.iter().any(|changed| *changed == name);
            let args = args.map(|arg| arg.name).filter(|name| is_new(name));
            let args = args.map(|name| format!("{called} {name}"));
            unknown.extend(args.filter(|arg| !other_args.contains(arg)));
        }
    }
    let catalog = catalog();
    for class in catalog.classes.iter().filter(|class| class.configurable) {
        let geom = format!("[[geom]]\nclass = '{}'\nname = 'g'\nprovider = 'd'\n", class.name);
        let disk = "[[disk]]\nname = 'd'\nkind = 'null'\nsize = '1MiB'\n";
        let members = geom.replace("provider = 'd'", "members = ['d']");
        let section = [geom, members]
            .iter()
            .find_map(|geom| read(&format!("{disk}{geom}"), "a.toml", &catalog).ok()?.geom.pop());
        let section = section.unwrap_or_else(|| panic!("{}: no section", class.name));
        let settings = catalog.settings(&section);
        let of = |key: &&String| !settings.contains_key(*key);
        if filters().iter().any(|filter| filter.0 == class.name) {
            // The rest is fixed by the class's own word (`Params::FIXED`).
            continue;
        }
        let rest = keys(&class.schema["properties"]).filter(of);
        let rest = rest.map(|key| format!("{} {key}", class.name));
        unknown.extend(rest.filter(|key| !fixed.contains(key)));
        let tried = changes.iter().filter(|c| (c.0, c.4) == (&*class.name, Setting));
        let tried = tried.count();
        assert!(settings.is_empty() || tried > 0, "{}: {settings:?} is not tried", class.name);
    }
    assert!(unknown.is_empty(), "in none of the lists: {unknown:#?}");
}

#[test]
fn manual_change_is_reported_exported_and_reverted() {
    let site = Site::new("by-hand", &text());
    let written = site.control.config().0;
    let plan = |config: &Config| {
        let steps = site.control.plan(config).expect("a plan").steps;
        steps.into_iter().map(|step| (step.what, step.why)).collect::<Vec<_>>()
    };
    let label =
        json!({ "name": "v", "format": "Intel", "level": "RAID1", "members": ["z0", "z1"] });
    site.verb("raid", "label", &label);
    let state = site.control.plant().state().expect("a state");
    let array = state.geoms.iter().find(|g| g.class == "raid").expect("an array").name.clone();
    assert_eq!(plan(&written), []);
    for (class, verb, mut params, at, reported_as) in [filter_changes(), changes()].concat() {
        let (in_place, at) = (at == ARRAY, at.replace("ARRAY", &array));
        if in_place {
            params["name"] = array.as_str().into();
        }
        let what = format!("{class} {verb} {params}");
        site.verb(class, verb, &params);
        let says = site.reported(&at);
        assert_eq!(says.len(), 1, "{what}: {says:?}");
        let state = site.control.plant().state().expect("a state");
        let config = site.control.config().0;
        let now = |geom| settings(geom, &state, site.control.catalog());
        let changed = config.geom.iter().filter(|geom| now(geom).is_some()).count();
        let steps = plan(&written);
        if reported_as != Setting {
            let word =
                if reported_as == Transient { "next start" } else { "In ashlar.toml: members = [" };
            assert!(says[0].contains(word), "{what}: {says:?}");
            assert_eq!((changed, steps), (0, Vec::new()), "{what}");
            undo(&site, &says[0], &at);
            continue;
        }
        assert!(says[0].contains("`ashlar apply`"), "{what}: {says:?}");
        let (class, name) = at.split_once(' ').expect("class and name");
        let wanted = format!("change geom {name} ({class})");
        assert_eq!((changed, steps.len()), (1, 1), "{what}: {steps:?}");
        assert_eq!(steps[0].0, wanted, "{what}");
        assert!(steps[0].1.starts_with("changed by hand, set back"), "{what}: {steps:?}");
        // `export` writes the running settings; after they are applied, no change is reported.
        let mut export = config.clone();
        for geom in &mut export.geom {
            let now = settings(geom, &state, site.control.catalog()).unwrap_or_default();
            mgmt::plan::set_params(geom, now);
        }
        assert_eq!(plan(&export), [], "{what}");
        site.apply(&written);
        assert_eq!(
            (site.reported(&at), plan(&written)),
            (Vec::new(), Vec::new()),
            "{what}: set back"
        );
    }
}

/// A change that is reported until the next start names the command that reverts it.
fn undo(site: &Site, text: &str, at: &str) {
    let Some((_, command)) = text.split_once("undo it: `ashlar ") else { return };
    let words: Vec<&str> = command.trim_end_matches(['`', '.']).split(' ').collect();
    let (class, verb) = (words[0], words[1]);
    let params = match (class, verb) {
        ("mirror" | "raid", "resume") => json!({ "name": words[2] }),
        ("mirror" | "raid", _) => json!({ "name": words[4], "sync_rate": 0 }),
        ("cam", "fault") => json!({ "name": words[2], "clear": true }),
        ("cam", _) => json!({ "name": words[2], "number": words[4].parse::<u32>().expect("one") }),
        (_, "ahead") => {
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            json!({ "name": words[2], "workers": number(4), "bytes": number(6) })
        }
        (_, "disallow") => json!({ "name": words[2] }),
        (_, "duallow") => json!({ "name": words[2], "user": words[3] }),
        _ => json!({ "name": words[2], "what": words[3] }),
    };
    site.verb(class, verb, &params);
    assert_eq!(site.reported(at), Vec::<String>::new(), "{text}");
}
