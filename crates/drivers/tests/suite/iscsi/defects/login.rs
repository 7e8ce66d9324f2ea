//! Logins that are wrong in every way (inputs 8 to 16), CHAP, and sessions that replace each other.

use drivers::{Account, TargetSpec};
use engine::{ChapAccounts, GroupAuth, GroupSpec, LunSpec};
use serde_json::json;
use wire::iscsi::{
    Algorithm, Algorithms, Challenge, ChapUser, ClientChap, LoginRequest, PRE_LOGIN, chap_response,
    decode_binary, encode_base64, encode_hex,
};

use super::{Fixture, Raw, login_keys};
use crate::iscsi::server::IQN;
use testkit::iscsi::initiator::{Client, LoginOptions, read_pdu};

fn account(user: &str, secret: &str) -> Option<Account> {
    Some(Account { user: user.into(), secret: secret.into() })
}

fn guarded(user: &str) -> TargetSpec {
    TargetSpec {
        chap: account(user, "secret of alice"),
        mutual_chap: account("target", "secret of target"),
        ..TargetSpec::default()
    }
}

fn user(name: &str, secret: &str) -> ChapUser {
    ChapUser { name: name.into(), secret: secret.into() }
}

fn with_chap(name: &str, secret: &str, algorithms: Algorithms) -> LoginOptions {
    let chap = ClientChap { user: user(name, secret), algorithms, mutual: None };
    LoginOptions { chap: Some(chap), ..LoginOptions::default() }
}

#[test]
fn a_hidden_target_answers_byte_for_byte_like_one_that_does_not_exist() {
    let mut fixture = Fixture::new();
    fixture.server.allow(&["iqn.2026-11.test.ashlar:witness"]);
    let answers = |fixture: &Fixture, flags: u8, target: &str, auth: &str| {
        let mut raw = fixture.dial();
        let who = "InitiatorName=iqn.2026-11.test.ashlar:raw";
        let text = format!("{who}\0TargetName={target}\0SessionType=Normal\0{auth}");
        assert!(raw.send(flags, text.as_bytes()));
        std::iter::from_fn(|| read_pdu(&mut raw.stream, &PRE_LOGIN)).collect::<Vec<_>>()
    };
    for spec in [TargetSpec::default(), guarded("alice")] {
        fixture.server.set(spec);
        // From the security stage and from the operational one.
        for (flags, auth) in [
            (0x87, ""),
            (0x81, "AuthMethod=None\0"),
            (0x81, "AuthMethod=CHAP\0"),
            (0x81, "AuthMethod=CHAP,None\0"),
        ] {
            let hidden = answers(&fixture, flags, IQN, auth);
            let none = answers(&fixture, flags, "iqn.2026-11.test.ashlar:none", auth);
            assert_eq!(hidden, none, "{flags:#x} {auth}");
            let [(bhs, _)] = &hidden[..] else { panic!("{hidden:?}") };
            assert_eq!(bhs[36..38], [0x02, 0x03], "{flags:#x} {auth}");
        }
    }
    fixture.server.set(TargetSpec::default());
    fixture.server.allow(&["*"]);
    fixture.well("hidden targets");
}

