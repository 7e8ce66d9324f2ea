//! iSCSI (RFC 7143, with the additions of RFC 7144), without I/O.
//!
//! | file | holds |
//! | --- | --- |
//! | `bhs`, `pdu` | constants and the fields every header shares; the trait of typed PDUs |
//! | `command`, `request` | PDUs of the initiator, read and written |
//! | `response`, `notice` | PDUs of the target, read and written |
//! | `ahs` | additional header segments of a SCSI Command |
//! | `framing` | how many bytes the next PDU takes, and its digests |
//! | `text`, `number`, `name` | key=value text, numbers and binary values, iSCSI names |
//! | `keys`, `negotiate` | the table of keys and the rules by which a result is found |
//! | `chap`, `security` | challenge and response; the target's security stage |
//! | `login`, `initiator` | the login phase, seen from the target and from the initiator |
//! | `status` | login status codes |

mod ahs;
mod bhs;
mod chap;
mod command;
mod framing;
mod initiator;
mod keys;
mod login;
mod name;
mod negotiate;
mod notice;
mod number;
mod pdu;
mod request;
mod response;
mod security;
mod status;
mod text;

pub use crate::digest::{Crc32c, crc32c};
pub use ahs::{AHS_LEN_MAX, CDB_LEN_MAX, encode_ahs};
pub use bhs::*;
pub use chap::{
    Algorithm, Algorithms, CHALLENGE_LEN, CHALLENGE_LEN_MAX, Challenge, ChapResponse, ChapUser,
    SECRET_LEN_MIN, equal_constant_time, response as chap_response,
};
pub use command::*;
pub use framing::{Frame, Framer, Need, PRE_LOGIN};
pub use initiator::{
    ClientChap, ClientConfig, ClientError, ClientLogin, ClientRequest, ClientStep, Connected,
};
pub use keys::{KEYS, Key, KeySpec, Phase, Rule, Sender, key_spec};
pub use login::{
    Access, Established, Grant, Login, LoginConfig, LoginReply, SessionType, Step, TargetQuery,
};
pub use name::{NAME_LEN_MAX, fold_pattern, normalise_name};
pub use negotiate::{DigestPolicy, Negotiation, Offer, SessionParams, Side, TaskReporting};
pub use notice::*;
pub use number::{decode_binary, encode_base64, encode_hex, parse_number, parse_range};
pub use pdu::Pdu;
pub use request::*;
pub use response::*;
pub use security::{Auth, ChapAccount};
pub use status::LoginStatus;
pub use text::{
    KEY_LEN_MAX, PAIRS_MAX, TEXT_LEN_MAX, TextBuilder, TextInput, VALUE_LEN_MAX, pairs,
};
