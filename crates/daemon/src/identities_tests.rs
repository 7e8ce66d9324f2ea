use super::*;
use disks::Identities;
use engine::state_store::MemoryVault;

/// A vault that an earlier version has used.
struct Used(Arc<MemoryVault>);

impl Vault for Used {
    fn save(
        &self,
        serial: &str,
        kind: state_store::Kind,
        bytes: Vec<u8>,
        done: state_store::Ticket,
    ) {
        self.0.save(serial, kind, bytes, done);
    }

    fn load(&self, serial: &str, kind: state_store::Kind) -> Result<Option<Vec<u8>>, geom::Error> {
        self.0.load(serial, kind)
    }

    fn was_used(&self) -> bool {
        true
    }
}

fn keeper(vault: Arc<dyn Vault>, known: &[String]) -> Keeper {
    Keeper::load(vault, Arc::new(|_, text| panic!("{text}")), known.iter().cloned().collect())
}

fn ask<'a>(name: &'a str, place: &'a str) -> Ask<'a> {
    let derived = format!("de71{}", identity::digest(&[place]).get(..12).unwrap());
    Ask { kind: "file", name, place, found: None, own: None, derived, is_new: false }
}

/// The identity is stored, and the state folder read again.
fn again(keeper: &Keeper, vault: &Arc<MemoryVault>) -> Keeper {
    keeper.store();
    self::keeper(vault.clone(), &[])
}

#[test]
fn i1_identity_is_random_and_kept_for_its_path() {
    let (one, two) = (MemoryVault::new(), MemoryVault::new());
    let (a, b) = (keeper(one.clone(), &[]), keeper(two, &[]));
    let first = a.of(&ask("d0", "/a.img"));
    assert_ne!(first, b.of(&ask("d0", "/a.img")), "another daemon of this machine");
    assert_ne!(first, a.of(&ask("d1", "/b.img")));
    assert_eq!(first.ident.len(), 16);
    assert_eq!(first.called, None);
    let a = again(&a, &one);
    assert_eq!(first, a.of(&ask("renamed", "/a.img")));
    assert_ne!(first, a.of(&Ask { is_new: true, ..ask("d0", "/a.img") }), "made anew");
}

#[test]
fn i2_i3_identity_moves_with_its_image_and_leaves_no_copy_behind() {
    let vault = MemoryVault::new();
    let a = keeper(vault.clone(), &[]);
    let first = a.of(&ask("d0", "/nowhere/a.img"));
    let moved = Ask { found: Some(first.clone()), ..ask("d0", "/nowhere/b.img") };
    assert_eq!(a.of(&moved), first);
    let a = again(&a, &vault);
    assert_ne!(a.of(&ask("d1", "/nowhere/a.img")), first, "another image in its old place");
    assert_eq!(a.of(&ask("d0", "/nowhere/b.img")), first, "a copy without attributes");
}

#[test]
fn i5_disks_of_an_earlier_configuration_keep_their_identity() {
    let text = "[[disk]]\nname = 'old'\nkind = 'memory'\nsize = '1MiB'\n";
    let config = control::config::read_words(text, "test", &crate::catalog()).unwrap();
    let vault = MemoryVault::new();
    let a = keeper(Arc::new(Used(vault.clone())), &[]);
    a.intend(&config);
    a.store();
    // The start ends before the disk is opened, and the next one has another configuration.
    let a = keeper(Arc::new(Used(vault.clone())), &[]);
    a.intend(&Config::default());
    let old = ask("old", "/old.img");
    let lasting = a.of(&old);
    assert_eq!(lasting.ident, old.derived);
    assert_eq!(lasting.called.as_deref(), Some("old"));
    assert_ne!(a.of(&ask("new", "/new.img")).ident, ask("new", "/new.img").derived);
    let made = Ask { is_new: true, ..ask("old", "/made.img") };
    assert_ne!(a.of(&made).ident, made.derived, "made just now");
    // Its name is not what makes it known.
    let a = again(&a, &vault);
    assert_eq!(a.of(&ask("renamed", "/old.img")), lasting);
    let fresh = keeper(MemoryVault::new(), &[]);
    fresh.intend(&config);
    assert_ne!(fresh.of(&ask("old", "/old.img")).ident, old.derived, "a new state folder");
}

