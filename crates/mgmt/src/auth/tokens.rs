//! Bearer tokens of the API: one file in the state folder, with a salted SHA-256 of each token.
//!
//! A token has 256 random bits, so that a fast hash is enough. Its text is `ashlar_ID_SECRET`, both
//! hexadecimal: the ID finds the record, and the hash of salt and secret proves the rest.
//!
//! Invariants
//!  A3  The text of a token is only in the answer of `token create`: no file or log contains it.
//!  A4  A change of the tokens has succeeded only when the new file is on stable storage.
//!  A5  A damaged file admits no token, and no change replaces it.
//!  A14  A caller that presents a token does not wait for a change of the tokens to be stored.

use super::{Caller, Role, Scope};
use crate::api::{Error, Kind, Result};
use rustix::rand::{GetRandomFlags, getrandom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the file.
const FILE: &str = "tokens.json";

/// Longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Most tokens.
const TOKENS_MAX: usize = 1024;

/// Longest name of a token, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Beginning of each token.
const PREFIX: &str = "ashlar_";

/// A token, without its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// Name of the token.
    pub name: String,
    /// Role of its bearer.
    pub role: Role,
    /// Objects to which the role is limited.
    #[serde(default)]
    pub scope: Scope,
    /// Time of creation, in seconds since 1970.
    pub created_unix_s: u64,
}

/// A token as it is stored.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    token: Token,
    id: String,
    salt: String,
    hash: String,
}

/// A new token with its text, which is shown once.
pub struct NewToken {
    /// The token.
    pub token: Token,
    /// Its text.
    pub text: String,
}

