//! A plan, carried out wholly or not at all.
//!
//! ```text
//! check all --no--> CannotCarryOut (nothing touched)
//!     |yes
//! step 1 .. n --all done--> applied
//!     |step k fails
//! inverse of k-1 .. 1 --all done--> RolledBack (as before)
//!     |some fail, the others are done all the same
//! HalfDone (`running` has the state that was reached; a new plan continues from there)
//! ```
//!
//! A disk whose removal cannot be undone is awaited, with the parts on it.
//!
//! A step that may stay undone ([`Step::may_wait`]) is left out when it is refused or fails, and
//! the daemon is notified that it is wanted.

use super::action::{Action, Risk, Step};
use super::open_listeners;
use super::renew::FileSection;
use crate::api::{Error, Kind, ProgressLine, Result, SystemState};
use crate::config::{ApiConfig, Catalog, Config, check};
use crate::plant::{Plant, Progress};

/// Report of a plan that was carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// Notes for the user; usually none.
    pub notes: Vec<String>,
    /// Parts that could not be carried out and did not have to be.
    pub deferred: Vec<Deferred>,
}

/// A part of the configuration that could not be carried out. It is wanted still.
#[derive(Clone, Debug, PartialEq)]
pub struct Deferred {
    /// What: "create disk d0 (file)".
    pub subject: String,
    /// Why not.
    pub why: String,
    /// The step that it was; of a LUN that could not be exported, its provider.
    pub part: DeferredPart,
    /// Kind of the error.
    pub kind: Kind,
    /// Advice.
    pub next: Option<String>,
}

/// See `Deferred::of`.
#[derive(Clone, Debug, PartialEq)]
pub enum DeferredPart {
    /// A step.
    Step(Box<Action>),
    /// The export of a provider.
    Export(String),
}

impl Deferred {
    /// A step that was refused or failed.
    pub fn new(step: &Step, cause: Error) -> Deferred {
        let of = DeferredPart::Step(Box::new(step.action.clone()));
        Deferred::with_part(step.what.clone(), of, cause)
    }

    /// An action that is carried out later.
    pub fn of_action(action: &Action, cause: Error) -> Deferred {
        let of = DeferredPart::Step(Box::new(action.clone()));
        Deferred::with_part(action.summary(), of, cause)
    }

    /// The export of a provider that failed.
    pub fn export(provider: &str, cause: Error) -> Deferred {
        Deferred::with_part(
            format!("export {provider}"),
            DeferredPart::Export(provider.to_owned()),
            cause,
        )
    }

    fn with_part(what: String, of: DeferredPart, cause: Error) -> Deferred {
        let is_named = cause.at.is_empty() || what.contains(&cause.at);
        let place = if is_named { String::new() } else { format!("{}: ", cause.at) };
        let why = format!("{place}{}", cause.source);
        Deferred { subject: what, why, part: of, kind: cause.kind, next: cause.next }
    }

    /// The object for which `status` has an entry of its own.
    pub fn status_entry(&self) -> Option<String> {
        let DeferredPart::Step(action) = &self.part else { return None };
        match &**action {
            Action::CreateDisk { disk } => Some(format!("disk {}", disk.name)),
            Action::CreateGeom { geom } => Some(format!("{} {}", geom.class, geom.name)),
            Action::CreateTarget { target } => Some(format!("target {}", target.name)),
            _ => None,
        }
    }

    /// Whether it is there by now: `running` is what of the configuration is.
    pub fn is_resolved(&self, running: &Config, state: &SystemState) -> bool {
        match &self.part {
            DeferredPart::Step(action) => action.is_in(running),
            DeferredPart::Export(name) => {
                let groups = state.targets.iter().flat_map(|t| &t.groups);
                groups.flat_map(|g| &g.luns).any(|lun| lun.provider == *name)
            }
        }
    }
}

