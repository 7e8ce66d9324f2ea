//! Power cuts between any two steps, torn writes, full disks, on the files: test 12 of
//! `docs/reference/scsi-target.md`.

use std::collections::BTreeMap;

use super::*;

const SERIAL: &str = "a b/..%c";
const KIND: RecordKind = RecordKind::Reservations;

/// A folder that loses unsynced data at a power failure.
#[derive(Clone, Default)]
struct Fake {
    /// The files as programs see them.
    files: BTreeMap<String, usize>,
    /// The files on the platter, by name.
    durable: BTreeMap<String, usize>,
    /// Bytes of files, and whether they were synced.
    bytes: Vec<(Vec<u8>, bool)>,
    /// Renames and creations since the folder was synced.
    pending: Vec<BTreeMap<String, usize>>,
    /// Steps until the power cut; then everything fails.
    steps: Option<usize>,
    /// The step that fails, once, with the disk being full; half of a write is there.
    full_at: Option<usize>,
}

impl Fake {
    fn step(&mut self) -> io::Result<bool> {
        if let Some(left) = &mut self.steps {
            if *left == 0 {
                return Err(io::Error::other("no power"));
            }
            *left -= 1;
        }
        if let Some(left) = &mut self.full_at {
            if *left == 0 {
                self.full_at = None;
                return Ok(false);
            }
            *left -= 1;
        }
        Ok(true)
    }

    fn full() -> io::Error {
        io::Error::from(io::ErrorKind::StorageFull)
    }

    fn named(&mut self) {
        self.pending.push(self.files.clone());
    }

    /// Everything that may be there after the power returns. Names are as of any moment since the
    /// folder was synced. Unsynced files are whole, cut, empty, or with zeroes where bytes should
    /// be.
    fn after_power_cut(&self) -> Vec<Fake> {
        let mut out = Vec::new();
        for names in std::iter::once(&self.durable).chain(&self.pending) {
            for tear in 0..4 {
                let mut fake = Fake { files: names.clone(), ..Fake::default() };
                fake.durable = names.clone();
                for (bytes, synced) in &self.bytes {
                    let mut bytes = bytes.clone();
                    let half = bytes.len() / 2;
                    match (synced, tear) {
                        (true, _) | (_, 0) => {}
                        (_, 1) => bytes.truncate(half),
                        (_, 2) => bytes.clear(),
                        _ => bytes.iter_mut().skip(half).for_each(|b| *b = 0),
                    }
                    fake.bytes.push((bytes, true));
                }
                out.push(fake);
            }
        }
        out
    }
}

impl RecordDir for Fake {
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let room = self.step()?;
        let bytes = if room { bytes } else { &bytes[..bytes.len() / 2] };
        self.bytes.push((bytes.to_vec(), false));
        self.files.insert(name.into(), self.bytes.len() - 1);
        self.named();
        if room { Ok(()) } else { Err(Fake::full()) }
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        if !self.step()? {
            return Err(Fake::full());
        }
        let at = self.files[name];
        self.bytes[at].1 = true;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        if !self.step()? {
            return Err(Fake::full());
        }
        let at = self.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files.insert(to.into(), at);
        self.named();
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        if !self.step()? {
            return Err(Fake::full());
        }
        self.durable = self.files.clone();
        self.pending.clear();
        Ok(())
    }

    fn read(&mut self, name: &str, _: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files.get(name).map(|at| self.bytes[*at].0.clone()))
    }
}

fn stored(fake: &mut Fake) -> Option<Vec<u8>> {
    match find(fake, SERIAL, KIND).expect("never unreadable") {
        StoredRecord::Missing => None,
        StoredRecord::Newest(bytes) | StoredRecord::Previous(bytes, _) => Some(bytes),
    }
}

/// A folder with `n` records saved one after the other.
fn with(n: u8) -> Fake {
    let mut fake = Fake::default();
    for i in 0..n {
        store(&mut fake, SERIAL, KIND, &[i; 40]).unwrap();
    }
    fake
}

/// W1 of daemon/src/state_store.rs, W2 of daemon/src/state_store.rs.
#[test]
fn save_survives_a_power_cut_between_any_two_steps() {
    let mut cuts = 0;
    for before in 0..4u8 {
        let was = before.checked_sub(1).map(|i| vec![i; 40]);
        for steps in 0.. {
            let mut fake = with(before);
            fake.steps = Some(steps);
            let saved = store(&mut fake, SERIAL, KIND, &[99; 50]).is_ok();
            for mut after in fake.after_power_cut() {
                cuts += 1;
                let now = stored(&mut after);
                let new = now == Some(vec![99; 50]);
                assert!(new || (now == was && !saved), "{before} records, cut after {steps}");
                // The folder continues working, and a second cut finds a whole record too.
                store(&mut after, SERIAL, KIND, &[5; 10]).unwrap();
                assert_eq!(stored(&mut after), Some(vec![5; 10]));
                let later = after.after_power_cut();
                later.into_iter().for_each(|mut l| assert_eq!(stored(&mut l), Some(vec![5; 10])));
            }
            if saved {
                break;
            }
        }
    }
    assert!(cuts > 100, "{cuts}");
}

