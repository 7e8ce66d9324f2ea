//! Targets for the iSCSI codecs.

use crate::iscsi::*;

fn split_header(data: &[u8]) -> Option<(&Bhs, &[u8])> {
    data.split_first_chunk::<BHS_LEN>()
}

fn encoded(pdu: &impl Pdu) -> Bhs {
    let mut out = [0xa5; BHS_LEN];
    pdu.encode(&mut out);
    out
}

/// A header with additional headers: a decoded one that is encoded again decodes to the same value.
pub fn fuzz_request(data: &[u8]) {
    let Some((bhs, rest)) = split_header(data) else { return };
    let Ok(request) = Request::decode(bhs, rest) else { return };
    let again = match &request {
        Request::NopOut(p) => encoded(p),
        Request::ScsiCommand(p) => {
            assert!(p.read_limit() == 0 || p.header.read);
            let mut ahs = [0; AHS_LEN_MAX];
            let len = encode_ahs(p.cdb_rest, p.read_len, &mut ahs).expect("what was read fits");
            let head = ScsiCommand { ahs_len: len as u16, ..p.header };
            let again = CommandPdu::decode(&encoded(&head), &ahs[..len]).expect("own bytes");
            assert_eq!((again.cdb_rest, again.read_len), (p.cdb_rest, p.read_len));
            return;
        }
        Request::Task(p) => encoded(p),
        Request::Login(p) => encoded(p),
        Request::Text(p) => encoded(p),
        Request::DataOut(p) => encoded(p),
        Request::Logout(p) => encoded(p),
        Request::Snack(p) => encoded(p),
        Request::Unknown { .. } => return,
    };
    assert_eq!(Request::decode(&again, &[]), Ok(request));
}

/// A target's header: a decoded one that is encoded again decodes to the same value.
pub fn fuzz_response(data: &[u8]) {
    let Some((bhs, rest)) = split_header(data) else { return };
    let _ = sense_of_segment(rest);
    let Ok(response) = Response::decode(bhs) else { return };
    let again = match &response {
        Response::NopIn(p) => encoded(p),
        Response::Scsi(p) => encoded(p),
        Response::Task(p) => encoded(p),
        Response::Login(p) => encoded(p),
        Response::Text(p) => encoded(p),
        // StatSN of a Data-In without status is not written.
        Response::DataIn(p) if p.status.is_none() => return,
        Response::DataIn(p) => encoded(p),
        Response::Logout(p) => encoded(p),
        Response::R2t(p) => encoded(p),
        Response::Async(p) => encoded(p),
        Response::Reject(p) => encoded(p),
    };
    assert_eq!(Response::decode(&again), Ok(response));
}

/// A byte of options, then a stream: lengths never shrink, move backwards, or exceed the limits.
pub fn fuzz_framing(data: &[u8]) {
    let Some((options, stream)) = data.split_first() else { return };
    let framer = Framer {
        header_digest: options & 1 != 0,
        data_digest: options & 2 != 0,
        data_len_max: if options & 4 != 0 { 8192 } else { DATA_LEN_MAX },
        ahs_len_max: if options & 8 != 0 { AHS_LEN_MAX as u16 } else { 0 },
    };
    let mut need = 0;
    for len in 0..=stream.len().min(2048) {
        match framer.header(&stream[..len]) {
            Ok(Need::Bytes(more)) => {
                assert!(more > len && more >= need && more <= BHS_LEN + AHS_LEN_MAX + 4);
                need = more;
            }
            Ok(Need::Header(frame)) => {
                assert!(frame.header_len <= len && frame.data_len <= framer.data_len_max as usize);
                assert_eq!((frame.data_len + frame.pad_len) % 4, 0);
                let tail = &stream[frame.header_len..];
                if let Ok(data) = framer.data(&frame, tail) {
                    assert_eq!(data.len(), frame.data_len);
                }
                return;
            }
            Err(_) => return,
        }
    }
}

/// Text: decoded pairs that are encoded again decode to the same pairs.
pub fn fuzz_text(data: &[u8]) {
    let Ok(found) = pairs(data) else { return };
    let mut out = TextBuilder::new();
    for (key, value) in &found {
        out.push(key, value).expect("no longer than what was read");
        let _ = (parse_number(value), parse_range(value), normalise_name(value));
        let mut room = [0; 64];
        if let Ok(binary) = decode_binary(value, &mut room) {
            let binary = binary.to_vec();
            for text in [encode_hex(&binary), encode_base64(&binary)] {
                assert_eq!(decode_binary(&text, &mut room), Ok(&binary[..]));
            }
        }
    }
    assert_eq!(pairs(out.bytes()), Ok(found));
}

