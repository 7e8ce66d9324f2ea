//! Peer of a connection, and the caller of each of its requests.
//!
//! A peer of the control socket is identified by its user id. A peer of the network is identified
//! by a bearer token, by the session of its browser or by its client certificate. The caller is
//! determined for each request: revoked tokens and removed `[[api_client]]` sections take effect on
//! open connections too.

use super::page_routes::check_host;
use super::peer_rates::PeerRates;
use super::recent_logins::RecentLogins;
use super::session_cookie;
use crate::api::{Error, Kind, Result};
use crate::audit::AuditedCaller;
use crate::auth::Caller;
use crate::service::Control;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// See the module.
pub(super) enum Peer {
    /// A process of this machine, on the control socket.
    Local {
        /// User id; `None`: unknown.
        uid: Option<u32>,
    },
    /// A client of the network.
    Remote(RemotePeer),
}

/// See [`Peer`].
pub(super) struct RemotePeer {
    address: SocketAddr,
    /// Name in the client certificate, if one was presented.
    certificate: Option<String>,
    /// Whether the connection is encrypted.
    is_tls: bool,
    rates: Arc<PeerRates>,
    logins: Arc<RecentLogins>,
    /// The caller of the last request, whose login has been recorded.
    known: Mutex<Option<Caller>>,
}

impl RemotePeer {
    pub(super) fn new(
        address: SocketAddr,
        certificate: Option<String>,
        is_tls: bool,
        (rates, logins): (Arc<PeerRates>, Arc<RecentLogins>),
    ) -> RemotePeer {
        RemotePeer { address, certificate, is_tls, rates, logins, known: Mutex::new(None) }
    }

    fn caller(&self, headers: &HeaderMap, control: &Control) -> Result<Caller> {
        self.admit()?;
        let caller = refuse_other_origin(headers).and_then(|()| self.identify(headers, control));
        if caller.is_err() {
            self.count_failure();
        }
        caller
    }

    fn admit(&self) -> Result<()> {
        self.rates.admit(self.address.ip(), Instant::now())
    }

    fn count_failure(&self) {
        self.rates.count_failure(self.address.ip(), Instant::now());
    }

    fn identify(&self, headers: &HeaderMap, control: &Control) -> Result<Caller> {
        let refused = |why: String| Err(Error::new(Kind::Unauthenticated, "log in", why));
        if let Some(value) = headers.get(AUTHORIZATION) {
            let token = bearer_token(value).and_then(|token| std::str::from_utf8(token).ok());
            let caller = token.and_then(|token| control.tokens().bearer(token));
            return caller.map_or_else(|| refused("the token is not valid".to_owned()), Ok);
        }
        let secret = session_cookie::secret(headers, self.is_tls);
        if let Some(caller) = secret.and_then(|secret| session_caller(control, secret)) {
            return Ok(caller);
        }
        let Some(subject) = &self.certificate else {
            return refused(match secret {
                Some(_) => "the session has ended".to_owned(),
                None => "neither a token nor a client certificate was presented".to_owned(),
            });
        };
        let clients = control.api().api_client;
        match clients.iter().find(|client| client.subject == *subject) {
            Some(client) => Ok(Caller {
                name: certificate_caller(subject),
                role: client.role,
                scope: client.scope(),
            }),
            None => refused(format!("no [[api_client]] has the subject `{subject}`")),
        }
    }

    fn log_in(&self, headers: &HeaderMap, text: &str, control: &Control) -> Result<NewSession> {
        refuse_other_origin(headers)?;
        let sessions = control.web_sessions();
        let begun = sessions.begin(control.tokens(), text, Instant::now());
        let refused = || Error::new(Kind::Unauthenticated, "log in", "the token is not valid");
        let (caller, secret) = begun.ok_or_else(refused)?;
        if let Some(former) = session_cookie::secret(headers, self.is_tls) {
            sessions.end(former);
        }
        Ok(NewSession { caller, cookie: session_cookie::set(&secret, self.is_tls) })
    }

    /// Whether this caller is another one than that of the last request, and was not recorded
    /// lately.
    fn is_new(&self, caller: &Caller) -> bool {
        let is_other = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.replace(caller.clone()).as_ref() != Some(caller)
        };
        is_other && self.logins.is_new(self.address.ip(), &caller.name, Instant::now())
    }
}

