//! Handshakes with all kinds of clients.

use super::*;
use crate::nbd::OptionReply;
use crate::nbd::codes::{export_flag, info, option, rep};
use crate::nbd::dial;
use crate::nbd::option::QUERIES_MAX;

struct TestExports {
    entered: Vec<String>,
    listing: bool,
}

fn shop() -> TestExports {
    TestExports { entered: Vec::new(), listing: true }
}

impl Exports for TestExports {
    fn find(&mut self, name: &str, enter: bool) -> Result<Export, Unavailable> {
        match name {
            "" | "disk" | "other" | "large" | "any" => {
                if enter {
                    self.entered.push(name.to_owned());
                }
                Ok(Export {
                    name: "disk".into(),
                    description: "a disk".into(),
                    size: 1 << 40,
                    flags: export_flag::SEND_FLUSH,
                    block_sizes: [
                        if matches!(name, "large" | "any") { 4096 } else { 512 },
                        4096,
                        32 << 20,
                    ],
                    unaligned: name == "any",
                })
            }
            "secret" => Err(Unavailable::Denied("not for you".into())),
            "late" => Err(Unavailable::Ending("ending".into())),
            _ => Err(Unavailable::Unknown("no such export".into())),
        }
    }

    fn list(&mut self) -> Option<Vec<Listed>> {
        let one = Listed { name: "disk".into(), description: "a disk".into() };
        self.listing.then(|| vec![one])
    }
}

struct Client {
    server: Handshake,
    shop: TestExports,
    out: Vec<u8>,
}

fn client(tls: Tls) -> Client {
    let mut out = Vec::new();
    let server = Handshake::new(Settings { tls }, &mut out);
    assert_eq!(dial::greeting(&out), Ok(3));
    let mut c = Client { server, shop: shop(), out: Vec::new() };
    assert_eq!(c.send(&dial::flags()), Ok(Step::More));
    c
}

type Replies = Vec<(u32, Vec<u8>)>;

impl Client {
    /// The last step that the bytes lead to; all of them are used.
    fn send(&mut self, mut bytes: &[u8]) -> Result<Step, Hangup> {
        loop {
            let (used, step) = self.server.input(bytes, &mut self.shop, &mut self.out)?;
            bytes = &bytes[used..];
            if bytes.is_empty() {
                return Ok(step);
            }
        }
    }

    fn replies(&mut self) -> Replies {
        let (all, mut out) = (std::mem::take(&mut self.out), Vec::new());
        let mut rest = &all[..];
        while !rest.is_empty() {
            let (reply, used) = OptionReply::decode(rest).unwrap();
            out.push((reply.kind, reply.payload.to_vec()));
            rest = &rest[used..];
        }
        out
    }

    fn ask(&mut self, option: u32, payload: &[u8]) -> (Step, Replies) {
        let step = self.send(&dial::option(option, payload)).unwrap();
        (step, self.replies())
    }

    /// Types of the replies to an option.
    fn kinds(&mut self, option: u32, payload: &[u8]) -> Vec<u32> {
        self.ask(option, payload).1.into_iter().map(|(kind, _)| kind).collect()
    }
}

fn agreed(step: Step) -> Agreed {
    let Step::Transmit(agreed) = step else { panic!("{step:?}") };
    *agreed
}

#[test]
fn go_returns_size_flags_and_block_sizes() {
    let mut c = client(Tls::Off);
    let wants = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, 77];
    for option in [option::INFO, option::GO] {
        let (step, replies) = c.ask(option, &dial::info("", &wants));
        let export = [&[0, 0][..], &(1u64 << 40).to_be_bytes(), &[0, 5]].concat();
        assert_eq!(replies[0], (rep::INFO, export));
        assert_eq!(replies[1].1, b"\0\x01disk");
        assert_eq!(replies[2].1, b"\0\x02a disk");
        assert_eq!(replies[3].1, [0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]);
        assert_eq!(replies[4], (rep::ACK, vec![]));
        if option == option::GO {
            let agreed = agreed(step);
            assert_eq!((agreed.name.as_str(), agreed.form), ("", Form::Simple));
        }
    }
    assert_eq!(c.shop.entered, [""], "INFO enters nothing");
    assert!(c.send(&[0]).is_err(), "the handshake is over");
}

