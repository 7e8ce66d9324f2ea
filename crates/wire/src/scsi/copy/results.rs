//! Parameter data of the RECEIVE commands of a copy manager (SPC-4 6.18 to 6.22), not truncated.

use super::token::ROD_TOKEN_LEN;
use super::{CopyLimits, DESCRIPTOR_TYPES, count_rest};

/// Bytes of a token in REPORT ALL ROD TOKENS data: all but the extended data.
const MANAGEMENT_LEN: usize = 96;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyState {
    /// It runs, and its command has not ended.
    #[default]
    Foreground,
    /// It runs behind a status that was sent already (IMMED).
    Background,
    /// Done, all of it.
    Good,
    /// Ended by an error.
    Failed,
    /// Aborted on request.
    Aborted,
}

impl CopyState {
    /// COPY MANAGER STATUS of the LID1 forms.
    fn lid1(self) -> u8 {
        match self {
            CopyState::Foreground | CopyState::Background => 0x00,
            CopyState::Good => 0x01,
            CopyState::Failed | CopyState::Aborted => 0x02,
        }
    }

    /// COPY OPERATION STATUS of the LID4 forms.
    fn lid4(self) -> u8 {
        match self {
            CopyState::Good => 0x01,
            CopyState::Failed => 0x02,
            CopyState::Foreground => 0x11,
            CopyState::Background => 0x12,
            CopyState::Aborted => 0x60,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress<'a> {
    pub status: CopyState,
    /// Service action of the command that began it.
    pub action: u8,
    pub segments: u16,
    /// Requests done, modulo 65536.
    pub operations: u16,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes thrown away that should have been held.
    pub held_lost: bool,
    /// Milliseconds after which to retry; `u32::MAX` if unknown.
    pub again_ms: u32,
    /// SAM status byte with which it ended; 0 while it runs.
    pub ended: u8,
    /// Sense data of its end, at most 252 bytes; empty without an error.
    pub sense: &'a [u8],
}

pub fn copy_status_lid1(progress: &CopyProgress<'_>) -> Vec<u8> {
    // TRANSFER COUNT UNITS: bytes, or the smallest power of 1024 with which the count fits.
    let (units, count) = (0u8..=6)
        .find_map(|u| Some((u, u32::try_from(progress.bytes >> (10 * u32::from(u))).ok()?)))
        .unwrap_or((6, u32::MAX));
    let lost = if progress.held_lost { 0x80 } else { 0 };
    let mut out = vec![0, 0, 0, 8, progress.status.lid1() | lost];
    out.extend(progress.segments.to_be_bytes());
    out.push(units);
    out.extend(count.to_be_bytes());
    out
}

/// RECEIVE COPY DATA(LID1).
pub fn held_data(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(data);
    count_rest(&mut out);
    out
}

/// RECEIVE COPY FAILURE DETAILS(LID1): `None` when the copy did not fail.
pub fn failed_segment(failed: Option<(u8, &[u8])>) -> Vec<u8> {
    let mut out = vec![0; 60];
    let Some((status, sense)) = failed else { return out };
    if let Some(to) = out.get_mut(56) {
        *to = status;
    }
    let len = u16::try_from(sense.len()).unwrap_or(0).to_be_bytes();
    out.iter_mut().skip(58).zip(len).for_each(|(to, from)| *to = from);
    out.extend(sense);
    count_rest(&mut out);
    out
}

pub fn operating_parameters(limits: &CopyLimits) -> Vec<u8> {
    // SNLID: a list may have no identifier.
    let mut out = vec![0, 0, 0, 0, 1, 0, 0, 0];
    out.extend(limits.cscds.to_be_bytes());
    out.extend(limits.segments.to_be_bytes());
    out.extend(limits.descriptors_len.to_be_bytes());
    // MAXIMUM SEGMENT LENGTH: no limit.
    out.extend([0; 4]);
    out.extend(limits.inline_len.to_be_bytes());
    out.extend(limits.held_len.to_be_bytes());
    // No streams.
    out.extend([0; 6]);
    out.extend(limits.concurrent.to_be_bytes());
    out.push(limits.identified);
    // Granularities of segments, inline data and held data: one byte, as powers of two.
    out.extend([0; 6]);
    out.push(u8::try_from(DESCRIPTOR_TYPES.len()).unwrap_or(0));
    out.extend(DESCRIPTOR_TYPES);
    count_rest(&mut out);
    out
}

/// The head that RECEIVE COPY STATUS(LID4) and RECEIVE ROD TOKEN INFORMATION share.
fn status4(progress: &CopyProgress<'_>) -> Vec<u8> {
    let sense: Vec<u8> = progress.sense.iter().take(252).copied().collect();
    let sense_len = u8::try_from(sense.len()).unwrap_or(0);
    let mut out = vec![0, 0, 0, 0, progress.action & 0x1f, progress.status.lid4()];
    out.extend(progress.operations.to_be_bytes());
    out.extend(progress.again_ms.to_be_bytes());
    out.extend([progress.ended, sense_len, sense_len, 0]);
    out.extend(progress.bytes.to_be_bytes());
    out.extend(progress.segments.to_be_bytes());
    out.extend([0; 6]);
    out.extend(sense);
    out
}

pub fn copy_status_lid4(progress: &CopyProgress<'_>) -> Vec<u8> {
    let mut out = status4(progress);
    count_rest(&mut out);
    out
}

/// A token in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenInfo<'a> {
    pub token: &'a [u8; ROD_TOKEN_LEN],
}

/// RECEIVE ROD TOKEN INFORMATION: status, and the token of a POPULATE TOKEN that is done. The
/// transfer count is blocks here (SBC-3 5.31.2), so `progress.bytes` must be a number of blocks.
pub fn rod_token_information(progress: &CopyProgress<'_>, token: Option<TokenInfo<'_>>) -> Vec<u8> {
    let mut out = status4(progress);
    // TRANSFER COUNT UNITS: logical blocks.
    if let Some(units) = out.get_mut(15) {
        *units = 0xf1;
    }
    match token {
        Some(info) => {
            // The descriptor: its identifier (2, reserved for these commands) and the token.
            out.extend((2 + ROD_TOKEN_LEN as u32).to_be_bytes());
            out.extend([0, 0]);
            out.extend(info.token);
        }
        None => out.extend([0; 4]),
    }
    count_rest(&mut out);
    out
}

/// REPORT ALL ROD TOKENS: the management part of each, which holds no secret.
pub fn report_rod_tokens<'a>(tokens: impl Iterator<Item = &'a [u8; ROD_TOKEN_LEN]>) -> Vec<u8> {
    let mut out = vec![0; 8];
    for token in tokens {
        out.extend(token.iter().take(MANAGEMENT_LEN));
    }
    count_rest(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::super::TEST_LIMITS;
    use super::*;

    fn progress() -> CopyProgress<'static> {
        CopyProgress {
            status: CopyState::Failed,
            action: 0x10,
            segments: 3,
            operations: 0x0201,
            bytes: 0x1_0000_0000,
            again_ms: 250,
            ended: 2,
            sense: &[0x72, 5, 0x23, 6],
            ..CopyProgress::default()
        }
    }

    #[test]
    fn lid1_status_matches_known_bytes() {
        assert_eq!(copy_status_lid1(&progress()), [0, 0, 0, 8, 2, 0, 3, 1, 0, 0x40, 0, 0]);
        let held = CopyProgress { held_lost: true, bytes: 7, ..CopyProgress::default() };
        assert_eq!(copy_status_lid1(&held), [0, 0, 0, 8, 0x80, 0, 0, 0, 0, 0, 0, 7]);
        let huge = CopyProgress { bytes: u64::MAX, ..CopyProgress::default() };
        assert_eq!(copy_status_lid1(&huge)[7..], [4, 0, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn lid4_status_matches_known_bytes() {
        let want = [
            0, 0, 0, 32, 0x10, 2, 2, 1, 0, 0, 0, 250, 2, 4, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 0,
            0, 0, 0, 0, 0, 0x72, 5, 0x23, 6,
        ];
        assert_eq!(copy_status_lid4(&progress()), want);
    }

    #[test]
    fn rod_token_information_matches_known_bytes() {
        let token = [7; ROD_TOKEN_LEN];
        let good = CopyProgress { status: CopyState::Good, bytes: 64, ..CopyProgress::default() };
        let out = rod_token_information(&good, Some(TokenInfo { token: &token }));
        assert_eq!(out.len(), 32 + 4 + 514);
        assert_eq!(out[..4], [0, 0, 0x02, 0x22]);
        assert_eq!((out[5], out[15], out[23]), (1, 0xf1, 64));
        assert_eq!(out[32..38], [0, 0, 0x02, 0x02, 0, 0]);
        assert_eq!(out[38..], token);
        let none = rod_token_information(&progress(), None);
        assert_eq!((none.len(), none[3]), (40, 36));
        assert_eq!(none[32..], [0x72, 5, 0x23, 6, 0, 0, 0, 0]);
    }

    #[test]
    fn other_copy_results_match_known_bytes() {
        assert_eq!(failed_segment(None), [0; 60]);
        let out = failed_segment(Some((2, &[9, 8])));
        assert_eq!((out.len(), out[3], out[56]), (62, 58, 2));
        assert_eq!(out[57..], [0, 0, 2, 9, 8]);
        assert_eq!(held_data(&[1, 2]), [0, 0, 0, 2, 1, 2]);
        let out = operating_parameters(&TEST_LIMITS);
        let want = [
            0, 0, 0, 45, 1, 0, 0, 0, 0, 4, 0, 8, 0, 0, 1, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0,
            0, 0, 0, 0, 0, 0, 0, 16, 8, 0, 0, 0, 0, 0, 0, 5, 2, 7, 0x0a, 0x0d, 0xe4,
        ];
        assert_eq!(out, want);
        let out = report_rod_tokens([[1; ROD_TOKEN_LEN], [2; ROD_TOKEN_LEN]].iter());
        assert_eq!((out.len(), out[3]), (8 + 192, 196));
        assert_eq!((out[8], out[104]), (1, 2));
    }
}
