//! Sessions of browsers: each represents a token, so that no script and no link contains the token.
//!
//! A session is in memory only. Its secret is the value of a cookie; the daemon keeps a hash of it.
//!
//! Invariants
//!  A11  A session ends [`SESSION_MAX`] after its login, with its logout, with a further login of
//!       its browser, with the revocation of its token, and with the daemon.
//!  A12  A token has at most [`PER_TOKEN_MAX`] sessions: a further login ends the oldest of them.

use super::Caller;
use super::tokens::{TokenStore, hash, random_hex};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time of a session.
pub const SESSION_MAX: Duration = Duration::from_secs(12 * 3600);

/// Most sessions of one token.
const PER_TOKEN_MAX: usize = 16;

/// A session of a browser.
struct WebSession {
    /// Identifier of the token, which a new token of the same name does not have.
    token: String,
    end: Instant,
}

/// See the module. The key of a session is the hash of its secret.
#[derive(Default)]
pub struct WebSessions(Mutex<HashMap<String, WebSession>>);

/// The secret is random, so that the hash needs no salt.
fn key(secret: &str) -> String {
    hash("", secret)
}

impl WebSessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, WebSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session of the token with that text. Returns its caller and its secret; `None`: the
    /// text is no token of this daemon.
    pub fn begin(&self, tokens: &TokenStore, text: &str, now: Instant) -> Option<(Caller, String)> {
        let token = tokens.id_of(text)?;
        let caller = tokens.caller_of(&token)?;
        let mut all = self.lock();
        all.retain(|_, session| session.end > now);
        let own = all.iter().filter(|(_, session)| session.token == token);
        let own: Vec<(Instant, String)> =
            own.map(|(key, session)| (session.end, key.clone())).collect();
        if own.len() >= PER_TOKEN_MAX
            && let Some((_, oldest)) = own.into_iter().min()
        {
            all.remove(&oldest);
        }
        let secret = random_hex::<32>();
        all.insert(key(&secret), WebSession { token, end: now + SESSION_MAX });
        Some((caller, secret))
    }

    /// The caller of the session with that secret; `None`: it has ended.
    pub fn caller(&self, tokens: &TokenStore, secret: &str, now: Instant) -> Option<Caller> {
        let token = {
            let all = self.lock();
            let session = all.get(&key(secret)).filter(|session| session.end > now)?;
            session.token.clone()
        };
        tokens.caller_of(&token)
    }

    /// Ends the session with that secret.
    pub fn end(&self, secret: &str) {
        self.lock().remove(&key(secret));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Role, Scope};
    use testkit::Folder;

    #[test]
    fn a11_session_ends_by_time_logout_and_revocation() {
        let folder = Folder::new("web-end");
        let (tokens, sessions) = (TokenStore::open(&folder), WebSessions::default());
        let create = || tokens.create("ci", Role::Operator, Scope::default());
        let (text, now) = (create().expect("created").text, Instant::now());
        let begin = |text: &str| sessions.begin(&tokens, text, now);
        let is_open = |secret: &str, at: Instant| sessions.caller(&tokens, secret, at).is_some();
        assert!(begin("ashlar_1_2").is_none());
        let (caller, first) = begin(&text).expect("a session");
        assert_eq!((caller.name.as_str(), caller.role), ("token ci", Role::Operator));
        let (_, second) = begin(&text).expect("a session");
        assert!(first != second && !first.contains(&text));
        let last = now + SESSION_MAX;
        assert!(is_open(&first, last.checked_sub(Duration::from_secs(1)).expect("later")));
        assert!(!is_open(&first, last));
        sessions.end(&first);
        assert!(!is_open(&first, now) && is_open(&second, now));
        assert!(!is_open(&text, now) && !is_open("", now));
        tokens.revoke("ci").expect("revoked");
        assert!(!is_open(&second, now));
        create().expect("created");
        assert!(!is_open(&second, now), "a new token of that name");
    }

    #[test]
    fn a12_further_login_of_a_token_ends_its_oldest_session() {
        let folder = Folder::new("web-many");
        let (tokens, sessions) = (TokenStore::open(&folder), WebSessions::default());
        let texts = ["a", "b"]
            .map(|name| tokens.create(name, Role::Viewer, Scope::default()).expect("created").text);
        let now = Instant::now();
        let begin = |text: &str, second: u64| {
            let at = now + Duration::from_secs(second);
            sessions.begin(&tokens, text, at).expect("a session").1
        };
        let other = begin(&texts[1], 0);
        let own: Vec<String> = (1..20).map(|second| begin(&texts[0], second)).collect();
        let at = now + Duration::from_secs(60);
        let is_open = |secret: &String| sessions.caller(&tokens, secret, at).is_some();
        assert!(is_open(&other), "a session of another token");
        let open: Vec<bool> = own.iter().map(is_open).collect();
        assert_eq!(open.iter().filter(|is_open| **is_open).count(), PER_TOKEN_MAX);
        assert!(open.is_sorted(), "the newest ones: {open:?}");
    }
}
