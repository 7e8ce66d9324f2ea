//! Probes against devices that follow the standard, and against those that do not.

use wire::ata::{Identify, Trim, command};
use wire::scsi::{
    Asc, Capacity, Identity, Key, Limits, Lun, Provisioning, Sense, Vpd, inquiry_data,
    read_capacity10, read_capacity16, report_luns, vpd_page,
};

use super::*;
use crate::ccb::Outcome;

/// Answers a question: data, or how it fails.
type Responder<'a> = dyn FnMut(&ProbeCommand) -> Result<Vec<u8>, Outcome> + 'a;

fn of(result: Result<u32, bio::Errno>, outcome: Outcome, ask: &ProbeCommand) -> Ended {
    Ended { result, outcome, command: ask.command, end_ns: u64::MAX, power_losses: (0, 0) }
}

fn ended(answer: &Result<Vec<u8>, Outcome>, ask: &ProbeCommand) -> (Ended, Vec<u8>) {
    match answer {
        Ok(data) => {
            let mut data = data.clone();
            data.truncate(ask.length as usize);
            let outcome = Outcome::good(data.len() as u32);
            // The buffer is as long as requested, with the last answer's bytes behind.
            let moved = outcome.moved;
            data.resize(ask.length as usize, 0xe5);
            (of(Ok(moved), outcome, ask), data)
        }
        Err(outcome) => {
            let verdict = crate::recovery::judge(outcome, crate::recovery::Policy::DISK);
            (of(Err(verdict.error), *outcome, ask), Vec::new())
        }
    }
}

fn scsi(first: bool, says: &mut Responder<'_>) -> (Result<ScsiFacts, Refusal>, Vec<u8>) {
    let mut probe = ScsiProbe::new(first, None);
    let mut commands = Vec::new();
    while let Some(ask) = probe.next_command() {
        assert!(commands.len() < 100, "it comes to an end");
        let cdb = ask.command.cdb();
        commands.push(if cdb[0] == 0x12 && cdb[1] == 1 { cdb[2] } else { cdb[0] });
        let (ended, data) = ended(&says(&ask), &ask);
        probe.handle_answer(&ended, &data);
    }
    (probe.finish(), commands)
}

fn sense(key: u8, asc: u8, ascq: u8) -> Outcome {
    Outcome::check(Sense::new(Asc::new(Key::from_code(key).unwrap(), asc, ascq)))
}

