//! Discovery: the targets that a portal knows, and their portals (SendTargets, RFC 7143 appendix
//! C). It uses a session of its own, which ends with the answer.

use std::net::SocketAddr;
use std::rc::Rc;

use bio::{Pool, Seg};
use geom::{Core, deadline};
use reactor::Stream;
use wire::iscsi::{
    BHS_LEN, Bhs, CHALLENGE_LEN, Challenge, ClientChap, ClientConfig, ClientLogin, ClientStep,
    Connected, DigestPolicy, Framer, Need, Numbers, Offer, PRE_LOGIN, Pdu, SessionParams, TAG_NONE,
    TextBuilder, TextInput, TextRequest, TextResponse, opcode, opcode_of, pairs,
};

use super::engine::{Chap, Fault};

/// How long a portal may take for all of it, ns.
const DISCOVERY_DEADLINE_NS: u64 = 8_000_000_000;
/// The port of portals that name none.
const PORT: u16 = 3260;
/// Parts in which an answer may arrive; one more ends it. Each text is bounded too.
const PARTS_MAX: u32 = 256;
/// Most targets in an answer.
const TARGETS_MAX: usize = 4096;
/// Most portals of one of them.
const PORTALS_MAX: usize = 256;
/// Largest data segment that is taken, bytes.
const SEGMENT_MAX: u32 = 8192;
/// Memory for received data: a whole PDU, and more.
const BUFFER_BYTES: usize = 16 << 10;
/// Tag of the question.
const TAG: u32 = 1;

/// A target that a portal has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiscoveredTarget {
    /// Its name.
    pub name: String,
    /// Address and portal group tag.
    pub portals: Vec<(String, u16)>,
}

pub(crate) struct DiscoveryInitiator {
    initiator: String,
    chap: Option<Chap>,
}

impl DiscoveryInitiator {
    /// By name, and with a proof where user and secret are given: a reference as in `[[bus]]`.
    pub(crate) fn new(
        initiator: &str,
        proof: Option<(&str, &str)>,
    ) -> Result<DiscoveryInitiator, String> {
        let name = wire::iscsi::normalise_name(initiator)
            .map_err(|_| format!("initiator: `{initiator}` is no iSCSI name"))?;
        let chap =
            proof.map(|(user, secret)| super::kind::one_way_chap(user, secret)).transpose()?;
        Ok(DiscoveryInitiator { initiator: name, chap })
    }
}

/// The conversation, without I/O.
struct DiscoverySession {
    stage: Stage,
    framer: Framer,
    /// Numbers of the next PDU.
    cmd_sn: u32,
    exp_stat_sn: u32,
    text: TextInput,
    parts: u32,
    found: Option<Vec<DiscoveredTarget>>,
}

enum Stage {
    Login(Box<ClientLogin>),
    Requested,
}

impl DiscoverySession {
    /// Begins; returns the first PDU to send.
    fn start(
        asker: &DiscoveryInitiator,
        challenge: Challenge,
        drawn: u64,
    ) -> Result<(DiscoverySession, Vec<u8>), Fault> {
        let chap = asker.chap.as_ref().map(|chap| ClientChap {
            user: chap.user.clone(),
            algorithms: chap.algorithms,
            mutual: chap.mutual.clone().map(|user| (user, challenge)),
        });
        // Without digests: all that is moved is names.
        let params = SessionParams { recv_data_len_max: SEGMENT_MAX, ..SessionParams::default() };
        let offer = Offer {
            header_digest: DigestPolicy::Off,
            data_digest: DigestPolicy::Off,
            params,
            ..Offer::default()
        };
        // A random ISID, from a range that no authority assigns: it ends no session of ours.
        let [a, b, c, d, e, ..] = drawn.to_be_bytes();
        let config = ClientConfig {
            initiator: asker.initiator.clone(),
            target: None,
            isid: [0x80, a, b, c, d, e],
            cid: 0,
            cmd_sn: 1,
            offer,
            chap,
        };
        let (login, first) = ClientLogin::start(config).map_err(Fault::Login)?;
        let talk = DiscoverySession {
            stage: Stage::Login(Box::new(login)),
            framer: PRE_LOGIN,
            cmd_sn: 1,
            exp_stat_sn: 0,
            text: TextInput::default(),
            parts: 0,
            found: None,
        };
        Ok((talk, first.to_bytes()))
    }

    /// Takes whole PDUs from the front of the received data; returns their length in bytes.
    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Fault> {
        let mut at = 0;
        while self.found.is_none() {
            let rest = bytes.get(at..).unwrap_or(&[]);
            let Need::Header(frame) = self.framer.header(rest)? else { break };
            let Some(tail) = rest.get(frame.header_len..frame.total_len()) else { break };
            let Some(bhs) = rest.first_chunk::<BHS_LEN>() else { break };
            let data = self.framer.data(&frame, tail)?;
            self.pdu(bhs, data, out)?;
            at += frame.total_len();
        }
        Ok(at)
    }

