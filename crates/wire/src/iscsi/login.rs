//! The target's side of the login phase (RFC 7143 sections 6.3 and 11.12), without I/O.
//!
//! The caller passes each received PDU and acts on the returned [`Step`]. [`Step::NeedTarget`]
//! needs the target, its access rights and its secrets; the caller answers with [`Login::decide`].
//! Random bytes are passed in [`LoginConfig::challenge`].
//!
//! ```text
//!   request --> NeedTarget --decide--> Reply ... Reply --> FullFeature
//!      |             |                   |
//!      +-------------+-------------------+--> Refuse (send it, then close) | Close
//! ```
//!
//! Invariants
//!  L1  The stage only moves along 0->1, 0->3, 1->3, and only when the initiator proposed it.
//!  L2  Tag, ISID, TSIH and CID of the first request hold for all.
//!  L3  Nothing but identity is taken before the caller has decided.
//!  L4  No full feature phase without the security that the caller requested.
//!  L5  After Refuse, Close or FullFeature every further request is answered Close.

use super::bhs::{Bhs, opcode, opcode_of};
use super::chap::{Algorithms, Challenge};
use super::keys::{Phase, key_spec};
use super::name::normalise_name;
use super::negotiate::{Negotiation, Offer, SessionParams, Side, no_duplicates};
use super::pdu::Pdu;
use super::request::LoginRequest;
use super::response::{LoginResponse, Numbers};
use super::security::{Auth, Failure, Security, is_security, value_of};
use super::status::LoginStatus;
use super::text::{TextBuilder, TextInput, pairs};
use crate::error::{Kind, WireError};

/// Most requests of one login; one more ends it with an initiator error.
const REQUESTS_MAX: u32 = 64;

/// Stage numbers (CSG, NSG).
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// The target's configuration for a login.
#[derive(Clone)]
pub struct LoginConfig {
    /// The keys that the target offers and accepts.
    pub offer: Offer,
    /// CHAP algorithms that are allowed.
    pub algorithms: Algorithms,
    /// Drawn from a secure source for this connection alone.
    pub challenge: Challenge,
    pub stat_sn: u32,
    /// Commands the session may have open: MaxCmdSN - ExpCmdSN + 1.
    pub command_window: u32,
}

/// Normal or discovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionType {
    /// Uses a target.
    #[default]
    Normal,
    /// Only lists the targets.
    Discovery,
}

/// The initiator, the target and the type of session. Names are normalised (lower case).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetQuery {
    /// Normal or discovery.
    pub session: SessionType,
    pub initiator: String,
    /// InitiatorAlias; None when not given.
    pub initiator_alias: Option<String>,
    /// TargetName; None only in a discovery session.
    pub target: Option<String>,
    /// Initiator part of the session identifier.
    pub isid: [u8; 6],
    /// 0 for a new session (or the reinstatement of one with the same ISID), otherwise the session
    /// the connection wants to join.
    pub tsih: u16,
    /// Connection identifier.
    pub cid: u16,
}

/// The caller's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The initiator may continue.
    Allow(Grant),
    /// It may not: NotFound, AuthorizationFailure, SessionDoesNotExist, ...
    Deny(LoginStatus),
    /// The target is elsewhere.
    Redirect {
        /// `host[:port][,tag]`, IPv6 in brackets.
        address: String,
        /// Moved for good.
        permanent: bool,
    },
}

/// Conditions under which a login continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The required authentication.
    pub auth: Auth,
    /// TSIH of the session, not 0.
    pub tsih: u16,
    pub portal_group: u16,
    /// TargetAlias; None leaves it out.
    pub alias: Option<String>,
}

/// A Login Response with its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginReply {
    /// The header; `data_len` is the text's length.
    pub header: LoginResponse,
    /// The data segment, padding not included.
    pub text: Vec<u8>,
}

impl LoginReply {
    /// The PDU as it is sent: header, text, padding. Logins have no digests.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = [0; super::bhs::BHS_LEN];
        self.header.encode(&mut head);
        let mut out = head.to_vec();
        out.extend_from_slice(&self.text);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// The last response; send it first.
    pub reply: LoginReply,
    /// The negotiated parameters.
    pub params: SessionParams,
    /// The initiator, the target and the type of session, as in [`Step::NeedTarget`].
    pub query: TargetQuery,
    /// TSIH of the session.
    pub tsih: u16,
    /// CHAP name that proved itself; None without CHAP.
    pub user: Option<String>,
    /// StatSN of the next response.
    pub stat_sn: u32,
    /// CmdSN the session waits for first.
    pub exp_cmd_sn: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this and wait for the next request.
    Reply(LoginReply),
    /// Answer with [`Login::decide`]; nothing is to be sent yet.
    NeedTarget(TargetQuery),
    /// Send the reply; the full feature phase begins.
    FullFeature(Box<Established>),
    /// Send the reply and close the connection.
    Refuse {
        /// Carries the status.
        reply: LoginReply,
        /// Why, for the initiator.
        status: LoginStatus,
        /// Why, for the log: plain words or a key's name.
        reason: &'static str,
    },
    /// Close the connection without a response: the received PDU is not a login.
    Close(WireError),
}

