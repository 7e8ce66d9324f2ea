//! The state store: persistent state of logical units, as files in the state folder.
//!
//! ```text
//!   save:  KEY.new written, synced --> KEY renamed KEY.old --> KEY.new renamed KEY --> folder
//!          synced
//!   load:  KEY if it is whole, else KEY.old, and the journal reports it
//! ```
//! One thread does all of it, in the order of the requests: a core never waits for a disk.
//!
//! Invariants
//!  W1  A save has succeeded only when the folder was synced after its last rename.
//!  W2  At every moment KEY or KEY.old is a whole record. KEY is renamed away only after KEY.new is
//!      on stable storage, and KEY.old is the record before it.
//!  W3  A record is used only when its mark, length, checksum and name are right.
//!  W4  After a save that failed the record that was there before is KEY again.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use bio::Errno;
use bio::sync::Mutex;
use classes::crc::crc32;
use engine::state_store::{RECORD_MAX, RecordKind, SaveCompletion, StateStore};
use geom::Error;

/// First bytes of a file.
const MAGIC: &[u8; 8] = b"ashlarV1";

/// Mark, checksum, length of the name, length of the data.
const HEAD_LEN: usize = 20;

/// Longest file that is read, bytes: a record with its head and name.
const FILE_MAX: usize = RECORD_MAX + 1024;

/// A folder of files, small enough to be put in the place of by a test that loses power.
pub trait RecordDir: Send {
    /// Writes a file, in the place of one of that name; it may be torn until it is synced.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// The bytes of a file are on stable storage.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Gives a file another name, in the place of one that has it.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// The names of the folder are on stable storage.
    fn sync_folder(&mut self) -> io::Result<()>;
    /// A file, as far as `max` bytes; None when there is none of that name.
    fn read(&mut self, name: &str, max: usize) -> io::Result<Option<Vec<u8>>>;
}

/// A folder of this machine.
pub struct Folder(PathBuf);

impl Folder {
    /// The folder, made when it is not there, for its owner only.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)?;
        Ok(Folder(path.to_owned()))
    }
}

impl RecordDir for Folder {
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        options.open(self.0.join(name))?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        fs::File::open(self.0.join(name))?.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        fs::File::open(&self.0)?.sync_all()
    }

    fn read(&mut self, name: &str, max: usize) -> io::Result<Option<Vec<u8>>> {
        let file = match fs::File::open(self.0.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(max as u64).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}

/// The source of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredRecord {
    /// Nothing is stored.
    Missing,
    /// The newest.
    Newest(Vec<u8>),
    /// The one before; why the newest could not be used.
    Previous(Vec<u8>, String),
}

/// Name of the newest file of a record: letters of a serial number that a file name should not have
/// are written as %XX.
fn key_of(serial: &str, kind: RecordKind) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let mut key = String::new();
    for b in serial.bytes() {
        match plain(b) {
            true => key.push(char::from(b)),
            false => key.push_str(&format!("%{b:02X}")),
        }
    }
    format!("{key}.{}", kind.name())
}

fn encode(key: &str, bytes: &[u8]) -> Vec<u8> {
    let len = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
    let lengths = [len(key.len()), len(bytes.len())].concat();
    let crc = crc32(&[&lengths, key.as_bytes(), bytes]).to_be_bytes();
    [MAGIC.as_slice(), &crc, &lengths, key.as_bytes(), bytes].concat()
}

/// W3.
fn decode(key: &str, file: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (mark, rest) = file.split_at_checked(MAGIC.len()).ok_or("truncated")?;
    if mark != MAGIC {
        return Err("not a record (wrong magic)");
    }
    let (crc, rest) = rest.split_first_chunk::<4>().ok_or("truncated")?;
    let (lengths, body) = rest.split_first_chunk::<8>().ok_or("truncated")?;
    if u32::from_be_bytes(*crc) != crc32(&[lengths, body]) {
        return Err("wrong checksum");
    }
    let [a, b, c, d, ..] = *lengths;
    let name_len = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    let (name, data) = body.split_at_checked(name_len).ok_or("wrong lengths")?;
    if name != key.as_bytes() {
        return Err("record of another unit");
    }
    if file.len() != HEAD_LEN + name.len() + data.len() {
        return Err("wrong lengths");
    }
    Ok(data.to_vec())
}

/// Stores a record (W1, W2).
pub fn store(
    shelf: &mut dyn RecordDir,
    serial: &str,
    kind: RecordKind,
    bytes: &[u8],
) -> io::Result<()> {
    let key = key_of(serial, kind);
    let (new, old) = (format!("{key}.new"), format!("{key}.old"));
    shelf.write(&new, &encode(&key, bytes))?;
    shelf.sync(&new)?;
    // A damaged record is no record to return to.
    let keeps = shelf.read(&key, FILE_MAX)?.is_some_and(|file| decode(&key, &file).is_ok());
    if keeps {
        shelf.rename(&key, &old)?;
    }
    let done = shelf.rename(&new, &key).and_then(|()| shelf.sync_folder());
    if done.is_err() && keeps {
        // W4. What cannot be taken back either is a disk that fails; a load copes with it.
        let _ = shelf.rename(&old, &key).and_then(|()| shelf.sync_folder());
    }
    done
}