/// W4 of daemon/src/state_store.rs.
#[test]
fn full_disk_at_any_step_fails_the_save_and_keeps_the_old_record() {
    for before in 0..4u8 {
        let was = before.checked_sub(1).map(|i| vec![i; 40]);
        for at in 0.. {
            let mut fake = with(before);
            fake.full_at = Some(at);
            let saved = store(&mut fake, SERIAL, KIND, &[99; 50]);
            if fake.full_at.is_some() {
                saved.unwrap();
                break;
            }
            let error = saved.expect_err("a full disk is no success");
            assert_eq!(errno_of(&error), Errno::NoSpc);
            let now = stored(&mut fake);
            // The first record of all has no predecessor once it is renamed.
            assert!(now == was || before == 0, "{before} records, full at {at}: {now:?}");
            store(&mut fake, SERIAL, KIND, &[5; 10]).unwrap();
            assert_eq!(stored(&mut fake), Some(vec![5; 10]));
        }
    }
}

#[test]
fn record_has_the_bytes_of_earlier_versions() {
    let record = b"ashlarV1\xcd\xee\x87\x82\0\0\0\x07\0\0\0\x05a.modessaved";
    assert_eq!(encode("a.modes", b"saved"), record);
    assert_eq!(decode("a.modes", record), Ok(b"saved".to_vec()));
}

/// W3 of daemon/src/state_store.rs.
#[test]
fn torn_record_is_replaced_by_the_previous_one() {
    let key = key_of(SERIAL, KIND);
    assert_eq!(key, "a%20b%2F%2E%2E%25c.reservations");
    let mut fake = with(2);
    let at = fake.files[&key];
    let whole = fake.bytes[at].0.clone();
    assert_eq!(decode(&key, &whole), Ok(vec![1; 40]));
    for len in 0..whole.len() {
        fake.bytes[at].0 = whole[..len].to_vec();
        let found = find(&mut fake, SERIAL, KIND);
        assert!(matches!(found, Ok(StoredRecord::Previous(b, _)) if b == [0; 40]));
    }
    for byte in 0..whole.len() {
        fake.bytes[at].0 = whole.clone();
        fake.bytes[at].0[byte] ^= 0x40;
        let found = find(&mut fake, SERIAL, KIND);
        assert!(matches!(found, Ok(StoredRecord::Previous(b, _)) if b == [0; 40]));
    }
    // Neither is whole: the result is an error, and not the report that nothing was stored.
    let old = fake.files[&format!("{key}.old")];
    fake.bytes[old].0.pop();
    assert!(find(&mut fake, SERIAL, KIND).is_err());
    // A damaged record does not take the place of the one before it.
    let mut fake = with(2);
    let at = fake.files[&key];
    fake.bytes[at].0.pop();
    fake.steps = Some(3);
    store(&mut fake, SERIAL, KIND, &[9]).unwrap_err();
    for mut after in fake.after_power_cut() {
        assert!(matches!(stored(&mut after), Some(b) if b == [0; 40] || b == [9]));
    }
    // The record of another unit, put there by hand.
    let mut fake = with(1);
    let at = fake.files[&key];
    fake.files.insert(key_of("other", KIND), at);
    assert!(find(&mut fake, "other", KIND).is_err());
}

#[test]
fn file_store_keeps_records_and_logs_its_actions() {
    let folder = testkit::Folder::new("store");
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let listen = log.clone();
    let tell: Arc<ReportFn> = Arc::new(move |_: &str, text| listen.lock().push(text));
    let save = |store: &FileStateStore, bytes: &[u8]| {
        let (done, saved) = engine::state_store::save_channel();
        store.save("s", KIND, bytes.to_vec(), done);
        // A load is answered after the save.
        let loaded = store.load("s", KIND);
        let mut saved = Box::pin(saved);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        (saved.as_mut().poll(&mut cx), loaded)
    };
    use std::future::Future;
    use std::task::Poll;
    let store = FileStateStore::start(&folder, tell.clone()).unwrap();
    assert!(store.load("s", KIND).unwrap().is_none());
    for bytes in [b"one", b"two"] {
        let (end, loaded) = save(&store, bytes);
        assert_eq!((end, loaded.unwrap()), (Poll::Ready(Ok(())), Some(bytes.to_vec())));
    }
    drop(store);
    // Another life: the newest is torn.
    fs::write(folder.join("s.reservations"), b"ashl").unwrap();
    let store = FileStateStore::start(&folder, tell).unwrap();
    assert_eq!(store.load("s", KIND).unwrap(), Some(b"one".to_vec()));
    assert!(log.lock()[0].contains("the one before it is used"));
    fs::remove_dir_all(&*folder).unwrap();
    // The folder was removed: no save succeeds.
    let (end, _) = save(&store, b"three");
    assert_eq!(end, Poll::Ready(Err(Errno::Io)));
}

#[test]
fn fields_are_where_the_page_of_formats_has_them() {
    let record = encode("S0.reservations", &[1, 2]);
    let crc = crc32(&[&record[12..]]);
    let values: [(&str, &[u8]); 4] = [
        ("magic", MAGIC),
        ("checksum", &crc.to_be_bytes()),
        ("n", &15u32.to_be_bytes()),
        ("m", &2u32.to_be_bytes()),
    ];
    testkit::formats::FieldTable::of("## State store", "offset", 0).assert_holds(&record, &values);
    assert_eq!(&record[HEAD_LEN..], b"S0.reservations\x01\x02");
}
