//! The catalog of this daemon: every disk kind, class and driver of the crates below.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use disks::{DISK_CLASS, DISK_DOC, DiskClass, PathKind};
use drivers::bus::LocalKind;
use engine::Registry;
use engine::lun::LunClass;
use fileserver::{FS_CLASS, FsClass, NoHistory, Site, VolumeHistory};
use geom::{Class, VerbSpec};
use mgmt::ClassVerbs;
use mgmt::api::{self, Error};
use mgmt::config::{Catalog, ClassFacts, Config, DiskFacts, DriverFacts, Entry, GeomConfig};
use serde_json::{Map, Value};

use crate::errors::from_geom;
use crate::plant::bus_kinds;
use crate::{buses, media, verbs};

/// The classes with verbs that have no commands of their own in the control path.
pub fn class_verbs() -> Vec<ClassVerbs> {
    class_verbs_where(|_| true)
}

/// The one of them with this name. Descriptions of the others are not made.
pub fn class_verbs_of(name: &str) -> Option<ClassVerbs> {
    class_verbs_where(|class| class == name).pop()
}

fn class_verbs_where(wanted: impl Fn(&str) -> bool) -> Vec<ClassVerbs> {
    let has_own = |c: &Arc<dyn Class>| mgmt::verbs::has_commands_of(c.name());
    let all = classes::all().into_iter().filter(|c| wanted(c.name()) && !has_own(c));
    let all = all.map(|c| ClassVerbs { name: c.name(), doc: c.doc(), verbs: c.verbs() });
    let others: [(_, _, fn() -> &'static [VerbSpec]); 4] = [
        (DISK_CLASS, DISK_DOC, DiskClass::specs),
        (cam::CAM_CLASS, cam::CAM_DOC, verbs::cam_specs),
        (LunClass.name(), LunClass.doc(), verbs::lun_specs),
        (FS_CLASS, FsClass::DOC, FsClass::specs),
    ];
    let others = others.into_iter().filter(|(name, ..)| wanted(name));
    let others = others.map(|(name, doc, verbs)| ClassVerbs { name, doc, verbs: verbs() });
    all.filter(|class| !class.verbs.is_empty()).chain(others).collect()
}

/// The facts about this machine that file servers need.
pub(crate) fn site(volumes: Arc<dyn VolumeHistory>) -> Site {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Site { clock: wall_ns, machine: name.trim().to_owned(), history: volumes }
}

fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// Seconds since 1970.
pub(crate) fn wall_s() -> u64 {
    wall_ns() / 1_000_000_000
}

/// A class that a section may name.
fn class_named(name: &str) -> Option<&'static Arc<dyn Class>> {
    static ALL: OnceLock<Vec<Arc<dyn Class>>> = OnceLock::new();
    ALL.get_or_init(all_classes).iter().find(|class| class.name() == name)
}

/// Facts about a class, also about that of LUNs, which no section may name.
fn class_facts(name: &str) -> ClassFacts {
    if name == LunClass.name() {
        return ClassFacts::of(&LunClass);
    }
    let class = class_named(name);
    class.map_or_else(ClassFacts::default, |class| ClassFacts::of(class.as_ref()))
}

/// Whether the geom of a section can get the members of another one while it is used.
fn may_become(from: &GeomConfig, to: &GeomConfig) -> bool {
    let class = class_named(&from.class).filter(|_| from.class == to.class);
    class.is_some_and(|class| class.can_replace_members(&from.members, &to.members))
}

/// The settings that a section gives its geom.
fn settings(geom: &GeomConfig) -> Map<String, Value> {
    let params = Value::Object(geom.params.clone());
    let parsed = class_named(&geom.class).map(|class| class.settings(&params));
    // A section that the class refuses is reported by `check_geom`.
    parsed.and_then(Result::ok).unwrap_or_default()
}

/// Why a daemon that runs nothing could not make buses, disks and geoms.
fn start_refusals(config: &Config) -> Vec<String> {
    let line = |kind: &str, name: &str, e: Error| {
        let at = if e.at == name { String::new() } else { format!("{}: ", e.at) };
        format!("{kind} {name}: {at}{}", e.source)
    };
    let buses = config.bus.iter().filter_map(|bus| {
        let refused = buses::check(bus).err()?;
        Some(line("bus", &bus.name, refused))
    });
    let disks = media::check_all(&config.disk).into_iter();
    let disks = disks.map(|refused| format!("disk {}: {}", refused.at, refused.source));
    let geoms = config.geom.iter().filter_map(|geom| {
        let refused = check_geom("create geom", geom).err()?;
        Some(line("geom", &geom.name, refused))
    });
    buses.chain(disks).chain(geoms).collect()
}

