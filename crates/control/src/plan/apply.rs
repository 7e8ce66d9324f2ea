//! A plan, carried out wholly or not at all.
//!
//! ```text
//! check all --no--> CannotCarryOut (nothing touched)
//!     |yes
//! step 1 .. n --all done--> applied
//!     |step k fails
//! inverse of k-1 .. 1 --all done--> RolledBack (as before)
//!     |one fails
//! HalfDone (`running` says where it stands; a new plan leads on from there)
//! ```

use super::action::{Action, Risk, Step};
use crate::api::{Error, Kind, ProgressLine, Result};
use crate::config::Config;
use crate::plant::{Plant, Progress};

/// What carrying out a plan has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What the user should know; usually nothing.
    pub notes: Vec<String>,
}

/// Carries out `steps`. `running` follows every step, so that it is right also after an error.
///
/// # Errors
/// [`Kind::CannotCarryOut`], [`Kind::RolledBack`]: nothing has changed. [`Kind::HalfDone`]: the
/// system is where `running` says.
pub fn apply(
    plant: &dyn Plant,
    steps: &[Step],
    running: &mut Config,
    progress: &mut Progress<'_>,
) -> Result<Applied> {
    for (i, step) in steps.iter().enumerate() {
        let before = steps.get(..i).unwrap_or_default();
        plant.check(step, before).map_err(|e| wrap(Kind::CannotCarryOut, &step.what, e, ""))?;
    }
    let total = u64::try_from(steps.len()).unwrap_or(u64::MAX);
    let mut applied = Applied::default();
    let mut done: Vec<&Step> = Vec::with_capacity(steps.len());
    for (i, step) in steps.iter().enumerate() {
        let i = u64::try_from(i).unwrap_or(u64::MAX);
        progress(line(&step.what, i, total));
        match plant.carry_out(&step.action, progress) {
            Ok(outcome) => {
                step.action.apply_to(running);
                applied.notes.extend(outcome.notes);
                done.push(step);
            }
            Err(e) => return Err(take_back(plant, &done, step, e, running, progress)),
        }
    }
    progress(line("done", total, total));
    Ok(applied)
}

fn line(what: &str, done: u64, total: u64) -> ProgressLine {
    ProgressLine { what: what.to_owned(), done, total, ..ProgressLine::default() }
}

/// The plant's error about one step, as an error of the whole.
fn wrap(kind: Kind, what: &str, cause: Error, more: &str) -> Error {
    let place = if cause.at.is_empty() { String::new() } else { format!("{}: ", cause.at) };
    let code = cause.kind.code();
    let source = format!("{place}{} ({code}){more}", cause.source);
    let next = cause.next.unwrap_or_else(|| match kind {
        Kind::HalfDone => kind.next().to_owned(),
        _ => cause.kind.next().to_owned(),
    });
    Error::new(kind, "apply", source).at(what).next(next)
}

/// Inverts what was done, newest first, and says how that went.
fn take_back(
    plant: &dyn Plant,
    done: &[&Step],
    failed: &Step,
    cause: Error,
    running: &mut Config,
    progress: &mut Progress<'_>,
) -> Error {
    for step in done.iter().rev() {
        let inverse: &Action = &step.inverse;
        match plant.carry_out(inverse, progress) {
            Ok(_) => inverse.apply_to(running),
            Err(second) => {
                let more =
                    format!("; then taking back \"{}\" failed too: {}", step.what, second.source);
                return wrap(Kind::HalfDone, &failed.what, cause, &more);
            }
        }
    }
    let lost: Vec<String> =
        done.iter().filter(|s| s.risk == Risk::Destroys).map(|s| s.action.name()).collect();
    let more = match lost.as_slice() {
        [] => String::new(),
        names => format!("; what was on {} is lost", names.join(", ")),
    };
    wrap(Kind::RolledBack, &failed.what, cause, &more)
}
