//! The target's part of the security stage: method, algorithm, response.
//!
//! ```text
//!   Method --AuthMethod=None--------------------------------------------> Done
//!     |  AuthMethod=CHAP            CHAP_A                 CHAP_N, CHAP_R   ^
//!     +-----------------> Algorithm ------> Response ----------------------+
//! ```
//!
//! Invariants
//!  S1  Done is reached only after the authentication that the policy requires.
//!  S2  A key out of its turn ends the login; nothing is answered twice.
//!  S3  A wrong secret and an unknown name take the same path to the same status.

use super::chap::{self, Algorithm, Algorithms, Challenge, ChapUser};
use super::keys::{Rule, key_spec};
use super::number::encode_hex;
use super::status::LoginStatus;
use super::text::TextBuilder;
use crate::error::WireError;

/// The authentication that a target requires of an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nothing.
    None,
    Chap {
        /// The accounts that may log in. Names should differ; the first match counts. If the list
        /// is empty, authentication is required and every login fails.
        accounts: Vec<ChapAccount>,
    },
}

/// An account that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapAccount {
    /// The initiator's credentials.
    pub user: ChapUser,
    /// This side's credentials when that initiator requests mutual authentication; None refuses the
    /// request.
    pub mutual: Option<ChapUser>,
}

/// Why a login ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: LoginStatus,
    pub reason: &'static str,
}

impl Failure {
    pub(crate) const fn new(status: LoginStatus, reason: &'static str) -> Failure {
        Failure { status, reason }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Failure {
        Failure::new(LoginStatus::InitiatorError, reason)
    }

    const fn auth(reason: &'static str) -> Failure {
        Failure::new(LoginStatus::AuthenticationFailure, reason)
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Failure {
        Failure::protocol(error.field)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecurityState {
    Method,
    Algorithm,
    Response(Algorithm),
    Done,
}

/// State of the security stage of one login.
#[derive(Clone)]
pub(crate) struct Security {
    auth: Auth,
    algorithms: Algorithms,
    challenge: Challenge,
    state: SecurityState,
    /// The name that proved itself; None until then, and without CHAP.
    pub user: Option<String>,
}

impl Security {
    pub(crate) fn new(auth: Auth, algorithms: Algorithms, challenge: Challenge) -> Security {
        Security { auth, algorithms, challenge, state: SecurityState::Method, user: None }
    }

    /// Whether the operational stage may begin without a security stage.
    pub(crate) fn optional(&self) -> bool {
        self.auth == Auth::None
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == SecurityState::Done
    }

    /// Takes the security keys of one whole text and writes the answers.
    pub(crate) fn step(
        &mut self,
        pairs: &[(&str, &str)],
        out: &mut TextBuilder,
    ) -> Result<(), Failure> {
        let expected: &[&str] = match self.state {
            SecurityState::Method => &["AuthMethod"],
            SecurityState::Algorithm => &["CHAP_A"],
            SecurityState::Response(_) => &["CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"],
            SecurityState::Done => &[],
        };
        if pairs.iter().any(|(key, _)| !expected.contains(key)) {
            return Err(Failure::protocol("security keys out of order"));
        }
        match self.state {
            SecurityState::Method => self.method(value_of(pairs, "AuthMethod"), out),
            SecurityState::Algorithm => self.algorithm(value_of(pairs, "CHAP_A"), out),
            SecurityState::Response(algorithm) => self.response(algorithm, pairs, out),
            SecurityState::Done => Ok(()),
        }
    }

    fn method(&mut self, offered: Option<&str>, out: &mut TextBuilder) -> Result<(), Failure> {
        let Some(list) = offered else {
            if !self.optional() {
                return Err(Failure::auth("the target requires CHAP, AuthMethod is missing"));
            }
            self.state = SecurityState::Done;
            return Ok(());
        };
        let has = |name: &str| list.split(',').any(|item| item == name);
        match self.auth {
            Auth::None if has("None") => {
                out.push("AuthMethod", "None")?;
                self.state = SecurityState::Done;
                Ok(())
            }
            Auth::None => Err(Failure::auth("the target has no CHAP, None is not offered")),
            Auth::Chap { .. } if has("CHAP") => {
                out.push("AuthMethod", "CHAP")?;
                self.state = SecurityState::Algorithm;
                Ok(())
            }
            Auth::Chap { .. } => Err(Failure::auth("the target requires CHAP, it is not offered")),
        }
    }

    fn algorithm(&mut self, list: Option<&str>, out: &mut TextBuilder) -> Result<(), Failure> {
        let list = list.ok_or(Failure::protocol("CHAP_A is missing"))?;
        let algorithm =
            self.algorithms.first_of(list).ok_or(Failure::auth("no CHAP algorithm in common"))?;
        out.push_number("CHAP_A", u64::from(algorithm as u8))?;
        out.push_number("CHAP_I", u64::from(self.challenge.id))?;
        out.push("CHAP_C", &encode_hex(&self.challenge.bytes))?;
        self.state = SecurityState::Response(algorithm);
        Ok(())
    }

    fn response(
        &mut self,
        algorithm: Algorithm,
        pairs: &[(&str, &str)],
        out: &mut TextBuilder,
    ) -> Result<(), Failure> {
        let Auth::Chap { accounts } = &self.auth else {
            return Err(Failure::protocol("CHAP was not chosen"));
        };
        let name = value_of(pairs, "CHAP_N").ok_or(Failure::protocol("CHAP_N is missing"))?;
        let proof = value_of(pairs, "CHAP_R").ok_or(Failure::protocol("CHAP_R is missing"))?;
        let proof = chap::parse_response(proof, algorithm)?;
        // S3: for an unknown name, an empty secret is used, which no account has.
        let account = accounts.iter().find(|account| account.user.name == name);
        let secret = account.map_or(&[][..], |account| &account.user.secret);
        let Challenge { id, bytes } = self.challenge;
        let wanted = chap::response(algorithm, id, secret, &bytes);
        let agrees = chap::equal_constant_time(wanted.bytes(), &proof);
        let Some(ChapAccount { user, mutual }) = account.filter(|_| agrees) else {
            return Err(Failure::auth("unknown CHAP name or wrong secret"));
        };
        let asked = (value_of(pairs, "CHAP_I"), value_of(pairs, "CHAP_C"));
        match asked {
            (None, None) => {}
            (Some(id), Some(challenge)) => {
                let id = chap::parse_id(id)?;
                let challenge = chap::parse_challenge(challenge)?;
                let ours = mutual.as_ref().filter(|ours| ours.secret != user.secret);
                let ours = ours.ok_or(Failure::auth("mutual CHAP is not configured here"))?;
                if challenge == bytes {
                    return Err(Failure::auth("the initiator sent back the target's challenge"));
                }
                let answer = chap::response(algorithm, id, &ours.secret, &challenge);
                out.push("CHAP_N", &ours.name)?;
                out.push("CHAP_R", &encode_hex(answer.bytes()))?;
            }
            _ => return Err(Failure::protocol("CHAP_I and CHAP_C need each other")),
        }
        self.user = Some(user.name.clone());
        self.state = SecurityState::Done;
        Ok(())
    }
}

/// The value of a key in a text without duplicates.
pub(crate) fn value_of<'a>(pairs: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
}

/// Whether a key belongs to the security stage.
pub(crate) fn is_security(name: &str) -> bool {
    key_spec(name).is_some_and(|spec| spec.rule == Rule::Security)
}
