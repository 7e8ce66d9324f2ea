//! REPORT IDENTIFYING INFORMATION and SET IDENTIFYING INFORMATION (SPC-4 6.32, 6.43): names that
//! initiators give a unit. They outlive restarts: stored in the state store before GOOD.
//!
//! ```text
//!   record: version 1 | { type | length (2) | bytes }*
//! ```

use std::collections::BTreeMap;

use bio::Errno;
use geom::{Error, Local};
use wire::scsi::{Command as Cdb, Sense, asc};

use super::EngineCommand;
use crate::handlers::ImmediateCommand;
use crate::job::Job;
use crate::plan::Plan;
use crate::state_store::{RecordKind, StateStore};
use crate::status::Ending;
use crate::unit::Device;

/// Types and the most bytes of each: peripheral device identifying information, and text.
const TYPES: [(u8, u16); 2] = [(0x00, 64), (0x02, 256)];
/// The type that requests the list of types.
const SUPPORTED: u8 = 0x7f;
const TEXT: u8 = 0x02;
const VERSION: u8 = 1;

fn longest(kind: u8) -> Option<u16> {
    TYPES.iter().find(|(one, _)| *one == kind).map(|(_, len)| *len)
}

fn encode(all: &BTreeMap<u8, Vec<u8>>) -> Vec<u8> {
    let mut out = vec![VERSION];
    for (kind, bytes) in all {
        out.push(*kind);
        out.extend(u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
        out.extend(bytes);
    }
    out
}

fn decode(bytes: &[u8]) -> Option<BTreeMap<u8, Vec<u8>>> {
    let (&VERSION, mut rest) = bytes.split_first()? else { return None };
    let mut all = BTreeMap::new();
    while let Some(([kind, a, b], tail)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([*a, *b]));
        let (body, tail) = tail.split_at_checked(len)?;
        if len > usize::from(longest(*kind)?) {
            return None;
        }
        all.insert(*kind, body.to_vec());
        rest = tail;
    }
    rest.is_empty().then_some(all)
}

/// Takes over the stored values.
pub(super) fn load(device: &Device, store: &dyn StateStore) -> Result<(), Error> {
    let serial = &device.spec().serial;
    let Some(bytes) = store.load(serial, RecordKind::Identifying)? else { return Ok(()) };
    let all = decode(&bytes).ok_or_else(|| {
        Error::inval(format!("identifying information of {serial} cannot be read"))
    })?;
    device.initiator_data().state().identifying = all;
    Ok(())
}

pub(super) struct Identifying;

impl EngineCommand for Identifying {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        match *command {
            Cdb::ReportIdentifying { kind, alloc } => match longest(kind) {
                None if kind != SUPPORTED => Err(Sense::cdb_field(10, Some(7))),
                _ => Ok(Plan::reply(alloc)),
            },
            Cdb::SetIdentifying { kind, len } => {
                let most = longest(kind).ok_or(Sense::cdb_field(10, Some(7)))?;
                if len > u32::from(most) {
                    return Err(Sense::cdb_field(6, None));
                }
                Ok(Plan { medium: false, exact: true, ..Plan::task(len) })
            }
            _ => Err(Sense::new(asc::INTERNAL_FAILURE)),
        }
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        let (Cdb::ReportIdentifying { kind, .. }, Some(device)) = (*ask.command, ask.device) else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        let body: Vec<u8> = match kind {
            SUPPORTED => TYPES
                .iter()
                .flat_map(|(kind, len)| [kind << 1, 0, (len >> 8) as u8, *len as u8])
                .collect(),
            _ => {
                device.initiator_data().state().identifying.get(&kind).cloned().unwrap_or_default()
            }
        };
        let [high, low] = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
        ask.reply.extend([0, 0, high, low]);
        ask.reply.extend(body);
        Ok(())
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move { set(&job).await.err().unwrap_or(Ending::Good) })
    }
}

async fn set(job: &Job) -> Result<(), Ending> {
    let Cdb::SetIdentifying { kind, .. } = job.command else {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    };
    let bytes = job.data.to_vec();
    if kind == TEXT && !bytes.is_empty() {
        // A string with one NUL, at its end.
        let text = std::str::from_utf8(&bytes).is_ok();
        let end = bytes.iter().position(|b| *b == 0);
        if !text || end != bytes.len().checked_sub(1) {
            return Err(Ending::Check(Sense::list_field(0, None)));
        }
    }
    let mut all = job.device.initiator_data().state().identifying.clone();
    match bytes.is_empty() {
        true => all.remove(&kind),
        false => all.insert(kind, bytes),
    };
    match job.save(RecordKind::Identifying, encode(&all)).await {
        Ok(()) => {}
        Err(Errno::NotSup) => return Err(Ending::check(asc::SAVING_UNSUPPORTED)),
        Err(_) => return Err(Ending::check(asc::INTERNAL_FAILURE)),
    }
    job.device.initiator_data().state().identifying = all;
    job.device.raise(asc::IDENTIFIER_CHANGED, Some(&job.nexus));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_truncated_ones_are_rejected() {
        let all = BTreeMap::from([(0, b"rack 7".to_vec()), (2, b"name\0".to_vec())]);
        let bytes = encode(&all);
        assert_eq!(decode(&bytes), Some(all));
        assert_eq!(decode(&[VERSION]), Some(BTreeMap::new()));
        for cut in 0..bytes.len() {
            // Only between two entries, the list is merely shorter.
            assert_eq!(decode(&bytes[..cut]).is_some(), cut == 1 || cut == 10, "{cut}");
        }
        assert_eq!(decode(&[2]), None);
        assert_eq!(decode(&[1, 5, 0, 0]), None);
    }
}
