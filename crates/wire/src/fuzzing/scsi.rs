//! Targets for the SCSI codecs.

use crate::scsi::*;

/// A CDB, for a disk and for a CD: the parser and the table agree, and errors point into the CDB.
pub fn fuzz_cdb(data: &[u8]) {
    for kind in [PeripheralType::Disk, PeripheralType::Cdrom] {
        cdb_of(kind, data);
    }
}

fn cdb_of(kind: PeripheralType, data: &[u8]) {
    match Command::parse_for(kind, data) {
        Ok((command, info)) => {
            assert!(data.len() >= info.cdb_len());
            assert_eq!(find(kind, data), Ok(info));
            let exact = &data[..info.cdb_len()];
            assert_eq!(Command::parse_for(kind, exact), Ok((command, info)));
            assert_eq!(naca(data), naca(exact));
            if let Command::Read(extent) | Command::Write(extent) = command {
                assert!(extent.fits(u64::MAX) || extent.end().is_none());
            }
            if let Command::ReportOpcodes { report, timeouts, .. } = command {
                let rows: Vec<&CommandInfo> =
                    (0..=255).flat_map(|opcode| commands_of(kind, opcode)).collect();
                let _ = report_opcodes(&rows, report, timeouts);
            }
        }
        Err(CdbError::Opcode) => assert!(find(kind, data).is_err()),
        Err(CdbError::Field { byte, bit }) => {
            assert!(byte < 32 && bit.is_none_or(|bit| bit < 8));
        }
    }
}

/// Sense data: decoded data, encoded in descriptor format, decodes to the same value.
pub fn fuzz_sense(data: &[u8]) {
    let Ok(sense) = Sense::decode(data) else { return };
    let mut out = [0; SENSE_LEN_MAX];
    let len = sense.encode(true, &mut out);
    assert_eq!(Sense::decode(&out[..len]), Ok(sense));
    let len = sense.encode(false, &mut out);
    let fixed = Sense::decode(&out[..len]).expect("own bytes");
    let information = sense.information.filter(|info| *info <= u64::from(u32::MAX));
    // There COMMAND-SPECIFIC INFORMATION has no bit for whether it is valid.
    let segment = sense.segment.or((sense.code.key == Key::CopyAborted).then_some(0));
    assert_eq!(fixed, Sense { information, segment, ..sense });
}

/// A byte of options, then a MODE SELECT list: the result differs only where it may.
pub fn fuzz_mode_select(data: &[u8]) {
    let Some((options, list)) = data.split_first() else { return };
    let on = |bit: u8| options & bit != 0;
    let changeable = ModeState {
        write_cache: on(2),
        descriptor_sense: on(4),
        write_protect: on(8),
        task_aborted_status: on(16),
        error_aborts: if on(32) { 3 } else { 0 },
        task_sets: on(64),
        threshold_errors: true,
        thresholds: ModeState::ALL.thresholds,
        ..ModeState::default()
    };
    let mode = ModeBlock {
        changeable,
        has_thresholds: true,
        blocks: 2048,
        block_len: 512,
        ..ModeBlock::default()
    };
    let ten = options & 1 != 0;
    let Ok(select) = parse_mode_select(ten, list, &mode) else { return };
    let (new, old) = (select.state, mode.current);
    assert!(new.write_cache == old.write_cache || changeable.write_cache);
    assert!(new.descriptor_sense == old.descriptor_sense || changeable.descriptor_sense);
    assert!(new.write_protect == old.write_protect || changeable.write_protect);
    assert!(new.task_aborted_status == old.task_aborted_status || changeable.task_aborted_status);
    assert!(new.error_aborts == old.error_aborts || changeable.error_aborts == 3);
    assert!(new.error_aborts != 2 && new.reordering == old.reordering);
    let after = ModeBlock { current: new, ..mode };
    let data = mode_sense(ten, ten, false, PageControl::Current, (0x3f, 0xff), &after);
    let again = parse_mode_select(ten, &data.expect("known pages"), &after);
    assert_eq!(again, Ok(ModeSelect { state: new, changed: false }));
}

/// An UNMAP list: no more descriptors than bytes for them; it writes and reads the same.
pub fn fuzz_unmap(data: &[u8]) {
    let Ok(list) = UnmapList::parse(data) else { return };
    assert!(list.len() * 16 + 8 <= data.len() || list.is_empty());
    let runs: Vec<UnmapDescriptor> = list.iter().collect();
    let bytes = UnmapList::encode(&runs);
    let again = UnmapList::parse(&bytes).expect("own bytes");
    assert_eq!(again.iter().collect::<Vec<_>>(), runs);
}

