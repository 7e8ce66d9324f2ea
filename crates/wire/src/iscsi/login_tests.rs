//! Logins between our two sides, and protocol errors of initiators.

use super::*;
use crate::iscsi::{
    ChapAccount, ChapUser, ClientChap, ClientConfig, ClientError, ClientLogin, ClientStep,
    Connected, DigestPolicy, chap_response, encode_hex, pairs as read_pairs,
};

const NAME: &str = "iqn.2001-04.com.example:me";
const DISK: &str = "iqn.2001-04.com.example:disk";

fn user(name: &str, secret: &str) -> ChapUser {
    ChapUser { name: name.to_owned(), secret: secret.as_bytes().to_vec() }
}

fn config() -> LoginConfig {
    LoginConfig {
        offer: Offer::default(),
        algorithms: Algorithms::default(),
        challenge: Challenge { id: 7, bytes: [0x5a; 32] },
        stat_sn: 100,
        command_window: 32,
    }
}

fn grant(auth: Auth) -> Access {
    Access::Allow(Grant { auth, tsih: 9, portal_group: 1, alias: Some("disk".to_owned()) })
}

fn chap_grant() -> Auth {
    let mutual = Some(user("target", "secret of target"));
    Auth::Chap { accounts: vec![ChapAccount { user: user("alice", "secret of alice"), mutual }] }
}

fn client() -> ClientConfig {
    ClientConfig {
        initiator: NAME.to_owned(),
        target: Some(DISK.to_owned()),
        isid: [0x40, 0, 0, 1, 0, 0],
        cid: 1,
        cmd_sn: 0xffff_fff0,
        offer: Offer::default(),
        chap: None,
    }
}

fn chap_client(name: &str, secret: &str) -> ClientConfig {
    let mutual = Some((user("target", "secret of target"), Challenge { id: 1, bytes: [3; 32] }));
    let chap = ClientChap { user: user(name, secret), algorithms: Algorithms::ANY, mutual };
    ClientConfig { chap: Some(chap), ..client() }
}

type Outcome = Result<(Box<Established>, Connected), (LoginStatus, ClientError)>;

/// Runs both sides against each other over encoded bytes.
fn run(target: LoginConfig, client: ClientConfig, access: Access) -> Outcome {
    let mut login = Login::new(target);
    let (mut initiator, mut request) = ClientLogin::start(client).unwrap();
    for _ in 0..20 {
        let bytes = request.to_bytes();
        let bhs = *bytes.first_chunk::<48>().unwrap();
        let mut step = login.request(&bhs, &bytes[48..48 + request.text.len()]);
        if let Step::NeedTarget(query) = &step {
            assert_eq!(query.initiator, NAME);
            step = login.decide(access.clone());
        }
        let (reply, end) = match step {
            Step::Reply(reply) => (reply, None),
            Step::FullFeature(done) => (done.reply.clone(), Some(Ok(done))),
            Step::Refuse { reply, status, .. } => (reply, Some(Err(status))),
            other => panic!("{other:?}"),
        };
        let bytes = reply.to_bytes();
        let bhs = *bytes.first_chunk::<48>().unwrap();
        match (initiator.response(&bhs, &bytes[48..48 + reply.text.len()]), end) {
            (Ok(ClientStep::Send(next)), None) => request = next,
            (Ok(ClientStep::Done(connected)), Some(Ok(done))) => return Ok((done, connected)),
            (Err(error), Some(Err(status))) => return Err((status, error)),
            (Err(error), _) => return Err((LoginStatus::Success, error)),
            other => panic!("{other:?}"),
        }
    }
    panic!("no end");
}

#[test]
fn login_without_authentication_succeeds() {
    let (done, connected) = run(config(), client(), grant(Auth::None)).unwrap();
    assert_eq!(done.query.target.as_deref(), Some(DISK));
    assert_eq!((done.tsih, connected.tsih), (9, 9));
    assert_eq!(done.exp_cmd_sn, 0xffff_fff0);
    assert_eq!(done.reply.header.sn.max_cmd_sn, 0x0f);
    assert_eq!((done.stat_sn, connected.exp_stat_sn), (101, 101));
    assert_eq!(connected.portal_group.as_deref(), Some("1"));
    assert_eq!(done.params, connected.params);
    assert_eq!(done.user, None);
}