/// H5 of nbd/handshake.rs.
#[test]
fn large_blocks_require_that_the_client_asks_for_block_sizes() {
    let sizes = [0, 3, 0, 0, 16, 0, 0, 0, 16, 0, 2, 0, 0, 0].to_vec();
    let mut c = client(Tls::Off);
    for option in [option::INFO, option::GO] {
        let (step, replies) = c.ask(option, &dial::info("large", &[]));
        assert_eq!((step, replies[0].clone()), (Step::Answered, (rep::INFO, sizes.clone())));
        assert_eq!(replies[1].0, rep::ERR_BLOCK_SIZE_REQD);
        assert!(String::from_utf8_lossy(&replies[1].1).contains("unaligned = true"));
    }
    let end = c.send(&dial::option(option::EXPORT_NAME, b"large")).unwrap_err();
    assert!(end.why.contains("4096 bytes") && end.name.as_deref() == Some("large"), "{end:?}");
    assert_eq!(c.shop.entered, [""; 0]);

    // INFO counts as a request, for its export.
    let mut c = client(Tls::Off);
    assert_eq!(c.kinds(option::INFO, &dial::info("disk", &[info::BLOCK_SIZE])).last(), ACK);
    let refused = c.kinds(option::GO, &dial::info("large", &[]));
    assert_eq!(refused.last(), Some(&rep::ERR_BLOCK_SIZE_REQD));
    assert_eq!(c.kinds(option::INFO, &dial::info("large", &[info::BLOCK_SIZE])).last(), ACK);
    let (step, _) = c.ask(option::GO, &dial::info("large", &[]));
    assert!(agreed(step).sizes);
}

const ACK: Option<&u32> = Some(&rep::ACK);

#[test]
fn unaligned_export_needs_no_block_size_request() {
    for (wants, sizes) in [(&[][..], false), (&[info::BLOCK_SIZE][..], true)] {
        let (step, _) = client(Tls::Off).ask(option::GO, &dial::info("any", wants));
        assert_eq!(agreed(step).sizes, sizes);
    }
    let step = client(Tls::Off).send(&dial::option(option::EXPORT_NAME, b"any")).unwrap();
    assert!(!agreed(step).sizes);
}

#[test]
fn segmentation_does_not_change_the_replies() {
    let mut all = Vec::new();
    all.extend(dial::option(option::STRUCTURED_REPLY, &[]));
    all.extend(dial::option(99, &[1; 700]));
    all.extend(dial::option(option::LIST, &[0; 20_000]));
    all.extend(dial::option(option::LIST, &[]));
    all.extend(dial::option(option::GO, &dial::info("disk", &[])));
    let mut outs = Vec::new();
    for size in [1, 2, 7, 100, 5000, all.len()] {
        let mut c = client(Tls::Off);
        let mut last = Step::More;
        for piece in all.chunks(size) {
            last = c.send(piece).unwrap();
        }
        assert_eq!(agreed(last).form, Form::Structured);
        outs.push(c.out);
    }
    assert!(outs.windows(2).all(|w| w[0] == w[1]));
}

#[test]
fn bytes_after_go_are_left_for_transmission() {
    let mut c = client(Tls::Off);
    let mut bytes = dial::option(option::GO, &dial::info("disk", &[]));
    let len = bytes.len();
    bytes.extend([9; 28]);
    let (used, step) = c.server.input(&bytes, &mut c.shop, &mut c.out).unwrap();
    assert_eq!(used, len);
    agreed(step);
}

#[test]
fn unknown_export_name_ends_the_connection() {
    let mut c = client(Tls::Off);
    let step = c.send(&dial::option(option::EXPORT_NAME, b"disk")).unwrap();
    assert_eq!(agreed(step).export.flags, export_flag::HAS_FLAGS | export_flag::SEND_FLUSH);
    assert_eq!(c.out.len(), 10);
    let mut c = client(Tls::Off);
    let end = c.send(&dial::option(option::EXPORT_NAME, b"nothing")).unwrap_err();
    assert_eq!(end.name.as_deref(), Some("nothing"));
    // A client that has not agreed to leave the zeroes out gets them.
    let mut out = Vec::new();
    let mut server = Handshake::new(Settings::default(), &mut out);
    out.clear();
    let bytes = [&[0, 0, 0, 1][..], &dial::option(option::EXPORT_NAME, b"")].concat();
    agreed(server.input(&bytes, &mut shop(), &mut out).unwrap().1);
    assert_eq!(out.len(), 10 + 124);
}