/// Finds a record.
pub fn find(shelf: &mut dyn RecordDir, serial: &str, kind: RecordKind) -> io::Result<StoredRecord> {
    let key = key_of(serial, kind);
    let newest = shelf.read(&key, FILE_MAX)?.map(|file| decode(&key, &file));
    if let Some(Ok(data)) = newest {
        return Ok(StoredRecord::Newest(data));
    }
    let before = shelf.read(&format!("{key}.old"), FILE_MAX)?.map(|file| decode(&key, &file));
    match (newest, before) {
        (Some(Err(why)), Some(Ok(data))) => {
            Ok(StoredRecord::Previous(data, format!("{key}: {why}")))
        }
        // A save was interrupted between its renames; it was not acknowledged.
        (None, Some(Ok(data))) => Ok(StoredRecord::Newest(data)),
        (None, None) => Ok(StoredRecord::Missing),
        (Some(Err(why)), _) | (_, Some(Err(why))) => {
            let what = format!("{key}: {why}, and no valid earlier record exists");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
        (Some(Ok(data)), _) => Ok(StoredRecord::Newest(data)),
    }
}

/// Whether a folder has the record of some kind.
fn has_records(path: &Path) -> io::Result<bool> {
    let is_record = |name: &str| {
        let (_, kind) = name.strip_suffix(".old").unwrap_or(name).rsplit_once('.')?;
        RecordKind::ALL.iter().find(|k| k.name() == kind)
    };
    for entry in fs::read_dir(path)? {
        if entry?.file_name().to_str().and_then(is_record).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

enum Request {
    Save { serial: String, kind: RecordKind, bytes: Vec<u8>, done: SaveCompletion },
    Load { serial: String, kind: RecordKind, to: Sender<io::Result<StoredRecord>> },
}

/// Called with the state store's messages for people.
pub type ReportFn = dyn Fn(&str, String) + Send + Sync;

/// A record that belongs to no unit, or why it cannot be read; nothing where none was stored.
pub fn read<T: Default>(
    store: &dyn StateStore,
    serial: &str,
    kind: RecordKind,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<T, String> {
    match store.load(serial, kind) {
        Ok(None) => Ok(T::default()),
        Ok(Some(bytes)) => decode(&bytes).ok_or_else(|| "invalid contents".to_owned()),
        Err(e) => Err(e.message),
    }
}

/// The document of a record; nothing if it is none, or one of another form.
pub fn document(bytes: &[u8], layout: u64) -> Option<serde_json::Value> {
    let all: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    (all.get("layout")?.as_u64()? == layout).then_some(all)
}

/// The daemon's state store.
pub struct FileStateStore {
    mailbox: Mutex<Sender<Request>>,
    report: Arc<ReportFn>,
    folder_name: String,
    was_used: bool,
}

impl FileStateStore {
    /// A state store over a folder; its thread lives as long as the value.
    pub fn start(path: &Path, tell: Arc<ReportFn>) -> io::Result<FileStateStore> {
        let shelf = Folder::open(path)?;
        let was_used = has_records(path)?;
        let (mailbox, requests) = mpsc::channel();
        let says = tell.clone();
        std::thread::Builder::new()
            .name("ashlar-store".into())
            .spawn(move || serve(shelf, &requests, &*says))?;
        Ok(FileStateStore {
            mailbox: Mutex::new(mailbox),
            report: tell,
            folder_name: path.display().to_string(),
            was_used,
        })
    }

    fn send(&self, request: Request) {
        // A thread that has ended drops the request, and with it the ticket: a failure.
        let mailbox = self.mailbox.lock();
        drop(mailbox.send(request));
    }
}

fn serve(mut shelf: Folder, requests: &Receiver<Request>, tell: &ReportFn) {
    while let Ok(request) = requests.recv() {
        match request {
            Request::Load { serial, kind, to } => {
                drop(to.send(find(&mut shelf, &serial, kind)));
            }
            Request::Save { serial, kind, bytes, done } => {
                let end = match bytes.len() > RECORD_MAX {
                    true => Err(Errno::Inval),
                    false => store(&mut shelf, &serial, kind, &bytes).map_err(|e| {
                        tell(&serial, format!("{} could not be saved: {e}", kind.name()));
                        errno_of(&e)
                    }),
                };
                done.complete(end);
            }
        }
    }
}

fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Errno::NoSpc,
        io::ErrorKind::FileTooLarge => Errno::NoSpc,
        io::ErrorKind::ReadOnlyFilesystem => Errno::RoFs,
        _ => Errno::Io,
    }
}

impl StateStore for FileStateStore {
    fn save(&self, serial: &str, kind: RecordKind, bytes: Vec<u8>, done: SaveCompletion) {
        self.send(Request::Save { serial: serial.into(), kind, bytes, done });
    }

    fn was_used(&self) -> bool {
        self.was_used
    }

    fn load(&self, serial: &str, kind: RecordKind) -> Result<Option<Vec<u8>>, Error> {
        let (to, answer) = mpsc::channel();
        self.send(Request::Load { serial: serial.into(), kind, to });
        let found =
            answer.recv().unwrap_or_else(|_| Err(io::Error::other("the state store has stopped")));
        match found {
            Ok(StoredRecord::Missing) => Ok(None),
            Ok(StoredRecord::Newest(bytes)) => Ok(Some(bytes)),
            Ok(StoredRecord::Previous(bytes, why)) => {
                let text = format!(
                    "{}: the newest record cannot be used ({why}); the one before it is used",
                    kind.name()
                );
                (self.report)(serial, text);
                Ok(Some(bytes))
            }
            Err(e) => {
                let what = format!("{} of {serial} in {}: {e}", kind.name(), self.folder_name);
                Err(Error::new(errno_of(&e), what))
            }
        }
    }
}

#[cfg(test)]
#[path = "state_store_tests.rs"]
mod tests;
