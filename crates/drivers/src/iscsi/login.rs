//! Login phase of a connection: target lookup, authentication and session reinstatement.
//!
//! The first requests are read with the offer of no target. When the target is known the login is
//! begun again with that target's offer and the same requests.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use engine::registry::{Denied, RequiredAuth};
use engine::{CloseReason as EngineReason, Transport};
use transport::LogSubject;
use wire::iscsi::{
    Access, Algorithms, Auth, Bhs, CHALLENGE_LEN, Challenge, ChapAccount, ChapUser, Established,
    Grant, Login, LoginConfig, LoginReply, LoginStatus, Offer, PRE_LOGIN, SessionType, Step,
    TargetQuery,
};

use super::NAME;
use super::close_reason::CloseReason;
use super::discovery::PORTAL_GROUP;
use super::params::Checked;
use super::pdu_reader::PduReader;
use super::protocol::{Connection, IscsiMessage};
use super::session::{IscsiSession, LoginResult, WINDOW};
use super::session_owners::{SessionKey, Tsih};
use crate::driver::Account;
use wire::scsi::TransportId;

/// Longest wait of a login for the end of the session that it replaces, ns; then the initiator must
/// try again. Less than a login may take.
const REINSTATE_NS: u64 = 5_000_000_000;

/// Decision about a login query.
struct Decision {
    target: Option<Arc<Checked>>,
    tsih: Option<Tsih>,
    access: Access,
    md5: bool,
    /// The account that the initiator has to prove, for the log of a failed login.
    expected: String,
}

impl Decision {
    fn deny(status: LoginStatus) -> Decision {
        let (access, expected) = (Access::Deny(status), String::new());
        Decision { target: None, tsih: None, access, md5: false, expected }
    }
}

/// Runs the login; the session is in its full feature phase when it answers.
pub(crate) async fn run(
    conn: &Rc<Connection>,
    reader: &mut PduReader,
) -> Result<Rc<IscsiSession>, CloseReason> {
    let challenge = new_challenge(conn);
    let mut login = Login::new(config(conn, Offer::default(), false, challenge));
    let mut seen: Vec<(Bhs, Vec<u8>)> = Vec::new();
    let mut decided: Option<Decision> = None;
    let mut target_query = TargetQuery::default();
    loop {
        let frame = reader.header(&PRE_LOGIN).await?;
        let bhs = reader.bhs;
        let data = reader.text(&frame).await?.unwrap_or_default();
        let mut step = login.request(&bhs, &data);
        if let Step::NeedTarget(query) = step {
            let decision = decide(conn, &query);
            let offer = decision.target.as_ref().map_or(Offer::default(), |t| t.offer());
            login = Login::new(config(conn, offer, decision.md5, challenge));
            for (bhs, data) in seen.drain(..) {
                login.request(&bhs, &data);
            }
            login.request(&bhs, &data);
            step = login.decide(decision.access.clone());
            (decided, target_query) = (Some(decision), query);
        } else if decided.is_none() {
            seen.push((bhs, data));
        }
        match step {
            Step::Reply(reply) => send(conn, &reply),
            Step::FullFeature(done) => {
                let Some(decision) = decided.take() else {
                    return Err(CloseReason::Protocol("a login without a decision"));
                };
                return enter(conn, *done, decision).await;
            }
            // D2.
            Step::Refuse { .. } if conn.core.shared.own.registry.login_gate().is_closed() => {
                return Err(CloseReason::Closed(EngineReason::Stopping));
            }
            Step::Refuse { reply, status, reason } => {
                let expected = decided.as_ref().map_or("", |d| &d.expected);
                note_refusal(conn, &target_query, status, (reason, expected));
                send(conn, &reply);
                return Err(CloseReason::Refused);
            }
            Step::Close(error) => return Err(CloseReason::Framing(error)),
            Step::NeedTarget(_) => return Err(CloseReason::Protocol("a login restarted twice")),
        }
    }
}