fn identity() -> Identity {
    Identity {
        vendor: "SEAGATE".into(),
        product: "ST3750630SS".into(),
        revision: "0001".into(),
        serial: "3QK0A63P".into(),
        naa: Some([0x60, 0, 0xc5, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
        rotation_rate: 7200,
        ..Identity::default()
    }
}

fn limits() -> Limits {
    Limits {
        transfer_max: 0x800,
        unmap_blocks_max: 0x1000,
        unmap_descriptors_max: 16,
        unmap: true,
        provisioning: Provisioning::Thin,
        ..Limits::default()
    }
}

fn capacity() -> Capacity {
    Capacity { blocks: 1_465_149_168, block_len: 512, thin: true, ..Capacity::default() }
}

/// A disk that follows the standard.
fn disk(ask: &ProbeCommand) -> Result<Vec<u8>, Outcome> {
    let (identity, limits) = (identity(), limits());
    let cdb = ask.command.cdb();
    Ok(match cdb[0] {
        0x00 => Vec::new(),
        0x12 if cdb[1] == 0 => inquiry_data(&identity),
        0x12 => vpd_page(cdb[2], Vpd { identity: &identity, limits: &limits }).unwrap(),
        0xa0 => report_luns([0, 5, 5].into_iter().filter_map(Lun::new)),
        0x5a => vec![0, 26, 0, 0x10, 0, 0, 0, 0, 8, 18, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        0x9e => read_capacity16(&capacity()).to_vec(),
        0x25 => read_capacity10(&capacity()).to_vec(),
        // Garbage may make a CD drive of it.
        0x43 => vec![0, 10, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0],
        other => panic!("opcode {other:x} is not asked"),
    })
}

#[test]
fn a_conforming_disk_is_probed_with_the_expected_commands() {
    let (facts, commands) = scsi(true, &mut disk);
    let facts = facts.unwrap();
    let order = [0, 0x12, 0x12, 0xa0, 0, 0x83, 0x80, 0xb0, 0xb1, 0xb2, 0x5a, 0x9e];
    assert_eq!(commands, order);
    assert_eq!((facts.serial.as_str(), facts.rotation), ("3QK0A63P", 7200));
    assert_eq!(facts.names.id, "6000c50005060708090a0b0c0d0e0f10");
    assert_eq!((facts.limits, facts.capacity), (limits(), Some(capacity())));
    assert_eq!((facts.mode.write_cache, facts.mode.fua), (Some(true), true));
    assert_eq!(facts.luns, Some([0, 5].map(|n| Lun::new(n).unwrap()).to_vec()));
    assert!(facts.is_same(&facts.clone()));
    assert!(!facts.is_same(&ScsiFacts { serial: "3QK0A63Q".into(), ..facts.clone() }));
    let (_, commands) = scsi(false, &mut disk);
    assert!(!commands.contains(&0xa0), "only the first unit is asked for the others");
}

#[test]
fn unit_attentions_are_retried_a_limited_number_of_times() {
    let mut attentions = 3;
    let (facts, _) = scsi(true, &mut |ask| match ask.command.cdb()[0] {
        0 if attentions > 0 => {
            attentions -= 1;
            Err(sense(6, 0x29, 0))
        }
        _ => disk(ask),
    });
    assert!(facts.is_ok());
    let (facts, commands) = scsi(true, &mut |_| Err(sense(6, 0x29, 0)));
    assert_eq!(commands.len(), 10);
    let response = FailedResponse::of(&sense(6, 0x29, 0));
    assert_eq!(facts, Err(Refusal::Silent { question: "INQUIRY", response }));
}

#[test]
fn a_missing_target_and_a_missing_unit_are_distinguished() {
    for status in [CamStatus::SelectionTimeout, CamStatus::NotThere] {
        let (facts, commands) = scsi(true, &mut |_| Err(Outcome::of(status)));
        assert_eq!((facts, commands.len()), (Err(Refusal::NoDevice), 1));
    }
    let (facts, _) = scsi(false, &mut |ask| match ask.command.cdb()[0] {
        0x12 => Ok(wire::scsi::no_lun_inquiry()),
        _ => Err(sense(5, 0x25, 0)),
    });
    assert_eq!(facts, Err(Refusal::NoUnit));
}

#[test]
fn optional_commands_may_fail_singly_or_all_together() {
    let (_, all) = scsi(true, &mut disk);
    for left_out in all.iter().filter(|op| !matches!(op, 0x12 | 0x9e)) {
        let mut n = 0;
        let (facts, _) = scsi(true, &mut |ask| {
            let cdb = ask.command.cdb();
            let code = if cdb[0] == 0x12 && cdb[1] == 1 { cdb[2] } else { cdb[0] };
            n += 1;
            if code == *left_out && n > 1 { Err(sense(5, 0x24, 0)) } else { disk(ask) }
        });
        assert_eq!(facts.unwrap().capacity, Some(capacity()), "without {left_out:x}");
    }
    let (facts, _) = scsi(true, &mut |ask| match ask.command.cdb()[0] {
        0x12 if ask.command.cdb()[1] == 0 => disk(ask),
        0x25 => disk(ask),
        _ => Err(sense(5, 0x20, 0)),
    });
    let facts = facts.unwrap();
    assert_eq!(
        (facts.serial.as_str(), facts.capacity.map(|c| c.blocks)),
        ("", Some(1_465_149_168))
    );
}

#[test]
fn read_capacity_16_follows_read_capacity_10_on_large_old_disks() {
    let large = Capacity { blocks: 1 << 33, block_len: 512, ..Capacity::default() };
    let mut says = |ask: &ProbeCommand| match ask.command.cdb()[0] {
        0x12 if ask.command.cdb()[1] == 0 => {
            let mut data = disk(ask)?;
            data[2] = 4;
            Ok(data)
        }
        0x25 => Ok(read_capacity10(&large).to_vec()),
        0x9e => Ok(read_capacity16(&large).to_vec()),
        _ => disk(ask),
    };
    let (facts, commands) = scsi(true, &mut says);
    assert_eq!(commands[commands.len() - 2..], [0x25, 0x9e]);
    assert_eq!(facts.unwrap().capacity, Some(large));
    assert!(!commands.contains(&0xa0));
}

#[test]
fn an_impossible_capacity_is_refused_with_its_reason() {
    let cases = [
        (1000, 0, "power of two"),
        (1000, 520, "power of two"),
        (1000, 256, "power of two"),
        (1 << 60, 4096, "end"),
    ];
    for (blocks, block_len, word) in cases {
        let lies = Capacity { blocks, block_len, ..Capacity::default() };
        let (facts, _) = scsi(true, &mut |ask| match ask.command.cdb()[0] {
            0x9e => Ok(read_capacity16(&lies).to_vec()),
            _ => disk(ask),
        });
        assert!(facts.unwrap_err().to_string().contains(word), "{blocks} of {block_len}");
    }
    let (facts, _) = scsi(true, &mut |ask| match ask.command.cdb()[0] {
        0x9e => Ok(vec![0; 7]),
        _ => disk(ask),
    });
    let why = facts.unwrap_err().to_string();
    assert_eq!(why, "READ CAPACITY(16): RETURNED LOGICAL BLOCK ADDRESS is cut short (byte 0)");
    let (facts, _) = scsi(true, &mut |ask| match ask.command.cdb()[0] {
        0x9e | 0x25 => Err(sense(2, 0x3a, 0)),
        _ => disk(ask),
    });
    assert_eq!(facts.unwrap().capacity, None, "no medium is no fault of the disk");
}

#[test]
fn random_answers_give_valid_facts_or_an_error_text() {
    let mut rng = wire::fuzzing::Prng::new(7);
    let (mut facts, mut reasons) = (0, 0);
    for _ in 0..3000 {
        let (found, _) = scsi(true, &mut |ask| {
            let mut data = disk(ask)?;
            match rng.below(8) {
                0 => rng.mutate(&mut data),
                1 => data.truncate(rng.below(8)),
                2 => rng.fill(&mut data),
                _ => {}
            }
            Ok(data)
        });
        match found {
            Ok(found) => {
                facts += 1;
                let medium = found.capacity.map_or(512, |c| c.block_len);
                assert!(medium.is_power_of_two() && medium >= 512);
            }
            Err(why) => {
                reasons += 1;
                assert!(why.to_string().len() > 10);
            }
        }
    }
    assert!(facts > 300 && reasons > 300, "{facts} {reasons}");
}

fn ata(cache: Option<bool>, says: &mut Responder<'_>) -> (Result<AtaFacts, Refusal>, Vec<u8>) {
    let mut probe = AtaProbe::new(cache, None);
    let mut commands = Vec::new();
    while let Some(ask) = probe.next_command() {
        assert!(commands.len() < 100, "it comes to an end");
        let Command::Ata(registers) = ask.command else { panic!("an ATA command") };
        commands.push(registers.command);
        let (ended, data) = ended(&says(&ask), &ask);
        probe.handle_answer(&ended, &data);
    }
    (probe.finish(), commands)
}

fn ssd() -> Identify {
    Identify {
        model: "INTEL SSDSC2CW120A3".into(),
        serial: "CVCV".into(),
        firmware: "400i".into(),
        sectors: 234_441_648,
        sector_bytes: 512,
        extended: true,
        flush_ext: true,
        write_cache: Some(true),
        trim: Some(Trim { blocks_max: 1, deterministic: true, zeroes: false }),
        rotation: 1,
        queue_depth: 32,
        ..Identify::default()
    }
}

#[test]
fn the_write_cache_of_an_ata_disk_is_set_as_configured() {
    for (wanted, obeys) in
        [(None, true), (Some(true), true), (Some(false), true), (Some(false), false)]
    {
        let mut disk = ssd();
        let (facts, commands) = ata(wanted, &mut |ask| {
            let Command::Ata(registers) = ask.command else { panic!("an ATA command") };
            match (registers.command, registers.features) {
                (command::IDENTIFY, _) => Ok(disk.encode().to_vec()),
                (command::SET_FEATURES, 0x82) if obeys => {
                    disk.write_cache = Some(false);
                    Ok(Vec::new())
                }
                _ => Err(Outcome::of(CamStatus::AtaError)),
            }
        });
        let identify = facts.unwrap().identify;
        assert_eq!(identify, disk);
        let sets = wanted == Some(false);
        assert_eq!(commands.len(), if sets { 3 } else { 1 });
        assert_eq!(
            identify.write_cache,
            Some(!(sets && obeys)),
            "what it says, not what was asked"
        );
    }
}

#[test]
fn an_ata_device_with_malformed_identify_data_is_refused() {
    let (facts, _) = ata(None, &mut |_| Ok(vec![0; 100]));
    assert!(matches!(facts, Err(Refusal::Malformed { question: "IDENTIFY DEVICE", .. })));
    let empty = Identify { sectors: 0, ..ssd() };
    let (facts, _) = ata(None, &mut |_| Ok(empty.encode().to_vec()));
    assert!(facts.unwrap_err().to_string().contains("no blocks"));
    let (facts, commands) = ata(None, &mut |_| Err(Outcome::of(CamStatus::BusReset)));
    assert_eq!((facts.is_err(), commands.len()), (true, 5));
    let (facts, _) = ata(None, &mut |_| Err(Outcome::of(CamStatus::SelectionTimeout)));
    assert_eq!(facts, Err(Refusal::NoDevice));
}
