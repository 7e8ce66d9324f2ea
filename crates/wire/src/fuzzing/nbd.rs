//! Targets for the NBD codecs.

use crate::nbd::*;
use crate::scsi::Sense;

struct TestExports;

impl Exports for TestExports {
    fn find(&mut self, name: &str, _: bool) -> Result<Export, Unavailable> {
        assert!(name.len() <= NAME_MAX);
        match name.len() % 3 {
            0 | 1 => Ok(Export {
                name: name.to_owned(),
                description: "d".to_owned(),
                size: 1 << 20,
                flags: 5,
                block_sizes: [512, 4096, 1 << 25],
                unaligned: false,
            }),
            _ => Err(Unavailable::Unknown("none".to_owned())),
        }
    }

    fn list(&mut self) -> Option<Vec<Listed>> {
        Some(vec![Listed { name: "a".to_owned(), description: String::new() }])
    }
}

/// A byte of options, then a client's input. The handshake ends, and the replies can be decoded.
/// The answer does not depend on how the input is split, and no client enters without required TLS.
pub fn fuzz_nbd_handshake(data: &[u8]) {
    let Some((options, stream)) = data.split_first() else { return };
    let tls = [Tls::Off, Tls::Allow, Tls::Require][usize::from(options % 3)];
    let cut = usize::from(options / 3) + 1;
    let whole = talk(tls, stream, stream.len().max(1));
    let pieces = talk(tls, stream, cut);
    // Bytes behind STARTTLS in the same piece end it: only then may the two differ.
    if !whole.2 && !pieces.2 {
        assert_eq!((&whole.0, whole.1), (&pieces.0, pieces.1));
    }
    let mut rest = &whole.0[..];
    while let Ok((reply, used)) = OptionReply::decode(rest) {
        assert!(used >= OptionReply::HEADER_LEN && reply.payload.len() <= NAME_MAX + 64);
        rest = &rest[used..];
    }
}

/// The reply, whether transmission began, whether STARTTLS was requested.
fn talk(tls: Tls, stream: &[u8], cut: usize) -> (Vec<u8>, bool, bool) {
    let mut out = Vec::new();
    let mut server = Handshake::new(Settings { tls }, &mut out);
    out.clear();
    let mut secured = false;
    for piece in stream.chunks(cut) {
        let mut piece = piece;
        loop {
            let before = out.len();
            let Ok((used, step)) = server.input(piece, &mut TestExports, &mut out) else {
                return (out, false, secured);
            };
            assert!(out.len() - before <= 3 * NAME_MAX + 4096);
            piece = &piece[used..];
            match step {
                Step::More => assert!(piece.is_empty()),
                Step::Answered => {}
                Step::StartTls => {
                    assert!(tls != Tls::Off && piece.is_empty());
                    server.secured();
                    secured = true;
                }
                Step::Transmit(agreed) => {
                    assert!(tls != Tls::Require || secured);
                    assert!(!agreed.allocation || agreed.form != Form::Simple);
                    return (out, true, secured);
                }
                Step::Abort => return (out, false, secured),
            }
            if piece.is_empty() {
                break;
            }
        }
        assert!(server.options() <= OPTIONS_MAX);
    }
    (out, false, secured)
}

/// A certificate: its names are short and printable.
pub fn fuzz_x509(data: &[u8]) {
    // Years have at most four digits.
    let seconds = crate::x509::expires(data).unwrap_or_default();
    assert!(seconds.unsigned_abs() < 300_000_000_000, "{seconds}");
    let Ok(names) = crate::x509::names(data) else { return };
    for name in names.common.iter().chain(&names.alternatives) {
        assert!(!name.is_empty() && name.len() <= crate::x509::NAME_MAX);
        assert!(!name.chars().any(char::is_control));
    }
}

/// A byte of options, then headers: a decoded one that is encoded again decodes to the same value.
pub fn fuzz_nbd_transmission(data: &[u8]) {
    let Some((options, bytes)) = data.split_first() else { return };
    let form = [Form::Simple, Form::Structured, Form::Extended][usize::from(options % 3)];
    if let Ok(request) = Request::decode(form, bytes) {
        let mut again = Vec::new();
        request.encode(form, &mut again);
        assert_eq!(Request::decode(form, &again), Ok(request));
        assert!(request.payload_len(form) == 0 || request.payload_len(form) == request.len);
    }
    if let Ok((head, used)) = Head::decode(bytes) {
        let form = if used == HEAD_MAX { Form::Extended } else { Form::Structured };
        let mut out = [0; HEAD_MAX];
        assert_eq!(head.encode(form, &mut out), used);
        assert_eq!(Head::decode(&out[..used]), Ok((head, used)));
    }
    for wide in [false, true] {
        if let Ok((id, extents)) = chunk::parse_block_status(bytes, wide) {
            let mut again = Vec::new();
            match wide {
                true => chunk::block_status_ext(id, &extents, &mut again),
                false => chunk::block_status(id, &extents, &mut again),
            }
            assert_eq!(chunk::parse_block_status(&again, wide), Ok((id, extents)));
        }
    }
    let _ = (chunk::parse_error(bytes), chunk::parse_hole(bytes), dial::greeting(bytes));
    if let Ok((piece, used)) = reply::piece(bytes) {
        assert!(used <= bytes.len() && used <= HEAD_MAX + reply::BODY_MAX as usize);
        assert!(!matches!(piece, reply::Piece::Data { len: 0, .. }));
    }
    let extents = command::extents(bytes, 512, 512, 1 << 20, true);
    let sum: u64 = extents.iter().map(|e| e.len).sum();
    assert!(sum <= 1 << 20 && extents.iter().all(|e| e.len > 0));
    let _ = command::outcome(*options, Sense::decode(bytes).ok(), options % 2 == 0);
}

/// A byte of options, then a server's bytes: the client's handshake ends, holds little, and does
/// not depend on how the bytes are cut.
pub fn fuzz_nbd_client(data: &[u8]) {
    let Some((options, stream)) = data.split_first() else { return };
    let (tls, cut) = (options & 1 != 0, usize::from(options / 2) + 1);
    assert_eq!(dialled(tls, stream, stream.len().max(1)), dialled(tls, stream, cut));
}

fn dialled(tls: bool, stream: &[u8], cut: usize) -> (Vec<u8>, Option<client::Terms>, bool) {
    let (mut out, mut fresh) = (Vec::new(), Vec::new());
    let mut dial = client::ClientHandshake::new("export", tls);
    for piece in stream.chunks(cut) {
        fresh.extend_from_slice(piece);
        match dial.input(&fresh, &mut out) {
            Ok((used, client::Progress::More)) => drop(fresh.drain(..used)),
            Ok((_, client::Progress::Ready(terms))) => {
                assert!(!tls, "no transmission in the clear");
                assert!(terms.allocation.is_none() || terms.form != Form::Simple);
                return (out, Some(terms), false);
            }
            // Bytes behind it in the same piece are an error: the two cuts differ in that alone.
            Ok((_, client::Progress::StartTls)) | Err(_) => return (Vec::new(), None, true),
        }
        assert!(fresh.len() <= OptionReply::HEADER_LEN + client::REPLY_MAX + cut);
    }
    (out, None, false)
}
