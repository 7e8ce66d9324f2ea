//! Tests of the store of identities (I1 to I5): paths, copies, renames and earlier records.

use super::*;
use disks::Identities;
use engine::state_store::MemoryStore;

/// A state store that an earlier version has used.
struct Used(Arc<MemoryStore>);

impl StateStore for Used {
    fn save(
        &self,
        serial: &str,
        kind: state_store::RecordKind,
        bytes: Vec<u8>,
        done: state_store::SaveCompletion,
    ) {
        self.0.save(serial, kind, bytes, done);
    }

    fn load(
        &self,
        serial: &str,
        kind: state_store::RecordKind,
    ) -> Result<Option<Vec<u8>>, geom::Error> {
        self.0.load(serial, kind)
    }

    fn was_used(&self) -> bool {
        true
    }
}

fn keeper(store: Arc<dyn StateStore>, known: &[String]) -> IdentityKeeper {
    IdentityKeeper::load(
        store,
        Arc::new(|_, text| panic!("{text}")),
        known.iter().cloned().collect(),
    )
}

fn ask<'a>(name: &'a str, place: &'a str) -> IdentityRequest<'a> {
    let derived = format!("de71{}", identity::digest(&[place]).get(..12).unwrap());
    IdentityRequest {
        kind: "file",
        name,
        location: place,
        found: None,
        own: None,
        derived,
        is_new: false,
    }
}

/// The identity is stored, and the state folder read again.
fn again(keeper: &IdentityKeeper, store: &Arc<MemoryStore>) -> IdentityKeeper {
    keeper.store();
    self::keeper(store.clone(), &[])
}

#[test]
fn i1_identity_is_random_and_kept_for_its_path() {
    let (one, two) = (MemoryStore::new(), MemoryStore::new());
    let (a, b) = (keeper(one.clone(), &[]), keeper(two, &[]));
    let first = a.identity_of(&ask("d0", "/a.img"));
    assert_ne!(first, b.identity_of(&ask("d0", "/a.img")), "another daemon of this machine");
    assert_ne!(first, a.identity_of(&ask("d1", "/b.img")));
    assert_eq!(first.ident.len(), 16);
    assert_eq!(first.unit_name, None);
    let a = again(&a, &one);
    assert_eq!(first, a.identity_of(&ask("renamed", "/a.img")));
    assert_ne!(
        first,
        a.identity_of(&IdentityRequest { is_new: true, ..ask("d0", "/a.img") }),
        "made anew"
    );
}

/// I3 of identities.rs.
/// I1 of disks/src/lasting.rs.
#[test]
fn i2_i3_identity_moves_with_its_image_and_leaves_no_copy_behind() {
    let store = MemoryStore::new();
    let a = keeper(store.clone(), &[]);
    let first = a.identity_of(&ask("d0", "/nowhere/a.img"));
    let moved = IdentityRequest { found: Some(first.clone()), ..ask("d0", "/nowhere/b.img") };
    assert_eq!(a.identity_of(&moved), first);
    let a = again(&a, &store);
    assert_ne!(
        a.identity_of(&ask("d1", "/nowhere/a.img")),
        first,
        "another image in its old place"
    );
    assert_eq!(a.identity_of(&ask("d0", "/nowhere/b.img")), first, "a copy without attributes");
}

#[test]
fn disk_whose_new_file_was_removed_leaves_no_record() {
    let folder = std::fs::canonicalize(std::env::temp_dir()).unwrap();
    let path = folder.join("ashlar-forgotten.img").display().to_string();
    let section = serde_json::json!({ "name": "d0", "kind": "file", "path": path });
    let disk: DiskConfig = serde_json::from_value(section).unwrap();
    let store = MemoryStore::new();
    let a = keeper(store.clone(), &[]);
    a.identity_of(&IdentityRequest { is_new: true, ..ask("d0", &path) });
    let a = again(&a, &store);
    assert!(a.has_record_of(&disk));
    a.forget("file", &path, "d0");
    assert!(!a.has_record_of(&disk), "its file may be made again");
    assert!(!again(&a, &store).has_record_of(&disk));
}

