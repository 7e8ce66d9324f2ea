//! Keys of requests (`Idempotency-Key`): a change that is repeated after a lost answer is carried
//! out once, and answered as the first time.
//!
//! Invariants
//!  C5  A request whose key is known is not carried out: it is answered as the first one, or
//!      refused. A request that fails forgets its key.
//!  C6  At most [`KEYS_MAX`] keys and [`BYTES_MAX`] bytes of answers are kept, in memory and for
//!      [`KEPT_FOR`]. The oldest answers are dropped first, and the oldest key of the caller that
//!      has most of them. Many requests of one caller do not displace the keys of others. No key of
//!      a running request is dropped.
//!  C7  An answer is repeated only to the caller that received it: of the same name, role and
//!      scope.

use crate::api::{Error, Kind, Result};
use crate::auth::Caller;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Keys that are kept (C6).
const KEYS_MAX: usize = 256;

/// Bytes of all answers that are kept (C6).
const BYTES_MAX: usize = 4 << 20;

/// Time for which a key is kept, from the start of its request (C6).
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Longest key, in characters.
pub const KEY_CHARS_MAX: usize = 128;

/// A request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedRequest {
    /// The caller; keys of different callers are independent (C7).
    who: Caller,
    key: String,
    /// Hash of the verb and of its parameters.
    request: u64,
}

impl KeyedRequest {
    /// A request of a caller: `verb` with the text of its parameters.
    ///
    /// # Errors
    /// [`Kind::Usage`]: the key is empty, too long, or not plain ASCII.
    pub fn new(who: &Caller, key: &str, verb: &str, params: &str) -> Result<KeyedRequest> {
        let is_plain = key.chars().all(|letter| letter.is_ascii_graphic());
        if key.is_empty() || key.len() > KEY_CHARS_MAX || !is_plain {
            let length = key.chars().count();
            let why = format!(
                "the key of {length} characters is not 1 to {KEY_CHARS_MAX} visible ASCII \
                 characters"
            );
            let next = "Repeat the request with another Idempotency-Key.";
            return Err(Error::new(Kind::Usage, verb, why).next(next));
        }
        let mut hasher = DefaultHasher::new();
        (verb, params).hash(&mut hasher);
        Ok(KeyedRequest { who: who.clone(), key: key.to_owned(), request: hasher.finish() })
    }
}

/// How far a request is.
#[derive(Debug)]
enum Progress {
    Running,
    Answered(String),
    /// The answer was dropped (C6).
    Dropped,
}

#[derive(Debug)]
struct Known {
    of: KeyedRequest,
    begun: Instant,
    progress: Progress,
}

impl Known {
    fn is_running(&self) -> bool {
        matches!(self.progress, Progress::Running)
    }
}

/// Place of the key that is dropped first (C6); `None`: the requests of all keys run.
fn dropped_first(known: &VecDeque<Known>) -> Option<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for one in known {
        *counts.entry(&one.of.who.name).or_default() += 1;
    }
    let count = |one: &Known| counts.get(one.of.who.name.as_str()).copied();
    let ended = known.iter().enumerate().filter(|(_, one)| !one.is_running());
    ended.min_by_key(|(place, one)| (Reverse(count(one)), *place)).map(|(place, _)| place)
}

/// See the module.
#[derive(Default)]
pub struct RequestKeys {
    /// Oldest first.
    known: Mutex<VecDeque<Known>>,
}

/// Forgets the key of a request that does not succeed, also if it panics.
struct Running<'k> {
    keys: &'k RequestKeys,
    of: &'k KeyedRequest,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.keys.lock().retain(|known| known.of != *self.of || !known.is_running());
    }
}

impl RequestKeys {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a request unless its key is known.
    ///
    /// # Errors
    /// Those of the request; [`Kind::Busy`] while the first request runs, [`Kind::Exists`] if the
    /// key was used for another request or its answer is not kept, [`Kind::Limit`].
    pub fn once(
        &self,
        of: &KeyedRequest,
        now: Instant,
        carry_out: impl FnOnce() -> Result<String>,
    ) -> Result<String> {
        if let Some(answer) = self.begin(of, now)? {
            return Ok(answer);
        }
        let running = Running { keys: self, of };
        let answer = carry_out()?;
        self.finish(of, &answer);
        drop(running);
        Ok(answer)
    }