/// A session that a login has begun.
pub(super) struct NewSession {
    /// Bearer of the token.
    pub(super) caller: Caller,
    /// Value of the field that sets the cookie of the session.
    pub(super) cookie: String,
}

/// The caller of a session of a browser.
fn session_caller(control: &Control, secret: &str) -> Option<Caller> {
    control.web_sessions().caller(control.tokens(), secret, Instant::now())
}

/// The caller that a certificate names.
fn certificate_caller(subject: &str) -> String {
    format!("certificate {subject}")
}

/// The token of a field `Authorization: Bearer TOKEN` (RFC 6750 2.1); the name of the scheme has no
/// case (RFC 9110 11.1).
pub(super) fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Refuses a request that a page of another origin made a browser send with a client certificate.
fn refuse_other_origin(headers: &HeaderMap) -> Result<()> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let authority = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    if authority.is_some() && authority == text(HOST) {
        return Ok(());
    }
    let why = "the request is from a page of another origin";
    Err(Error::new(Kind::Forbidden, "admit request", why).next("Use a client that is no browser."))
}

impl Peer {
    /// The caller of a request; a login or its refusal is recorded.
    ///
    /// # Errors
    /// [`Kind::Forbidden`], [`Kind::Unauthenticated`], [`Kind::Limit`].
    pub(super) fn caller(&self, headers: &HeaderMap, control: &Control) -> Result<Caller> {
        match self {
            Peer::Local { uid } => match uid {
                Some(uid) if *uid == 0 || *uid == rustix::process::geteuid().as_raw() => {
                    check_host(headers)?;
                    Ok(Caller::admin(format!("uid {uid}")))
                }
                _ => {
                    let why = "the caller is neither root nor the daemon's user";
                    Err(Error::new(Kind::Forbidden, "ask", why))
                }
            },
            Peer::Remote(remote) => remote.caller(headers, control),
        }
    }

    /// The caller of a session or of the control socket, for the page with the login.
    pub(super) fn session_caller(&self, headers: &HeaderMap, control: &Control) -> Option<Caller> {
        match self {
            Peer::Local { .. } => self.caller(headers, control).ok(),
            Peer::Remote(remote) => {
                let secret = session_cookie::secret(headers, remote.is_tls)?;
                session_caller(control, secret)
            }
        }
    }

    /// Admits a request to log in, as far as the limits of its address permit it.
    ///
    /// # Errors
    /// [`Kind::Limit`].
    pub(super) fn admit(&self) -> Result<()> {
        match self {
            Peer::Local { .. } => Ok(()),
            Peer::Remote(remote) => remote.admit(),
        }
    }

    /// Begins a session of the token with that text, and ends the one that the browser has had.
    ///
    /// # Errors
    /// [`Kind::Unauthenticated`], [`Kind::Forbidden`]; [`Kind::Usage`] on the control socket, whose
    /// callers need no token.
    pub(super) fn log_in(
        &self,
        headers: &HeaderMap,
        text: &str,
        control: &Control,
    ) -> Result<NewSession> {
        match self {
            Peer::Local { .. } => {
                let why = "the control socket identifies its callers by their user id";
                let next = "Open the page without a login, or the address of [api].";
                Err(Error::new(Kind::Usage, "log in", why).next(next))
            }
            Peer::Remote(remote) => remote.log_in(headers, text, control),
        }
    }

    /// Ends the session of a request. Returns the caller whose session it was, and the value of the
    /// field that removes the cookie.
    pub(super) fn log_out(
        &self,
        headers: &HeaderMap,
        control: &Control,
    ) -> (Option<Caller>, Option<String>) {
        let Peer::Remote(remote) = self else { return (None, None) };
        let caller = session_cookie::secret(headers, remote.is_tls).and_then(|secret| {
            let caller = session_caller(control, secret);
            control.web_sessions().end(secret);
            caller
        });
        (caller, Some(session_cookie::removal(remote.is_tls)))
    }

    /// Counts a refused call as a failed login.
    pub(super) fn count_refusal(&self) {
        match self {
            Peer::Local { .. } => {}
            Peer::Remote(remote) => remote.count_failure(),
        }
    }

    /// Whether the caller of a request that takes long is still the same, with the same rights.
    pub(super) fn is_still(&self, caller: &Caller, headers: &HeaderMap, control: &Control) -> bool {
        match self {
            Peer::Local { .. } => true,
            Peer::Remote(remote) => remote.identify(headers, control).as_ref() == Ok(caller),
        }
    }