/// Carries out `steps`. `running` follows every step, so that it is right also after an error.
///
/// # Errors
/// [`Kind::CannotCarryOut`], [`Kind::RolledBack`]: nothing has changed. [`Kind::HalfDone`]: the
/// system is as in `running`.
pub fn apply(
    (plant, catalog): (&dyn Plant, &Catalog),
    steps: &[Step],
    running: &mut Config,
    progress: &mut Progress<'_>,
) -> Result<Applied> {
    let mut refused = refusals((plant, catalog), steps, running);
    for (step, refused) in steps.iter().zip(&mut refused).filter(|(step, _)| !step.may_wait) {
        if let Some(e) = refused.take() {
            return Err(wrap_error(Kind::CannotCarryOut, &step.what, e, ""));
        }
    }
    let carried_out = steps.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
    let disks: Vec<_> = carried_out.filter_map(|(step, _)| step.action.created_disk()).collect();
    plant.expect_disks(&disks);
    let total = u64::try_from(steps.len()).unwrap_or(u64::MAX);
    let mut applied = Applied::default();
    let mut done: Vec<&Step> = Vec::with_capacity(steps.len());
    for ((i, step), refused) in (0u64..).zip(steps).zip(refused) {
        progress(progress_line(&step.what, i, total));
        let result = match refused {
            Some(e) => Err(e),
            None => plant.carry_out(&step.action, progress),
        };
        match result {
            Ok(outcome) => {
                step.action.apply_to(running);
                applied.notes.extend(outcome.notes);
                applied.deferred.extend(outcome.deferred);
                done.push(step);
            }
            Err(e) if step.may_wait => {
                plant.retry_later(&step.action);
                applied.deferred.push(Deferred::new(step, e));
            }
            Err(e) => {
                let at = (plant, catalog);
                return Err(roll_back(at, &done, step, e, running, progress));
            }
        }
    }
    progress(progress_line("done", total, total));
    Ok(applied)
}

/// Why the daemon would refuse each of the steps. `running` is the configuration before them. The
/// one check of `plan`, of `apply` and of a start.
pub fn refusals(
    (plant, catalog): (&dyn Plant, &Catalog),
    steps: &[Step],
    running: &Config,
) -> Vec<Option<Error>> {
    let mut disks = plant.check_disks(steps);
    let refusal = |(i, step): (usize, &Step)| {
        let before = steps.get(..i).unwrap_or_default();
        match &step.action {
            // At a start the server of the API and webhooks wait for their files instead.
            Action::Api { .. } | Action::Webhooks { .. } if step.may_wait => None,
            Action::Api { to, .. } => unusable_files(&to.api),
            Action::Webhooks { to, .. } => to.iter().find_map(|hook| hook.files().err()),
            Action::Renew { of: FileSection::Api } => unusable_files(&running.api),
            Action::Renew { of: FileSection::Webhook(name) } => {
                let mut hooks = running.webhook.iter().filter(|hook| hook.name == *name);
                hooks.find_map(|hook| hook.files().err())
            }
            _ => disks.remove(&i).unwrap_or_else(|| plant.check(step, before)).err(),
        }
    };
    let mut refused: Vec<Option<Error>> = steps.iter().enumerate().map(refusal).collect();
    let media = plant.refused_media(&running.disk, steps);
    let listeners = open_listeners::refused(running, steps, catalog);
    for (i, error) in media.into_iter().chain(listeners).chain(plant.clash(steps)) {
        if let Some(place) = refused.get_mut(i).filter(|place| place.is_none()) {
            *place = Some(error);
        }
    }
    refused
}

/// Why the files of the API's TLS cannot be used.
fn unusable_files(api: &ApiConfig) -> Option<Error> {
    let why = tls::Keys::read_optional(&api.tls_files()?).err()?;
    let next = "Correct the file or its path in [api]; `ashlar doctor certificates` checks it.";
    Some(Error::new(Kind::System, "read TLS files", why).at("[api]").next(next))
}

fn progress_line(what: &str, done: u64, total: u64) -> ProgressLine {
    ProgressLine { what: what.to_owned(), done, total, ..ProgressLine::default() }
}

/// The plant's error about one step, as an error of the whole.
fn wrap_error(kind: Kind, what: &str, cause: Error, more: &str) -> Error {
    let place = if cause.at.is_empty() { String::new() } else { format!("{}: ", cause.at) };
    let code = cause.kind.code();
    let source = format!("{place}{} ({code}){more}", cause.source);
    let next = match (kind, cause.next) {
        (Kind::HalfDone, None) => kind.next().to_owned(),
        (Kind::HalfDone, Some(own)) => format!("{own} {}", kind.next()),
        (_, None) => cause.kind.next().to_owned(),
        (_, Some(own)) => own,
    };
    Error::new(kind, "apply", source).at(what).next(next)
}

/// Steps whose inverses failed while a plan was taken back.
#[derive(Default)]
struct NotUndone {
    /// Each of them, and why.
    texts: Vec<String>,
    /// The daemon waits for the object of at least one of them.
    has_awaited: bool,
}

