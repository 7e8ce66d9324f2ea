//! The initiator's side of the login phase, without I/O: for benchmarks, tests and tools.
//!
//! ```text
//!   start --(CHAP)--> Method --> Algorithm --> Response --+
//!     |                                                   v
//!     +--(no CHAP)--------------------------------> Operational --> Done
//! ```

use super::bhs::{BHS_LEN, Bhs};
use super::chap::{self, Algorithms, Challenge, ChapUser};
use super::negotiate::{Negotiation, Offer, SessionParams, Side, no_duplicates};
use super::number::encode_hex;
use super::pdu::Pdu;
use super::request::LoginRequest;
use super::response::LoginResponse;
use super::security::value_of;
use super::status::LoginStatus;
use super::text::{TextBuilder, TextInput, pairs};
use crate::error::WireError;

/// Most responses read in one login; one more ends it.
const RESPONSES_MAX: u32 = 64;

/// How the initiator proves itself, and whether the target must too.
#[derive(Clone)]
pub struct ClientChap {
    /// Name and secret of the initiator.
    pub user: ChapUser,
    /// Algorithms to offer, strongest first.
    pub algorithms: Algorithms,
    /// Name and secret the target must show, and the challenge for it; None requests no proof. The
    /// secret must differ from the initiator's.
    pub mutual: Option<(ChapUser, Challenge)>,
}

/// The initiator's configuration for a login.
#[derive(Clone)]
pub struct ClientConfig {
    pub initiator: String,
    /// TargetName; None requests a discovery session.
    pub target: Option<String>,
    /// Initiator part of the session identifier.
    pub isid: [u8; 6],
    /// Connection identifier.
    pub cid: u16,
    pub cmd_sn: u32,
    /// Wants and limits for the operational stage.
    pub offer: Offer,
    /// None logs in without proof.
    pub chap: Option<ClientChap>,
}

/// A Login Request with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// The header; `data_len` is the text's length.
    pub header: LoginRequest,
    /// The data segment, padding not included.
    pub text: Vec<u8>,
}

impl ClientRequest {
    /// The PDU as it is sent: header, text, padding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = [0; BHS_LEN];
        self.header.encode(&mut head);
        let mut out = head.to_vec();
        out.extend_from_slice(&self.text);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }
}

/// A finished login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// The negotiated parameters.
    pub params: SessionParams,
    /// TSIH of the session.
    pub tsih: u16,
    pub cmd_sn: u32,
    /// Last CmdSN the target accepts for now.
    pub max_cmd_sn: u32,
    pub exp_stat_sn: u32,
    /// TargetPortalGroupTag; None when the target did not send one.
    pub portal_group: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Send this and wait for the response.
    Send(ClientRequest),
    /// Logged in.
    Done(Connected),
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The target's bytes are wrong.
    Wire(WireError),
    /// The target refused, with the address when it redirects.
    Refused(LoginStatus, Option<String>),
    /// The target left the protocol; the text names the place.
    Protocol(&'static str),
    /// The target did not prove its identity.
    TargetNotProven,
}

impl From<WireError> for ClientError {
    fn from(error: WireError) -> ClientError {
        ClientError::Wire(error)
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Wire(error) => write!(f, "login: {error}"),
            ClientError::Refused(status, None) => {
                write!(f, "login refused: {} ({:04x})", status.reason(), status.code())
            }
            ClientError::Refused(status, Some(address)) => {
                write!(f, "login refused: {}: {address}", status.reason())
            }
            ClientError::Protocol(words) => write!(f, "login: {words}"),
            ClientError::TargetNotProven => write!(f, "login: the target did not prove who it is"),
        }
    }
}

impl std::error::Error for ClientError {}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientLoginState {
    Method,
    Algorithm,
    Response,
    Operational,
}

