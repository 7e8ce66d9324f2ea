//! CRC32C vectors, and frames cut at every byte.

use super::*;

#[test]
fn crc32c_matches_the_vectors_of_the_standard() {
    // RFC 7143 appendix A.4 (RFC 3720 B.4): bytes in wire order.
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    let command: [u8; 48] = [
        0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0, 0, 0,
        0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
    ];
    let cases: [(&[u8], [u8; 4]); 5] = [
        (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (&up, [0x4e, 0x79, 0xdd, 0x46]),
        (&down, [0x5c, 0xdb, 0x3f, 0x11]),
        (&command, [0x56, 0x3a, 0x96, 0xd9]),
    ];
    for (bytes, wire) in cases {
        assert_eq!(crc32c(bytes).to_le_bytes(), wire);
        let mut pieces = Crc32c::new();
        for piece in bytes.chunks(7) {
            pieces.update(piece);
        }
        assert_eq!(pieces.wire(), wire);
    }
    let (mut padded, mut whole) = (Crc32c::new(), Crc32c::new());
    padded.update(&[1, 2, 3, 4, 5]);
    padded.pad(5);
    whole.update(&[1, 2, 3, 4, 5, 0, 0, 0]);
    assert_eq!(padded.wire(), whole.wire());
}

/// A PDU with additional headers, data and both digests as requested.
fn pdu(framer: &Framer, ahs: &[u8], data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; BHS_LEN];
    out[4] = u8::try_from(ahs.len() / 4).unwrap();
    out[5..8].copy_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes()[1..]);
    out.extend_from_slice(ahs);
    if framer.header_digest {
        let crc = crc32c(&out);
        out.extend(crc.to_le_bytes());
    }
    let at = out.len();
    out.extend_from_slice(data);
    out.resize(at + data.len().next_multiple_of(4), 0);
    if framer.data_digest && !data.is_empty() {
        let crc = crc32c(&out[at..]);
        out.extend(crc.to_le_bytes());
    }
    out
}

#[test]
fn pdus_with_any_digests_and_any_prefix_are_framed() {
    for bits in 0..4 {
        let framer = Framer {
            header_digest: bits & 1 != 0,
            data_digest: bits & 2 != 0,
            data_len_max: 64,
            ahs_len_max: 64,
        };
        for ahs_len in [0, 4, 64] {
            for data_len in [0usize, 1, 2, 3, 4, 64] {
                let data: Vec<u8> = (0..data_len).map(|i| i as u8).collect();
                let whole = pdu(&framer, &vec![9; ahs_len], &data);
                let mut need = 0;
                let frame = (0..=whole.len()).find_map(|n| match framer.header(&whole[..n]) {
                    Ok(Need::Bytes(more)) => {
                        assert!(more > n && more >= need);
                        need = more;
                        None
                    }
                    Ok(Need::Header(frame)) => Some(frame),
                    Err(e) => panic!("{e}"),
                });
                let frame = frame.unwrap();
                assert_eq!(frame.total_len(), whole.len());
                assert_eq!(frame.header_len, need);
                let tail = &whole[frame.header_len..];
                assert_eq!(tail.len(), frame.tail_len());
                assert_eq!(framer.data(&frame, tail).unwrap(), &data[..]);
                for cut in 0..tail.len() {
                    assert!(framer.data(&frame, &tail[..cut]).is_err());
                }
            }
        }
    }
}

#[test]
fn wrong_header_digest_is_detected_before_any_length_is_used() {
    let framer =
        Framer { header_digest: true, data_digest: true, data_len_max: 16, ahs_len_max: 0 };
    let good = pdu(&framer, &[], &[1, 2, 3]);
    for bit in 0..(BHS_LEN + 4) * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        // A damaged TotalAHSLength makes the framer wait for more bytes (at most 1020) and then
        // fails.
        bad.resize(2048, 0);
        let error = framer.header(&bad).unwrap_err();
        assert_eq!((error.kind, error.field), (Kind::Digest, "HeaderDigest"), "bit {bit}");
    }
    let Ok(Need::Header(frame)) = framer.header(&good) else { panic!("no header") };
    let tail = &good[frame.header_len..];
    for bit in 0..tail.len() * 8 {
        let mut bad = tail.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = framer.data(&frame, &bad).unwrap_err();
        assert_eq!((error.kind, error.field), (Kind::Digest, "DataDigest"));
    }
}

#[test]
fn segment_lengths_over_the_limits_are_refused() {
    let mut bhs = [0u8; BHS_LEN];
    bhs[5..8].fill(0xff);
    assert_eq!(PRE_LOGIN.header(&bhs).unwrap_err().field, "DataSegmentLength");
    bhs[4] = 1;
    assert_eq!(PRE_LOGIN.header(&bhs).unwrap_err().field, "TotalAHSLength");
    let exact = pdu(&PRE_LOGIN, &[], &[0; 8192]);
    assert!(matches!(PRE_LOGIN.header(&exact), Ok(Need::Header(_))));
    let framer = Framer { header_digest: true, ..PRE_LOGIN };
    let signed = pdu(&framer, &[0; 4], &[]);
    assert_eq!(framer.header(&signed).unwrap_err().field, "TotalAHSLength");
}