#[test]
fn name_and_list_errors_have_their_reply_types() {
    let mut c = client(Tls::Off);
    for (name, kind) in
        [("x", rep::ERR_UNKNOWN), ("secret", rep::ERR_POLICY), ("late", rep::ERR_SHUTDOWN)]
    {
        assert_eq!(c.kinds(option::GO, &dial::info(name, &[])), [kind]);
    }
    assert_eq!(c.kinds(option::LIST, &[]), [rep::SERVER, rep::ACK]);
    assert_eq!(c.kinds(option::LIST, &[0]), [rep::ERR_INVALID]);
    c.shop.listing = false;
    assert_eq!(c.kinds(option::LIST, &[]), [rep::ERR_POLICY]);
    assert_eq!(c.kinds(4, &[]), [rep::ERR_UNSUP], "PEEK_EXPORT was withdrawn");
    let (step, replies) = c.ask(option::ABORT, &[]);
    assert_eq!((step, replies[0].0), (Step::Abort, rep::ACK));
}

#[test]
fn options_with_wrong_lengths_are_refused() {
    let good = dial::info("disk", &[info::NAME]);
    let mut long_name = good.clone();
    long_name[3] = 200;
    let mut huge_name = good.clone();
    huge_name[0] = 0xff;
    let mut many = good.clone();
    many[9] = 9;
    let bad: Vec<Vec<u8>> = vec![
        vec![],
        good[..good.len() - 1].to_vec(),
        [&good[..], &[0]].concat(),
        long_name,
        huge_name,
        many,
        dial::info(&"x".repeat(NAME_MAX + 1), &[]),
        dial::info("a\0b", &[]),
        [&[0, 0, 0, 1, 0xff][..], &[0, 0]].concat(),
    ];
    let mut c = client(Tls::Off);
    for payload in &bad {
        assert_eq!(c.kinds(option::GO, payload), [rep::ERR_INVALID], "{payload:02x?}");
    }
    c.ask(option::STRUCTURED_REPLY, &[]);
    let queries = vec!["a"; QUERIES_MAX as usize + 1];
    for payload in [
        dial::contexts("disk", &queries),
        vec![0, 0, 0, 0, 0, 0, 0, 1],
        vec![0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
        [&dial::contexts("disk", &["a"])[..], &[0]].concat(),
    ] {
        assert_eq!(c.kinds(option::SET_META_CONTEXT, &payload), [rep::ERR_INVALID]);
    }
}

/// H4 of nbd/handshake.rs.
#[test]
fn long_options_are_drained_and_longer_ones_end_the_connection() {
    let mut c = client(Tls::Off);
    let kinds = c.kinds(option::GO, &vec![0; OPTION_MAX + 1]);
    assert_eq!(kinds, [rep::ERR_TOO_BIG]);
    assert!(c.server.held.is_empty());
    assert_eq!(c.kinds(option::LIST, &[]), [rep::SERVER, rep::ACK], "it goes on");
    let mut head = dial::option(option::GO, &[]);
    head[12..].copy_from_slice(&(DRAIN_MAX + 1).to_be_bytes());
    assert!(c.send(&head).is_err());
    // Nothing is held by the word of the length alone.
    let mut c = client(Tls::Off);
    head[12..].copy_from_slice(&(OPTION_MAX as u32).to_be_bytes());
    c.send(&head).unwrap();
    c.send(&[0; 10]).unwrap();
    assert!(c.server.held.capacity() < 64, "{}", c.server.held.capacity());
}

#[test]
fn option_floods_and_garbage_end_the_connection() {
    let mut c = client(Tls::Off);
    for _ in 0..OPTIONS_MAX {
        c.send(&dial::option(99, &[])).unwrap();
    }
    assert!(c.send(&dial::option(99, &[])).unwrap_err().why.contains("options"));
    let mut c = client(Tls::Off);
    assert!(c.send(&[7; 16]).is_err());
    let mut out = Vec::new();
    let mut server = Handshake::new(Settings::default(), &mut out);
    assert!(server.input(&[0, 0, 0, 4], &mut shop(), &mut out).is_err(), "an unknown flag");
}

/// H3 of nbd/handshake.rs.
#[test]
fn metadata_contexts_apply_to_their_export_only() {
    let set = |c: &mut Client, name: &str, queries: &[&str]| {
        c.kinds(option::SET_META_CONTEXT, &dial::contexts(name, queries))
    };
    let go = |c: &mut Client, name: &str| agreed(c.ask(option::GO, &dial::info(name, &[])).0);
    let all = ["base:allocation"];
    let mut c = client(Tls::Off);
    assert_eq!(set(&mut c, "disk", &all), [rep::ERR_INVALID], "not without structured replies");
    c.ask(option::STRUCTURED_REPLY, &[]);
    assert_eq!(set(&mut c, "disk", &all), [rep::META_CONTEXT, rep::ACK]);
    let agreed = go(&mut c, "disk");
    assert!(agreed.allocation && agreed.export.flags & export_flag::SEND_DF != 0);
    for (second, name) in [
        (Some(("disk", &[][..])), "disk"),
        (Some(("nothing", &all[..])), "disk"),
        (Some(("disk", &["base:", "qemu:x"][..])), "disk"),
        (None, "other"),
    ] {
        let mut c = client(Tls::Off);
        c.ask(option::STRUCTURED_REPLY, &[]);
        set(&mut c, "disk", &all);
        if let Some((of, queries)) = second {
            set(&mut c, of, queries);
        }
        assert!(!go(&mut c, name).allocation, "{second:?} {name}");
    }
    let mut c = client(Tls::Off);
    c.ask(option::STRUCTURED_REPLY, &[]);
    let list = |c: &mut Client, queries: &[&str]| {
        c.kinds(option::LIST_META_CONTEXT, &dial::contexts("disk", queries)).len()
    };
    assert_eq!((list(&mut c, &[]), list(&mut c, &["base:"])), (2, 2));
    assert_eq!(list(&mut c, &["other:"]), 1);
    assert!(!go(&mut c, "disk").allocation, "listing chooses nothing");
}

#[test]
fn h1_starttls_resets_the_handshake() {
    let mut c = client(Tls::Allow);
    c.ask(option::STRUCTURED_REPLY, &[]);
    c.kinds(option::SET_META_CONTEXT, &dial::contexts("disk", &["base:allocation"]));
    assert_eq!(c.kinds(option::STARTTLS, &[1]), [rep::ERR_INVALID]);
    let (step, replies) = c.ask(option::STARTTLS, &[]);
    assert_eq!((step, replies[0].0), (Step::StartTls, rep::ACK));
    c.server.secured();
    assert_eq!(c.kinds(option::STARTTLS, &[]), [rep::ERR_INVALID], "once");
    let agreed = agreed(c.ask(option::GO, &dial::info("disk", &[])).0);
    assert_eq!((agreed.form, agreed.allocation), (Form::Simple, false));
    assert_eq!(client(Tls::Off).kinds(option::STARTTLS, &[]), [rep::ERR_UNSUP]);
}

#[test]
fn h1_plaintext_after_starttls_is_refused() {
    for behind in [&[0][..], &dial::option(option::LIST, &[])] {
        let mut c = client(Tls::Allow);
        let bytes = [&dial::option(option::STARTTLS, &[])[..], behind].concat();
        assert!(c.send(&bytes).unwrap_err().why.contains("STARTTLS"));
    }
}

#[test]
fn h2_options_without_required_tls_are_refused() {
    let mut c = client(Tls::Require);
    for (option, payload) in [
        (option::GO, dial::info("disk", &[])),
        (option::INFO, dial::info("nothing", &[])),
        (option::LIST, vec![]),
        (option::STRUCTURED_REPLY, vec![]),
        (option::EXTENDED_HEADERS, vec![]),
        (option::LIST_META_CONTEXT, dial::contexts("disk", &[])),
        (99, vec![]),
    ] {
        assert_eq!(c.kinds(option, &payload), [rep::ERR_TLS_REQD], "{option}");
    }
    assert!(c.send(&dial::option(option::EXPORT_NAME, b"disk")).is_err());
    let mut c = client(Tls::Require);
    c.ask(option::STARTTLS, &[]);
    c.server.secured();
    agreed(c.ask(option::GO, &dial::info("disk", &[])).0);
}

#[test]
fn extended_headers_include_structured_replies() {
    let mut c = client(Tls::Off);
    assert_eq!(c.kinds(option::EXTENDED_HEADERS, &[1]), [rep::ERR_INVALID]);
    assert_eq!(c.kinds(option::STRUCTURED_REPLY, &[]), [rep::ACK]);
    assert_eq!(c.kinds(option::EXTENDED_HEADERS, &[]), [rep::ACK]);
    assert_eq!(c.kinds(option::STRUCTURED_REPLY, &[]), [rep::ERR_EXT_HEADER_REQD]);
    let agreed = agreed(c.ask(option::GO, &dial::info("disk", &[])).0);
    assert_eq!(agreed.form, Form::Extended);
}