#[derive(Clone)]
pub struct ClientLogin {
    config: ClientConfig,
    state: ClientLoginState,
    responses: u32,
    exp_stat_sn: u32,
    input: TextInput,
    negotiation: Negotiation,
    /// The target's expected response to our challenge; None if it is not challenged.
    wanted: Option<chap::ChapResponse>,
    portal_group: Option<String>,
}

impl ClientLogin {
    /// Starts a login; answers the first request.
    pub fn start(config: ClientConfig) -> Result<(ClientLogin, ClientRequest), ClientError> {
        let discovery = config.target.is_none();
        let turn = if config.chap.is_some() {
            ClientLoginState::Method
        } else {
            ClientLoginState::Operational
        };
        let mut login = ClientLogin {
            negotiation: Negotiation::login(Side::Initiator, discovery, config.offer),
            config,
            state: turn,
            responses: 0,
            exp_stat_sn: 0,
            input: TextInput::default(),
            wanted: None,
            portal_group: None,
        };
        let mut out = TextBuilder::new();
        out.push("InitiatorName", &login.config.initiator)?;
        match &login.config.target {
            Some(target) => {
                out.push("SessionType", "Normal")?;
                out.push("TargetName", target)?;
            }
            None => out.push("SessionType", "Discovery")?,
        }
        if turn == ClientLoginState::Method {
            out.push("AuthMethod", "CHAP")?;
        } else {
            login.offer(&mut out)?;
        }
        let first = login.send(out);
        Ok((login, first))
    }

    fn offer(&mut self, out: &mut TextBuilder) -> Result<(), WireError> {
        self.negotiation.propose(out)?;
        self.negotiation.declare(out)
    }

    fn send(&self, text: TextBuilder) -> ClientRequest {
        let text = text.into_bytes();
        let (stage, next_stage, transit) = match self.state {
            ClientLoginState::Method | ClientLoginState::Algorithm => (0, 0, false),
            ClientLoginState::Response => (0, 1, true),
            ClientLoginState::Operational => (1, 3, true),
        };
        let header = LoginRequest {
            transit,
            stage,
            next_stage,
            isid: self.config.isid,
            task_tag: 0,
            cid: self.config.cid,
            cmd_sn: self.config.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_len: u32::try_from(text.len()).unwrap_or(0),
            ..LoginRequest::default()
        };
        ClientRequest { header, text }
    }

    /// Takes the next response: header and data segment (padding not included).
    pub fn response(&mut self, bhs: &Bhs, data: &[u8]) -> Result<ClientStep, ClientError> {
        let head = LoginResponse::decode(bhs)?;
        self.exp_stat_sn = head.sn.stat_sn.wrapping_add(1);
        self.responses += 1;
        if self.responses > RESPONSES_MAX {
            return Err(ClientError::Protocol("too many login responses"));
        }
        if head.status != LoginStatus::Success {
            let address = pairs(data)
                .ok()
                .and_then(|pairs| value_of(&pairs, "TargetAddress").map(str::to_owned));
            return Err(ClientError::Refused(head.status, address));
        }
        let Some(text) = self.input.append(data, head.more)? else {
            // The target's text continues: an empty request is sent for the rest.
            let mut empty = self.send(TextBuilder::new());
            (empty.header.transit, empty.header.next_stage) = (false, 0);
            return Ok(ClientStep::Send(empty));
        };
        let all = pairs(&text)?;
        no_duplicates(&all)?;
        if let Some(tag) = value_of(&all, "TargetPortalGroupTag") {
            self.portal_group = Some(tag.to_owned());
        }
        match self.state {
            ClientLoginState::Method => self.method(&all),
            ClientLoginState::Algorithm => self.algorithm(&all),
            ClientLoginState::Response => self.proven(&all, &head),
            ClientLoginState::Operational => self.operational(&all, &head),
        }
    }

