//! Every key against its legal range, its rule, and the answers that are not values.

use super::*;
use crate::fuzzing::Prng;
use crate::iscsi::pairs;

/// The target's answer to one text, or the error's field.
fn answers(
    offer: Offer,
    discovery: bool,
    text: &str,
) -> Result<(String, SessionParams), &'static str> {
    let mut target = Negotiation::login(Side::Target, discovery, offer);
    let mut out = TextBuilder::new();
    let bytes = format!("{}\0", text.replace(' ', "\0"));
    let pairs = pairs(bytes.as_bytes()).unwrap();
    target.receive(&pairs, &mut out).map_err(|e| e.field)?;
    let text = String::from_utf8(out.into_bytes()).unwrap();
    Ok((text.trim_end_matches('\0').replace('\0', " "), *target.params()))
}

fn generous() -> Offer {
    let params = SessionParams {
        max_connections: 4,
        initial_r2t: false,
        max_burst: 1 << 20,
        first_burst: 1 << 18,
        max_outstanding_r2t: 8,
        time2wait_s: 0,
        time2retain_s: 60,
        error_recovery_level: 2,
        protocol_level: 2,
        recv_data_len_max: 1 << 18,
        ..SessionParams::default()
    };
    Offer { params, ..Offer::default() }
}

/// N2 of iscsi/negotiate.rs.
#[test]
fn keys_are_negotiated_by_their_rules() {
    for (text, want) in [
        ("MaxConnections=8", "MaxConnections=4"),
        ("InitialR2T=No", "InitialR2T=No"),
        ("InitialR2T=Yes", "InitialR2T=Yes"),
        ("ImmediateData=Yes", "ImmediateData=Yes"),
        ("ImmediateData=No", "ImmediateData=No"),
        ("MaxRecvDataSegmentLength=65536", ""),
        ("MaxBurstLength=16776192", "MaxBurstLength=1048576"),
        ("MaxBurstLength=0x1000", "MaxBurstLength=4096"),
        (
            "FirstBurstLength=262144 MaxBurstLength=4096",
            "MaxBurstLength=4096 FirstBurstLength=4096",
        ),
        ("DefaultTime2Wait=5", "DefaultTime2Wait=5"),
        ("DefaultTime2Retain=0", "DefaultTime2Retain=0"),
        ("MaxOutstandingR2T=65535", "MaxOutstandingR2T=8"),
        ("DataPDUInOrder=No", "DataPDUInOrder=Yes"),
        ("ErrorRecoveryLevel=1", "ErrorRecoveryLevel=1"),
        ("HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"),
        ("HeaderDigest=X#sum,None,CRC32C", "HeaderDigest=None"),
        ("HeaderDigest=MD5", "HeaderDigest=Reject"),
        ("TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"),
        ("TaskReporting=FastAbort", "TaskReporting=Reject"),
        ("iSCSIProtocolLevel=31", "iSCSIProtocolLevel=2"),
        ("OFMarker=Yes IFMarker=No", "OFMarker=No IFMarker=No"),
        ("OFMarkInt=1~2", "OFMarkInt=Reject"),
        ("X-com.example.fast=1", "X-com.example.fast=NotUnderstood"),
        ("X-com.example.fast=NotUnderstood", ""),
        ("Nonsense=", "Nonsense=NotUnderstood"),
        (
            "ImmediateData=No InitialR2T=Yes FirstBurstLength=512",
            "ImmediateData=No InitialR2T=Yes FirstBurstLength=Irrelevant",
        ),
    ] {
        let (answer, _) = answers(generous(), false, text).unwrap();
        assert_eq!(answer, want, "{text}");
    }
}

#[test]
fn values_outside_a_key_range_are_rejected() {
    for spec in KEYS.iter().filter(|s| {
        matches!(s.rule, Rule::Min | Rule::Max | Rule::Declared) && s.key != Key::FirstBurstLength
    }) {
        let low = u64::from(spec.low);
        let high = u64::from(spec.high);
        let reject = format!("{}=Reject", spec.name);
        for value in [low.wrapping_sub(1), high + 1, u64::MAX] {
            let (answer, params) =
                answers(generous(), false, &format!("{}={value}", spec.name)).unwrap();
            assert_eq!(answer, reject);
            assert_eq!(params, SessionParams::default());
        }
        for value in ["", "abc", "18446744073709551616", "-1", "1.5", "Yes"] {
            let (answer, _) =
                answers(generous(), false, &format!("{}={value}", spec.name)).unwrap();
            assert_eq!(answer, reject);
        }
        for value in [low, high] {
            let (answer, _) =
                answers(generous(), false, &format!("{}={value}", spec.name)).unwrap();
            assert!(!answer.contains("Reject"), "{}={value}", spec.name);
        }
    }
    let (answer, _) = answers(generous(), false, "InitialR2T=1").unwrap();
    assert_eq!(answer, "InitialR2T=Reject");
}

#[test]
fn discovery_makes_session_keys_irrelevant() {
    let text = "MaxConnections=1 InitialR2T=No ImmediateData=Yes MaxBurstLength=512 \
                FirstBurstLength=512 MaxOutstandingR2T=1 DataPDUInOrder=Yes \
                DataSequenceInOrder=Yes TaskReporting=RFC3720 iSCSIProtocolLevel=1";
    let (answer, params) = answers(generous(), true, text).unwrap();
    assert_eq!(answer.matches("=Irrelevant").count(), 10);
    assert_eq!(params, SessionParams::default());
    let (answer, _) = answers(generous(), true, "HeaderDigest=None DefaultTime2Wait=2").unwrap();
    assert_eq!(answer, "HeaderDigest=None DefaultTime2Wait=2");
}