/// See the module.
pub struct TokenStore {
    folder: Option<PathBuf>,
    /// Held for a moment only (A14).
    records: Mutex<Result<Vec<Record>>>,
    /// Held by a change until it is stored.
    changing: Mutex<()>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub(super) fn random_hex<const N: usize>() -> String {
    let mut bytes = [0_u8; N];
    // So few bytes are never cut short; the call waits for the kernel's pool, and can be repeated.
    while getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {}
    hex(&bytes)
}

pub(super) fn hash(salt: &str, secret: &str) -> String {
    let mut all = Sha256::new();
    all.update(salt.as_bytes());
    all.update(secret.as_bytes());
    hex(all.finalize().as_slice())
}

/// Compares secrets in a time that depends on their length alone.
pub(crate) fn is_same_secret(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

fn read(path: &Path) -> Result<Vec<Record>> {
    let damaged = |e: &dyn std::fmt::Display| {
        let next = "Restore the file from a backup, or remove it and create the tokens again.";
        Error::new(Kind::System, "read tokens", e).at(path.display().to_string()).next(next)
    };
    match bio::read_regular(path, FILE_BYTES_MAX) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| damaged(&e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(damaged(&e)),
    }
}

impl TokenStore {
    /// A store without a folder: no token exists and none can be created.
    pub fn none() -> TokenStore {
        TokenStore { folder: None, records: Mutex::new(Ok(Vec::new())), changing: Mutex::default() }
    }

    /// The store in `folder`, which is made when the first token is created.
    pub fn open(folder: &Path) -> TokenStore {
        let records = read(&folder.join(FILE));
        if let Err(e) = &records {
            tracing::error!("tokens of the API cannot be used: {e}");
        }
        let (folder, records) = (Some(folder.to_owned()), Mutex::new(records));
        TokenStore { folder, records, changing: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Result<Vec<Record>>> {
        // The list is always replaced whole, so a panic elsewhere leaves no partial value.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All tokens, in order of creation.
    ///
    /// # Errors
    /// That of a damaged file.
    pub fn list(&self) -> Result<Vec<Token>> {
        let records = self.lock();
        let all = records.as_ref().map_err(Clone::clone)?;
        Ok(all.iter().map(|record| record.token.clone()).collect())
    }

    /// Number of tokens.
    pub fn count(&self) -> usize {
        self.lock().as_ref().map_or(0, Vec::len)
    }

    /// Creates a token.
    ///
    /// # Errors
    /// [`Kind::Exists`], [`Kind::Usage`], [`Kind::Limit`], [`Kind::System`].
    pub fn create(&self, name: &str, role: Role, scope: Scope) -> Result<NewToken> {
        let op = "token create";
        let is_valid = (1..=NAME_BYTES_MAX).contains(&name.len());
        if !is_valid || !name.bytes().all(|b| b.is_ascii_graphic()) {
            let why = format!("a name has 1 to {NAME_BYTES_MAX} printable characters of ASCII");
            return Err(Error::new(Kind::Usage, op, why).at(name));
        }
        if scope.group.is_some() && scope.target.is_none() {
            return Err(Error::new(Kind::Usage, op, "--group needs --target").at(name));
        }
        let _change = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.lock().clone()?;
        if all.iter().any(|record| record.token.name == name) {
            let next = format!("Choose another name, or run `ashlar token revoke {name}` first.");
            return Err(Error::new(Kind::Exists, op, "a token has that name").at(name).next(next));
        }
        if all.len() >= TOKENS_MAX {
            let why = format!("{TOKENS_MAX} tokens exist, the most");
            let next = "Run `ashlar token revoke NAME` for a token that is not used.";
            return Err(Error::new(Kind::Limit, op, why).at(name).next(next));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let created_unix_s = now.map_or(0, |d| d.as_secs());
        let token = Token { name: name.to_owned(), role, scope, created_unix_s };
        let (id, salt, secret) = (random_hex::<8>(), random_hex::<16>(), random_hex::<32>());
        let text = format!("{PREFIX}{id}_{secret}");
        let hash = hash(&salt, &secret);
        all.push(Record { token: token.clone(), id, salt, hash });
        self.write(&all, op)?;
        *self.lock() = Ok(all);
        Ok(NewToken { token, text })
    }

    /// Revokes a token: its bearer is refused from the next request on.
    ///
    /// # Errors
    /// [`Kind::NotFound`], [`Kind::System`].
    pub fn revoke(&self, name: &str) -> Result<Token> {
        let op = "token revoke";
        let _change = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.lock().clone()?;
        let Some(place) = all.iter().position(|record| record.token.name == name) else {
            let next = "Run `ashlar token list` to see the names.";
            let error = Error::new(Kind::NotFound, op, "no token has that name");
            return Err(error.at(name).next(next));
        };
        let revoked = all.remove(place);
        self.write(&all, op)?;
        *self.lock() = Ok(all);
        Ok(revoked.token)
    }

    /// The bearer of a token; `None`: the text is no token of this daemon.
    pub fn bearer(&self, text: &str) -> Option<Caller> {
        self.caller_of(&self.id_of(text)?)
    }

    /// Identifier of the token with that text, which no other token has; `None`: the text is no
    /// token of this daemon.
    pub fn id_of(&self, text: &str) -> Option<String> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let records = self.lock();
        let record = records.as_ref().ok()?.iter().find(|record| record.id == id)?;
        let hash = hash(&record.salt, secret);
        is_same_secret(hash.as_bytes(), record.hash.as_bytes()).then(|| id.to_owned())
    }

    /// The bearer of the token with that identifier; `None`: it was revoked.
    pub fn caller_of(&self, id: &str) -> Option<Caller> {
        let records = self.lock();
        let record = records.as_ref().ok()?.iter().find(|record| record.id == id)?;
        let token = &record.token;
        Some(Caller {
            name: format!("token {}", token.name),
            role: token.role,
            scope: token.scope.clone(),
        })
    }

    fn write(&self, all: &[Record], op: &str) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Err(Error::new(Kind::System, op, "the daemon has no state folder"));
        };
        let fail = |e: io::Error| Error::new(Kind::System, op, e).at(folder.display().to_string());
        let text = serde_json::to_string_pretty(all);
        let text = text.map_err(|e| Error::new(Kind::Internal, op, e))?;
        replace(folder, text.as_bytes()).map_err(fail)
    }
}

/// Replaces the file: the former one stays until the new one is on stable storage (A4).
fn replace(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let partial = folder.join(format!("{FILE}.new"));
    let mut options = fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&partial, folder.join(FILE))?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    #[test]
    fn token_survives_a_restart_until_it_is_revoked() {
        let folder = Folder::new("token-restart");
        let scope = Scope { target: Some("iqn.a:t".into()), group: None };
        let store = TokenStore::open(&folder);
        let new = store.create("ci", Role::Operator, scope.clone()).expect("created");
        let store = TokenStore::open(&folder);
        let bearer = store.bearer(&new.text).expect("it is known");
        assert_eq!(bearer, Caller { name: "token ci".into(), role: Role::Operator, scope });
        let again = store.create("ci", Role::Viewer, Scope::default()).err();
        assert_eq!(again.map(|e| e.kind), Some(Kind::Exists));
        assert_eq!(store.list().expect("a list"), [new.token]);
        store.revoke("ci").expect("revoked");
        assert_eq!(store.revoke("ci").expect_err("gone").kind, Kind::NotFound);
        assert!(store.bearer(&new.text).is_none());
        assert!(TokenStore::open(&folder).bearer(&new.text).is_none());
    }

    /// A3.
    #[test]
    fn file_contains_no_text_of_a_token_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("token-private");
        let store = TokenStore::open(&folder);
        let texts = ["a", "b"]
            .map(|name| store.create(name, Role::Viewer, Scope::default()).expect("created").text);
        let file = folder.join(FILE);
        let stored = fs::read_to_string(&file).expect("the file");
        for text in &texts {
            let secret = text.rsplit('_').next().expect("a secret");
            assert!(secret.len() == 64 && !stored.contains(secret), "{stored}");
        }
        assert_ne!(texts[0], texts[1]);
        assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
    }

    /// A4.
    #[test]
    fn a14_token_is_read_while_a_change_waits_for_the_disk() {
        let folder = Folder::new("token-slow");
        let store = TokenStore::open(&folder);
        let text = store.create("a", Role::Viewer, Scope::default()).expect("created").text;
        let fifo = folder.join(format!("{FILE}.new"));
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
        assert!(made.success());
        std::thread::scope(|scope| {
            // It waits for a reader of the FIFO.
            let change = scope.spawn(|| store.create("b", Role::Viewer, Scope::default()).is_ok());
            while store.changing.try_lock().is_ok() {
                std::thread::yield_now();
            }
            let is_free = |_| {
                std::thread::yield_now();
                store.records.try_lock().is_ok()
            };
            let is_read = (0..1_000_000).any(is_free);
            drop(fs::File::open(&fifo).expect("a reader"));
            assert!(!change.join().expect("no panic"), "a FIFO is no stable storage");
            assert!(is_read, "the change kept the tokens locked");
        });
        assert!(store.bearer(&text).is_some() && store.count() == 1);
    }

    #[test]
    fn wrong_texts_are_refused() {
        let folder = Folder::new("token-wrong");
        let store = TokenStore::open(&folder);
        let text = store.create("a", Role::Admin, Scope::default()).expect("created").text;
        let (cut, longer) = (text.get(..text.len() - 1).expect("ASCII"), format!("{text}0"));
        let other = text.replace(PREFIX, "");
        for wrong in ["", "ashlar_", "ashlar__", cut, &longer, &other] {
            assert!(store.bearer(wrong).is_none(), "{wrong}");
        }
        assert!(store.bearer(&text).is_some());
        for name in ["", "a b", "\u{e4}"] {
            let refused = store.create(name, Role::Viewer, Scope::default()).err();
            assert_eq!(refused.map(|e| e.kind), Some(Kind::Usage), "{name}");
        }
    }

    /// A5.
    #[test]
    fn damaged_file_admits_no_token_and_stays() {
        let folder = Folder::new("token-damaged");
        let text = TokenStore::open(&folder).create("a", Role::Admin, Scope::default());
        let text = text.expect("created").text;
        fs::write(folder.join(FILE), "{").expect("scratch");
        let store = TokenStore::open(&folder);
        assert!(store.bearer(&text).is_none());
        assert!(store.list().is_err());
        assert!(store.create("b", Role::Admin, Scope::default()).is_err());
        assert_eq!(fs::read_to_string(folder.join(FILE)).expect("the file"), "{");
    }
}