#[test]
fn discovery_login_has_no_target() {
    let asks = ClientConfig { target: None, ..client() };
    let (done, connected) = run(config(), asks, grant(Auth::None)).unwrap();
    assert_eq!(done.query.session, SessionType::Discovery);
    assert_eq!((done.query.target, connected.portal_group), (None, None));
}

#[test]
fn mutual_chap_succeeds_with_every_algorithm() {
    for bits in [8, 4, 2, 1] {
        let algorithms = Algorithms {
            md5: bits & 1 != 0,
            sha1: bits & 2 != 0,
            sha256: bits & 4 != 0,
            sha3: bits & 8 != 0,
        };
        let target = LoginConfig { algorithms, ..config() };
        let asks = chap_client("alice", "secret of alice");
        let (done, _) = run(target, asks, grant(chap_grant())).unwrap();
        assert_eq!(done.user.as_deref(), Some("alice"));
    }
}

/// L4 of iscsi/login.rs, S1 of iscsi/security.rs, S3 of iscsi/security.rs.
#[test]
fn chap_failures_all_have_the_same_status() {
    for (name, secret) in [("alice", "wrong secret"), ("bob", "secret of alice"), ("", "")] {
        let (status, error) =
            run(config(), chap_client(name, secret), grant(chap_grant())).unwrap_err();
        assert_eq!(status, LoginStatus::AuthenticationFailure);
        assert_eq!(error, ClientError::Refused(LoginStatus::AuthenticationFailure, None));
    }
    // CHAP that is required and skipped, by both routes.
    let (status, _) = run(config(), client(), grant(chap_grant())).unwrap_err();
    assert_eq!(status, LoginStatus::AuthenticationFailure);
    // CHAP offered where there is none.
    let asks = chap_client("alice", "secret of alice");
    let (status, _) = run(config(), asks, grant(Auth::None)).unwrap_err();
    assert_eq!(status, LoginStatus::AuthenticationFailure);
    // MD5 alone against a target that does not allow it.
    let mut asks = chap_client("alice", "secret of alice");
    let only_md5 = Algorithms { md5: true, sha1: false, sha256: false, sha3: false };
    asks.chap.as_mut().unwrap().algorithms = only_md5;
    let (status, _) = run(config(), asks, grant(chap_grant())).unwrap_err();
    assert_eq!(status, LoginStatus::AuthenticationFailure);
}

#[test]
fn initiator_drops_a_target_that_fails_mutual_chap() {
    let mut wrong = chap_grant();
    if let Auth::Chap { accounts } = &mut wrong {
        accounts[0].mutual = Some(user("target", "another secret"));
    }
    let asks = chap_client("alice", "secret of alice");
    let (_, error) = run(config(), asks, grant(wrong)).unwrap_err();
    assert_eq!(error, ClientError::TargetNotProven);
}

#[test]
fn access_decisions_map_to_login_statuses() {
    let redirect = Access::Redirect { address: "10.0.0.1:3260,2".to_owned(), permanent: true };
    let (status, error) = run(config(), client(), redirect).unwrap_err();
    assert_eq!(status, LoginStatus::TargetMovedPermanently);
    assert_eq!(error, ClientError::Refused(status, Some("10.0.0.1:3260,2".to_owned())));
    let denied = Access::Deny(LoginStatus::NotFound);
    let (status, _) = run(config(), client(), denied).unwrap_err();
    assert_eq!(status, LoginStatus::NotFound);
}

