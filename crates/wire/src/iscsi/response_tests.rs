//! Round trips and hand-made bytes for the PDUs of a target.

use super::*;
use crate::fuzzing::Prng;
use crate::iscsi::{
    AsyncEvent, AsyncMessage, LogoutAnswer, LogoutResponse, Reject, RejectReason, Response,
    TaskAnswer, TaskResponse, sense_of_segment, sense_segment,
};

const SN: Numbers = Numbers { stat_sn: 0x11, exp_cmd_sn: 0x22, max_cmd_sn: 0x33 };

fn bytes(pdu: impl Pdu) -> Bhs {
    let mut out = [0xff; BHS_LEN];
    pdu.encode(&mut out);
    out
}

#[test]
fn data_in_with_status_matches_known_bytes() {
    let data = DataIn {
        status: Some((0, Residual::Underflow(0x200))),
        task_tag: 9,
        target_tag: TAG_NONE,
        sn: SN,
        data_sn: 3,
        offset: 0x1000,
        data_len: 0x200,
        ..DataIn::default()
    };
    let mut want = [0u8; BHS_LEN];
    want[..2].copy_from_slice(&[0x25, 0x83]);
    want[6] = 2;
    want[19] = 9;
    want[20..24].fill(0xff);
    (want[27], want[31], want[35]) = (0x11, 0x22, 0x33);
    want[39] = 3;
    want[42] = 0x10;
    want[46] = 2;
    assert_eq!(bytes(data), want);
    // Encoding sets F with S.
    assert_eq!(DataIn::decode(&want).unwrap(), DataIn { last: true, ..data });
    // Without status there is no StatSN.
    let plain = bytes(DataIn { status: None, ..data });
    assert_eq!((plain[1], &plain[24..28], &plain[44..48]), (0, &[0; 4][..], &[0; 4][..]));
}

#[test]
fn scsi_response_matches_known_bytes() {
    let response = ScsiResponse {
        status: 2,
        task_tag: 1,
        sn: SN,
        residual: Residual::Overflow(5),
        read_residual: Residual::Underflow(6),
        data_len: 20,
        ..ScsiResponse::default()
    };
    let out = bytes(response);
    assert_eq!(out[..8], [0x21, 0x8c, 0, 2, 0, 0, 0, 20]);
    assert_eq!((out[43], out[47]), (6, 5));
    assert_eq!(ScsiResponse::decode(&out).unwrap(), response);
    let mut both = out;
    both[1] |= 0x02;
    assert_eq!(ScsiResponse::decode(&both).unwrap_err().field, "residual flags");
}

#[test]
fn every_response_decodes_as_encoded() {
    let all: Vec<(Bhs, Response)> = {
        let mut out = Vec::new();
        let mut add = |bhs, response| out.push((bhs, response));
        let r2t =
            R2t { task_tag: 1, target_tag: 2, sn: SN, offset: 3, desired_len: 4, ..R2t::default() };
        add(bytes(r2t), Response::R2t(r2t));
        let nop = NopIn { task_tag: TAG_NONE, target_tag: 8, sn: SN, ..NopIn::default() };
        add(bytes(nop), Response::NopIn(nop));
        let login = LoginResponse {
            transit: true,
            stage: 1,
            next_stage: 3,
            isid: [1, 2, 3, 4, 5, 6],
            tsih: 7,
            sn: SN,
            status: LoginStatus::NotFound,
            data_len: 9,
            ..LoginResponse::default()
        };
        add(bytes(login), Response::Login(login));
        let text = TextResponse { more: true, task_tag: 5, sn: SN, ..TextResponse::default() };
        add(bytes(text), Response::Text(text));
        let task = TaskResponse { answer: TaskAnswer::Rejected, task_tag: 5, sn: SN };
        add(bytes(task), Response::Task(task));
        let logout = LogoutResponse {
            answer: LogoutAnswer::NoConnection,
            task_tag: 5,
            sn: SN,
            time2wait_s: 2,
            time2retain_s: 20,
        };
        add(bytes(logout), Response::Logout(logout));
        let reject = Reject { reason: RejectReason::Snack, sn: SN, data_sn: 4, data_len: 48 };
        add(bytes(reject), Response::Reject(reject));
        for event in [AsyncEvent::SessionDropped, AsyncEvent::Vendor(9), AsyncEvent::TasksEnded] {
            let message =
                AsyncMessage { event, parameters: [1, 2, 3], sn: SN, ..Default::default() };
            add(bytes(message), Response::Async(message));
        }
        out
    };
    for (bhs, want) in all {
        assert_eq!(Response::decode(&bhs).unwrap(), want);
    }
}

#[test]
fn random_headers_never_panic() {
    let mut rng = Prng::new(2);
    let mut good = 0;
    for _ in 0..20_000 {
        let mut bhs = [0; BHS_LEN];
        rng.fill(&mut bhs);
        bhs[0] = 0x20 | (bhs[0] & 0x17);
        bhs[4] &= 0x80;
        if let Ok(Response::DataIn(data)) = Response::decode(&bhs) {
            good += 1;
            assert_eq!(DataIn::decode(&bytes(data)).map(|d| d.data_sn), Ok(data.data_sn));
        }
    }
    assert!(good > 100);
}

#[test]
fn residuals_are_computed_and_saturate() {
    assert_eq!(Residual::of(512, 512), Residual::None);
    assert_eq!(Residual::of(0, u32::MAX), Residual::Underflow(u32::MAX));
    assert_eq!(Residual::of(1024, 512), Residual::Overflow(512));
    assert_eq!(Residual::of(u64::MAX, 1), Residual::Overflow(u32::MAX));
}

#[test]
fn sense_segments_are_encoded_bounded_and_checked() {
    let mut out = [0xee; 32];
    assert_eq!(sense_segment(&[], &mut out), 0);
    assert_eq!(sense_segment(&[0x70, 0, 5], &mut out), 5);
    assert_eq!(out[..6], [0, 3, 0x70, 0, 5, 0xee]);
    assert_eq!(sense_of_segment(&out[..5]).unwrap(), [0x70, 0, 5]);
    assert_eq!(sense_of_segment(&out[..4]).unwrap_err().field, "SenseData");
    assert_eq!(sense_of_segment(&[1]).unwrap_err().field, "SenseLength");
    assert_eq!(sense_segment(&[1; 300], &mut [0; 8]), 8);
    assert_eq!(sense_segment(&[1; 300], &mut [0; 1]), 0);
}