/// N1 of iscsi/negotiate.rs.
#[test]
fn broken_negotiation_rules_are_errors() {
    for (text, field) in [
        ("MaxConnections=1 MaxConnections=1", "MaxConnections"),
        ("Foo=1 Foo=2", "key"),
        ("TargetAlias=a", "TargetAlias"),
        ("TargetPortalGroupTag=1", "TargetPortalGroupTag"),
        ("CHAP_A=5", "CHAP_A"),
        ("SendTargets=All", "SendTargets"),
        ("MaxBurstLength=Reject", "MaxBurstLength"),
        ("MaxBurstLength=Irrelevant", "MaxBurstLength"),
    ] {
        assert_eq!(answers(generous(), false, text).unwrap_err(), field, "{text}");
    }
    // The same key in a second text of the same negotiation.
    let mut target = Negotiation::login(Side::Target, false, generous());
    let mut out = TextBuilder::new();
    target.receive(&[("InitialR2T", "No")], &mut out).unwrap();
    let again = target.receive(&[("InitialR2T", "No")], &mut out).unwrap_err();
    assert_eq!((again.kind, again.field), (Kind::Duplicate, "InitialR2T"));
}

#[test]
fn full_feature_phase_changes_only_the_segment_length() {
    let params = SessionParams { first_burst: 4096, ..SessionParams::default() };
    let mut text = Negotiation::full_feature(Side::Target, false, generous(), params);
    let mut out = TextBuilder::new();
    let pairs = [
        ("MaxRecvDataSegmentLength", "1024"),
        ("MaxBurstLength", "512"),
        ("HeaderDigest", "CRC32C"),
        ("InitiatorAlias", "me"),
    ];
    text.receive(&pairs, &mut out).unwrap();
    assert_eq!(out.bytes(), b"MaxBurstLength=Reject\0HeaderDigest=Reject\0");
    assert_eq!(text.finish().unwrap(), SessionParams { send_data_len_max: 1024, ..params });
}

#[test]
fn strict_target_proposes_and_enforces_its_values() {
    let strict = Offer {
        data_digest: DigestPolicy::Require,
        params: SessionParams {
            max_burst: 65_536,
            immediate_data: false,
            ..SessionParams::default()
        },
        ..Offer::default()
    };
    let mut target = Negotiation::login(Side::Target, false, strict);
    let mut out = TextBuilder::new();
    assert!(target.propose(&mut out).unwrap());
    assert_eq!(out.bytes(), b"DataDigest=CRC32C\0ImmediateData=No\0MaxBurstLength=65536\0");
    assert!(target.finish().is_err());
    let mut silent = TextBuilder::new();
    assert!(target.propose(&mut silent).unwrap() && silent.is_empty());
    let beyond = target.clone().receive(&[("MaxBurstLength", "131072")], &mut silent);
    assert_eq!(beyond.unwrap_err().kind, Kind::Unsupported);
    let refused = target.clone().receive(&[("DataDigest", "NotUnderstood")], &mut silent);
    assert_eq!(refused.unwrap_err().kind, Kind::Unsupported);
    let pairs = [("MaxBurstLength", "4096"), ("DataDigest", "CRC32C"), ("ImmediateData", "No")];
    target.receive(&pairs, &mut silent).unwrap();
    assert!(silent.is_empty() && !target.waiting());
    let params = target.finish().unwrap();
    assert!(params.data_digest && !params.immediate_data);
    assert_eq!((params.max_burst, params.first_burst), (4096, 4096));
}

/// For all offers of two sides, both end with the same parameters, within the limits of each.
/// N3 of iscsi/negotiate.rs.
#[test]
fn both_sides_agree_on_the_parameters() {
    let mut rng = Prng::new(3);
    for _ in 0..2000 {
        let mut one = || {
            let mut offer = Offer::default();
            for spec in KEYS {
                let span = u64::from(spec.high - spec.low) + 1;
                let value = u64::from(spec.low) + rng.next_u64() % span;
                offer.params.set(spec.key, value as u32);
            }
            offer.params.recv_data_len_max = offer.params.send_data_len_max;
            let digests = [DigestPolicy::Off, DigestPolicy::Allow, DigestPolicy::Prefer];
            offer.header_digest = digests[rng.below(3)];
            offer.data_digest = digests[rng.below(3)];
            offer
        };
        let (ours, theirs) = (one(), one());
        let mut initiator = Negotiation::login(Side::Initiator, false, ours);
        let mut target = Negotiation::login(Side::Target, false, theirs);
        let mut text = TextBuilder::new();
        initiator.propose(&mut text).unwrap();
        initiator.declare(&mut text).unwrap();
        for round in 0.. {
            assert!(round < 4);
            let mut answer = TextBuilder::new();
            target.receive(&pairs(text.bytes()).unwrap(), &mut answer).unwrap();
            target.declare(&mut answer).unwrap();
            target.propose(&mut answer).unwrap();
            text = TextBuilder::new();
            initiator.receive(&pairs(answer.bytes()).unwrap(), &mut text).unwrap();
            if !target.waiting() && !initiator.waiting() && text.is_empty() {
                break;
            }
        }
        let (a, b) = (initiator.finish().unwrap(), target.finish().unwrap());
        assert_eq!(a.recv_data_len_max, b.send_data_len_max);
        assert_eq!(a.send_data_len_max, b.recv_data_len_max);
        let swapped = SessionParams {
            recv_data_len_max: b.send_data_len_max,
            send_data_len_max: b.recv_data_len_max,
            ..b
        };
        assert_eq!(a, swapped);
        assert!(a.first_burst <= a.max_burst && a.max_burst <= ours.params.max_burst);
        assert!(a.max_burst <= theirs.params.max_burst);
    }
}