#[test]
fn malformed_login_text_is_answered() {
    let mut fixture = Fixture::new();
    let who = login_keys().replace(' ', "\0");
    let with = |tail: &[u8]| [who.as_bytes(), b"\0", tail].concat();
    let keys = |n: usize| (0..n).map(|i| format!("X-k{i}=1\0")).collect::<String>();
    let cases: [(&str, Vec<u8>); 12] = [
        ("no NUL at the end", who.clone().into_bytes()),
        ("a NUL first", [b"\0", who.as_bytes(), b"\0"].concat()),
        ("nothing but NULs", vec![0; 512]),
        ("no =", with(b"HeaderDigest\0")),
        ("= first", with(b"=None\0")),
        ("a key twice", with(b"InitialR2T=Yes\0InitialR2T=No\0")),
        ("a name twice", with(b"InitiatorName=iqn.2026-11.x:y\0")),
        ("bytes that are no UTF-8", with(b"InitiatorAlias=\xff\xfe\xc0\x80\0")),
        ("a key of 64 characters", with(format!("{}=1\0", "K".repeat(64)).as_bytes())),
        ("a value of 300", with(format!("InitiatorAlias={}\0", "v".repeat(300)).as_bytes())),
        ("more keys than anybody has", with(keys(1100).as_bytes())[..8192].to_vec()),
        ("a declaration answered", with(b"TargetPortalGroupTag=1\0")),
    ];
    for (what, text) in cases {
        let mut raw = fixture.dial();
        raw.send(0x87, &text);
        // An answer with a status, or an end: never silence.
        let response = raw.receive();
        if let Some((answer, _)) = &response {
            let code = answer.status.code();
            assert!(code == 0 || code >> 8 == 2, "{what}: {code:#x}");
        }
        drop(raw);
        fixture.well(what);
    }
}

#[test]
fn unfinished_login_text_is_bounded() {
    // 64 KiB keys and 10 000 keys arrive in many requests with C set.
    let mut fixture = Fixture::new();
    for piece in ["v".repeat(8000), (0..600).map(|i| format!("X-key{i}=1\0")).collect::<String>()] {
        let mut raw = fixture.dial();
        raw.send(0x44, format!("{}\0", login_keys().replace(' ', "\0")).as_bytes());
        let mut requests = 0;
        while let Some((answer, text)) = raw.receive() {
            if answer.status.code() != 0 {
                assert_eq!(answer.status.code() >> 8, 2);
                break;
            }
            assert!(text.is_empty(), "text that continues has an empty answer");
            requests += 1;
            assert!(requests < 100, "no end of it");
            raw.send(0x44, piece.as_bytes());
        }
        assert!(requests > 1, "some of it is legal");
        assert!(raw.is_closed());
    }
    fixture.well("endless text");
}

#[test]
fn unusual_names_are_treated_as_plain_text() {
    let mut fixture = Fixture::new();
    for (name, codes) in [
        (format!("iqn.{}", "a".repeat(219)), [0, 0]),
        (format!("iqn.{}", "a".repeat(220)), [0x0200, 0x0200]),
        ("iqn.2026-11.a:../../../etc/passwd".into(), [0, 0x0200]),
        ("iqn.2026-11.a:%s%n%x".into(), [0, 0x0200]),
        ("iqn.2026-11.a:one\ntwo".into(), [0x0200, 0x0200]),
        ("iqn.2026-11.a:\u{202e}drawkcab".into(), [0, 0x0200]),
        ("".into(), [0x0200, 0x0207]),
        ("eui.0123".into(), [0, 0x0200]),
        ("disk".into(), [0x0200, 0x0200]),
    ] {
        let text = format!("InitiatorName={name}\0TargetName={IQN}\0");
        let mut raw = fixture.dial();
        raw.send(0x87, text.as_bytes());
        let code = raw.receive().unwrap().0.status.code();
        assert!(codes.contains(&code), "{name:?}: {code:#x}");
        // As the target's name they are names of nothing.
        let text = format!("InitiatorName=iqn.2026-11.a:b\0TargetName={name}\0");
        let mut raw = fixture.dial();
        raw.send(0x87, text.as_bytes());
        let code = raw.receive().unwrap().0.status.code();
        assert_eq!(code >> 8, 2, "{name:?}: {code:#x}");
    }
    fixture.well("odd names");
}

#[test]
fn invalid_login_stages_are_refused() {
    let mut fixture = Fixture::new();
    for flags in [
        0x08, 0x0c, // CSG 2 and 3
        0x82, 0x86, // NSG 2
        0x84, 0x85, 0x80, // backwards, or staying with T
        0xc7, 0xc3, // T and C
    ] {
        let mut raw = fixture.dial();
        assert_eq!(raw.status(flags, &login_keys()), 0x0200, "{flags:#x}");
        assert!(raw.is_closed());
    }
    // A stage that was not agreed on.
    let mut raw = fixture.dial();
    assert_eq!(raw.status(0x00, &login_keys()), 0);
    assert_eq!(raw.status(0x87, ""), 0x0200);
    fixture.well("stages");
}