/// A challenge from a secure source (RFC 7143 section 9.2.1: never the same twice).
fn new_challenge(conn: &Connection) -> Challenge {
    let mut bytes = [0; CHALLENGE_LEN];
    let mut id = [0];
    conn.core.reactor.fill_random(&mut bytes);
    conn.core.reactor.fill_random(&mut id);
    Challenge { id: id.first().copied().unwrap_or(0), bytes }
}

fn config(conn: &Connection, offer: Offer, md5: bool, challenge: Challenge) -> LoginConfig {
    LoginConfig {
        offer,
        algorithms: Algorithms { md5, ..Algorithms::default() },
        challenge,
        stat_sn: conn.core.shared.own.first_stat_sn,
        command_window: WINDOW,
    }
}

fn send(conn: &Connection, reply: &LoginReply) {
    conn.io.tx.borrow_mut().put(&reply.to_bytes());
    conn.io.wake();
}

fn chap_user(account: &Account) -> ChapUser {
    ChapUser { name: account.user.clone(), secret: account.secret.clone() }
}

fn decide(conn: &Connection, query: &TargetQuery) -> Decision {
    let owners = &conn.core.shared.own.owners;
    if query.tsih != 0 {
        // Neither a second connection of a session nor the reinstatement of a connection. A session
        // has one, and it is replaced with all of the session (TSIH 0).
        return Decision::deny(match owners.has_tsih(query.tsih) {
            true => LoginStatus::CannotIncludeInSession,
            false => LoginStatus::SessionDoesNotExist,
        });
    }
    let Some(tsih) = owners.take_tsih() else {
        return Decision::deny(LoginStatus::OutOfResources);
    };
    match (query.session, &query.target) {
        (SessionType::Discovery, _) => discovery(conn, tsih),
        (SessionType::Normal, Some(name)) => normal(conn, query, name, tsih),
        (SessionType::Normal, None) => Decision::deny(LoginStatus::MissingParameter),
    }
}

fn grant(auth: Auth, tsih: &Tsih, alias: Option<String>) -> Access {
    Access::Allow(Grant { auth, tsih: tsih.number, portal_group: PORTAL_GROUP, alias })
}

fn chap_account(user: &Account, mutual: Option<&Account>) -> ChapAccount {
    ChapAccount { user: chap_user(user), mutual: mutual.map(chap_user) }
}

/// Discovery needs an account as soon as a target of the portal requires one. An initiator with an
/// account is shown that account's targets and those that require none.
fn discovery(conn: &Connection, tsih: Tsih) -> Decision {
    let targets = conn.core.shared.own.targets.at(&conn.at);
    let account = |t: &Arc<Checked>| {
        Some(chap_account(t.spec.discovery_chap.as_ref()?, t.spec.mutual_chap.as_ref()))
    };
    let accounts: Vec<ChapAccount> = targets.iter().filter_map(account).collect();
    let names: Vec<&str> = accounts.iter().map(|a| a.user.name.as_str()).collect();
    let expected = format!("the user name expected is {}", names.join(" or "));
    let auth = if accounts.is_empty() { Auth::None } else { Auth::Chap { accounts } };
    let md5 = targets.iter().any(|t| t.params.chap_md5);
    let access = grant(auth, &tsih, None);
    Decision { target: None, tsih: Some(tsih), access, md5, expected }
}

/// The proof that an initiator has to give, and the expected account for the log: its own account,
/// that of its group, or that of the target. A group with accounts refuses logins without one.
fn proof(target: &Checked, required: RequiredAuth) -> (Auth, String) {
    let (user, mutual) = match required {
        RequiredAuth::NoAccount => {
            let why = "its group has no account for this initiator: add one to `initiator_chap`, \
                       or set `chap` of the group";
            return (Auth::Chap { accounts: Vec::new() }, why.into());
        }
        RequiredAuth::Chap(proof) => (Some(proof.account), proof.mutual),
        RequiredAuth::Nothing => (target.spec.chap.clone(), None),
    };
    let Some(user) = user else { return (Auth::None, String::new()) };
    let mutual = mutual.as_ref().or(target.spec.mutual_chap.as_ref());
    let expected = format!("the user name expected is {}", user.user);
    (Auth::Chap { accounts: vec![chap_account(&user, mutual)] }, expected)
}