/// Why the class of a section would refuse its keys, or the files that they name. On a thread that
/// may block.
pub(crate) fn check_geom(op: &str, geom: &GeomConfig) -> api::Result<()> {
    let Some(class) = class_named(&geom.class) else { return Ok(()) };
    let params = Value::Object(geom.params.clone());
    let read = class.settings(&params).and_then(|_| match geom.class.as_str() {
        FS_CLASS => FsClass::check_files(&params),
        _ => Ok(()),
    });
    read.map_err(|e| from_geom(op, &geom.name, e))
}

/// The classes that a configuration may name.
fn all_classes() -> Vec<Arc<dyn Class>> {
    let fs: Arc<dyn Class> = Arc::new(FsClass::new(site(Arc::new(NoHistory))));
    classes::all().into_iter().chain([fs]).collect()
}

/// The catalog of this build.
pub fn catalog() -> Catalog {
    let registry: Arc<Registry> = Registry::new();
    let kinds = bus_kinds(LocalKind::new(registry.clone()));
    let buses = kinds.into_iter().map(|k| Entry {
        volatile: k.volatile(),
        live_keys: k.live_keys(),
        example: k.example().into(),
        ..Entry::new(k.name(), k.doc(), k.schema())
    });
    let disks = disks::KINDS.iter().map(|k| Entry {
        volatile: k.volatile() && k.stores_data(),
        live_keys: k.live_keys(),
        edits: k.edits(),
        size_keys: k.size_keys(),
        disk: DiskFacts {
            is_device: k.path_kind() == PathKind::Device,
            has_sectors_of_medium: k.has_sectors_of_medium(),
        },
        example: k.example().into(),
        ..Entry::new(k.name(), k.doc(), k.schema())
    });
    let classes = all_classes().into_iter().map(|c| {
        let schema = c.params();
        let (configurable, none) = (schema.is_some(), serde_json::json!({ "type": "object" }));
        let entry = Entry::new(c.name(), c.doc(), schema.unwrap_or(none));
        Entry { configurable, edits: c.edits(), ..entry }
    });
    let drivers = drivers::all(&registry).into_iter().map(|d| Entry {
        edits: d.edits(),
        driver: DriverFacts {
            is_local: d.clone().local().is_some(),
            naming: d.naming(),
            has_unit_names: d.has_unit_names(),
        },
        ..Entry::new(d.name(), d.doc(), d.schema())
    });
    Catalog {
        buses: buses.collect(),
        disks: disks.collect(),
        classes: classes.collect(),
        drivers: drivers.collect(),
        check_target: Some(crate::exports::check_target),
        check_start: Some(start_refusals),
        settings: Some(settings),
        may_become: Some(may_become),
        class_facts: Some(class_facts),
        class_verbs: Some(class_verbs),
    }
}

#[cfg(test)]
mod tests {
    use geom::ArgSpec;
    use mgmt::config::{ClassFacts, Entry};
    use mgmt::verbs::VERBS;
    use serde_json::Value;
    use wire::pattern::Naming;

    use super::{catalog, class_verbs, class_verbs_of};

    #[test]
    fn drivers_describe_their_initiators() {
        let catalog = catalog();
        let naming = |driver| catalog.driver(driver).naming;
        let found = [naming("iscsi"), naming("nbd"), naming("nvme_tcp"), naming("none")];
        assert_eq!(found, [Naming::Iscsi, Naming::Address, Naming::Plain, Naming::Plain]);
        for entry in &catalog.drivers {
            assert_eq!(entry.driver.is_local, entry.name == "local", "{}", entry.name);
            assert_eq!(entry.driver.has_unit_names, entry.name == "nbd", "{}", entry.name);
        }
        for driver in drivers::all(&engine::Registry::new()) {
            assert_eq!(driver.has_logins(), driver.name() != "aoe", "{}", driver.name());
        }
    }

