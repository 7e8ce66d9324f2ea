//! Steps that read files again whose contents differ from those in use.
//!
//! They depend on files, not on configurations, and so stay outside of the laws of `plan`.

use super::action::{Action, Risk, Step};
use crate::config::Config;
use crate::plant::Stale;

/// Adds one step for each target of `stale` that the other steps leave in place. A disk is grown
/// after them, because that is not taken back when a later step fails.
pub fn renew(steps: &mut Vec<Step>, stale: Vec<Stale>, desired: &Config) {
    let is_made = |name: &str| {
        steps.iter().any(|step| match &step.action {
            Action::CreateTarget { target } => target.name == name,
            _ => false,
        })
    };
    let stays = |s: &Stale| desired.target(&s.target).is_some() && !is_made(&s.target);
    let step = |s: Stale| Step::new(Action::Renew { target: s.target }, s.why, Risk::Safe);
    let more: Vec<Step> = stale.into_iter().filter(stays).map(step).collect();
    let grows = |step: &Step| matches!(step.action, Action::GrowDisk { .. });
    let at = steps.iter().position(grows).unwrap_or(steps.len());
    steps.splice(at..at, more);
}