#[test]
fn strict_target_requires_its_digests_and_limits() {
    let offer = Offer {
        header_digest: DigestPolicy::Require,
        params: SessionParams { max_burst: 4096, ..SessionParams::default() },
        ..Offer::default()
    };
    let mut wants = client();
    wants.offer.header_digest = DigestPolicy::Off;
    let target = LoginConfig { offer, ..config() };
    assert!(run(target.clone(), wants, grant(Auth::None)).is_err());
    let (done, connected) = run(target, client(), grant(Auth::None)).unwrap();
    assert!(done.params.header_digest && connected.params.header_digest);
    assert_eq!((connected.params.max_burst, connected.params.first_burst), (4096, 4096));
}

/// A request made by hand: flags byte and text with spaces for NULs.
fn send(login: &mut Login, flags: u8, text: &str) -> Step {
    let text = if text.is_empty() { String::new() } else { format!("{text} ") };
    let text = text.replace(' ', "\0");
    let mut bhs = [0; 48];
    LoginRequest { isid: [1; 6], data_len: text.len() as u32, ..Default::default() }
        .encode(&mut bhs);
    bhs[1] = flags;
    login.request(&bhs, text.as_bytes())
}

const INITIATOR_AND_TARGET: &str = "InitiatorName=iqn.a TargetName=iqn.b";

fn status_of(step: Step) -> LoginStatus {
    match step {
        Step::Refuse { status, .. } => status,
        other => panic!("{other:?}"),
    }
}

fn text_of(step: Step) -> String {
    match step {
        Step::Reply(reply) => String::from_utf8(reply.text).unwrap().replace('\0', " "),
        other => panic!("{other:?}"),
    }
}

/// L1 of iscsi/login.rs, L5 of iscsi/login.rs.
#[test]
fn invalid_first_requests_are_refused_with_their_status() {
    use LoginStatus::*;
    for (flags, text, want) in [
        (0x87, "TargetName=iqn.b", MissingParameter),
        (0x87, "InitiatorName=iqn.a", MissingParameter),
        (0x87, "InitiatorName=iqn.a SessionType=Other", SessionTypeNotSupported),
        (0x87, "InitiatorName=me TargetName=iqn.b", InitiatorError),
        (0x87, "InitiatorName=iqn.a InitiatorName=iqn.a TargetName=iqn.b", InitiatorError),
        (0x87, "InitiatorName", InitiatorError),
        (0x08, INITIATOR_AND_TARGET, InitiatorError),
        (0x0c, INITIATOR_AND_TARGET, InitiatorError),
        (0xc7, INITIATOR_AND_TARGET, InitiatorError),
        (0x86, INITIATOR_AND_TARGET, InitiatorError),
        (0x85, INITIATOR_AND_TARGET, InitiatorError),
        (0x80, INITIATOR_AND_TARGET, InitiatorError),
    ] {
        let mut login = Login::new(config());
        assert_eq!(status_of(send(&mut login, flags, text)), want, "{flags:#x} {text}");
        assert!(matches!(send(&mut login, 0x87, INITIATOR_AND_TARGET), Step::Close(_)));
    }
    let mut bhs = [0; 48];
    LoginRequest { version_min: 1, ..Default::default() }.encode(&mut bhs);
    let step = Login::new(config()).request(&bhs, &[]);
    assert_eq!(status_of(step), UnsupportedVersion);
    assert!(matches!(Login::new(config()).request(&[0; 48], &[]), Step::Close(_)));
    assert!(matches!(Login::new(config()).decide(grant(Auth::None)), Step::Close(_)));
}

fn begun(auth: Auth, flags: u8, text: &str) -> (Login, Step) {
    let mut login = Login::new(config());
    assert!(matches!(send(&mut login, flags, text), Step::NeedTarget(_)));
    let step = login.decide(grant(auth));
    (login, step)
}

/// L3 of iscsi/login.rs.
#[test]
fn keys_are_negotiated_only_after_the_decision() {
    let text = format!("{INITIATOR_AND_TARGET} MaxBurstLength=Reject");
    let mut login = Login::new(config());
    assert!(matches!(send(&mut login, 0x87, &text), Step::NeedTarget(_)));
    let denied = login.clone().decide(Access::Deny(LoginStatus::NotFound));
    assert_eq!(status_of(denied), LoginStatus::NotFound);
    assert_eq!(status_of(login.decide(grant(Auth::None))), LoginStatus::InitiatorError);
}