fn normal(conn: &Connection, query: &TargetQuery, name: &str, tsih: Tsih) -> Decision {
    let core = &conn.core;
    let found = core.shared.own.targets.get_at(&conn.at, name);
    let (Some(target), Some(port)) = (found, core.own.engine.find_target(NAME, name)) else {
        deny_note(conn, query, format!("there is no target {name} at portal {}", conn.at));
        return Decision::deny(LoginStatus::NotFound);
    };
    let access = port.decide(&query.initiator, &conn.local);
    if !access.grants() {
        let example = format!(
            "{}\n[[access]]\ntarget = \"{name}\"\n\
             group = \"NAME\"\ninitiators = [\"{}\"]\nluns = {{ 0 = \"PROVIDER\" }}",
            access.reason, query.initiator
        );
        deny_note(conn, query, example);
        // As one that does not exist: names cannot be guessed.
        return Decision::deny(LoginStatus::NotFound);
    }
    conn.handshake_s.set(target.params.login_timeout);
    if let Some((address, permanent)) = target.params.moved_to() {
        let access = Access::Redirect { address: address.into(), permanent };
        let expected = String::new();
        return Decision { target: Some(target), tsih: None, access, md5: false, expected };
    }
    let (auth, expected) = proof(&target, access.required_auth);
    let alias = Some(target.params.alias.clone()).filter(|a| !a.is_empty());
    let access = grant(auth, &tsih, alias);
    let md5 = target.params.chap_md5;
    Decision { target: Some(target), tsih: Some(tsih), access, md5, expected }
}

fn deny_note(conn: &Connection, query: &TargetQuery, text: String) {
    conn.core.shared.own.registry.note_denied(Denied {
        at_ns: conn.core.reactor.now(),
        driver: NAME.into(),
        target: query.target.clone().unwrap_or_default(),
        initiator: query.initiator.clone(),
        from: Some(conn.peer.clone()),
        text,
    });
}

/// Advice for an initiator that offers nothing but MD5, which is the default of most.
fn md5_hint(conn: &Connection, query: &TargetQuery) -> &'static str {
    let target = query.target.as_deref().and_then(|t| conn.core.shared.own.targets.get(t));
    match target.is_some_and(|t| !t.params.chap_md5) {
        true => {
            "; if the initiator offers only MD5, enable SHA256 there (open-iscsi: \
             node.session.auth.chap_algs = SHA256) or set `chap_md5 = true` at the target"
        }
        false => "",
    }
}

/// Records the reason of a refusal, and the account that was expected.
fn note_refusal(
    conn: &Connection,
    query: &TargetQuery,
    status: LoginStatus,
    (reason, expected): (&str, &str),
) {
    let who = if query.initiator.is_empty() { "an initiator" } else { &query.initiator };
    let to = query.target.as_deref().unwrap_or("discovery");
    if matches!(status, LoginStatus::TargetMovedTemporarily | LoginStatus::TargetMovedPermanently) {
        let about = LogSubject { peer: &conn.peer, name: who };
        conn.core.log.info_about(about, format_args!("{to}: {reason}, redirected"));
        return;
    }
    // The reply is that there is no such target; the log has the reason.
    let targets = &conn.core.shared.own.targets;
    let is_here = |name: &str| targets.get_at(&conn.at, name).is_some();
    let is_hidden = status == LoginStatus::NotFound && query.target.as_deref().is_some_and(is_here);
    let reason =
        if is_hidden { "no access group offers the target to this initiator" } else { reason };
    let hint = match status {
        LoginStatus::AuthenticationFailure => md5_hint(conn, query),
        _ => "",
    };
    conn.warn(format_args!(
        "login of {who} to {to} refused: {reason} (status {:04x}){hint}",
        status.code()
    ));
    if status == LoginStatus::AuthenticationFailure {
        let expected = if expected.is_empty() { "no account matches" } else { expected };
        deny_note(conn, query, format!("CHAP: {reason}; {expected}{}", md5_hint(conn, query)));
    }
}