/// The fields that hold for all requests of a login (L2).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fixed {
    task_tag: u32,
    isid: [u8; 6],
    tsih: u16,
    cid: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoginState {
    Open,
    Deciding,
    Over,
}

#[derive(Clone)]
pub struct Login {
    config: LoginConfig,
    state: LoginState,
    requests: u32,
    fixed: Option<Fixed>,
    cmd_sn: u32,
    stat_sn: u32,
    stage: u8,
    /// Set by the request being worked on: the stage it proposes.
    proposed: Option<u8>,
    input: TextInput,
    /// The text that waits for the decision.
    held: Vec<u8>,
    query: Option<TargetQuery>,
    grant: Option<Grant>,
    greeted: bool,
    security: Option<Security>,
    negotiation: Negotiation,
    /// Text that did not fit in the last response, and the stage to enter after it.
    rest: Vec<u8>,
    rest_next_stage: Option<u8>,
}

impl Login {
    /// A connection that has just been accepted.
    pub fn new(config: LoginConfig) -> Login {
        let negotiation = Negotiation::login(Side::Target, false, config.offer);
        Login {
            stat_sn: config.stat_sn,
            config,
            state: LoginState::Open,
            requests: 0,
            fixed: None,
            cmd_sn: 0,
            stage: SECURITY,
            proposed: None,
            input: TextInput::default(),
            held: Vec::new(),
            query: None,
            grant: None,
            greeted: false,
            security: None,
            negotiation,
            rest: Vec::new(),
            rest_next_stage: None,
        }
    }

    /// Takes the next PDU: header and data segment (padding not included).
    pub fn request(&mut self, bhs: &Bhs, data: &[u8]) -> Step {
        if opcode_of(bhs) != opcode::LOGIN_REQUEST {
            return self.close(WireError::new(Kind::OutOfOrder, "Opcode", 0));
        }
        if self.state != LoginState::Open {
            return self.close(WireError::new(Kind::OutOfOrder, "Login Request", 0));
        }
        let request = match LoginRequest::decode(bhs) {
            Ok(request) => request,
            Err(error) => return self.close(error),
        };
        let step = self.check(&request).and_then(|()| self.take(&request, data));
        step.unwrap_or_else(|failure| self.refuse(failure, &[]))
    }

    /// The caller's answer to [`Step::NeedTarget`].
    pub fn decide(&mut self, access: Access) -> Step {
        if self.state != LoginState::Deciding {
            return self.close(WireError::new(Kind::OutOfOrder, "decision", 0));
        }
        self.state = LoginState::Open;
        match access {
            Access::Deny(status) => self.refuse(Failure::new(status, status.reason()), &[]),
            Access::Redirect { address, permanent } => {
                let status = if permanent {
                    LoginStatus::TargetMovedPermanently
                } else {
                    LoginStatus::TargetMovedTemporarily
                };
                let mut out = TextBuilder::new();
                // An address too long for the text would be left out; addresses are short.
                let _ = out.push("TargetAddress", &address);
                self.refuse(Failure::new(status, status.reason()), out.bytes())
            }
            Access::Allow(grant) => {
                let LoginConfig { algorithms, challenge, .. } = self.config;
                self.security = Some(Security::new(grant.auth.clone(), algorithms, challenge));
                self.grant = Some(grant);
                let text = std::mem::take(&mut self.held);
                let step = self.advance(&text);
                step.unwrap_or_else(|failure| self.refuse(failure, &[]))
            }
        }
    }

