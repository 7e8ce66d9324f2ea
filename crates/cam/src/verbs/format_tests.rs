//! Formats of `cam cmd` as those of FreeBSD's camcontrol: encoded, decoded and wrong values.

use super::*;

fn encode_words(format: &str, words: &[&str]) -> Result<Vec<u8>, String> {
    encode(format, &mut words.iter().copied().collect())
}

#[test]
fn bytes_numbers_and_bit_fields_are_encoded() {
    for (format, words, want) in [
        ("12 0 0 0 v:i1 0", &["36"][..], &[0x12, 0, 0, 0, 36, 0][..]),
        ("12 0 0 0 v 0", &["0x24"], &[0x12, 0, 0, 0, 36, 0]),
        (
            "28 0 v:i4 0 v:i2 0",
            &["0x12345678", "256"],
            &[0x28, 0, 0x12, 0x34, 0x56, 0x78, 0, 1, 0, 0],
        ),
        // MODE SENSE(6): the page in six bits behind the page control in two.
        (
            "1a 0:b4 {DBD} v:b1 0:b3 v:b2 v:b6 0 ff 0",
            &["1", "2", "8"],
            &[0x1a, 8, 0x88, 0, 0xff, 0],
        ),
        ("{LBA, all of it} 123456:i3 /* and no more */ 7:t3 1f:b5", &[], &[0x12, 0x34, 0x56, 0xff]),
        ("v:b12 f:b4", &["0xabc"], &[0xab, 0xcf]),
        ("12,0,0x24", &[], &[0x12, 0, 0x24]),
    ] {
        assert_eq!(encode_words(format, words).as_deref(), Ok(want), "{format}");
    }
    let mut words = VecDeque::from(["1", "left"]);
    assert_eq!(encode("v", &mut words), Ok(vec![1]));
    assert_eq!(words, ["left"], "what no v took is for somebody else");
}

#[test]
fn invalid_formats_are_refused_with_a_reason() {
    for (format, words, word) in [
        ("", &[][..], "hexadecimal"),
        ("xy", &[], "xy: bytes in hexadecimal"),
        ("100", &[], "more than 8 bits"),
        ("v:b3", &["8"], "more than 3 bits"),
        ("v", &[], "no value is left"),
        ("{length} v", &["many"], "length: many is no number"),
        ("1:b3", &[], "lacks 5 bits"),
        ("1:b3 0", &[], "not begin at a whole byte"),
        ("1:i5", &[], "i1 to i4"),
        ("1:b33", &[], "i1 to i4"),
        ("1:b0", &[], "i1 to i4"),
        ("1:q1", &[], "i1 to i4"),
        ("{open", &[], "without its }"),
        ("/* 1", &[], "without its */"),
    ] {
        let why = encode_words(format, words).unwrap_err();
        assert!(why.contains(word), "{format}: {why}");
    }
    assert!(encode_words(&"1 ".repeat(FIELDS_MAX + 1), &[]).unwrap_err().contains("fields"));
}

#[test]
fn received_data_is_printed_as_by_camcontrol() {
    let mut bytes = vec![0x05, 0x80, 0x06, 0x12, 31, 0, 0, 0];
    bytes.extend(b"ASHLAR  virtual disk    1\x01  ");
    let format = "*b3 {type} b5 {RMB} b1 s8 {vendor} z8 {product} z16 {revision} c4";
    let shown = decode(format, &bytes).unwrap();
    assert_eq!(text(&shown, false), "5 1 ASHLAR virtual disk 1.\n");
    let want = "type: 5\nRMB: 1\nvendor: ASHLAR\nproduct: virtual disk\nrevision: 1.  \n";
    assert_eq!(text(&shown, true), want);
    let shown = decode("s+2 i2 s-2 i1 t4 t4 s0 i4 i3", &bytes).unwrap();
    assert_eq!(text(&shown, false), "1554 6 1 2 92276242 2031616\n");
    // A number begins at a byte.
    assert_eq!(text(&decode("s1 b1 i1", &bytes).unwrap(), false), "1 6\n");
}

#[test]
fn formats_beyond_the_received_data_are_refused() {
    for (format, word) in [
        ("i4", "i4: only 3 bytes were received"),
        ("s3 b1", "only 3"),
        ("s4", "only 3"),
        ("s-1", "only 3"),
        ("c4", "only 3"),
        ("z99999999999999999999", "is wanted"),
        ("c18446744073709551615", "only 3"),
        ("s", "is wanted"),
        ("s+", "is wanted"),
        ("x1", "is wanted"),
        ("i", "is wanted"),
        ("*", "is wanted"),
        ("é1", "is wanted"),
    ] {
        let why = decode(format, &[1, 2, 3]).unwrap_err();
        assert!(why.contains(word), "{format}: {why}");
    }
    assert_eq!(text(&[], false), "\n");
}