/// I4 of identities.rs.
/// I2 of disks/src/lasting.rs.
#[test]
fn i5_disks_of_an_earlier_configuration_keep_their_identity() {
    let text = "[[disk]]\nname = 'old'\nkind = 'memory'\nsize = '1MiB'\n";
    let config = mgmt::config::read_arguments(text, "test", &crate::catalog()).unwrap();
    let store = MemoryStore::new();
    let a = keeper(Arc::new(Used(store.clone())), &[]);
    a.set_desired(&config);
    a.store();
    // The start ends before the disk is opened, and the next one has another configuration.
    let a = keeper(Arc::new(Used(store.clone())), &[]);
    a.set_desired(&Config::default());
    let old = ask("old", "/old.img");
    let lasting = a.identity_of(&old);
    assert_eq!(lasting.ident, old.derived);
    assert_eq!(lasting.unit_name.as_deref(), Some("old"));
    assert_ne!(a.identity_of(&ask("new", "/new.img")).ident, ask("new", "/new.img").derived);
    let made = IdentityRequest { is_new: true, ..ask("old", "/made.img") };
    assert_ne!(a.identity_of(&made).ident, made.derived, "made just now");
    // Its name is not what makes it known.
    let a = again(&a, &store);
    assert_eq!(a.identity_of(&ask("renamed", "/old.img")), lasting);
    let fresh = keeper(MemoryStore::new(), &[]);
    fresh.set_desired(&config);
    assert_ne!(fresh.identity_of(&ask("old", "/old.img")).ident, old.derived, "a new state folder");
}

#[test]
fn i5_identity_is_the_serial_number_that_initiators_have_seen() {
    let old = ask("d0", "/old.img");
    let unit = identity::digest(&[&old.derived, "d0"]);
    let a = keeper(MemoryStore::new(), std::slice::from_ref(&unit));
    let lasting = a.identity_of(&old);
    assert_eq!(identity::serial_of_disk(&lasting), unit);
    // Its image moves, and another takes its place.
    a.identity_of(&IdentityRequest { found: Some(lasting.clone()), ..ask("d0", "/moved.img") });
    assert_ne!(a.identity_of(&old).ident, lasting.ident);
}

#[test]
fn i2_disks_of_one_image_have_distinct_identities() {
    let disk = |name: &&str| {
        format!("[[disk]]\nname='{name}'\nkind='file'\npath='/x.iso'\nread_only=true\n")
    };
    let config = |names: &[&str]| {
        let text: String = names.iter().map(disk).collect();
        mgmt::config::read_arguments(&text, "test", &crate::catalog()).unwrap()
    };
    let store = MemoryStore::new();
    let a = keeper(Arc::new(Used(store.clone())), &[]);
    a.set_desired(&config(&["d0", "d1"]));
    let [one, two] = ["d0", "d1"].map(|name| a.identity_of(&ask(name, "/x.iso")));
    assert_eq!((&one.ident, &two.ident), (&two.ident, &ask("d0", "/x.iso").derived));
    assert_ne!(identity::serial_of_disk(&one), identity::serial_of_disk(&two));
    let a = again(&a, &store);
    a.set_desired(&config(&["d0", "d1", "d2"]));
    let all = ["d0", "d1", "d2"].map(|name| a.identity_of(&ask(name, "/x.iso")));
    assert_eq!(all[..2], [one, two]);
    assert!(all[2] != all[0] && all[2] != all[1]);
    // The section of one is renamed.
    let renamed = config(&["d1", "d2", "r"]);
    a.set_desired(&renamed);
    assert_eq!(a.identity_of(&ask("r", "/x.iso")), all[0]);
    assert_ne!(a.identity_of(&ask("s", "/x.iso")), all[0]);
}