    /// Whether the login of the caller of a request is to be recorded. It is for each refused one,
    /// and for the first one of a connection unless another connection of the caller was recorded
    /// lately. A limit that is reached is recorded by what led to it.
    pub(super) fn is_login(&self, caller: &Result<Caller>) -> bool {
        match (self, caller) {
            (Peer::Local { .. }, _) => false,
            (Peer::Remote(remote), Ok(caller)) => remote.is_new(caller),
            (Peer::Remote(_), Err(e)) => e.kind != Kind::Limit,
        }
    }

    /// The caller as the audit log names it. A refused one has the name in its certificate, which a
    /// CA has signed.
    pub(super) fn audited(&self, caller: Option<&Caller>) -> AuditedCaller {
        let (address, subject) = match self {
            Peer::Local { .. } => (String::new(), None),
            Peer::Remote(remote) => (remote.address.to_string(), remote.certificate.as_ref()),
        };
        let who = caller.map(|caller| caller.name.clone());
        let who = who.or_else(|| subject.map(|subject| certificate_caller(subject)));
        AuditedCaller { who: who.unwrap_or_default(), address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Role, Scope};
    use crate::config::Config;
    use crate::fake::{FakePlant, catalog};
    use crate::service::Archive;
    use hyper::header::{COOKIE, HeaderValue};
    use std::path::{Path, PathBuf};

    const AT: &str = "192.0.2.1:4000";

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ashlar-peer-{name}-{}", std::process::id()))
    }

    fn control(folder: &Path) -> Control {
        let archive = Archive::new(&folder.join("history"), 2);
        let plant = Box::new(Arc::new(FakePlant::new()));
        let control = Control::new(plant, catalog(), &Config::default(), archive);
        control.with_api_folder(&folder.join("api"))
    }

    fn remote(certificate: Option<&str>) -> Peer {
        let at = AT.parse().expect("an address");
        let certificate = certificate.map(str::to_owned);
        Peer::Remote(RemotePeer::new(at, certificate, true, Default::default()))
    }

    fn headers(fields: &[(hyper::header::HeaderName, &str)]) -> HeaderMap {
        let field = |(name, value): &(hyper::header::HeaderName, &str)| {
            (name.clone(), HeaderValue::from_str(value).expect("a value"))
        };
        fields.iter().map(field).collect()
    }

    #[test]
    fn remote_peer_needs_a_valid_token() {
        let folder = scratch("token");
        let control = control(&folder);
        let new = control.tokens().create("ci", Role::Viewer, Scope::default()).expect("created");
        let peer = remote(None);
        let kind = |fields: &[(hyper::header::HeaderName, &str)]| {
            peer.caller(&headers(fields), &control).map_err(|e| e.kind)
        };
        assert_eq!(kind(&[]), Err(Kind::Unauthenticated));
        assert_eq!(kind(&[(AUTHORIZATION, "Bearer x")]), Err(Kind::Unauthenticated));
        let good = format!("bearer {}", new.text);
        let caller = kind(&[(AUTHORIZATION, good.as_str())]).expect("it is known");
        assert_eq!(caller.name, "token ci");
        let foreign = [(AUTHORIZATION, good.as_str()), (ORIGIN, "https://x"), (HOST, "y")];
        assert_eq!(kind(&foreign), Err(Kind::Forbidden));
        let own = [(AUTHORIZATION, good.as_str()), (ORIGIN, "https://y"), (HOST, "y")];
        assert!(kind(&own).is_ok());
        let fields = headers(&own);
        assert!(peer.is_still(&caller, &fields, &control));
        control.tokens().revoke("ci").expect("revoked");
        assert!(!peer.is_still(&caller, &fields, &control), "a stream of events ends");
        assert_eq!(kind(&[(AUTHORIZATION, good.as_str())]), Err(Kind::Unauthenticated));
        std::fs::remove_dir_all(&folder).expect("scratch");
    }