    fn pdu(&mut self, bhs: &Bhs, data: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        match &mut self.stage {
            Stage::Login(login) => match login.response(bhs, data).map_err(Fault::Login)? {
                ClientStep::Send(next) => out.extend(next.to_bytes()),
                ClientStep::Done(connected) => return self.request_targets(&connected, out),
            },
            Stage::Requested if opcode_of(bhs) == opcode::TEXT_RESPONSE => {
                return self.answer(&TextResponse::decode(bhs)?, data, out);
            }
            // A ping that wants no answer may arrive at any time.
            Stage::Requested if opcode_of(bhs) == opcode::NOP_IN => {}
            Stage::Requested => {
                return Err(Fault::Protocol("the portal's answer does not match the request"));
            }
        }
        Ok(())
    }

    fn request_targets(&mut self, connected: &Connected, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.framer = Framer { data_len_max: SEGMENT_MAX, ..PRE_LOGIN };
        (self.cmd_sn, self.exp_stat_sn) = (connected.cmd_sn, connected.exp_stat_sn);
        self.stage = Stage::Requested;
        let mut text = TextBuilder::new();
        text.push("SendTargets", "All")?;
        self.send_text(TAG_NONE, &text.into_bytes(), out);
        Ok(())
    }

    fn send_text(&mut self, target_tag: u32, text: &[u8], out: &mut Vec<u8>) {
        let request = TextRequest {
            last: true,
            task_tag: TAG,
            target_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_len: text.len() as u32,
            ..TextRequest::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let mut head = [0; BHS_LEN];
        request.encode(&mut head);
        out.extend(head);
        out.extend(text);
        out.resize(out.len().next_multiple_of(4), 0);
    }

    fn answer(&mut self, head: &TextResponse, data: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let Numbers { stat_sn, .. } = head.sn;
        if head.task_tag != TAG || stat_sn != self.exp_stat_sn {
            return Err(Fault::Protocol("the portal sent an answer without a request"));
        }
        self.exp_stat_sn = stat_sn.wrapping_add(1);
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(Fault::Protocol("the portal's answer does not end"));
        }
        match self.text.append(data, !head.last)? {
            Some(text) => self.found = Some(targets(&text)?),
            None if head.target_tag == TAG_NONE => {
                return Err(Fault::Protocol(
                    "the portal's answer is incomplete, without a tag for \
                                            the rest",
                ));
            }
            None => self.send_text(head.target_tag, &[], out),
        }
        Ok(())
    }
}