/// A byte of options, then text: the result stays within the offer.
pub fn fuzz_negotiate(data: &[u8]) {
    let Some((options, text)) = data.split_first() else { return };
    let Ok(found) = pairs(text) else { return };
    let params =
        SessionParams { max_burst: 65_536, max_outstanding_r2t: 4, ..SessionParams::default() };
    let offer = Offer { params, ..Offer::default() };
    let side = if options & 1 != 0 { Side::Target } else { Side::Initiator };
    let discovery = options & 2 != 0;
    let mut negotiation = if options & 4 != 0 {
        Negotiation::full_feature(side, discovery, offer, SessionParams::default())
    } else {
        Negotiation::login(side, discovery, offer)
    };
    let mut out = TextBuilder::new();
    if options & 8 != 0 {
        negotiation.propose(&mut out).expect("a small text");
    }
    let mut answers = TextBuilder::new();
    if negotiation.receive(&found, &mut answers).is_err() {
        return;
    }
    assert!(answers.bytes().len() <= TEXT_LEN_MAX);
    let answered = pairs(answers.bytes()).expect("own text");
    assert!(answered.iter().all(|(key, _)| found.iter().any(|(asked, _)| asked == key)));
    if let Ok(result) = negotiation.finish() {
        assert!(result.first_burst <= result.max_burst);
        assert!((512..=DATA_LEN_MAX).contains(&result.send_data_len_max));
        let is_answered =
            answered.iter().any(|(k, v)| *k == "MaxBurstLength" && v.parse::<u32>().is_ok());
        assert!(!is_answered || result.max_burst <= 65_536);
    }
}

/// The next record of a script: flags, length and that many bytes (fewer at the end).
fn record<'a>(script: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let ([flags, high, low], rest) = script.split_first_chunk::<3>()?;
    let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
    let (body, rest) = rest.split_at(len);
    *script = rest;
    Some((*flags, body))
}

/// A byte of options, then a script of Login Requests (flags, 16-bit length, text). The login ends,
/// and never succeeds without the required authentication.
pub fn fuzz_login(data: &[u8]) {
    let Some((options, mut script)) = data.split_first() else { return };
    let chap = options & 1 != 0;
    let mut login = Login::new(LoginConfig {
        offer: Offer::default(),
        algorithms: Algorithms::ANY,
        challenge: Challenge { id: 1, bytes: [7; CHALLENGE_LEN] },
        stat_sn: u32::MAX,
        command_window: 8,
    });
    let secret = ChapUser { name: "a".to_owned(), secret: b"twelve bytes".to_vec() };
    let accounts = vec![ChapAccount { user: secret, mutual: None }];
    let auth = if chap { Auth::Chap { accounts } } else { Auth::None };
    while let Some((flags, body)) = record(&mut script) {
        let header = LoginRequest { data_len: body.len() as u32, ..LoginRequest::default() };
        let mut bhs = encoded(&header);
        bhs[1] = flags;
        let mut step = login.request(&bhs, body);
        if let Step::NeedTarget(query) = &step {
            assert!(query.initiator.len() <= NAME_LEN_MAX);
            let auth = auth.clone();
            step =
                login.decide(Access::Allow(Grant { auth, tsih: 1, portal_group: 1, alias: None }));
        }
        match step {
            Step::Reply(reply) => {
                assert!(reply.text.len() <= 8192);
                assert_eq!(reply.header.status, LoginStatus::Success);
                assert!(!(reply.header.transit && reply.header.more));
            }
            Step::FullFeature(done) => {
                assert_eq!(done.user.is_some(), chap);
                assert!(done.params.first_burst <= done.params.max_burst);
                break;
            }
            Step::Refuse { status, .. } => {
                assert_ne!(status, LoginStatus::Success);
                break;
            }
            Step::Close(_) => break,
            Step::NeedTarget(_) => panic!("needed twice"),
        }
    }
}

/// A byte of options, then a script of Login Responses: it ends, and a target that does not prove
/// itself is not taken.
pub fn fuzz_client_login(data: &[u8]) {
    let Some((options, mut script)) = data.split_first() else { return };
    let user = |name: &str, secret: &str| ChapUser {
        name: name.to_owned(),
        secret: secret.as_bytes().to_vec(),
    };
    let challenge = Challenge { id: 2, bytes: [9; CHALLENGE_LEN] };
    let mutual = Some((user("target", "another twelve"), challenge));
    let chap = options & 1 != 0;
    let config = ClientConfig {
        initiator: "iqn.a".to_owned(),
        target: Some("iqn.b".to_owned()),
        isid: [0; 6],
        cid: 0,
        cmd_sn: 0,
        offer: Offer::default(),
        chap: chap.then(|| ClientChap {
            user: user("me", "twelve bytes"),
            algorithms: Algorithms::ANY,
            mutual,
        }),
    };
    let Ok((mut login, _)) = ClientLogin::start(config) else { return };
    while let Some((flags, body)) = record(&mut script) {
        let mut bhs = encoded(&LoginResponse::default());
        bhs[1] = flags;
        match login.response(&bhs, body) {
            Ok(ClientStep::Send(request)) => assert!(request.text.len() <= TEXT_LEN_MAX),
            Ok(ClientStep::Done(_)) => {
                assert!(!chap, "no secret is configured for the target");
                return;
            }
            Err(_) => return,
        }
    }
}