#[test]
fn hardware_disk_keeps_its_serial_number_and_first_name() {
    let store = MemoryStore::new();
    let a = keeper(store.clone(), &[]);
    let own =
        |name, own| IdentityRequest { kind: "blockdev", own: Some(own), ..ask(name, "/dev/x") };
    let first = a.identity_of(&own("d0", "WD-1"));
    assert_eq!(first, PersistentIdentity { ident: "WD-1".into(), unit_name: Some("d0".into()) });
    let a = again(&a, &store);
    assert_eq!(a.identity_of(&own("d1", "WD-1")), first);
    let other = a.identity_of(&own("d1", "WD-2"));
    assert_eq!(other, PersistentIdentity { ident: "WD-2".into(), unit_name: Some("d1".into()) });
}

#[test]
fn i6_unreadable_record_is_not_overwritten_and_identities_are_derived() {
    let store = MemoryStore::new();
    store.put(SERIAL, state_store::RecordKind::DiskIdentities, b"{\"layout\":9}".to_vec());
    let tell: Arc<ReportFn> = Arc::new(|_, text: String| assert!(text.contains("cannot be read")));
    let a = IdentityKeeper::load(store.clone(), tell, BTreeSet::new());
    let old = ask("d0", "/a.img");
    assert_eq!(a.identity_of(&old).ident, old.derived);
    a.store();
    assert_eq!(
        store.record(SERIAL, state_store::RecordKind::DiskIdentities).unwrap(),
        b"{\"layout\":9}"
    );
}

#[test]
fn identities_record_decodes_unchanged_or_not_at_all() {
    let own = IdentityRecord { lasting: PersistentIdentity::new("WD \"1\""), is_hardware: true };
    let called = PersistentIdentity {
        unit_name: Some("é".into()),
        ..PersistentIdentity::new("0123456789abcdef")
    };
    let place = |path: &str| ("file".to_owned(), path.to_owned(), "d".to_owned());
    let record = Record {
        before: BTreeSet::from(["d0".to_owned()]),
        all: BTreeMap::from([
            (place("/a b"), own),
            (place("/c"), IdentityRecord { lasting: called, is_hardware: false }),
        ]),
    };
    assert_eq!(decode(&encode(&record)), Some(record));
    assert_eq!(decode(&encode(&Record::default())), Some(Record::default()));
    assert_eq!(decode(br#"{"layout":1,"before":[],"disks":[{"kind":"file"}]}"#), None);
}

/// A state store whose saves end when a test ends them.
#[derive(Default)]
struct SlowStore(Mutex<Option<state_store::SaveCompletion>>);

impl StateStore for SlowStore {
    fn save(
        &self,
        _serial: &str,
        _kind: state_store::RecordKind,
        _bytes: Vec<u8>,
        done: state_store::SaveCompletion,
    ) {
        *self.0.lock() = Some(done);
    }

    fn load(
        &self,
        _serial: &str,
        _kind: state_store::RecordKind,
    ) -> Result<Option<Vec<u8>>, geom::Error> {
        Ok(None)
    }

    fn was_used(&self) -> bool {
        true
    }
}

/// K2 of mailbox.rs.
#[test]
fn questions_are_answered_while_identities_are_stored() {
    let store = Arc::new(SlowStore::default());
    let keeper = keeper(store.clone(), &[]);
    keeper.set_desired(&Config::default());
    assert!(keeper.is_unsaved(), "I5: the disks known before are recorded");
    let wait = Box::new(|inbox: &geom::Inbox, most| inbox.sleep(most));
    let mut control = GraphControl::new(Vec::new(), Arc::default(), wait, Box::new(|| 0));
    // The save ends only when questions are answered.
    control.set_watch(Box::new(move |_, _| {
        let saving = store.0.lock().take();
        saving.into_iter().for_each(|done| done.complete(Ok(())));
    }));
    assert!(keeper.store_if_due(&mut control), "it has waited");
    assert!(!keeper.is_unsaved());
    assert!(!keeper.store_if_due(&mut control), "nothing is left to store");
}
