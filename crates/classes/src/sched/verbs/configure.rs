//! The `configure` verb: changes algorithm, options and clients while requests are in progress.

use geom::{At, Change, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::work_as;
use crate::sched::class::SchedClass;
use crate::sched::options;
use crate::sched::params::SchedParams;

/// The scheduler and its change. What is not given stays as it is, the options of other clients
/// too; with an algorithm, its other options have their defaults.
#[derive(Deserialize, JsonSchema)]
#[schemars(description = help())]
pub(super) struct Configure {
    /// The scheduler: DISK.sched. or DISK
    name: String,
    #[serde(flatten)]
    change: Change<SchedParams>,
}

fn help() -> String {
    format!(
        "Change algorithm, options or classification under load\n\nWhat is not given stays as it \
         is. A given algorithm begins with its defaults, except the given options.\n\n{}",
        options::help()
    )
}

impl Verb<SchedClass> for Configure {
    const NAME: &'static str = "configure";
    const EXAMPLE: &'static str = "sched configure -a as --options wait_ms=3 d0.sched.";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, SchedClass>) -> Result<MessageAnswer, Error> {
        let Configure { name, change } = self;
        let geom = work_as(control, &name, |hub, now| {
            let now_set = SchedParams::without_options(hub);
            let params = change.over(&format!("sched {name}"), &now_set)?;
            let algorithm = params.algorithm()?;
            // All or nothing: what can be refused is refused first.
            options::check_share_limit(hub, &params.options.shares)?;
            if change.names("algorithm") {
                hub.change(algorithm, now);
            } else {
                let knobs = &params.options.knobs;
                options::set_knobs(hub, knobs.iter().map(|(key, value)| (key.as_str(), *value)))?;
            }
            hub.set_classify(params.classify);
            options::set_shares(hub, &params.options.shares)
        })?;
        Ok(MessageAnswer::new(format!("{} configured", control.topology.geom_name(geom))))
    }
}