/// Limits of the copy targets: small ones, so that lists reach them.
const COPY_LIMITS: CopyLimits = CopyLimits {
    cscds: 4,
    segments: 8,
    descriptors_len: 512,
    inline_len: 64,
    held_len: 64,
    concurrent: 4,
    identified: 4,
    ranges: 8,
    timeout_max_s: 60,
    timeout_default_s: 10,
    token_bytes: 1 << 30,
    chunk_bytes: 1 << 20,
};

/// A byte that picks the form, then an EXTENDED COPY list: an accepted list is within the limits,
/// and field pointers point into the list.
pub fn fuzz_copy(data: &[u8]) {
    let Some((form, list)) = data.split_first() else { return };
    let form = if form & 1 == 0 { CopyForm::Lid1 } else { CopyForm::Lid4 };
    match CopyList::parse(form, list, &COPY_LIMITS) {
        Ok(None) => assert!(list.is_empty()),
        Ok(Some(copy)) => {
            assert!(copy.cscds.len() <= 4 && copy.segments.len() <= 8);
            assert!(copy.usage != ListUsage::None || copy.id == 0);
            for (i, cscd) in copy.cscds.iter().enumerate() {
                let at = usize::from(copy.cscds_at) + i * CSCD_LEN;
                let again = cscd.encode();
                assert_eq!(again[8..8 + cscd.designator.len()], *cscd.designator);
                assert_eq!(list[at], again[0]);
            }
            assert!(copy.segments.iter().all(|s| usize::from(s.at) < list.len()));
        }
        Err(sense) => {
            let inside = sense.field.is_none_or(|f| usize::from(f.byte) < list.len());
            assert!(!sense.field.is_some_and(|f| f.in_cdb) && inside);
        }
    }
}

/// A byte that picks POPULATE TOKEN or WRITE USING TOKEN, then its list. A decoded list that is
/// encoded again decodes to the same value. The rest is read as a token.
pub fn fuzz_token(data: &[u8]) {
    let Some((which, list)) = data.split_first() else { return };
    let distinct = |ranges: &[BlockRange]| {
        let sum: u128 = ranges.iter().map(|r| u128::from(r.blocks)).sum();
        assert!(ranges.len() <= 8 && sum <= 8 * u128::from(u32::MAX));
    };
    if which & 1 == 0 {
        let Ok(Some(populate)) = PopulateToken::parse(list, &COPY_LIMITS) else { return };
        distinct(&populate.ranges);
        let again = PopulateToken::parse(&encode_populate(&populate), &COPY_LIMITS);
        assert_eq!(again, Ok(Some(populate)));
    } else {
        let Ok(Some(write)) = WriteToken::parse(list, &COPY_LIMITS) else { return };
        distinct(&write.ranges);
        let _ = RodToken::parse(&write.token);
        let again = WriteToken::parse(&encode_write_token(&write), &COPY_LIMITS);
        assert_eq!(again, Ok(Some(write)));
    }
}

/// Everything an initiator reads from a target's parameter data, and LUNs.
pub fn fuzz_parameters(data: &[u8]) {
    if let Ok(identity) = Identity::parse(data) {
        let again = Identity::parse(&inquiry_data(&identity)).expect("own bytes");
        assert_eq!((again.kind, again.tpgs), (identity.kind, identity.tpgs));
        for page in [0, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2] {
            let vpd = Vpd { identity: &identity, limits: &Limits::default() };
            let page = vpd_page(page, vpd);
            assert!(page.is_none_or(|page| page.len() >= 4));
        }
    }
    if let Ok(capacity) = parse_capacity16(data) {
        assert_eq!(parse_capacity16(&read_capacity16(&capacity)), Ok(capacity));
    }
    let _ = parse_capacity10(data);
    if let Ok((luns, _)) = parse_luns(data) {
        assert_eq!(parse_luns(&report_luns(luns.iter().copied())).map(|(l, _)| l), Ok(luns));
    }
    if let Some(bytes) = data.first_chunk::<8>()
        && let Ok(lun) = Lun::decode(*bytes)
    {
        for addressing in Addressing::ALL {
            assert_eq!(Lun::decode(lun.encode_as(addressing)), Ok(lun));
        }
    }
    if let Some(bytes) = data.first_chunk::<16>() {
        let _ = parse_lba_extent(bytes);
    }
}