impl NotUndone {
    /// A removed disk may return later, and a part on it with the disk.
    fn may_return(&self, inverse: &Action, running: &Config, catalog: &Catalog) -> bool {
        let may_return = match inverse {
            Action::CreateDisk { .. } => true,
            Action::CreateGeom { .. }
            | Action::CreateTarget { .. }
            | Action::CreateAccess { .. } => self.has_awaited,
            _ => false,
        };
        let mut after = running.clone();
        inverse.apply_to(&mut after);
        may_return && check(&after, catalog).is_empty()
    }

    fn add(
        &mut self,
        (plant, catalog): (&dyn Plant, &Catalog),
        step: &Step,
        why: &Error,
        running: &mut Config,
    ) {
        let (what, inverse) = (&step.what, &step.inverse);
        let mut text = format!("undoing \"{what}\" failed too: {}", why.source);
        if self.may_return(inverse, running, catalog) {
            plant.retry_later(inverse);
            inverse.apply_to(running);
            self.has_awaited = true;
            text.push_str(&format!("; the daemon waits for {}", inverse.name()));
        }
        self.texts.push(text);
    }
}

/// Inverts the steps that were done, newest first, and reports the result. An inverse that fails
/// prevents no other.
fn roll_back(
    (plant, catalog): (&dyn Plant, &Catalog),
    done: &[&Step],
    failed: &Step,
    cause: Error,
    running: &mut Config,
    progress: &mut Progress<'_>,
) -> Error {
    let mut left = NotUndone::default();
    for step in done.iter().rev() {
        match plant.take_back(&step.inverse, progress) {
            Ok(_) => step.inverse.apply_to(running),
            Err(e) => left.add((plant, catalog), step, &e, running),
        }
    }
    if !left.texts.is_empty() {
        let more = format!("; then {}", left.texts.join("; "));
        return wrap_error(Kind::HalfDone, &failed.what, cause, &more);
    }
    let lost: Vec<String> =
        done.iter().filter(|s| s.risk == Risk::Destroys).map(|s| s.action.name()).collect();
    let more = match lost.as_slice() {
        [] => String::new(),
        names => format!("; the data on {} is lost", names.join(", ")),
    };
    wrap_error(Kind::RolledBack, &failed.what, cause, &more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DiskConfig;
    use crate::fake::{FakePlant, catalog};

    fn disk(name: &str) -> DiskConfig {
        DiskConfig { name: name.into(), kind: "null".into(), params: Default::default() }
    }

    #[test]
    fn refused_disk_is_none_of_those_that_may_be_opened_ahead() {
        let plant = FakePlant::new();
        plant.refuse_disk("b", Error::new(Kind::Timeout, "create disk", "does not answer"));
        let create = |name| {
            let action = Action::CreateDisk { disk: disk(name) };
            Step { may_wait: true, ..Step::new(action, "new", Risk::Safe) }
        };
        let (steps, mut running) = (["a", "b", "c"].map(create), Config::default());
        let at: (&dyn Plant, &Catalog) = (&plant, &catalog());
        let applied = apply(at, &steps, &mut running, &mut |_| {}).expect("b may wait");
        assert_eq!(plant.expected_disks(), ["a", "c"]);
        let left: Vec<&str> = applied.deferred.iter().map(|left| left.subject.as_str()).collect();
        assert_eq!(left, ["create disk b (null)"]);
    }

    #[test]
    fn removed_disk_that_does_not_return_is_awaited_and_others_are_restored() {
        let plant = FakePlant::new();
        let mut running = Config::default();
        for name in ["a", "b"] {
            let create = Action::CreateDisk { disk: disk(name) };
            plant.carry_out(&create, &mut |_| {}).expect("a new name");
            create.apply_to(&mut running);
        }
        let before = running.clone();
        let removal = |name| Action::RemoveDisk { disk: disk(name) };
        let actions = [removal("a"), removal("b"), Action::CreateDisk { disk: disk("c") }];
        let steps = actions.map(|action| Step::new(action, "edited", Risk::Safe));
        // The creation of c fails, then the return of b.
        plant.fail_after(2, 2);
        let at: (&dyn Plant, &Catalog) = (&plant, &catalog());
        let error = apply(at, &steps, &mut running, &mut |_| {}).expect_err("it fails");
        assert_eq!(error.kind, Kind::HalfDone, "{error}");
        let named = "undoing \"remove disk b (null)\" failed too: the test made it fail; the \
                     daemon waits for b";
        assert!(error.source.contains(named), "{error}");
        assert!(error.next.is_some_and(|next| next.contains("`ashlar plan`")));
        assert_eq!(plant.retried(), [Action::CreateDisk { disk: disk("b") }]);
        assert!(running.is_equivalent(&before), "{running:?}");
        assert!(plant.config().is_equivalent(&before), "a is restored after b has failed");
    }
}