/// Parses a whole answer. Addresses belong to the name before them.
fn targets(text: &[u8]) -> Result<Vec<DiscoveredTarget>, Fault> {
    let mut found: Vec<DiscoveredTarget> = Vec::new();
    for (key, value) in pairs(text)? {
        let count = found.len();
        match (key, found.last_mut()) {
            ("TargetName", _) if count == TARGETS_MAX => {
                return Err(Fault::Protocol("the portal lists too many targets"));
            }
            ("TargetName", _) => {
                // Names are printed, and typed again.
                let name = wire::iscsi::normalise_name(value)?;
                found.push(DiscoveredTarget { name, portals: Vec::new() });
            }
            ("TargetAddress", Some(target)) if target.portals.len() < PORTALS_MAX => {
                target.portals.push(address(value));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// `host[:port][,tag]`, as RFC 7143 section 13.8 has it.
pub(super) fn address(value: &str) -> (String, u16) {
    let (place, tag) = match value.rsplit_once(',') {
        Some((place, tag)) => (place, tag.parse().unwrap_or(0)),
        None => (value, 0),
    };
    let behind = place.rsplit_once(']').map_or(place, |(_, behind)| behind);
    match behind.contains(':') {
        true => (place.to_owned(), tag),
        false => (format!("{place}:{PORT}"), tag),
    }
}

/// Queries a portal; an error has the reason why it failed.
pub(crate) async fn discover_targets(
    core: &Rc<Core>,
    at: SocketAddr,
    asker: DiscoveryInitiator,
) -> Result<Vec<DiscoveredTarget>, String> {
    match deadline(core, DISCOVERY_DEADLINE_NS, run_session(core, at, &asker)).await {
        Some(done) => done.map_err(|fault| fault.to_string()),
        None => Err("the portal does not answer".into()),
    }
}

async fn run_session(
    core: &Rc<Core>,
    at: SocketAddr,
    asker: &DiscoveryInitiator,
) -> Result<Vec<DiscoveredTarget>, Fault> {
    let lost = |e: std::io::Error| Fault::Connection(e.to_string());
    let stream = core.reactor().connect(at).await.map_err(lost)?;
    let mut challenge = Challenge { id: 0, bytes: [0; CHALLENGE_LEN] };
    core.reactor().fill_random(&mut challenge.bytes);
    challenge.id = core.reactor().random() as u8;
    let (mut talk, mut out) = DiscoverySession::start(asker, challenge, core.reactor().random())?;
    let into = memory(core.pool(), BUFFER_BYTES)?;
    let mut end = 0;
    loop {
        send(core, &stream, &mut out).await?;
        let tail = into.slice(end, into.len() - end).filter(|tail| !tail.is_empty());
        let Some(tail) = tail else { return Err(Fault::Protocol("a PDU without an end")) };
        match stream.recv(&tail).await.map_err(lost)? {
            0 => return Err(Fault::Connection("the portal closed the connection".into())),
            n => end += n,
        }
        drop(tail);
        let taken = into.with(|bytes| talk.receive(bytes.get(..end).unwrap_or(&[]), &mut out))?;
        if let Some(found) = talk.found.take() {
            // Nothing is under way: the end of the connection ends the session.
            stream.close();
            return Ok(found);
        }
        into.with_mut(|bytes| bytes.copy_within(taken..end, 0));
        end -= taken;
    }
}

fn memory(pool: &Pool, bytes: usize) -> Result<Seg, Fault> {
    let seg = pool.get(bytes).and_then(|buf| buf.seg(0, bytes));
    seg.ok_or(Fault::Protocol("there is no memory for a connection"))
}

async fn send(core: &Rc<Core>, stream: &Stream, out: &mut Vec<u8>) -> Result<(), Fault> {
    let lost = |e: std::io::Error| Fault::Connection(e.to_string());
    for part in out.chunks(BUFFER_BYTES) {
        let seg = memory(core.pool(), part.len())?;
        seg.copy_from(0, part);
        stream.send(&mut vec![seg]).await.map_err(lost)?;
    }
    out.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_addresses_are_parsed_with_default_port_and_group_tag() {
        for (text, place, tag) in [
            ("10.0.0.1:3261,7", "10.0.0.1:3261", 7),
            ("10.0.0.1,2", "10.0.0.1:3260", 2),
            ("[fe80::1]:3260,1", "[fe80::1]:3260", 1),
            ("[fe80::1],1", "[fe80::1]:3260", 1),
            ("san.example.org", "san.example.org:3260", 0),
        ] {
            assert_eq!(address(text), (place.to_owned(), tag), "{text}");
        }
    }

    #[test]
    fn target_addresses_belong_to_the_preceding_target_name() {
        let text = b"TargetAddress=1.1.1.1:1,1\0TargetName=iqn.2026-01.a:b\0\
            TargetAddress=10.0.0.1:3260,1\0\
            TargetAddress=10.0.1.1:3260,2\0TargetName=iqn.2026-01.a:c\0";
        let found = targets(text).unwrap();
        let (b, c) = (found.first().unwrap(), found.get(1).unwrap());
        assert_eq!((b.name.as_str(), b.portals.len()), ("iqn.2026-01.a:b", 2));
        assert_eq!((c.name.as_str(), c.portals.len()), ("iqn.2026-01.a:c", 0));
        assert!(targets(b"TargetName=no name\0").is_err());
        assert!(targets(b"TargetName=iqn.2026-01.a:b").is_err(), "it was cut");
    }

    /// Answers of a target to one question, PDU by PDU.
    fn talk(parts: &[(&[u8], bool, u32, u32)]) -> Result<Option<Vec<DiscoveredTarget>>, Fault> {
        let asker = DiscoveryInitiator::new("iqn.2026-01.a:us", None).unwrap();
        let challenge = Challenge { id: 1, bytes: [1; CHALLENGE_LEN] };
        let (mut talk, _) = DiscoverySession::start(&asker, challenge, 1)?;
        let mut out = Vec::new();
        talk.request_targets(&Connected::default(), &mut out)?;
        for &(text, last, target_tag, stat_sn) in parts {
            let sn = Numbers { stat_sn, ..Numbers::default() };
            let head = TextResponse {
                last,
                more: !last,
                task_tag: TAG,
                target_tag,
                sn,
                data_len: text.len() as u32,
                ..TextResponse::default()
            };
            let mut bytes = vec![0; BHS_LEN];
            head.encode(bytes.first_chunk_mut().unwrap());
            bytes.extend(text);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            assert_eq!(talk.receive(&bytes, &mut out)?, bytes.len());
        }
        Ok(talk.found)
    }

    #[test]
    fn text_answers_in_parts_are_joined_and_endless_ones_are_refused() {
        let (a, b): (&[u8], &[u8]) = (b"TargetName=iqn.20", b"26-01.a:b\0");
        let found = talk(&[(a, false, 5, 0), (b, true, TAG_NONE, 1)]).unwrap().unwrap();
        assert_eq!(found.first().unwrap().name, "iqn.2026-01.a:b");
        assert_eq!(talk(&[(a, false, 5, 0)]), Ok(None));
        assert!(talk(&[(a, false, TAG_NONE, 0)]).is_err(), "it says not where it goes on");
        assert!(talk(&[(a, false, 5, 0), (b, true, TAG_NONE, 0)]).is_err(), "the same number");
        let many: Vec<_> = (0..=PARTS_MAX).map(|n| (b"a=b\0".as_slice(), false, 5, n)).collect();
        assert!(talk(&many).is_err(), "it does not end");
    }
}