#[test]
fn login_fields_changed_between_requests_are_refused() {
    let mut fixture = Fixture::new();
    for change in [
        |r: &mut LoginRequest| r.task_tag = 77,
        |r: &mut LoginRequest| r.isid[5] = 77,
        |r: &mut LoginRequest| r.tsih = 77,
        |r: &mut LoginRequest| r.cid = 77,
    ] {
        let mut raw = fixture.dial();
        assert_eq!(raw.status(0x00, &login_keys()), 0);
        let mut request = LoginRequest {
            isid: [0x80, 0, 0, 0, 0, raw.isid],
            task_tag: raw.task_tag,
            ..LoginRequest::default()
        };
        change(&mut request);
        raw.send_as(&request, 0x00, &[]);
        assert_eq!(raw.receive().unwrap().0.status.code(), 0x020b);
    }
    let mut raw = fixture.dial();
    let version = LoginRequest { version_min: 1, version_max: 2, ..LoginRequest::default() };
    let text = format!("{}\0", login_keys().replace(' ', "\0"));
    let version = LoginRequest { data_len: text.len() as u32, ..version };
    raw.send_as(&version, 0x87, text.as_bytes());
    assert_eq!(raw.receive().unwrap().0.status.code(), 0x0205);
    fixture.well("changes during login");
}

#[test]
fn unknown_sessions_cannot_be_joined() {
    let mut fixture = Fixture::new();
    let text = format!("{}\0", login_keys().replace(' ', "\0"));
    for tsih in [0x1234u16, 0xffff, 1, 2, 3] {
        let mut raw = fixture.dial();
        let request = LoginRequest {
            tsih,
            isid: [0x80, 0, 0, 0, 0, 9],
            data_len: text.len() as u32,
            ..LoginRequest::default()
        };
        raw.send_as(&request, 0x87, text.as_bytes());
        let code = raw.receive().unwrap().0.status.code();
        // The witness has one of the low numbers: a session has one connection.
        assert!(matches!(code, 0x020a | 0x0208), "{tsih}: {code:#x}");
    }
    fixture.well("sessions of others");
}

#[test]
fn isid_identifies_a_session_of_one_initiator_only() {
    // SPDK 1427: the ISID names a session of one initiator only.
    let fixture = Fixture::new();
    let mut all: Vec<Client> = (0..300)
        .map(|i| {
            let initiator = format!("iqn.2026-11.test.ashlar:host{i}");
            fixture.client_as(&LoginOptions { initiator, ..LoginOptions::default() })
        })
        .collect();
    assert_eq!(fixture.server.registry.sessions().len(), 301);
    all.iter_mut().for_each(|c| assert_eq!(c.read(0, 0, 1).len(), 512));
    drop(all);
    // The same initiator three hundred times: one session, the newest.
    let mut fixture = fixture;
    fixture.well("three hundred initiators");
    let mut last = fixture.client();
    for _ in 0..300 {
        last = Client::login(fixture.server.portal, &LoginOptions::default());
    }
    last.ready(0);
    assert_eq!(fixture.server.registry.sessions().len(), 2);
    drop(last);
    fixture.well("three hundred logins");
}

