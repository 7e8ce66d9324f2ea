//! The matrix of recovery, row by row, written out apart from the tables.

use super::*;
use wire::scsi::{Asc, Status};

const CALM: Policy = Policy { retry_attention: false, retry_busy: false, retry_selection: false };

fn sense(key: u8, asc: u8, ascq: u8) -> Outcome {
    let key = Key::from_code(key).unwrap();
    Outcome::check(Sense::new(Asc::new(key, asc, ascq)))
}

/// In words, so that a row is read at a glance.
fn describe(outcome: &Outcome, policy: Policy) -> String {
    let v = judge(outcome, policy);
    let step = match v.step {
        Step::Done => "done".into(),
        Step::Requeue => "requeue".into(),
        Step::Retry(Pause::None) => "retry".into(),
        Step::Retry(pause) => format!("retry {pause:?}"),
        Step::Busy(pause) => format!("busy {pause:?}"),
        Step::Full(pause) => format!("full {pause:?}"),
        Step::Recover(cure) => format!("cure {cure:?}"),
        Step::Fail => "fail".into(),
        Step::Selection(pause) => format!("selection {pause:?}"),
        Step::Lost(scope) => format!("lost {scope:?}"),
    };
    let note = if v.consequence == Consequence::None {
        String::new()
    } else {
        format!(" +{:?}", v.consequence)
    };
    let error = if v.step == Step::Done { String::new() } else { format!(" {:?}", v.error) };
    format!("{step}{error}{note}{}", if v.attention { " !" } else { "" })
}

#[test]
fn every_cam_status_has_its_recovery_action() {
    let rows = [
        (0x01, "done"),
        (0x02, "retry EREMOTEIO"),
        (0x04, "retry EREMOTEIO"),
        (0x05, "retry Ms(500) EREMOTEIO"),
        (0x06, "fail EINVAL"),
        (0x08, "lost Lun ENXIO"),
        (0x0a, "selection Ms(1000) ENXIO"),
        (0x0b, "retry ETIMEDOUT"),
        (0x0e, "requeue ENXIO"),
        (0x0f, "retry EREMOTEIO"),
        (0x10, "fail EREMOTEIO"),
        (0x11, "lost Target ENXIO"),
        (0x12, "retry EREMOTEIO"),
        (0x13, "retry EREMOTEIO"),
        (0x16, "fail EINVAL"),
        (0x17, "requeue ENXIO"),
        (0x18, "retry EREMOTEIO"),
        (0x19, "retry EREMOTEIO"),
        (0x1a, "fail EINVAL"),
        (0x1b, "requeue ENXIO"),
        (0x1c, "retry EIO"),
        (0x1d, "retry EREMOTEIO"),
        (0x1e, "retry EREMOTEIO"),
        (0x34, "retry Ms(500) EREMOTEIO"),
        (0x38, "fail EINVAL"),
        (0x39, "fail EINVAL"),
    ];
    let mut met = 0;
    for status in CamStatus::ALL.iter().filter(|s| **s != CamStatus::ScsiError) {
        let want = rows.iter().find(|(code, _)| *code == *status as u8);
        let want = want.unwrap_or_else(|| panic!("{status:?} has no row")).1;
        assert_eq!(describe(&Outcome::of(*status), CALM), want, "{status:?}");
        met += 1;
    }
    assert_eq!(met, rows.len());
}

#[test]
fn every_scsi_status_has_its_recovery_action() {
    for code in 0..=255u8 {
        let outcome = Outcome { scsi_status: code, ..Outcome::of(CamStatus::ScsiError) };
        let want = match code {
            0x00 | 0x04 => "done",
            0x08 => "busy Completion EBUSY",
            0x28 => "full Completion EBUSY",
            0x18 => "fail EBADE",
            // A victim of another nexus's reset.
            0x40 => "requeue ENXIO",
            // CHECK CONDITION without sense data among them.
            _ => "fail EREMOTEIO",
        };
        assert_eq!(describe(&outcome, CALM), want, "{code:#x}");
    }
    let mut terminated = sense(5, 0x20, 0);
    terminated.scsi_status = 0x22;
    assert_eq!(describe(&terminated, CALM), "fail EINVAL");
}

#[test]
fn every_sense_key_has_its_default_recovery_action() {
    let rows = [
        (0x0, "done"),
        (0x1, "done"),
        (0x2, "retry ENXIO"),
        (0x3, "retry EIO"),
        (0x4, "retry EREMOTEIO"),
        (0x5, "fail EINVAL"),
        (0x6, "fail ENXIO !"),
        (0x7, "fail EROFS"),
        (0x8, "fail ENOSPC"),
        (0x9, "fail EREMOTEIO"),
        (0xa, "fail EREMOTEIO"),
        (0xb, "retry EREMOTEIO"),
        (0xd, "fail EREMOTEIO"),
        (0xe, "done"),
        (0xf, "done"),
    ];
    for (key, want) in rows {
        assert_eq!(describe(&sense(key, 0, 0), CALM), want, "key {key:x}");
        assert_eq!(describe(&sense(key, 0x7e, 0x01), CALM), want, "an unknown code of key {key:x}");
    }
}