/// L1 of iscsi/login.rs, S2 of iscsi/security.rs.
#[test]
fn security_stage_follows_the_chap_sequence() {
    let method = format!("{INITIATOR_AND_TARGET} AuthMethod=KRB5,CHAP,None");
    let (login, step) = begun(chap_grant(), 0x00, &method);
    assert_eq!(text_of(step), "TargetPortalGroupTag=1 TargetAlias=disk AuthMethod=CHAP ");
    let mut after = login.clone();
    let step = send(&mut after, 0x00, "CHAP_A=5,7,8");
    let challenge = encode_hex(&[0x5a; 32]);
    assert_eq!(text_of(step), format!("CHAP_A=7 CHAP_I=7 CHAP_C={challenge} "));
    let proof = chap_response(crate::iscsi::Algorithm::Sha256, 7, b"secret of alice", &[0x5a; 32]);
    let proof = encode_hex(proof.bytes());
    let good = format!("CHAP_N=alice CHAP_R={proof}");
    // Good without mutual; the stage continues.
    let Step::Reply(reply) = send(&mut after.clone(), 0x81, &good) else { panic!() };
    assert!(reply.header.transit && reply.header.next_stage == 1);
    // Reflection of the target's own challenge.
    let reflected = format!("{good} CHAP_I=7 CHAP_C={challenge}");
    let refused = status_of(send(&mut after.clone(), 0x81, &reflected));
    assert_eq!(refused, LoginStatus::AuthenticationFailure);
    for (text, want) in [
        (format!("{good} CHAP_I=7"), LoginStatus::InitiatorError),
        (format!("{good} CHAP_I=256 CHAP_C=0x01"), LoginStatus::InitiatorError),
        (format!("{good} CHAP_I=1 CHAP_C=0x{}", "00".repeat(1025)), LoginStatus::InitiatorError),
        ("CHAP_N=alice CHAP_R=0x00".to_owned(), LoginStatus::InitiatorError),
        (format!("CHAP_N=alice CHAP_R=0b{}", "A".repeat(1024)), LoginStatus::InitiatorError),
        ("CHAP_A=7".to_owned(), LoginStatus::InitiatorError),
        (String::new(), LoginStatus::InitiatorError),
        (format!("CHAP_N=alice CHAP_R=0x{}", "00".repeat(32)), LoginStatus::AuthenticationFailure),
    ] {
        assert_eq!(status_of(send(&mut after.clone(), 0x81, &text)), want, "{text}");
    }
    // Leaving the security stage before it is complete: T is not confirmed, then CSG is wrong.
    let Step::Reply(early) = send(&mut login.clone(), 0x81, "CHAP_A=7") else { panic!() };
    assert!(!early.header.transit);
    assert_eq!(status_of(send(&mut login.clone(), 0x87, "")), LoginStatus::InitiatorError);
    let late = send(&mut login.clone(), 0x00, "CHAP_N=alice CHAP_R=0x00");
    assert_eq!(status_of(late), LoginStatus::InitiatorError);
}

#[test]
fn security_stage_is_skipped_without_authentication() {
    let (_, step) =
        begun(Auth::None, 0x83, &format!("{INITIATOR_AND_TARGET} AuthMethod=CHAP,None"));
    let Step::FullFeature(done) = step else { panic!("{step:?}") };
    let text = String::from_utf8(done.reply.text.clone()).unwrap();
    assert!(text.contains("AuthMethod=None\0") && text.contains("MaxRecvDataSegmentLength="));
    let (_, step) = begun(Auth::None, 0x81, INITIATOR_AND_TARGET);
    assert!(matches!(step, Step::Reply(reply) if reply.header.transit));
    let (_, step) = begun(Auth::None, 0x81, &format!("{INITIATOR_AND_TARGET} MaxBurstLength=512"));
    assert_eq!(status_of(step), LoginStatus::InitiatorError);
}