#[test]
fn hundreds_of_unknown_keys_are_all_answered() {
    // CVE-2013-2850: the answers overflowed a buffer.
    let mut fixture = Fixture::new();
    let mut raw = fixture.dial();
    let keys: Vec<String> = (0..600).map(|i| format!("X-{i:03}=1")).collect();
    assert_eq!(raw.status(0x04, &login_keys()), 0);
    let mut response = raw.ask(0x04, &keys.join(" "));
    let mut text = String::new();
    loop {
        let (answer, piece) = response.expect("an answer");
        assert_eq!(answer.status.code(), 0);
        assert!(piece.len() <= 8192, "no more than the initiator takes");
        text.push_str(&piece);
        if !answer.more {
            break;
        }
        raw.send(0x04, &[]);
        response = raw.receive();
    }
    assert_eq!(text.matches("=NotUnderstood\0").count(), 600);
    let done = raw.ask(0x87, "").unwrap().0;
    assert!(done.transit && done.tsih != 0);
    drop(raw);
    fixture.well("unknown keys");
}

#[test]
fn keys_in_every_form_are_answered_by_the_rules() {
    let mut fixture = Fixture::new();
    for (offer, answer) in [
        ("MaxBurstLength=0x40000", "MaxBurstLength=262144"),
        ("MaxBurstLength=511", "MaxBurstLength=Reject"),
        ("MaxBurstLength=16777216", "MaxBurstLength=Reject"),
        ("MaxBurstLength=18446744073709551616", "MaxBurstLength=Reject"),
        ("MaxBurstLength=99999999999999999999999999", "MaxBurstLength=Reject"),
        ("MaxBurstLength=", "MaxBurstLength=Reject"),
        ("MaxBurstLength=-1", "MaxBurstLength=Reject"),
        ("InitialR2T=Maybe", "InitialR2T=Reject"),
        ("HeaderDigest=X-what,None", "HeaderDigest=None"),
        ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
        ("MaxConnections=65535", "MaxConnections=1"),
        ("X-reversed.vendor=1", "X-reversed.vendor=NotUnderstood"),
    ] {
        let mut raw = fixture.dial();
        let (status, text) = raw.ask(0x04, &format!("{} {offer}", login_keys())).unwrap();
        assert_eq!(status.status.code(), 0, "{offer}");
        assert!(text.contains(&format!("{answer}\0")), "{offer}: {text:?}");
    }
    // Markers are obsolete, and must not be answered with NotUnderstood.
    let mut raw = fixture.dial();
    let markers = "OFMarker=Yes IFMarker=Yes OFMarkInt=1 IFMarkInt=1";
    let (_, text) = raw.ask(0x04, &format!("{} {markers}", login_keys())).unwrap();
    assert!(!text.contains("NotUnderstood"), "{text:?}");
    fixture.well("keys in odd forms");
}

/// At the place where CHAP_A has been answered: algorithm, identifier and challenge.
fn challenged(raw: &mut Raw, algorithms: &str, method: &str) -> (u8, Vec<u8>, String) {
    assert_eq!(raw.status(0x00, &format!("{} AuthMethod={method}", login_keys())), 0);
    let (answer, text) = raw.ask(0x00, &format!("CHAP_A={algorithms}")).unwrap();
    assert_eq!(answer.status.code(), 0, "{algorithms}");
    let value = |key: &str| {
        let found = text.split('\0').find_map(|p| p.strip_prefix(key)).unwrap();
        found.to_string()
    };
    let id = value("CHAP_I=").parse().unwrap();
    let mut buffer = [0; 1024];
    let challenge = decode_binary(&value("CHAP_C="), &mut buffer).unwrap().to_vec();
    (id, challenge, value("CHAP_A="))
}

fn algorithm(number: &str) -> Algorithm {
    Algorithm::ALL.into_iter().find(|a| (*a as u8).to_string() == number).unwrap()
}