#[test]
fn every_additional_sense_code_has_its_recovery_action() {
    let rows = [
        (0x2, 0x04, 0x00, "retry ENXIO"),
        (0x2, 0x04, 0x01, "cure Wait EBUSY"),
        (0x2, 0x04, 0x02, "cure Start ENXIO"),
        (0x2, 0x04, 0x03, "fail ENXIO"),
        (0x2, 0x04, 0x04, "fail EBUSY"),
        (0x2, 0x04, 0x0a, "cure Wait ENXIO +Access"),
        (0x2, 0x04, 0x0b, "fail ENXIO +Access"),
        (0x2, 0x04, 0x0c, "fail ENXIO +Access"),
        (0x3, 0x11, 0x00, "fail EIO"),
        (0x5, 0x20, 0x00, "fail EINVAL"),
        (0x5, 0x25, 0x00, "lost Lun ENXIO"),
        (0x7, 0x27, 0x00, "fail EROFS"),
        (0x7, 0x27, 0x07, "fail ENOSPC"),
        (0x6, 0x28, 0x00, "fail ENXIO +MediumChanged !"),
        (0x6, 0x29, 0x00, "fail ENXIO !"),
        (0x6, 0x29, 0x07, "fail ENXIO !"),
        (0x6, 0x2a, 0x06, "retry EREMOTEIO +Access !"),
        (0x6, 0x2a, 0x07, "retry EREMOTEIO +Access !"),
        (0x6, 0x2a, 0x09, "retry EREMOTEIO +Capacity !"),
        (0x6, 0x38, 0x07, "retry EREMOTEIO !"),
        (0x2, 0x3a, 0x00, "fail ENXIO +MediumGone"),
        (0x2, 0x3a, 0x02, "fail ENXIO +MediumGone"),
        (0x6, 0x3f, 0x03, "retry EREMOTEIO +Inquiry !"),
        (0x6, 0x3f, 0x0e, "retry EREMOTEIO +Rescan !"),
    ];
    for (key, asc, ascq, want) in rows {
        assert_eq!(describe(&sense(key, asc, ascq), CALM), want, "{key:x}/{asc:02x}/{ascq:02x}");
    }
    for (asc, ascq, _) in CODES {
        let ascq = ascq.unwrap_or(0);
        assert!(rows.iter().any(|r| (r.1, r.2) == (*asc, ascq)), "{asc:x}/{ascq:x} has no test");
    }
}

#[test]
fn disks_retry_after_a_unit_attention() {
    for (asc, ascq, note) in [(0x28, 0, " +MediumChanged"), (0x29, 0, ""), (0x29, 1, "")] {
        let want = format!("retry ENXIO{note} !");
        assert_eq!(describe(&sense(6, asc, ascq), Policy::DISK), want);
    }
    assert_eq!(describe(&sense(6, 0x7e, 0), Policy::DISK), "retry ENXIO !");
    assert_eq!(describe(&sense(2, 0x3a, 0), Policy::DISK), "fail ENXIO +MediumGone");
}

#[test]
fn deferred_errors_are_retried_whatever_their_sense_code() {
    for (key, asc) in [(0x3, 0x11), (0x5, 0x20), (0x0, 0)] {
        let code = Asc::new(Key::from_code(key).unwrap(), asc, 0);
        let outcome = Outcome::check(Sense { deferred: true, ..Sense::new(code) });
        assert_eq!(describe(&outcome, CALM), "retry EIO");
    }
}

#[test]
fn only_errors_of_the_path_are_retried_on_another_path() {
    let of_the_way = |outcome: &Outcome| judge(outcome, Policy::DISK).is_path_failure();
    for status in [Status::Busy, Status::TaskSetFull] {
        assert!(of_the_way(&Outcome::scsi(status)), "{status:?}");
    }
    for status in [Status::Good, Status::ReservationConflict, Status::TaskAborted] {
        assert!(!of_the_way(&Outcome::scsi(status)), "{status:?}");
    }
    for status in CamStatus::ALL.iter().filter(|s| **s != CamStatus::ScsiError) {
        assert!(!of_the_way(&Outcome::of(*status)), "{status:?}");
    }
    for (asc, ascq, _) in CODES {
        for key in 0..16 {
            let Some(key) = Key::from_code(key) else { continue };
            let outcome = Outcome::check(Sense::new(Asc::new(key, *asc, ascq.unwrap_or(0))));
            // An attention with these codes, which is not reported, would be tried again.
            let closed = (*asc, *ascq >= Some(0x0a)) == (0x04, true) && key != Key::UnitAttention;
            let transition = (*asc, *ascq) == (0x04, Some(0x0a));
            assert_eq!(of_the_way(&outcome), closed || transition, "{key:?} {asc:x} {ascq:x?}");
        }
    }
}

#[test]
fn malformed_sense_data_is_treated_as_none() {
    for bytes in [&[][..], &[0x7f, 1, 2], &[0x70], &[0x00; 18], &[0xff; 40]] {
        let mut outcome = sense(5, 0x20, 0);
        outcome.sense = crate::ccb::SenseData::new(bytes);
        assert_eq!(describe(&outcome, CALM), "fail EREMOTEIO", "{bytes:x?}");
    }
}