#[test]
fn i5_identity_is_the_serial_number_that_initiators_have_seen() {
    let old = ask("d0", "/old.img");
    let unit = identity::digest(&[&old.derived, "d0"]);
    let a = keeper(MemoryVault::new(), std::slice::from_ref(&unit));
    let lasting = a.of(&old);
    assert_eq!(identity::serial_of_disk(&lasting), unit);
    // Its image moves, and another takes its place.
    a.of(&Ask { found: Some(lasting.clone()), ..ask("d0", "/moved.img") });
    assert_ne!(a.of(&old).ident, lasting.ident);
}

#[test]
fn i2_disks_of_one_image_have_distinct_identities() {
    let disk = |name: &&str| format!("[[disk]]\nname='{name}'\nkind='file'\npath='/x.iso'\n");
    let config = |names: &[&str]| {
        let text: String = names.iter().map(disk).collect();
        control::config::read_words(&text, "test", &crate::catalog()).unwrap()
    };
    let vault = MemoryVault::new();
    let a = keeper(Arc::new(Used(vault.clone())), &[]);
    a.intend(&config(&["d0", "d1"]));
    let [one, two] = ["d0", "d1"].map(|name| a.of(&ask(name, "/x.iso")));
    assert_eq!((&one.ident, &two.ident), (&two.ident, &ask("d0", "/x.iso").derived));
    assert_ne!(identity::serial_of_disk(&one), identity::serial_of_disk(&two));
    let a = again(&a, &vault);
    a.intend(&config(&["d0", "d1", "d2"]));
    let all = ["d0", "d1", "d2"].map(|name| a.of(&ask(name, "/x.iso")));
    assert_eq!(all[..2], [one, two]);
    assert!(all[2] != all[0] && all[2] != all[1]);
    // The section of one is renamed.
    let renamed = config(&["d1", "d2", "r"]);
    a.intend(&renamed);
    assert_eq!(a.of(&ask("r", "/x.iso")), all[0]);
    assert_ne!(a.of(&ask("s", "/x.iso")), all[0]);
}

#[test]
fn hardware_disk_keeps_its_serial_number_and_first_name() {
    let vault = MemoryVault::new();
    let a = keeper(vault.clone(), &[]);
    let own = |name, own| Ask { kind: "blockdev", own: Some(own), ..ask(name, "/dev/x") };
    let first = a.of(&own("d0", "WD-1"));
    assert_eq!(first, Lasting { ident: "WD-1".into(), called: Some("d0".into()) });
    let a = again(&a, &vault);
    assert_eq!(a.of(&own("d1", "WD-1")), first);
    let other = a.of(&own("d1", "WD-2"));
    assert_eq!(other, Lasting { ident: "WD-2".into(), called: Some("d1".into()) });
}

#[test]
fn i6_unreadable_record_is_not_overwritten_and_identities_are_derived() {
    let vault = MemoryVault::new();
    vault.put(SERIAL, state_store::Kind::Identities, b"{\"layout\":9}".to_vec());
    let tell: Arc<Tell> = Arc::new(|_, text: String| assert!(text.contains("cannot be read")));
    let a = Keeper::load(vault.clone(), tell, BTreeSet::new());
    let old = ask("d0", "/a.img");
    assert_eq!(a.of(&old).ident, old.derived);
    a.store();
    assert_eq!(vault.record(SERIAL, state_store::Kind::Identities).unwrap(), b"{\"layout\":9}");
}

#[test]
fn identities_record_decodes_unchanged_or_not_at_all() {
    let own = Kept { lasting: Lasting::new("WD \"1\""), is_own: true };
    let called = Lasting { called: Some("é".into()), ..Lasting::new("0123456789abcdef") };
    let place = |path: &str| ("file".to_owned(), path.to_owned(), "d".to_owned());
    let record = Record {
        before: BTreeSet::from(["d0".to_owned()]),
        all: BTreeMap::from([
            (place("/a b"), own),
            (place("/c"), Kept { lasting: called, is_own: false }),
        ]),
    };
    assert_eq!(decode(&encode(&record)), Some(record));
    assert_eq!(decode(&encode(&Record::default())), Some(Record::default()));
    assert_eq!(decode(br#"{"layout":1,"before":[],"disks":[{"kind":"file"}]}"#), None);
}
