//! Frames of AoE: captures of Linux, addresses, mask lists, wrong lengths.

use super::*;
use crate::Kind;

const HOST: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
const TARGET: Mac = Mac([0x76, 0x29, 0x64, 0xce, 0x7e, 0x53]);
const OWN: Address = Address { shelf: 565, slot: 1 };

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// Frames as a Linux 6.1 initiator and vblade 25 sent them.
#[test]
fn captured_frames_of_linux_are_decoded() {
    let query = bytes("ffffffffffff 525400123456 88a2 10 00 ffff ff 01 00000000 00000000 00000000");
    let (header, body) = Header::decode(&query).unwrap();
    assert_eq!((header.to, header.from, header.address), (BROADCAST, HOST, Address::ALL));
    assert!(!header.response && header.error.is_none() && header.command == command::CONFIG);
    assert_eq!(Config::decode(body), Ok(Config::request(directive::READ, &[])));

    let answer = header.answer(TARGET, OWN);
    let config = Config::response(16, 0x4019, 17, &[]);
    let encoded = [&answer.encode()[..], &config.encode()].concat();
    let wanted = "525400123456 762964ce7e53 88a2 18 00 0235 01 01 00000000 0010 4019 11 10 0000";
    assert_eq!(encoded, bytes(wanted));

    let identify = "762964ce7e53 525400123456 88a2 10 00 0235 01 00 0001de5d \
                    00 00 01 ec 000000a00000 0000";
    let identify = bytes(identify);
    let (header, body) = Header::decode(&identify).unwrap();
    let (ata, data) = Ata::decode(body).unwrap();
    assert_eq!((header.tag, ata.command, ata.sectors), (0x1de5d, crate::ata::command::IDENTIFY, 1));
    assert_eq!((ata.registers, ata.lba(), data.len()), (0xA000_0000, 0, 0));

    let write = "762964ce7e53 525400123456 88a2 10 00 0235 01 00 0008e2a3 \
                 41 00 08 34 080000000000 0000";
    let write = bytes(write);
    let (header, _) = Header::decode(&write).unwrap();
    let command = crate::ata::command::WRITE_EXT;
    let (write_flag, registers) = (true, 8);
    let ata =
        Ata { write: write_flag, extended: true, sectors: 8, command, registers, ..Ata::default() };
    assert_eq!([&header.encode()[..], &ata.encode()].concat(), write);
}

#[test]
fn reply_to_a_broadcast_has_the_address_of_the_target() {
    let request = Header::request(BROADCAST, HOST, Address::ALL, command::MASKS, 0xDEAD_BEEF);
    let asked = Header { version: 7, ..request };
    let answer = Header { error: Some(error::VERSION), ..asked.answer(TARGET, OWN) };
    let (read, rest) = Header::decode(&answer.encode()).map(|(h, r)| (h, r.len())).unwrap();
    assert_eq!((read, rest), (answer, 0));
    assert_eq!((read.to, read.from, read.address, read.tag), (HOST, TARGET, OWN, 0xDEAD_BEEF));
    assert!(read.response && read.version == VERSION && read.error == Some(error::VERSION));
}

#[test]
fn broadcast_and_own_addresses_reach_the_target() {
    for (asked, reached) in [
        (Address::ALL, true),
        (OWN, true),
        (Address { shelf: u16::MAX, slot: 1 }, true),
        (Address { shelf: 565, slot: 255 }, true),
        (Address { shelf: 565, slot: 2 }, false),
        (Address { shelf: 564, slot: 255 }, false),
    ] {
        assert_eq!(asked.reaches(OWN), reached, "{asked}");
    }
    assert_eq!("565.1".parse(), Ok(OWN));
    assert_eq!(OWN.to_string().parse(), Ok(OWN));
    for (wrong, field) in [
        ("565", "SHELF.SLOT"),
        ("65535.1", "shelf"),
        ("65536.1", "shelf"),
        ("1.255", "slot"),
        ("1.256", "slot"),
        ("1.+2", "slot"),
        ("-1.2", "shelf"),
        ("", "SHELF.SLOT"),
    ] {
        assert_eq!(wrong.parse::<Address>().map_err(|e| e.field), Err(field), "{wrong}");
    }
    assert_eq!("762964ce7e53".parse(), Ok(TARGET));
    assert_eq!(TARGET.to_string().parse(), Ok(TARGET));
    assert!(BROADCAST.is_group() && !TARGET.is_group());
    for wrong in ["76:29:64:ce:7e", "76:29:64:ce:7e:5g", "+6:29:64:ce:7e:53", "é2964ce7e53", ""] {
        assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
    }
}

#[test]
fn mac_mask_lists_are_encoded_and_decoded() {
    let list = [(mask::ADD, HOST), (mask::DELETE, TARGET), (mask::NOTHING, Mac::default())];
    let encoded = Masks::encode(mask::EDIT, mask::FULL, &list);
    assert_eq!(encoded[..12], bytes("00 01 03 03 00 01 525400123456"));
    // A short frame is filled up.
    let filled = [&encoded[..], &[0; 20]].concat();
    let read = Masks::decode(&filled).unwrap();
    assert_eq!((read.command, read.error), (mask::EDIT, mask::FULL));
    assert!(read.directives().eq(list));
    let cut = Masks::decode(&encoded[..encoded.len() - 1]).map_err(|e| (e.kind, e.field));
    assert_eq!(cut, Err((Kind::Truncated, "directives")));

    let encoded = Reserve::encode(reserve::SET, &[HOST, TARGET]);
    assert_eq!(encoded[..8], bytes("01 02 525400123456"));
    let read = Reserve::decode(&encoded).unwrap();
    assert!(read.command == reserve::SET && read.addresses().eq([HOST, TARGET]));
    assert!(Reserve::decode(&[1]).is_err() && Reserve::decode(&encoded[..13]).is_err());
    assert_eq!(Reserve::encode(0, &[HOST; 300]).len(), RESERVE_LEN + 255 * 6);
}

#[test]
fn wrong_lengths_are_refused_with_the_field() {
    let config = Config::request(directive::FORCE, b"main").encode();
    let mut frame = [&config[..], b"main"].concat();
    assert_eq!(Config::decode(&frame).map(|c| c.string), Ok(&b"main"[..]));
    assert_eq!(Config::decode(&frame[..11]).map_err(|e| e.field), Err("config string"));
    (frame[6], frame[7]) = (4, 1);
    assert_eq!(Config::decode(&frame).map_err(|e| e.field), Err("config string length"));
    assert_eq!(Ata::decode(&[0; 11]).map_err(|e| e.field), Err("ATA registers"));
    assert_eq!(Header::decode(&[0; 23]).map_err(|e| e.field), Err("AoE header"));
    assert_eq!(Header::decode(&[0; 60]).map_err(|e| e.field), Err("Ethernet type"));
    let all = Ata { registers: 0xFFFF_FFFF_FFFF, ..Ata::default() };
    assert_eq!((all.lba(), Ata { extended: true, ..all }.lba()), (0x0FFF_FFFF, all.registers));
}