    /// The answer of a known key; `None`: the request begins.
    fn begin(&self, of: &KeyedRequest, now: Instant) -> Result<Option<String>> {
        let mut known = self.lock();
        known.retain(|one| {
            let is_young = now.saturating_duration_since(one.begun) < KEPT_FOR;
            is_young || one.is_running()
        });
        let first = known.iter().find(|one| (&one.of.who, &one.of.key) == (&of.who, &of.key));
        if let Some(first) = first {
            return repeated(first, of).map(Some);
        }
        if known.len() >= KEYS_MAX {
            let Some(dropped) = dropped_first(&known) else {
                let why = format!("{KEYS_MAX} requests with a key run (the limit)");
                return Err(refusal(Kind::Limit, &of.key, &why, "Repeat it when one has ended."));
            };
            known.remove(dropped);
        }
        known.push_back(Known { of: of.clone(), begun: now, progress: Progress::Running });
        Ok(None)
    }

    /// Keeps the answer of a request that has succeeded.
    fn finish(&self, of: &KeyedRequest, answer: &str) {
        let mut known = self.lock();
        let bytes = |one: &Known| match &one.progress {
            Progress::Answered(answer) => answer.len(),
            Progress::Running | Progress::Dropped => 0,
        };
        let is_kept = answer.len() <= BYTES_MAX;
        let added = if is_kept { answer.len() } else { 0 };
        let mut total = known.iter().map(bytes).sum::<usize>() + added;
        for one in known.iter_mut() {
            if total <= BYTES_MAX {
                break;
            }
            if let Progress::Answered(dropped) = &one.progress {
                total = total.saturating_sub(dropped.len());
                one.progress = Progress::Dropped;
            }
        }
        if let Some(one) = known.iter_mut().find(|one| one.of == *of) {
            one.progress = match is_kept {
                true => Progress::Answered(answer.to_owned()),
                false => Progress::Dropped,
            };
        }
    }
}

fn refusal(kind: Kind, key: &str, why: &str, next: &str) -> Error {
    Error::new(kind, "repeat request", why).at(format!("key {key}")).next(next)
}