    fn method(&mut self, pairs: &[(&str, &str)]) -> Result<ClientStep, ClientError> {
        let chap = self.config.chap.as_ref().ok_or(ClientError::Protocol("no CHAP"))?;
        if value_of(pairs, "AuthMethod") != Some("CHAP") {
            return Err(ClientError::Protocol("the target did not choose CHAP"));
        }
        let mut out = TextBuilder::new();
        out.push("CHAP_A", &chap.algorithms.list())?;
        self.state = ClientLoginState::Algorithm;
        Ok(ClientStep::Send(self.send(out)))
    }

    fn algorithm(&mut self, pairs: &[(&str, &str)]) -> Result<ClientStep, ClientError> {
        let chap = self.config.chap.as_ref().ok_or(ClientError::Protocol("no CHAP"))?;
        let get = |key, words| value_of(pairs, key).ok_or(ClientError::Protocol(words));
        let chosen = get("CHAP_A", "CHAP_A is missing")?;
        let algorithm = (!chosen.contains(','))
            .then(|| chap.algorithms.first_of(chosen))
            .flatten()
            .ok_or(ClientError::Protocol("the target chose an algorithm not offered"))?;
        let id = chap::parse_id(get("CHAP_I", "CHAP_I is missing")?)?;
        let challenge = chap::parse_challenge(get("CHAP_C", "CHAP_C is missing")?)?;
        let proof = chap::response(algorithm, id, &chap.user.secret, &challenge);
        let mut out = TextBuilder::new();
        out.push("CHAP_N", &chap.user.name)?;
        out.push("CHAP_R", &encode_hex(proof.bytes()))?;
        if let Some((target, ours)) = &chap.mutual {
            if challenge == ours.bytes || target.secret == chap.user.secret {
                return Err(ClientError::TargetNotProven);
            }
            out.push_number("CHAP_I", u64::from(ours.id))?;
            out.push("CHAP_C", &encode_hex(&ours.bytes))?;
            self.wanted = Some(chap::response(algorithm, ours.id, &target.secret, &ours.bytes));
        }
        self.state = ClientLoginState::Response;
        Ok(ClientStep::Send(self.send(out)))
    }

    fn proven(
        &mut self,
        pairs: &[(&str, &str)],
        head: &LoginResponse,
    ) -> Result<ClientStep, ClientError> {
        let mutual = self.config.chap.as_ref().and_then(|chap| chap.mutual.as_ref());
        if let (Some(wanted), Some((target, _))) = (&self.wanted, mutual) {
            let mut room = [0; 64];
            let proof = value_of(pairs, "CHAP_R").ok_or(ClientError::TargetNotProven)?;
            let proof = super::number::decode_binary(proof, &mut room)?;
            let named = value_of(pairs, "CHAP_N") == Some(target.name.as_str());
            if !chap::equal_constant_time(wanted.bytes(), proof) || !named {
                return Err(ClientError::TargetNotProven);
            }
        }
        if !head.transit || head.next_stage != 1 {
            return Err(ClientError::Protocol("the target stays in the security stage"));
        }
        self.state = ClientLoginState::Operational;
        let mut out = TextBuilder::new();
        self.offer(&mut out)?;
        Ok(ClientStep::Send(self.send(out)))
    }

    fn operational(
        &mut self,
        pairs: &[(&str, &str)],
        head: &LoginResponse,
    ) -> Result<ClientStep, ClientError> {
        let mut keys = pairs.to_vec();
        keys.retain(|(key, _)| !key.starts_with("Target"));
        let mut out = TextBuilder::new();
        self.negotiation.receive(&keys, &mut out)?;
        if !head.transit {
            return Ok(ClientStep::Send(self.send(out)));
        }
        if head.next_stage != 3 || !out.is_empty() || self.negotiation.waiting() {
            return Err(ClientError::Protocol("the target left the operational stage early"));
        }
        Ok(ClientStep::Done(Connected {
            params: self.negotiation.finish()?,
            tsih: head.tsih,
            cmd_sn: self.config.cmd_sn,
            max_cmd_sn: head.sn.max_cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            portal_group: self.portal_group.clone(),
        }))
    }
}
