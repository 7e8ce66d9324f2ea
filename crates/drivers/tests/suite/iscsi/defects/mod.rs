//! Defects that other targets had, and input that has broken them, against this one over real
//! sockets. After each attack a well-behaved session that was there before must still be served.
//! Sessions and buffers must have been given back, and refused requests must be in the log.
//!
//! `list` names the test of each defect.

mod commands;
mod data;
mod framing;
mod journal;
mod list;
mod login;
mod moved;
mod tasks;

use std::net::TcpStream;

use drivers::TargetSpec;
use wire::iscsi::{LoginRequest, LoginResponse, PRE_LOGIN, Pdu};

use crate::iscsi::breaking::Witness;
use crate::iscsi::server::{IQN, Server, Shape};
use testkit::iscsi::initiator::{Client, LoginOptions, connect, read_pdu};

/// Bytes of the pool of a server under attack: few, so that one buffer lost at each attack would
/// soon leave none for the witness.
const POOL_BYTES: usize = 8 << 20;

/// A server under attack, and a session that must not notice.
pub struct Fixture {
    pub server: Server,
    witness: Witness,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(TargetSpec::default())
    }

    pub fn with(spec: TargetSpec) -> Fixture {
        let server = Server::start(Shape { pool_bytes: POOL_BYTES, spec, ..Shape::default() });
        let witness = Witness::new(&server);
        Fixture { server, witness }
    }

    /// Another session, its units ready.
    pub fn client(&self) -> Client {
        self.client_as(&LoginOptions::default())
    }

    pub fn client_as(&self, how: &LoginOptions) -> Client {
        let mut c = Client::login(self.server.portal, how);
        (0..2).for_each(|lun| c.ready(lun));
        c
    }

    pub fn dial(&self) -> Raw {
        Raw { stream: connect(self.server.portal), isid: 9, task_tag: 1 }
    }

    /// The witness receives the unit attention that a reset of its units left.
    pub fn quiet(&mut self) {
        self.witness.ready();
    }

    /// The witness is served, and no other session is left.
    pub fn well(&mut self, after: &str) {
        self.witness.check(after);
        testkit::until(&format!("no session is left after {after}"), || {
            self.server.registry.sessions().len() <= 1
        });
        self.witness.check(after);
    }
}

/// A connection before its login.
pub struct Raw {
    pub stream: TcpStream,
    pub isid: u8,
    pub task_tag: u32,
}

/// The result of a login request: the answer and its text, or the end of the connection.
pub type LoginResult = Option<(LoginResponse, String)>;

impl Raw {
    /// Sends a login request made by hand: `flags` are T, C, CSG and NSG as on the wire.
    pub fn send(&mut self, flags: u8, text: &[u8]) -> bool {
        let request = LoginRequest {
            isid: [0x80, 0, 0, 0, 0, self.isid],
            task_tag: self.task_tag,
            data_len: text.len() as u32,
            ..LoginRequest::default()
        };
        self.send_as(&request, flags, text)
    }

    pub fn send_as(&mut self, request: &LoginRequest, flags: u8, text: &[u8]) -> bool {
        let mut bhs = [0; 48];
        request.encode(&mut bhs);
        bhs[1] = flags;
        let mut bytes = bhs.to_vec();
        bytes.extend(text);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        std::io::Write::write_all(&mut self.stream, &bytes).is_ok()
    }

    pub fn receive(&mut self) -> LoginResult {
        let (bhs, data) = read_pdu(&mut self.stream, &PRE_LOGIN)?;
        let response = LoginResponse::decode(&bhs).unwrap();
        Some((response, String::from_utf8(data).unwrap()))
    }

    /// Sends a request and returns the answer; spaces in `text` mean NULs.
    pub fn ask(&mut self, flags: u8, text: &str) -> LoginResult {
        let mut bytes = text.replace(' ', "\0").into_bytes();
        if !bytes.is_empty() {
            bytes.push(0);
        }
        self.send(flags, &bytes);
        self.receive()
    }

    /// The status of the answer; the connection must not end without one.
    pub fn status(&mut self, flags: u8, text: &str) -> u16 {
        self.ask(flags, text).unwrap_or_else(|| panic!("no answer to {text}")).0.status.code()
    }

    pub fn is_closed(&mut self) -> bool {
        read_pdu(&mut self.stream, &PRE_LOGIN).is_none()
    }
}

/// Names of a good first request; spaces mean NULs.
pub fn login_keys() -> String {
    format!("InitiatorName=iqn.2026-11.test.ashlar:raw TargetName={IQN}")
}
