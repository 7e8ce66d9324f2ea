//! REQUEST SENSE (SPC-4 6.39): reports the oldest unit attention or deferred error as data, and
//! removes it; else the running operation on the medium with its progress; else no sense.

use std::sync::Arc;

use wire::scsi::{Asc, Command as Cdb, SENSE_LEN_MAX, Sense, asc};

use super::EngineCommand;
use crate::handlers::ImmediateCommand;
use crate::plan::Plan;
use crate::unit::Device;
use crate::unit::unit_attention::sense_of;

pub(super) struct RequestSense;

impl EngineCommand for RequestSense {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        let Cdb::RequestSense { alloc, .. } = *command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        Ok(Plan::reply(alloc))
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        let Cdb::RequestSense { descriptor, .. } = *ask.command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        let is_reported = |code: &Asc| {
            *code != asc::THIN_SOFT_THRESHOLD
                || ask.device.is_none_or(|d| d.claim_threshold_attention())
        };
        let attention = ask.nexus.and_then(|n| std::iter::from_fn(|| n.take()).find(is_reported));
        ask.reported_attention = attention;
        let mut bytes = [0; SENSE_LEN_MAX];
        let sense = match (attention, ask.device) {
            (Some(code), _) => sense_of(code, ask.device.map(Arc::as_ref)),
            (None, Some(device)) => device.condition().refusal().unwrap_or_default(),
            (None, None) => Sense::new(asc::NONE),
        };
        let len = sense.encode(descriptor, &mut bytes);
        ask.reply.extend(bytes.iter().take(len));
        Ok(())
    }
}