/// The answer to a request whose key is known (C5).
fn repeated(first: &Known, of: &KeyedRequest) -> Result<String> {
    if first.of.request != of.request {
        let why = "another request of the last hour had this key";
        return Err(refusal(Kind::Exists, &of.key, why, "Use a new key for a new request."));
    }
    match &first.progress {
        Progress::Answered(answer) => Ok(answer.clone()),
        Progress::Running => {
            let why = "the first request with this key is still carried out";
            Err(refusal(Kind::Busy, &of.key, why, "Repeat the request later."))
        }
        Progress::Dropped => {
            let why = "the request was carried out, but its answer was too long to be kept";
            Err(refusal(Kind::Exists, &of.key, why, "Run `ashlar status` to see the result."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Role, Scope};

    fn of_caller(name: &str, key: &str, params: &str) -> KeyedRequest {
        let who = Caller::admin(name.to_owned());
        KeyedRequest::new(&who, key, "part.add", params).expect("a key")
    }

    fn request(key: &str, params: &str) -> KeyedRequest {
        of_caller("token ci", key, params)
    }

    fn kind(result: Result<String>) -> Option<Kind> {
        result.err().map(|error| error.kind)
    }

    #[test]
    fn c5_known_key_is_answered_as_the_first_time() {
        let (keys, now) = (RequestKeys::default(), Instant::now());
        let of = request("k", "{}");
        let again = || -> Result<String> { panic!("it was carried out twice") };
        assert_eq!(keys.once(&of, now, || Ok("first".to_owned())), Ok("first".to_owned()));
        assert_eq!(keys.once(&of, now, again), Ok("first".to_owned()));
        assert_eq!(kind(keys.once(&request("k", "{ }"), now, again)), Some(Kind::Exists));
        let other = of_caller("token other", "k", "{}");
        assert!(keys.once(&other, now, || Ok("its own".to_owned())).is_ok());
        let nested = request("n", "{}");
        let inner = keys.once(&nested, now, || keys.once(&nested, now, again));
        assert_eq!(kind(inner), Some(Kind::Busy), "the first one runs");
        assert!(keys.once(&nested, now, || Ok(String::new())).is_ok(), "the first one failed");
        let late = now + KEPT_FOR;
        assert_eq!(keys.once(&of, late, || Ok("second".to_owned())), Ok("second".to_owned()));
    }

    #[test]
    fn c5_request_that_panics_forgets_its_key() {
        let (keys, now) = (RequestKeys::default(), Instant::now());
        let of = request("k", "{}");
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            keys.once(&of, now, || panic!("a defect"))
        }));
        assert!(caught.is_err());
        assert!(keys.once(&of, now, || Ok(String::new())).is_ok());
    }

    #[test]
    fn c7_new_token_with_other_rights_receives_no_answer_of_the_former_one() {
        let (keys, now) = (RequestKeys::default(), Instant::now());
        let of = request("k", "{}");
        assert!(keys.once(&of, now, || Ok("of an admin".to_owned())).is_ok());
        let target = Some("iqn.a:t".to_owned());
        for who in [
            Caller { role: Role::Operator, ..of.who.clone() },
            Caller { scope: Scope { target, group: None }, ..of.who.clone() },
        ] {
            let other = KeyedRequest::new(&who, "k", "part.add", "{}").expect("a key");
            assert_eq!(keys.once(&other, now, || Ok("own".to_owned())), Ok("own".to_owned()));
        }
        assert_eq!(keys.once(&of, now, || Ok(String::new())), Ok("of an admin".to_owned()));
    }

    #[test]
    fn c6_many_keys_of_one_caller_do_not_displace_those_of_others() {
        let (keys, now) = (RequestKeys::default(), Instant::now());
        let other = of_caller("token other", "k", "{}");
        assert!(keys.once(&other, now, || Ok("first".to_owned())).is_ok());
        for number in 0..2 * KEYS_MAX {
            let of = request(&number.to_string(), "{}");
            assert!(keys.once(&of, now, || Ok(String::new())).is_ok());
        }
        assert_eq!(keys.lock().len(), KEYS_MAX);
        let again = || -> Result<String> { panic!("it was carried out twice") };
        assert_eq!(keys.once(&other, now, again), Ok("first".to_owned()));
    }

    #[test]
    fn c6_keys_and_answers_are_bounded() {
        let (keys, now) = (RequestKeys::default(), Instant::now());
        for number in 0..KEYS_MAX + 3 {
            let of = request(&number.to_string(), "{}");
            assert!(keys.once(&of, now, || Ok("x".repeat(BYTES_MAX / 8))).is_ok());
        }
        let known = keys.lock();
        assert_eq!(known.len(), KEYS_MAX);
        assert_eq!(known.front().map(|one| one.of.key.as_str()), Some("3"), "oldest first");
        let is_answered = |one: &&Known| matches!(one.progress, Progress::Answered(_));
        assert_eq!(known.iter().filter(is_answered).count(), 8);
        drop(known);
        let of = request("long", "{}");
        assert!(keys.once(&of, now, || Ok("x".repeat(BYTES_MAX + 1))).is_ok());
        assert_eq!(kind(keys.once(&of, now, || Ok(String::new()))), Some(Kind::Exists));
    }

    #[test]
    fn key_is_visible_ascii_of_limited_length() {
        let who = Caller::admin(String::new());
        let new = |key: &str| KeyedRequest::new(&who, key, "wipe", "{}");
        for wrong in ["", "a b", "ä", &"x".repeat(KEY_CHARS_MAX + 1)] {
            let error = new(wrong).expect_err("not a key");
            assert!(error.kind == Kind::Usage && error.source.contains("1 to 128"), "{error}");
        }
        assert!(new(&"x".repeat(KEY_CHARS_MAX)).is_ok());
    }
}
