//! Third-party copy: EXTENDED COPY, POPULATE TOKEN, WRITE USING TOKEN, COPY OPERATION ABORT and the
//! RECEIVE commands for their results (SPC-4 6.4 to 6.6, 6.17 to 6.22). `crate::copy` does the
//! work.

use std::sync::Arc;

use geom::Local;
use wire::scsi::{
    Command as Cdb, CopyForm, CopyOut, CopyStatus, PeripheralType, Sense, asc,
    operating_parameters, report_rod_tokens,
};

use super::EngineCommand;
use crate::copy::{LIST_LEN_MAX, extended, offload};
use crate::handlers::ImmediateCommand;
use crate::job::Job;
use crate::plan::{Plan, Run};
use crate::status::Ending;
use crate::task::set::Span;
use crate::unit::Device;
use crate::unit::copies::LIMITS;
use crate::unit::copies::operations::OperationId;

pub(super) struct Copy;

impl EngineCommand for Copy {
    fn plan(&self, command: &Cdb, device: &Device) -> Result<Plan, Sense> {
        if device.kind().peripheral() != PeripheralType::Disk {
            return Err(Sense::new(asc::INVALID_OPCODE));
        }
        match *command {
            Cdb::CopyOut { len, .. } if len > LIST_LEN_MAX => {
                Err(Sense::new(asc::PARAMETER_LIST_LEN))
            }
            // EXTENDED COPY may write elsewhere, and not here: it looks for itself.
            Cdb::CopyOut { action, len, .. } => {
                // It claims the blocks that it touches, of any unit, when it reaches them.
                let plan = Plan { span: Some(Span::Nothing), ..Plan::task(len) };
                Ok(if action == CopyOut::WriteUsingToken { plan.writing() } else { plan })
            }
            Cdb::CopyAbort { .. } => Ok(Plan { run: Run::Task, ..Plan::NOTHING }),
            Cdb::CopyStatus { alloc, .. } => Ok(Plan::reply(alloc)),
            _ => Err(Sense::new(asc::INTERNAL_FAILURE)),
        }
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        let Cdb::CopyStatus { action, list_id, .. } = *ask.command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        let Some(nexus) = ask.nexus else { return Err(Sense::new(asc::LUN_NOT_SUPPORTED)) };
        let (name, now) = (OperationId::new(nexus, list_id), ask.core.now());
        let Some(device) = ask.device else { return Err(Sense::new(asc::LUN_NOT_SUPPORTED)) };
        let operations = device.operations();
        let found = match action {
            CopyStatus::Parameters => Some(operating_parameters(&LIMITS)),
            CopyStatus::AllTokens => {
                let sees = |d: &Arc<Device>| ask.luns.iter().any(|e| Arc::ptr_eq(&e.device, d));
                let tokens = ask.registry.tokens().list(sees, now);
                Some(report_rod_tokens(tokens.iter()))
            }
            CopyStatus::StatusLid1 => operations.status_lid1(name, now),
            CopyStatus::HeldData => operations.take_held(name, now),
            CopyStatus::FailureDetails => operations.take_failure(name, now),
            CopyStatus::StatusLid4 => operations.status_lid4(name, now),
            CopyStatus::TokenInformation => operations.token_information(name, now),
        };
        // The list identifier is unknown.
        ask.reply.extend(found.ok_or(Sense::cdb_field(2, None))?);
        Ok(())
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move {
            let result = match job.command {
                Cdb::CopyOut { action, list_id, .. } => match action {
                    CopyOut::Lid1 => extended::copy(&job, CopyForm::Lid1).await,
                    CopyOut::Lid4 => extended::copy(&job, CopyForm::Lid4).await,
                    CopyOut::PopulateToken => offload::populate(&job, list_id).await,
                    CopyOut::WriteUsingToken => offload::write(&job, list_id).await,
                },
                Cdb::CopyAbort { list_id } => abort(&job, list_id).await,
                _ => Err(Ending::check(asc::INTERNAL_FAILURE)),
            };
            result.err().unwrap_or(Ending::Good)
        })
    }
}

/// Ends when nothing of the copy touches a medium any more.
async fn abort(job: &Job, list_id: u32) -> Result<(), Ending> {
    let name = OperationId::new(&job.nexus, list_id);
    let operation = job.device.operations().cancel(name, job.core().now());
    let operation = operation.ok_or(Sense::cdb_field(2, None))?;
    operation.ended().await;
    Ok(())
}
