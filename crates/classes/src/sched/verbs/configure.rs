//! The `configure` verb: changes algorithm, options and clients while requests are in progress.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::work_as;
use crate::sched::class::{SchedClass, classify};
use crate::sched::clients::Classify;
use crate::sched::options::{self, Options};
use crate::sched::{algorithms, queue};

/// Settings of each algorithm with their ranges and first values.
const KNOBS: &str = "Options of the algorithms, with minimum, maximum and default. rr: queue_depth \
    1 to 50 (1), wait_ms 1 to 30 (10), quantum_ms 1 to 500 (100), quantum_kb 16 to 65536 (8192), \
    w_anticipate 0 to 1 (1). as: wait_ms 1 to 30 (5), batch_kb 16 to 65536 (8192). fifo: \
    queue_depth 0 to 1024 (0), 0: no limit. deadline: queue_depth 1 to 256 (1), read_expire_ms 1 \
    to 60000 (500), write_expire_ms 1 to 600000 (5000), batch 1 to 1024 (16), writes_starved 1 to \
    64 (2). fair: queue_depth 1 to 4096 (32), op_cost 0 to 1048576 (8192), burst_ms 1 to 60000 \
    (100); it alone uses weight, iops, kbps and a client's burst_ms.";

/// Change algorithm, options or classification under load
#[derive(Deserialize, JsonSchema)]
pub(super) struct Configure {
    /// The scheduler: DISK.sched. or DISK
    name: String,
    /// New algorithm [default: unchanged]
    #[schemars(extend("x-short" = "a", "enum" = algorithms::NAMES))]
    algorithm: Option<String>,
    /// Options as with `insert`; CLIENT=default removes the options of a client
    options: Option<String>,
    /// Classification of requests into clients, as with `insert` [default: unchanged]
    #[schemars(extend("x-short" = "c", "enum" = Classify::KEYS))]
    classify: Option<String>,
}

impl Verb<SchedClass> for Configure {
    const NAME: &'static str = "configure";
    const DETAIL: &'static str = KNOBS;
    const EXAMPLE: &'static str = "sched configure -a as --options wait_ms=3 d0.sched.";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, SchedClass>) -> Result<MessageAnswer, Error> {
        let Options { knobs, shares } = options::read(self.options.as_deref())?;
        let classify = classify(self.classify.as_deref())?;
        let new =
            self.algorithm.as_deref().map(|name| queue::algorithm(name, &knobs)).transpose()?;
        let geom = work_as(control, &self.name, |hub, now| {
            // All or nothing: what can be refused is refused first.
            options::check_share_limit(hub, &shares)?;
            match new {
                Some(new) => hub.change(new, now),
                None => set(hub, &knobs)?,
            }
            if let Some(classify) = classify {
                hub.set_classify(classify);
            }
            options::set_shares(hub, &shares)
        })?;
        Ok(MessageAnswer::new(format!("{} configured", control.topology.geom_name(geom))))
    }
}

/// Sets knobs, all of them or none.
fn set(hub: &mut queue::DiskQueue, knobs: &[(String, u64)]) -> Result<(), Error> {
    queue::algorithm(hub.algorithm_name, knobs)?;
    hub.configure(|algorithm, _| {
        for (key, value) in knobs {
            algorithm.knobs_mut().set(key, *value).map_err(Error::inval)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_text_matches_the_options_of_each_algorithm() {
        let parts: Vec<&str> = KNOBS.split(". ").collect();
        for kind in algorithms::ALL {
            let head = format!("{}: ", kind.name);
            let part = parts.iter().find(|p| p.starts_with(&head)).expect("an algorithm");
            assert_eq!(part.matches(" to ").count(), kind.knobs.len(), "{part}");
            for k in kind.knobs {
                let range = format!("{} {} to {} ({})", k.name, k.min, k.max, k.default);
                assert!(part.contains(&range), "{range}: {part}");
            }
        }
    }
}