/// The login has succeeded: the session gets its place, and the engine is notified.
async fn enter(
    conn: &Rc<Connection>,
    done: Established,
    decision: Decision,
) -> Result<Rc<IscsiSession>, CloseReason> {
    let Decision { target, tsih: Some(tsih), .. } = decision else {
        return Err(CloseReason::Protocol("a login without a TSIH"));
    };
    let query = &done.query;
    let key = SessionKey {
        initiator: query.initiator.clone(),
        target: query.target.clone().unwrap_or_default(),
        isid: query.isid,
    };
    let shared = &conn.core.shared;
    let owners = &shared.own.owners;
    let mut reinstates = false;
    let mut claim = None;
    if target.is_some() {
        reinstates = owners.is_owned(&key);
        let me = (conn.core.id, conn.number);
        let end =
            |core, connection| shared.mailboxes.send(core, IscsiMessage::Reinstated { connection });
        let owned = poll_fn(|cx| match owners.claim(&key, me, cx.waker(), end) {
            Some(claim) => Poll::Ready(claim),
            None => Poll::Pending,
        });
        match conn.core.reactor.within(REINSTATE_NS, owned).await {
            Some(owned) => claim = Some(owned),
            None => {
                refuse_pending_reinstatement(conn, &done);
                return Err(CloseReason::Refused);
            }
        }
    }
    let start = LoginResult {
        params: done.params,
        target: target.clone(),
        initiator: query.initiator.clone(),
        user: done.user.clone(),
        cid: query.cid,
        stat_sn: done.stat_sn,
        exp_cmd_sn: done.exp_cmd_sn,
        tsih,
        claim,
    };
    let session = IscsiSession::new(conn, start);
    if let Some(target) = &target {
        begin(conn, &session, target, &done, reinstates)?;
    }
    conn.enter(&session);
    let about = LogSubject { peer: &conn.peer, name: &session.initiator };
    let to = query.target.as_deref().unwrap_or("discovery");
    let more = if reinstates { ", in place of its former session" } else { "" };
    conn.core.log.info_about(about, format_args!("logged in to {to}{more}"));
    send(conn, &done.reply);
    Ok(session)
}

/// Refuses a login while commands of the session that it replaces are still at a disk that does not
/// answer. Writes of the old session could overwrite writes of the new one. The initiator must try
/// again.
fn refuse_pending_reinstatement(conn: &Connection, done: &Established) {
    let status = LoginStatus::ServiceUnavailable;
    let reason = "commands of its former session still hang at a disk";
    note_refusal(conn, &done.query, status, (reason, ""));
    let mut reply = done.reply.clone();
    reply.text.clear();
    reply.header.status = status;
    (reply.header.transit, reply.header.data_len, reply.header.tsih) = (false, 0, 0);
    send(conn, &reply);
}

fn begin(
    conn: &Rc<Connection>,
    session: &Rc<IscsiSession>,
    target: &Arc<Checked>,
    done: &Established,
    reinstates: bool,
) -> Result<(), CloseReason> {
    let engine = &conn.core.own.engine;
    let port = engine.find_target(NAME, &target.spec.name).ok_or(CloseReason::Refused)?;
    let digest = |on: bool| if on { "crc32c" } else { "none" }.to_string();
    let login = engine::Login {
        target: port,
        initiator: session.initiator.clone(),
        port_id: done.query.isid.to_vec(),
        transport_id: TransportId::iscsi_port(&session.initiator, done.query.isid)
            .map_or_else(Vec::new, |id| id.bytes().to_vec()),
        portal: conn.local.clone(),
        from: conn.peer.clone(),
        reinstates,
        labels: vec![
            ("isid", done.query.isid.iter().map(|byte| format!("{byte:02x}")).collect()),
            ("header-digest", digest(done.params.header_digest)),
            ("data-digest", digest(done.params.data_digest)),
            ("auth", done.user.as_ref().map_or("none".into(), |u| format!("chap {u}"))),
        ],
    };
    let transport: Rc<dyn Transport> = session.clone();
    let nexus = engine.login(login, transport).map_err(|refused| {
        conn.warn(format_args!("login refused: {}", refused.text));
        CloseReason::Refused
    })?;
    *session.nexus.borrow_mut() = Some(nexus);
    Ok(())
}