#[test]
fn chap_algorithms_have_their_iana_numbers() {
    // tgt had SHA-1 under number 7: an initiator that offers 8,7,6,5 must log in.
    let strong = TargetSpec { params: json!({}), ..guarded("alice") };
    let mut fixture = Fixture::with(TargetSpec::default());
    fixture.server.set(strong);
    for (offer, chosen) in
        [("8,7,6,5", "8"), ("7,6,5", "7"), ("6,5", "6"), ("5,7", "7"), ("99,0x7", "7")]
    {
        for base64 in [false, true] {
            let mut raw = fixture.dial();
            let (id, challenge, number) = challenged(&mut raw, offer, "CHAP");
            assert_eq!(number, chosen, "{offer}");
            let proof = chap_response(algorithm(chosen), id, b"secret of alice", &challenge);
            let proof = match base64 {
                true => encode_base64(proof.bytes()),
                false => encode_hex(proof.bytes()),
            };
            let (answer, _) = raw.ask(0x81, &format!("CHAP_N=alice CHAP_R={proof}")).unwrap();
            assert_eq!((answer.status.code(), answer.transit), (0, true), "{offer}");
        }
    }
    // MD5 is number 5, and only where it was allowed.
    let only_md5 = Algorithms { md5: true, sha1: false, sha256: false, sha3: false };
    let how = with_chap("alice", "secret of alice", only_md5);
    assert!(Client::try_login(fixture.server.portal, &how).is_err());
    fixture.server.set(TargetSpec { params: json!({ "chap_md5": true }), ..guarded("alice") });
    drop(fixture.client_as(&how));
    let every = with_chap("alice", "secret of alice", Algorithms::ANY);
    drop(fixture.client_as(&every));
    fixture.well("every algorithm");
}

/// Every pair of a name and an account, of two hosts with groups of their own on one target. An
/// account opens the way to its own initiator's units, and to no others.
#[test]
fn account_admits_only_its_own_initiator() {
    let fixture = Fixture::new();
    let (one, two, third) = ("iqn.2026-11.test:one", "iqn.2026-11.test:two", "iqn.2026-11.test:3");
    let proof = |name: &str| ChapAccounts {
        account: account(name, &format!("secret of {name}")).unwrap(),
        mutual: account("target", &format!("target's for {name}")),
    };
    let group = |name: &str, initiators: &[&str], proofs: GroupAuth| GroupSpec {
        name: name.into(),
        initiators: initiators.iter().map(|i| (*i).into()).collect(),
        auth: proofs,
        luns: vec![LunSpec { lun: 0, device: "memory".into(), read_only: false }],
        ..GroupSpec::default()
    };
    let whole = GroupAuth { group: Some(proof("user1")), ..GroupAuth::default() };
    let single = [(two.to_owned(), proof("user2"))].into();
    let single = GroupAuth { group: None, initiators: single };
    let groups = [group("a", &[one], whole), group("b", &[two, third], single)];
    fixture.server.registry.set_groups("iscsi", IQN, &groups).unwrap();
    for (initiator, user, enters) in [
        (one, Some("user1"), true),
        (two, Some("user2"), true),
        (one, Some("user2"), false),
        (two, Some("user1"), false),
        (third, Some("user1"), false),
        (third, Some("user2"), false),
        (one, None, false),
        (two, None, false),
        (third, None, false),
    ] {
        let how = match user {
            None => LoginOptions::default(),
            Some(user) => with_chap(user, &format!("secret of {user}"), Algorithms::default()),
        };
        let how = LoginOptions { initiator: initiator.into(), ..how };
        let came = Client::try_login(fixture.server.portal, &how).is_ok();
        assert_eq!(came, enters, "{initiator} with {user:?}");
    }
    // The target shows each the secret that this one expects, and no other's.
    for (expects, enters) in [("target's for user1", true), ("target's for user2", false)] {
        let challenge = Challenge { id: 3, bytes: [7; 32] };
        let chap = ClientChap {
            user: user("user1", "secret of user1"),
            algorithms: Algorithms::default(),
            mutual: Some((user("target", expects), challenge)),
        };
        let how =
            LoginOptions { initiator: one.into(), chap: Some(chap), ..LoginOptions::default() };
        assert_eq!(Client::try_login(fixture.server.portal, &how).is_ok(), enters, "{expects}");
    }
    let denied = fixture.server.registry.denied();
    assert!(denied.iter().any(|d| d.text.contains("`initiator_chap`")), "{denied:?}");
}