    #[test]
    fn session_of_a_browser_has_the_rights_of_its_token_until_it_ends() {
        let folder = scratch("session");
        let control = control(&folder);
        let new = control.tokens().create("ci", Role::Viewer, Scope::default()).expect("created");
        let peer = remote(None);
        let log_in = |peer: &Peer, fields: &[(hyper::header::HeaderName, &str)]| {
            peer.log_in(&headers(fields), &new.text, &control).map_err(|e| e.kind)
        };
        let foreign = [(ORIGIN, "https://x"), (HOST, "y")];
        assert_eq!(log_in(&peer, &foreign).err(), Some(Kind::Forbidden));
        assert_eq!(log_in(&Peer::Local { uid: Some(0) }, &[]).err(), Some(Kind::Usage));
        let wrong = peer.log_in(&HeaderMap::new(), "ashlar_1_2", &control).map_err(|e| e.kind);
        assert_eq!(wrong.err(), Some(Kind::Unauthenticated));
        let begun = log_in(&peer, &[(ORIGIN, "https://y"), (HOST, "y")]).expect("a session");
        assert!(!begun.cookie.contains(&new.text), "{}", begun.cookie);
        let cookie = begun.cookie.split(';').next().expect("a value").to_owned();
        let fields = headers(&[(COOKIE, cookie.as_str())]);
        let caller = peer.caller(&fields, &control).expect("it is known");
        assert_eq!(caller, begun.caller);
        assert_eq!(peer.session_caller(&fields, &control), Some(caller.clone()));
        let renewed = log_in(&peer, &[(COOKIE, cookie.as_str())]).expect("a session");
        assert_eq!(peer.session_caller(&fields, &control), None, "a further login ends it");
        let cookie = renewed.cookie.split(';').next().expect("a value").to_owned();
        let fields = headers(&[(COOKIE, cookie.as_str())]);
        assert_eq!(peer.log_out(&fields, &control).0, Some(caller.clone()));
        assert!(!peer.is_still(&caller, &fields, &control), "a stream of events ends");
        let ended = peer.caller(&fields, &control).expect_err("ended");
        assert!(ended.source.contains("the session has ended"), "{ended}");
        std::fs::remove_dir_all(&folder).expect("scratch");
    }

    #[test]
    fn requests_of_other_origins_count_as_failed_logins() {
        let folder = scratch("origin");
        let (control, peer) = (control(&folder), remote(None));
        let foreign = headers(&[(ORIGIN, "https://x"), (HOST, "y")]);
        let kinds = (0..20).filter_map(|_| peer.caller(&foreign, &control).err().map(|e| e.kind));
        let kinds: Vec<Kind> = kinds.collect();
        assert_eq!((kinds.first(), kinds.last()), (Some(&Kind::Forbidden), Some(&Kind::Limit)));
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn certificate_has_the_role_of_its_section() {
        let folder = scratch("certificate");
        let control = control(&folder);
        let text = "[api]\ntls_certificate='/c'\ntls_key='/k'\ntls_client_ca='/a'\n\
                    [[api_client]]\nsubject='laptop'\nrole='operator'\n";
        let config = crate::config::read(text, "a.toml", &catalog()).expect("well-formed");
        control.start(&config).expect("started");
        let none = HeaderMap::new();
        let caller = remote(Some("laptop")).caller(&none, &control).expect("it is known");
        assert_eq!((caller.name.as_str(), caller.role), ("certificate laptop", Role::Operator));
        let refused = remote(Some("other")).caller(&none, &control).expect_err("unknown");
        assert!(refused.source.contains("`other`"), "{refused}");
        let audited = remote(Some("other")).audited(None);
        assert_eq!((audited.who.as_str(), audited.address.as_str()), ("certificate other", AT));
        assert_eq!(remote(None).audited(None).who, "", "a wrong token has no name");
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn login_is_recorded_once_for_a_connection() {
        let peer = remote(None);
        let ci = Ok(Caller::admin("token ci".to_owned()));
        assert!(peer.is_login(&ci));
        assert!(!peer.is_login(&ci));
        assert!(peer.is_login(&Ok(Caller::admin("token other".to_owned()))));
        assert!(peer.is_login(&Err(Error::new(Kind::Unauthenticated, "log in", "no"))));
        assert!(!Peer::Local { uid: Some(0) }.is_login(&ci));
        let at: SocketAddr = AT.parse().expect("an address");
        let shared = (Arc::<PeerRates>::default(), Arc::<RecentLogins>::default());
        let connect = || Peer::Remote(RemotePeer::new(at, None, true, shared.clone()));
        assert!(connect().is_login(&ci));
        assert!(!connect().is_login(&ci), "many connections of a caller are one entry");
    }
}