/// Target port groups both ways: decoded groups that are encoded again decode to the same value,
/// and a list to set holds no more groups than it has bytes for.
pub fn fuzz_alua(data: &[u8]) {
    for extended in [false, true] {
        let Ok((groups, seconds)) = parse_target_port_groups(data, extended) else { continue };
        let again = report_target_port_groups(&groups, extended.then_some(seconds));
        assert_eq!(parse_target_port_groups(&again, extended), Ok((groups, seconds)));
    }
    let Ok(lines) = parse_set_target_port_groups(data) else { return };
    assert!(lines.is_empty() || lines.len() * 4 + 4 == data.len());
    let plain: Vec<(u16, AccessState)> = lines.iter().map(|l| (l.group, l.state)).collect();
    let again = parse_set_target_port_groups(&set_target_port_groups(&plain));
    assert_eq!(again, Ok(lines));
}

/// A service action, then a PERSISTENT RESERVE OUT list: a decoded list that is encoded again
/// decodes to the same value. The bytes are also read as TransportID and as PERSISTENT RESERVE IN
/// data.
pub fn fuzz_reserve(data: &[u8]) {
    let Some((action, list)) = data.split_first() else { return };
    if let Some(action) = PrOutAction::from_code(action & 7)
        && let Ok(read) = PrOutList::parse(action, list)
    {
        assert!(read.ports.len() <= list.len() / 24);
        assert_eq!(PrOutList::parse(action, &read.encode()), Ok(read));
    }
    if let Some((port, used)) = TransportId::decode(list) {
        assert!(used <= list.len() && port.bytes().len() <= TRANSPORT_ID_LEN_MAX);
        assert_eq!(TransportId::decode(port.bytes()), Some((port.clone(), port.bytes().len())));
        assert!(!port.to_string().is_empty());
    }
    if let Some((generation, all)) = parse_pr_full_status(list) {
        let again = parse_pr_full_status(&pr_full_status(generation, all.iter()));
        assert_eq!(again, Some((generation, all)));
    }
    if let Some((generation, keys)) = parse_pr_keys(list) {
        let again = parse_pr_keys(&pr_keys(generation, keys.iter().copied()));
        assert_eq!(again, Some((generation, keys)));
    }
    if let Some((generation, held)) = parse_pr_reservation(list) {
        let again = parse_pr_reservation(&pr_reservation(generation, held));
        assert_eq!(again, Some((generation, held)));
    }
}

/// Lists of FORMAT UNIT and SANITIZE, and volume descriptors: patterns are never longer than a
/// block or the list.
pub fn fuzz_medium(data: &[u8]) {
    for long in [false, true] {
        if let Ok(list) = parse_format_list(long, data, 512) {
            assert!(list.pattern.is_none_or(|p| (1..=512).contains(&p.len())));
        }
    }
    if let Ok(list) = parse_overwrite(data, 512) {
        assert!((1..=512).contains(&list.pattern.len()) && (1..=31).contains(&list.passes));
        assert_eq!(list.pattern.len() + 4, data.len());
    }
    if let Some(volume) = parse_iso_volume(data) {
        assert!(volume.label.len() <= 32);
    }
    let (a, b) = data.split_at(data.len() / 2);
    assert_eq!(guard_more(guard(a), b), guard(data));
}

/// The data that a device reports: INQUIRY, its pages, mode data. Decoded limits are encoded again
/// and decode to the same value.
pub fn fuzz_initiator(data: &[u8]) {
    if let Ok(decoded) = parse_inquiry(data) {
        assert!(decoded.qualifier < 8 && decoded.kind < 32 && decoded.vendor.len() <= 8);
        assert!(decoded.product.len() <= 16 && decoded.revision.len() <= 4 && decoded.whole >= 5);
    }
    if let Ok(names) = parse_vpd_names(data) {
        assert!(names.id.len() <= 510 && names.name.len() <= 255 && names.port.len() <= 510);
    }
    if let Ok(serial) = parse_vpd_serial(data) {
        assert!(serial.len() <= data.len());
    }
    let _ = (parse_vpd_rotation(data), parse_disk_mode(data), vpd_body(0, data));
    let mut limits = Limits::default();
    let has_limits = parse_vpd_limits(data, &mut limits).is_ok();
    if has_limits || parse_vpd_provisioning(data, &mut limits).is_ok() {
        let vpd = Vpd { identity: &Identity::default(), limits: &limits };
        let mut again = Limits::default();
        for page in [0xb0, 0xb2] {
            let page = vpd_page(page, vpd).unwrap_or_default();
            let _ = parse_vpd_limits(&page, &mut again);
            let _ = parse_vpd_provisioning(&page, &mut again);
        }
        // Atomic writes and the percentage are not queried.
        assert_eq!(again, Limits { threshold_percent: 0, ..limits });
    }
}