#[test]
fn user_names_that_look_like_numbers_are_plain_text() {
    let mut fixture = Fixture::new();
    for name in ["0x6162", "0b6162", "0xZZ", "12", "Yes"] {
        fixture.server.set(guarded(name));
        drop(fixture.client_as(&with_chap(name, "secret of alice", Algorithms::default())));
        let other = with_chap("ab", "secret of alice", Algorithms::default());
        assert!(Client::try_login(fixture.server.portal, &other).is_err(), "{name} is not ab");
    }
    fixture.well("user names");
}

#[test]
fn chap_responses_of_wrong_length_or_encoding_are_refused() {
    // CVE-2018-14633: oversize hexadecimal or base64 overflowed a buffer.
    let mut fixture = Fixture::new();
    fixture.server.set(guarded("alice"));
    let long = |n: usize| vec![0x5a; n];
    for response in [
        encode_hex(&long(31)),
        encode_hex(&long(33)),
        encode_hex(&long(1024)),
        encode_hex(&long(3000)),
        encode_base64(&long(33)),
        encode_base64(&long(1024)),
        encode_base64(&long(4000)),
        "0x".into(),
        "0b".into(),
        "0xabc".into(),
        "0xzz".into(),
        "0b====".into(),
        "0bA".into(),
        "123".into(),
        "".into(),
        format!("0x{}", "0".repeat(63)),
    ] {
        let mut raw = fixture.dial();
        challenged(&mut raw, "7", "CHAP");
        let code = raw.status(0x81, &format!("CHAP_N=alice CHAP_R={response}"));
        assert!(matches!(code, 0x0200 | 0x0201), "{response}: {code:#x}");
        assert!(raw.is_closed());
    }
    fixture.well("proofs of every length");
}

#[test]
fn keys_of_chap_out_of_order_repeated_or_huge_are_refused() {
    let mut fixture = Fixture::new();
    fixture.server.set(guarded("alice"));
    let method = "AuthMethod=CHAP";
    for texts in [
        vec!["CHAP_A=7"],
        vec!["CHAP_N=alice CHAP_R=0x00"],
        vec![method, "CHAP_N=alice CHAP_R=0x00"],
        vec![method, "CHAP_A=7 CHAP_A=7"],
        vec![method, "CHAP_A="],
        vec![method, "CHAP_A=4"],
        vec![method, "CHAP_A=99999999999999999999"],
        vec![method, "CHAP_A=7", "CHAP_A=7"],
        vec![method, "CHAP_A=7", "CHAP_R=0x00"],
        vec![method, "CHAP_A=7", "CHAP_N=alice"],
        vec![method, "CHAP_A=7", ""],
        vec!["AuthMethod=None"],
        vec!["AuthMethod=KRB5,SRP"],
        vec!["AuthMethod="],
    ] {
        let mut raw = fixture.dial();
        let last = texts.len() - 1;
        for (i, text) in texts.iter().enumerate() {
            let text = if i == 0 { format!("{} {text}", login_keys()) } else { text.to_string() };
            let code = raw.status(0x00, &text);
            if i == last {
                assert_eq!(code >> 8, 2, "{texts:?}: {code:#x}");
            } else {
                assert_eq!(code, 0, "{texts:?}");
            }
        }
    }
    // Past the security stage, or straight to the end, without a proof.
    for flags in [0x81, 0x83, 0x87] {
        for text in ["", "AuthMethod=None", "AuthMethod=CHAP"] {
            let mut raw = fixture.dial();
            let (answer, _) = raw.ask(flags, &format!("{} {text}", login_keys())).unwrap();
            let code = answer.status.code();
            assert!(code >> 8 == 2 || !answer.transit, "{flags:#x} {text}: {code:#x}");
        }
    }
    fixture.well("CHAP out of order");
}