    /// Rules about the header: version, stages, and fields that must not change.
    fn check(&mut self, request: &LoginRequest) -> Result<(), Failure> {
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            return Err(Failure::protocol("too many login requests"));
        }
        let LoginRequest { task_tag, isid, tsih, cid, .. } = *request;
        let fixed = Fixed { task_tag, isid, tsih, cid };
        let first = self.fixed.is_none();
        if *self.fixed.get_or_insert(fixed) != fixed {
            let reason = "tag, ISID, TSIH or CID changed during login";
            return Err(Failure::new(LoginStatus::InvalidDuringLogin, reason));
        }
        if first {
            self.cmd_sn = request.cmd_sn;
            self.stage = request.stage;
        }
        if request.version_min > 0 {
            let status = LoginStatus::UnsupportedVersion;
            return Err(Failure::new(status, status.reason()));
        }
        if request.stage != self.stage || !matches!(request.stage, SECURITY | OPERATIONAL) {
            return Err(Failure::protocol("CSG"));
        }
        if request.transit && request.more {
            return Err(Failure::protocol("T and C together"));
        }
        let next = request.next_stage;
        let legal = next > request.stage && matches!(next, OPERATIONAL | FULL_FEATURE);
        if request.transit && !legal {
            return Err(Failure::protocol("NSG"));
        }
        self.proposed = request.transit.then_some(next);
        Ok(())
    }

    fn take(&mut self, request: &LoginRequest, data: &[u8]) -> Result<Step, Failure> {
        if !self.rest.is_empty() {
            if !data.is_empty() || request.more {
                return Err(Failure::protocol("new text before the end of the target's answer"));
            }
            let rest = std::mem::take(&mut self.rest);
            return Ok(self.reply(rest, self.rest_next_stage));
        }
        let Some(text) = self.input.append(data, request.more)? else {
            return Ok(self.reply(Vec::new(), None));
        };
        if self.grant.is_some() {
            return self.advance(&text);
        }
        let query = identify(&pairs(&text)?, request)?;
        let discovery = query.session == SessionType::Discovery;
        self.negotiation = Negotiation::login(Side::Target, discovery, self.config.offer);
        self.query = Some(query.clone());
        self.held = text;
        self.state = LoginState::Deciding;
        Ok(Step::NeedTarget(query))
    }

    /// Works on one whole text in the present stage.
    fn advance(&mut self, text: &[u8]) -> Result<Step, Failure> {
        let all = pairs(text)?;
        no_duplicates(&all)?;
        let mut rest = Vec::with_capacity(all.len());
        for (name, value) in all {
            if !self.is_identity(name, value)? {
                rest.push((name, value));
            }
        }
        let mut out = TextBuilder::new();
        self.greet(&mut out)?;
        let ready = match self.stage {
            SECURITY => self.security_stage(&rest, &mut out)?,
            _ => self.operational_stage(&rest, &mut out)?,
        };
        let mut goes = self.proposed.filter(|_| ready);
        if (self.stage, goes) == (SECURITY, Some(FULL_FEATURE)) {
            // The target has something to negotiate: enter the operational stage instead.
            if self.negotiation.clone().propose(&mut TextBuilder::new())? {
                goes = Some(OPERATIONAL);
            } else {
                self.negotiation.declare(&mut out)?;
            }
        }
        if goes == Some(FULL_FEATURE) {
            self.negotiation.finish()?;
        }
        Ok(self.reply(out.into_bytes(), goes))
    }

    /// Keys that identify the initiator and the target: taken from the first text, repeated
    /// unchanged later.
    fn is_identity(&self, name: &str, value: &str) -> Result<bool, Failure> {
        let Some(query) = &self.query else {
            return Ok(false);
        };
        let same = match name {
            "InitiatorName" => normalise_name(value).is_ok_and(|name| name == query.initiator),
            "TargetName" => query
                .target
                .as_ref()
                .is_none_or(|known| normalise_name(value).is_ok_and(|name| name == *known)),
            "SessionType" => session_type(value)? == query.session,
            "InitiatorAlias" => true,
            _ => return Ok(false),
        };
        if same { Ok(true) } else { Err(Failure::protocol("identity changed during login")) }
    }

    /// Appends the keys of the first response (RFC 7143 section 13.9).
    fn greet(&mut self, out: &mut TextBuilder) -> Result<(), WireError> {
        let normal = self.query.as_ref().is_some_and(|q| q.session == SessionType::Normal);
        if let (false, true, Some(grant)) = (self.greeted, normal, &self.grant) {
            out.push_number("TargetPortalGroupTag", u64::from(grant.portal_group))?;
            if let Some(alias) = &grant.alias {
                out.push("TargetAlias", alias)?;
            }
        }
        self.greeted = true;
        Ok(())
    }

    /// Answers whether the stage is complete.
    fn security_stage(
        &mut self,
        pairs: &[(&str, &str)],
        out: &mut TextBuilder,
    ) -> Result<bool, Failure> {
        let (security, other): (Vec<_>, Vec<_>) =
            pairs.iter().copied().partition(|(name, _)| is_security(name));
        let early = |name: &str| key_spec(name).is_some_and(|spec| spec.phase != Phase::Any);
        if other.iter().any(|(name, _)| early(name)) {
            return Err(Failure::protocol("operational key in the security stage"));
        }
        let state = self.security.as_mut().ok_or(Failure::protocol("no decision"))?;
        state.step(&security, out)?;
        let done = state.is_done();
        self.negotiation.receive(&other, out)?;
        Ok(done)
    }

    fn operational_stage(
        &mut self,
        pairs: &[(&str, &str)],
        out: &mut TextBuilder,
    ) -> Result<bool, Failure> {
        let secure = self.security.as_ref().is_some_and(|s| s.optional() || s.is_done());
        if !secure {
            let reason = "the target requires CHAP, the security stage was left out";
            return Err(Failure::new(LoginStatus::AuthenticationFailure, reason));
        }
        self.negotiation.receive(pairs, out)?;
        self.negotiation.declare(out)?;
        let waiting = self.negotiation.propose(out)?;
        Ok(!waiting)
    }

    /// Sends text, cut to the initiator's limit, and changes the stage after the last part.
    fn reply(&mut self, mut text: Vec<u8>, goes: Option<u8>) -> Step {
        let max = self.negotiation.params().send_data_len_max.min(8192);
        let max = usize::try_from(max).unwrap_or(8192);
        if text.len() > max {
            self.rest = text.split_off(max);
            self.rest_next_stage = goes;
        }
        let more = !self.rest.is_empty();
        let goes = goes.filter(|_| !more);
        let last = goes == Some(FULL_FEATURE);
        let mut header = self.header(LoginStatus::Success);
        (header.more, header.transit) = (more, goes.is_some());
        header.next_stage = goes.unwrap_or(0);
        if let (true, Some(grant)) = (last, &self.grant) {
            header.tsih = grant.tsih;
        }
        self.stage = goes.unwrap_or(self.stage);
        let reply = seal(header, text);
        if last { self.established(reply) } else { Step::Reply(reply) }
    }

    fn established(&mut self, reply: LoginReply) -> Step {
        self.state = LoginState::Over;
        Step::FullFeature(Box::new(Established {
            tsih: reply.header.tsih,
            reply,
            params: *self.negotiation.params(),
            query: self.query.take().unwrap_or_default(),
            user: self.security.take().and_then(|security| security.user),
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.cmd_sn,
        }))
    }

    fn refuse(&mut self, failure: Failure, text: &[u8]) -> Step {
        self.state = LoginState::Over;
        let header = self.header(failure.status);
        let reply = seal(header, text.to_vec());
        Step::Refuse { reply, status: failure.status, reason: failure.reason }
    }

    fn close(&mut self, error: WireError) -> Step {
        self.state = LoginState::Over;
        Step::Close(error)
    }

    /// A header that continues the present stage; it consumes a StatSN.
    fn header(&mut self, status: LoginStatus) -> LoginResponse {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        let none = Fixed { task_tag: 0, isid: [0; 6], tsih: 0, cid: 0 };
        let fixed = self.fixed.unwrap_or(none);
        let window = self.config.command_window.wrapping_sub(1);
        LoginResponse {
            stage: self.stage,
            isid: fixed.isid,
            tsih: fixed.tsih,
            task_tag: fixed.task_tag,
            sn: Numbers {
                stat_sn,
                exp_cmd_sn: self.cmd_sn,
                max_cmd_sn: self.cmd_sn.wrapping_add(window),
            },
            status,
            ..LoginResponse::default()
        }
    }
}

