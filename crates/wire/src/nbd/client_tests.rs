//! The client's handshake against the server's, and against servers that misbehave.

use super::*;
use crate::nbd::{Export, Exports, Handshake, Settings, Step, Tls, Unavailable, codes};

#[test]
fn client_reads_block_sizes_and_refuses_invalid_ones() {
    let mut dial = ClientHandshake::new("", false);
    let sizes = |min: u32, preferred: u32, max: u32| {
        let mut payload = codes::info::BLOCK_SIZE.to_be_bytes().to_vec();
        [min, preferred, max].iter().for_each(|n| payload.extend(n.to_be_bytes()));
        payload
    };
    assert!(dial.learn(&sizes(512, 4096, 1 << 25)).is_ok());
    assert_eq!(dial.blocks.unwrap().preferred, 4096);
    for bad in [(0, 4096, 1 << 20), (3, 4096, 1 << 20), (4096, 512, 1 << 20), (512, 512, 1)] {
        assert!(dial.learn(&sizes(bad.0, bad.1, bad.2)).is_err(), "{bad:?}");
    }
}

struct SingleExport;

impl Exports for SingleExport {
    fn list(&mut self) -> Option<Vec<crate::nbd::Listed>> {
        None
    }

    fn find(&mut self, name: &str, _: bool) -> Result<Export, Unavailable> {
        match name {
            "one" => Ok(Export {
                name: name.to_owned(),
                description: String::new(),
                size: 1 << 30,
                flags: export_flag::HAS_FLAGS | export_flag::SEND_FLUSH,
                block_sizes: [512, 4096, 1 << 25],
                unaligned: false,
            }),
            _ => Err(Unavailable::Unknown("none".to_owned())),
        }
    }
}

/// Bytes to and fro, `cut` at a time, until the client knows.
fn shake(export: &str, tls: bool, server: Tls, cut: usize) -> Result<(Progress, bool), Refusal> {
    let mut to_client = Vec::new();
    let mut handshake = Handshake::new(Settings { tls: server }, &mut to_client);
    let (mut dial, mut to_server) = (ClientHandshake::new(export, tls), Vec::new());
    let mut fresh: Vec<u8> = Vec::new();
    let mut was_secure = false;
    for _ in 0..10_000 {
        let n = cut.min(to_client.len());
        fresh.extend(to_client.drain(..n));
        let (used, progress) = dial.input(&fresh, &mut to_server)?;
        fresh.drain(..used);
        match progress {
            Progress::Ready(_) => return Ok((progress, was_secure)),
            Progress::StartTls => {
                was_secure = true;
                handshake.secured();
                dial.secured(&mut to_server);
            }
            Progress::More => {}
        }
        let sent = std::mem::take(&mut to_server);
        let mut at = 0;
        while at < sent.len() {
            let (used, step) =
                handshake.input(&sent[at..], &mut SingleExport, &mut to_client).expect("a server");
            at += used;
            if matches!(step, Step::Transmit(_)) || used == 0 {
                break;
            }
        }
    }
    panic!("no end");
}

#[test]
fn client_agrees_with_the_server_at_any_segmentation() {
    for cut in [1, 2, 7, 20, 1000] {
        let (progress, secure) = shake("one", false, Tls::Off, cut).unwrap();
        let Progress::Ready(terms) = progress else { unreachable!() };
        assert_eq!((terms.size, terms.form, secure), (1 << 30, Form::Extended, false));
        assert_eq!(terms.allocation, Some(codes::ALLOCATION_ID));
        assert_eq!(terms.blocks.unwrap().preferred, 4096);
        let (_, secure) = shake("one", true, Tls::Require, cut).unwrap();
        assert!(secure);
    }
}

/// C3 of nbd/client.rs.
#[test]
fn refused_handshake_reports_its_reason() {
    assert_eq!(shake("two", false, Tls::Off, 9), Err(Refusal::NoExport));
    assert_eq!(shake("one", true, Tls::Off, 9), Err(Refusal::NoTls));
    assert_eq!(shake("one", false, Tls::Require, 9), Err(Refusal::TlsRequired));
    let mut old = codes::MAGIC.to_be_bytes().to_vec();
    old.extend(0x0000_4202_8186_1253u64.to_be_bytes());
    old.extend([0; 136]);
    let refused = ClientHandshake::new("", false).input(&old, &mut Vec::new());
    assert_eq!(refused, Err(Refusal::OldStyle));
}

fn greeting(flags: u16) -> Vec<u8> {
    let mut out = codes::MAGIC.to_be_bytes().to_vec();
    out.extend(codes::OPTION_MAGIC.to_be_bytes());
    out.extend(flags.to_be_bytes());
    out
}

#[test]
fn server_without_options_is_asked_with_export_name() {
    let (mut dial, mut out) = (ClientHandshake::new("x", false), Vec::new());
    let (used, _) = dial.input(&greeting(0), &mut out).unwrap();
    assert_eq!((used, &out[12..]), (18, &[0, 0, 0, 1, 0, 0, 0, 1, b'x'][..]));
    let mut reply = 4096u64.to_be_bytes().to_vec();
    reply.extend(0u16.to_be_bytes());
    reply.extend([0; PADDING_LEN]);
    assert_eq!(dial.input(&reply[..100], &mut out).unwrap(), (0, Progress::More));
    let (used, progress) = dial.input(&reply, &mut out).unwrap();
    assert_eq!(used, reply.len());
    assert!(matches!(progress, Progress::Ready(Terms { size: 4096, flags: 0, .. })));
}

#[test]
fn c1_plaintext_after_starttls_ends_the_connection() {
    let (mut dial, mut out) = (ClientHandshake::new("x", true), Vec::new());
    dial.input(&greeting(3), &mut out).unwrap();
    let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for word in [option::STARTTLS, rep::ACK, 0] {
        reply.extend(word.to_be_bytes());
    }
    reply.push(0);
    assert!(dial.input(&reply, &mut out).is_err());
}

#[test]
fn c2_oversized_option_reply_is_refused() {
    let (mut dial, mut out) = (ClientHandshake::new("x", false), Vec::new());
    dial.input(&greeting(3), &mut out).unwrap();
    let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for word in [option::EXTENDED_HEADERS, rep::INFO, 1 << 30] {
        reply.extend(word.to_be_bytes());
    }
    assert!(dial.input(&reply, &mut out).is_err());
}