#[test]
fn chap_challenges_are_unique_and_cannot_be_reflected() {
    // CVE-2024-45751: challenges that could be predicted.
    let mut fixture = Fixture::new();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2 {
        fixture.server.set(guarded("alice"));
        for _ in 0..50 {
            let (_, challenge, _) = challenged(&mut fixture.dial(), "7", "CHAP");
            assert!(challenge.len() >= 16 && seen.insert(challenge));
        }
    }
    let other = Fixture::new();
    other.server.set(guarded("alice"));
    let (_, challenge, _) = challenged(&mut other.dial(), "7", "CHAP");
    assert!(seen.insert(challenge), "another daemon draws others");
    // Reflection: the challenge of one connection is given to the target on another, whose answer
    // is sent back on the first.
    let (mut first, mut second) = (fixture.dial(), fixture.dial());
    let (id, challenge, _) = challenged(&mut first, "7", "CHAP");
    let (id2, challenge2, _) = challenged(&mut second, "7", "CHAP");
    let proof = chap_response(Algorithm::Sha256, id2, b"secret of alice", &challenge2);
    let proof = encode_hex(proof.bytes());
    let mine = format!("CHAP_I={id} CHAP_C={}", encode_hex(&challenge));
    let (_, text) = second.ask(0x81, &format!("CHAP_N=alice CHAP_R={proof} {mine}")).unwrap();
    let answer = text.split('\0').find_map(|p| p.strip_prefix("CHAP_R=")).unwrap().to_string();
    assert_eq!(first.status(0x81, &format!("CHAP_N=alice CHAP_R={answer}")), 0x0201);
    // On the same connection it is refused outright with any proof.
    let mut same = fixture.dial();
    let (id, challenge, _) = challenged(&mut same, "7", "CHAP");
    let proof = chap_response(Algorithm::Sha256, id, b"secret of alice", &challenge);
    let text = format!(
        "CHAP_N=alice CHAP_R={} CHAP_I={id} CHAP_C={}",
        encode_hex(proof.bytes()),
        encode_hex(&challenge)
    );
    assert_eq!(same.status(0x81, &text), 0x0201);
    fixture.well("reflections");
}

#[test]
fn discovery_has_an_account_of_its_own() {
    let mut fixture = Fixture::with(TargetSpec {
        discovery_chap: account("finder", "secret of finder"),
        ..TargetSpec::default()
    });
    let discovery = |name: &str, secret: &str| LoginOptions {
        target: None,
        ..with_chap(name, secret, Algorithms::default())
    };
    let anybody = LoginOptions { target: None, ..LoginOptions::default() };
    assert!(Client::try_login(fixture.server.portal, &anybody).is_err());
    let wrong = discovery("finder", "another secret!!");
    assert!(Client::try_login(fixture.server.portal, &wrong).is_err());
    let good = discovery("finder", "secret of finder");
    let mut c = Client::login(fixture.server.portal, &good);
    let (_, text) = c.text(b"SendTargets=All\0", false, u32::MAX);
    assert!(String::from_utf8(text).unwrap().contains(IQN));
    c.logout();
    // The account of discovery opens no target that has one of its own, and the other way round.
    let spec =
        TargetSpec { discovery_chap: account("finder", "secret of finder"), ..guarded("alice") };
    fixture.server.set(spec);
    let normal = LoginOptions { target: Some(IQN.into()), ..good };
    assert!(Client::try_login(fixture.server.portal, &normal).is_err());
    let wrong = discovery("alice", "secret of alice");
    assert!(Client::try_login(fixture.server.portal, &wrong).is_err());
    // A target that proves itself in discovery.
    let challenge = Challenge { id: 3, bytes: [0x33; 32] };
    let mutual = Some((user("target", "secret of target"), challenge));
    let chap = ClientChap {
        user: user("finder", "secret of finder"),
        algorithms: Algorithms::default(),
        mutual,
    };
    let both = LoginOptions { target: None, chap: Some(chap), ..LoginOptions::default() };
    Client::login(fixture.server.portal, &both).logout();
    fixture.well("discovery");
}
