//! Task management.

use engine::{TmFunction, TmOutcome};
use wire::iscsi::{Pdu, RejectReason, TaskAnswer, TaskRequest, TaskResponse, task_function};

use super::close_reason::CloseReason;
use super::receive::CompleteRequest;
use super::session::{IscsiSession, before};

/// Functions of one session under way at once; a further one is rejected.
const FUNCTIONS_MAX: usize = 64;

fn function_of(code: u8) -> Result<TmFunction, TaskAnswer> {
    Ok(match code {
        task_function::ABORT_TASK => TmFunction::AbortTask,
        task_function::ABORT_TASK_SET => TmFunction::AbortTaskSet,
        task_function::CLEAR_ACA => TmFunction::ClearAca,
        task_function::CLEAR_TASK_SET => TmFunction::ClearTaskSet,
        task_function::LUN_RESET => TmFunction::LunReset,
        task_function::TARGET_WARM_RESET => TmFunction::TargetWarmReset,
        task_function::TARGET_COLD_RESET => TmFunction::TargetColdReset,
        task_function::QUERY_TASK => TmFunction::QueryTask,
        task_function::QUERY_TASK_SET => TmFunction::QueryTaskSet,
        task_function::NEXUS_RESET => TmFunction::NexusReset,
        task_function::QUERY_ASYNC_EVENT => TmFunction::QueryAsyncEvent,
        task_function::TASK_REASSIGN => return Err(TaskAnswer::ReassignUnsupported),
        _ => return Err(TaskAnswer::Unsupported),
    })
}

fn answer_of(outcome: TmOutcome) -> TaskAnswer {
    match outcome {
        TmOutcome::Complete => TaskAnswer::Complete,
        TmOutcome::Found => TaskAnswer::Succeeded,
        TmOutcome::NoTask => TaskAnswer::NoTask,
        TmOutcome::NoLun => TaskAnswer::NoLun,
        TmOutcome::NotSupported => TaskAnswer::Unsupported,
    }
}

impl IscsiSession {
    pub fn function(&self, pdu: &TaskRequest) -> Result<(), CloseReason> {
        let reject = |reason| {
            let mut bhs = [0; wire::iscsi::BHS_LEN];
            pdu.encode(&mut bhs);
            self.reject(reason, &bhs)
        };
        let Some(nexus) = self.nexus() else { return reject(RejectReason::Protocol) };
        let tag = pdu.task_tag;
        if nexus.has_command(tag) || self.functions.borrow().contains(&tag) {
            return reject(RejectReason::TaskInProgress);
        }
        if self.functions.borrow().len() >= FUNCTIONS_MAX {
            return reject(RejectReason::TooManyImmediate);
        }
        self.functions.borrow_mut().insert(tag);
        let f = match function_of(pdu.function) {
            Ok(f) => f,
            Err(answer) => {
                self.answer_function(tag, answer);
                return Ok(());
            }
        };
        if self.skip_held(f, pdu) {
            self.answer_function(tag, TaskAnswer::Complete);
            return Ok(());
        }
        let of = matches!(f, TmFunction::AbortTask | TmFunction::QueryTask);
        nexus.task_management(tag, f, pdu.lun, of.then_some(pdu.referenced_tag));
        Ok(())
    }

    /// Requests that wait behind a gap in the numbers are ended here: the engine has not seen
    /// them. True when that was all there was to do.
    fn skip_held(&self, f: TmFunction, pdu: &TaskRequest) -> bool {
        let all_units = matches!(
            f,
            TmFunction::TargetWarmReset | TmFunction::TargetColdReset | TmFunction::NexusReset
        );
        let of_unit =
            matches!(f, TmFunction::AbortTaskSet | TmFunction::ClearTaskSet | TmFunction::LunReset);
        let mut held = self.held.borrow_mut();
        if f == TmFunction::AbortTask {
            if self.has_command(pdu.referenced_tag) {
                return false;
            }
            let of_tag = |b: &CompleteRequest| match b {
                CompleteRequest::Command(c) => c.header.task_tag == pdu.referenced_tag,
                _ => false,
            };
            if let Some(body) = held.values_mut().find(|b| of_tag(b)) {
                *body = CompleteRequest::Skipped;
                return true;
            }
            // RFC 7143 section 11.6.1: a command that has not arrived yet counts as received.
            let number = pdu.ref_cmd_sn;
            if self.in_window(number) && before(number, pdu.cmd_sn) {
                held.insert(number, CompleteRequest::Skipped);
                return true;
            }
            return false;
        }
        for (cmd_sn, body) in held.iter_mut() {
            let hit = match body {
                CompleteRequest::Command(c) => all_units || (of_unit && c.header.lun == pdu.lun),
                _ => false,
            };
            if hit && before(*cmd_sn, pdu.cmd_sn) {
                *body = CompleteRequest::Skipped;
            }
        }
        false
    }

    /// The engine's answer.
    pub fn function_done(&self, tag: u32, outcome: TmOutcome) {
        self.answer_function(tag, answer_of(outcome));
    }

    fn answer_function(&self, tag: u32, answer: TaskAnswer) {
        if self.functions.borrow_mut().remove(&tag) {
            let response = TaskResponse { answer, task_tag: tag, sn: self.numbers(true) };
            self.send(&response, &[]);
        }
    }
}