fn seal(mut header: LoginResponse, text: Vec<u8>) -> LoginReply {
    header.data_len = u32::try_from(text.len()).unwrap_or(0);
    LoginReply { header, text }
}

fn session_type(value: &str) -> Result<SessionType, Failure> {
    match value {
        "Normal" => Ok(SessionType::Normal),
        "Discovery" => Ok(SessionType::Discovery),
        _ => {
            let status = LoginStatus::SessionTypeNotSupported;
            Err(Failure::new(status, status.reason()))
        }
    }
}

/// Reads the identifying keys from the first whole text.
fn identify(pairs: &[(&str, &str)], request: &LoginRequest) -> Result<TargetQuery, Failure> {
    no_duplicates(pairs)?;
    let missing = |what| Failure::new(LoginStatus::MissingParameter, what);
    let session = value_of(pairs, "SessionType").map_or(Ok(SessionType::Normal), session_type)?;
    let initiator = value_of(pairs, "InitiatorName").ok_or(missing("InitiatorName is missing"))?;
    let target = match (value_of(pairs, "TargetName"), session) {
        (Some(name), SessionType::Normal) => Some(normalise_name(name)?),
        (None, SessionType::Normal) => return Err(missing("TargetName is missing")),
        (_, SessionType::Discovery) => None,
    };
    Ok(TargetQuery {
        session,
        initiator: normalise_name(initiator)?,
        initiator_alias: value_of(pairs, "InitiatorAlias").map(str::to_owned),
        target,
        isid: request.isid,
        tsih: request.tsih,
        cid: request.cid,
    })
}

#[cfg(test)]
#[path = "login_tests.rs"]
mod tests;