/// L2 of iscsi/login.rs.
#[test]
fn login_fields_that_change_are_refused() {
    let (login, _) = begun(Auth::None, 0x04, INITIATOR_AND_TARGET);
    for (at, byte) in [(8, 2), (15, 1), (19, 1), (21, 1)] {
        let mut bhs = [0; 48];
        LoginRequest { isid: [1; 6], ..Default::default() }.encode(&mut bhs);
        bhs[1] = 0x87;
        bhs[at] = byte;
        let status = status_of(login.clone().request(&bhs, &[]));
        assert_eq!(status, LoginStatus::InvalidDuringLogin);
    }
    let same = "InitiatorName=IQN.A TargetName=iqn.b SessionType=Normal";
    assert!(matches!(send(&mut login.clone(), 0x87, same), Step::FullFeature(_)));
    for other in ["InitiatorName=iqn.c", "TargetName=iqn.c", "SessionType=Discovery"] {
        assert_eq!(status_of(send(&mut login.clone(), 0x87, other)), LoginStatus::InitiatorError);
    }
}

#[test]
fn continued_text_works_in_both_directions() {
    let mut login = Login::new(config());
    let text = format!("{INITIATOR_AND_TARGET} {}", "X-a=1 MaxRecvDataSegmentLength=512");
    let bytes = format!("{text} ").replace(' ', "\0");
    let mut bhs = [0; 48];
    for (i, piece) in bytes.as_bytes().chunks(10).enumerate() {
        LoginRequest { isid: [1; 6], stage: 1, more: true, ..Default::default() }.encode(&mut bhs);
        let Step::Reply(reply) = login.request(&bhs, piece) else { panic!("piece {i}") };
        assert!(reply.text.is_empty() && !reply.header.transit && !reply.header.more);
    }
    assert!(matches!(send(&mut login, 0x87, ""), Step::NeedTarget(_)));
    let long = "a".repeat(255);
    let access = Access::Allow(Grant {
        auth: Auth::None,
        tsih: 1,
        portal_group: 65535,
        alias: Some(long.clone()),
    });
    assert!(matches!(login.decide(access), Step::FullFeature(_)));

    // Many unknown keys: the answer is longer than the initiator takes in one PDU.
    let many: Vec<String> = (0..60).map(|i| format!("X-{i}=1")).collect();
    let text = format!("{INITIATOR_AND_TARGET} MaxRecvDataSegmentLength=512 {}", many.join(" "));
    let (mut login, mut step) = begun(Auth::None, 0x87, &text);
    let mut whole = Vec::new();
    let done = loop {
        match step {
            Step::Reply(reply) => {
                assert!(reply.header.more && !reply.header.transit && reply.text.len() == 512);
                whole.extend(reply.text);
                assert_eq!(
                    status_of(send(&mut login.clone(), 0x04, "A=b")),
                    LoginStatus::InitiatorError
                );
                step = send(&mut login, 0x04, "");
            }
            Step::FullFeature(done) => break done,
            other => panic!("{other:?}"),
        }
    };
    whole.extend(done.reply.text);
    let answers = read_pairs(&whole).unwrap();
    assert_eq!(answers.iter().filter(|(_, v)| *v == "NotUnderstood").count(), 60);
    assert_eq!(done.params.send_data_len_max, 512);
}

#[test]
fn endless_logins_are_ended() {
    let (mut login, _) = begun(Auth::None, 0x04, INITIATOR_AND_TARGET);
    let end = (0..200).find_map(|_| match send(&mut login, 0x04, "") {
        Step::Reply(_) => None,
        other => Some(status_of(other)),
    });
    assert_eq!(end, Some(LoginStatus::InitiatorError));
    let mut login = Login::new(config());
    let mut bhs = [0; 48];
    LoginRequest { stage: 1, more: true, ..Default::default() }.encode(&mut bhs);
    let end = (0..10).find_map(|_| match login.request(&bhs, &[b'a'; 8192]) {
        Step::Reply(_) => None,
        other => Some(status_of(other)),
    });
    assert_eq!(end, Some(LoginStatus::InitiatorError));
}