    #[test]
    fn keys_with_a_stated_effect_of_an_edit_are_keys_of_the_schema() {
        let catalog = catalog();
        for (section, entry) in catalog.all() {
            let stated = entry.edits.iter().map(|(key, _)| key).filter(|key| **key != "*");
            let Some(keys) = entry.schema["properties"].as_object() else { continue };
            for key in stated.chain(entry.size_keys) {
                assert!(keys.contains_key(*key), "{section} {}: no key {key}", entry.name);
            }
        }
        assert_eq!(catalog.size_keys("file"), ["create", "size"]);
        assert!(catalog.size_keys("blockdev").is_empty());
        let fs = catalog.classes.iter().find(|entry| entry.name == "fs").expect("the class");
        assert!(fs.edits.iter().any(|(key, _)| *key == "plan9"), "{:?}", fs.edits);
        let listen = catalog.facts("fs").listen_keys;
        let is_key = |key: &&str| fs.schema["properties"].get(*key).is_some();
        assert!(listen.contains(&"plan9") && listen.iter().all(is_key), "{listen:?}");
    }

    /// See `DiskConfig::image`.
    #[test]
    fn key_path_of_a_disk_kind_is_its_file_or_device() {
        let catalog = catalog();
        let has_path = |entry: &&Entry| entry.schema["properties"].get("path").is_some();
        let names: Vec<&str> =
            catalog.disks.iter().filter(has_path).map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["file", "blockdev"], "another meaning needs a key of another name");
        let is_device = ["file", "blockdev", "none"].map(|kind| catalog.disk(kind).is_device);
        assert_eq!(is_device, [false, true, false]);
        let is_of_medium = |kind: &str| catalog.disk(kind).has_sectors_of_medium;
        assert_eq!(["file", "blockdev", "nbd"].map(is_of_medium), [false, true, true]);
    }

    #[test]
    fn class_verbs_are_commands_and_their_examples_parse() {
        let classes = class_verbs();
        mgmt::command(&classes).debug_assert();
        for name in ["mirror", "disk", "lun"] {
            assert!(classes.iter().any(|c| c.name == name), "{name}");
        }
        for class in &classes {
            for verb in class.all_verbs() {
                let example = class.example(verb);
                let words = mgmt::shell_words(&example);
                let named: Vec<&str> = words.iter().skip(1).take(2).map(String::as_str).collect();
                assert_eq!(named, [class.name, verb.name], "{example}");
                let parsed = mgmt::parse(&classes, &example);
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
                assert!(verb.doc.len() > 8 && !verb.doc.ends_with('.'), "{example}");
            }
        }
    }

    #[test]
    fn verbs_of_one_class_are_those_among_all() {
        let names = |class: &mgmt::ClassVerbs| -> Vec<&str> {
            class.all_verbs().map(|verb| verb.name).collect()
        };
        for class in class_verbs() {
            let alone = class_verbs_of(class.name).expect(class.name);
            assert_eq!((alone.name, names(&alone)), (class.name, names(&class)));
        }
        assert!(["status", "part", "none"].iter().all(|name| class_verbs_of(name).is_none()));
    }

    /// Schemas of an object, of its forms if it has several.
    fn forms<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
        let meant = |form: &'a Value| match form["$ref"].as_str() {
            Some(path) => document.pointer(path.trim_start_matches('#')).expect("a schema"),
            None => form,
        };
        let forms = schema["anyOf"].as_array().into_iter().flatten();
        if schema["anyOf"].is_array() { forms.map(meant).collect() } else { vec![schema] }
    }

    #[test]
    fn every_class_verb_has_a_path_with_its_parameters_and_answer() {
        let classes = class_verbs();
        let document = mgmt::http::openapi::document(&classes);
        for class in &classes {
            for verb in class.all_verbs() {
                let called = format!("{}.{}", class.name, verb.name);
                let post = &document["paths"][format!("/v1/verbs/{called}")]["post"];
                let schema = |of: &Value| {
                    let reference = of.pointer("/content/application~1json/schema/$ref");
                    let path = reference.and_then(Value::as_str).expect(&called);
                    document.pointer(path.trim_start_matches('#')).expect(path)
                };
                let params = schema(&post["requestBody"]);
                for arg in verb.args {
                    assert!(params["properties"][arg.name].is_object(), "{called}: {}", arg.name);
                }
                for form in forms(&document, schema(&post["responses"]["200"])) {
                    let fields = form["properties"].as_object().expect(&called);
                    assert!(!fields.is_empty(), "{called}");
                    for (key, field) in fields {
                        assert!(field["description"].is_string(), "{called}: {key}");
                    }
                }
            }
        }
    }

    #[test]
    fn former_name_of_a_verb_is_accepted_and_not_shown() {
        let whole = mgmt::command(&class_verbs());
        for class in ["concat", "stripe", "mirror", "raid", "multipath"] {
            let words = ["ashlar", class, "follow", "d0", "--was", "10GiB"];
            let parsed = whole.clone().try_get_matches_from(words).expect(class);
            let (_, of) = parsed.subcommand().expect("a class");
            assert_eq!(of.subcommand_name(), Some("relocate"), "{class}");
            let group = whole.find_subcommand(class).expect("a group");
            assert!(group.get_subcommands().all(|verb| verb.get_name() != "follow"), "{class}");
        }
    }

    #[test]
    fn facts_of_a_class_are_those_that_the_class_states() {
        let catalog = catalog();
        let mirror = catalog.facts("mirror");
        assert!(mirror.keeps_records && mirror.lists_members && !mirror.passes_serial);
        assert_eq!(mirror.member_edits_last, Some("by its records"));
        assert!(catalog.facts("part").passes_serial && catalog.facts("lun").passes_serial);
        assert!(!catalog.facts("nop").lists_members && !catalog.facts("nop").passes_serial);
        let spans = ["stripe", "concat"].map(|class| catalog.facts(class));
        assert_eq!(spans.map(|facts| facts.member_edits_last.is_some()), [false, true]);
        assert_eq!(spans[0].shown_as, [("strip", "Stripesize")]);
        assert_eq!(catalog.facts("none"), ClassFacts::default());
    }

    #[test]
    fn live_keys_of_a_bus_or_disk_are_keys_of_its_schema() {
        let catalog = catalog();
        assert!(catalog.live_keys("aoe").contains(&"window"));
        assert!(catalog.live_keys("virtual").is_empty() && catalog.live_keys("none").is_empty());
        assert!(catalog.live_disk_keys("nbd").contains(&"timeout_s"));
        assert!(catalog.live_disk_keys("file").is_empty());
        for entry in catalog.buses.iter().chain(&catalog.disks) {
            for key in entry.live_keys {
                assert!(entry.schema["properties"].get(key).is_some(), "{}: {key}", entry.name);
            }
        }
    }

    /// Collects the descriptions in a schema that contain a number as a default.
    fn typed_defaults(schema: &Value, out: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                let text = fields.get("description").and_then(Value::as_str).unwrap_or_default();
                let mut defaults = text.split("[default: ").skip(1);
                let is_number = |rest: &str| {
                    rest.split(']').next().is_some_and(|word| word.parse::<u64>().is_ok())
                };
                if defaults.any(is_number) {
                    out.push(text.to_owned());
                }
                fields.values().for_each(|inner| typed_defaults(inner, out));
            }
            Value::Array(list) => list.iter().for_each(|inner| typed_defaults(inner, out)),
            _ => {}
        }
    }

    /// A description would be wrong as soon as the number changes; the schema has its value.
    #[test]
    fn numbers_that_are_defaults_are_not_repeated_in_descriptions() {
        let catalog = catalog();
        let mut out = Vec::new();
        let entries = catalog.all().map(|(_, entry)| entry.schema.clone());
        let verbs = VERBS.iter().map(|verb| (verb.params)());
        let classes = class_verbs();
        let of_classes = classes.iter().flat_map(|c| c.all_verbs().map(|verb| (verb.params)()));
        let config = std::iter::once(geom::schema_of::<mgmt::config::Config>());
        for schema in entries.chain(verbs).chain(of_classes).chain(config) {
            typed_defaults(&schema, &mut out);
        }
        assert!(out.is_empty(), "{out:?}");
    }

    /// A title has at most 60 characters, and a default has the form `[default: X]`.
    #[test]
    fn help_has_short_titles_and_one_form_of_defaults() {
        let check = |name: &str, title: &str, args: &[ArgSpec]| {
            assert!(title.trim_end_matches('.').chars().count() <= 60, "{name}: {title}");
            for arg in args {
                let text = arg.doc.to_lowercase();
                let count = |form: &str| text.matches(form).count();
                let is_uniform = count("default:") == count("[default:") && count("absent:") == 0;
                assert!(is_uniform, "{name} {}: {}", arg.name, arg.doc);
            }
        };
        for verb in VERBS {
            check(&verb.words(), verb.doc, verb.args());
        }
        for class in class_verbs() {
            check(class.name, class.doc, &[]);
            for verb in class.all_verbs() {
                check(&format!("{} {}", class.name, verb.name), verb.doc, verb.args);
            }
        }
    }
}
