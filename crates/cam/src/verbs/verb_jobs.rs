//! Orders: verbs that may take a device's time. The conversation with the device is begun on a
//! core. While it is under way the client has to repeat its request, so that others are served
//! meanwhile.
//!
//! Invariants
//!  O1  The control thread waits for no device longer than [`LOOK`] at a time, for any request: the
//!      scan of a bus is an order too.
//!  O2  Every order ends by the deadlines of its commands. An answer that is not fetched is
//!      forgotten after that, when its place is needed.
//!  O3  An answer is given to a client that requests the same verb of the same device.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use geom::{Core, Deferred, Error, GraphControl, Local, Running, Unfinished, to_json};
use serde::Serialize;
use serde_json::{Value, json};

use super::NamedDevice;
use crate::class::CamClass;
use crate::periph::pass::{self, PassResult, Request};

/// How long a device is waited for before the client has to repeat its request.
const LOOK: Duration = Duration::from_millis(20);

/// Orders under way and answers that were not fetched; a further order is refused when all are
/// under way.
const VERB_JOBS_MAX: usize = 64;

/// Action of the control thread, and its answer, after a conversation that ended well.
pub(super) type Continuation =
    Box<dyn FnOnce(&CamClass, &mut GraphControl) -> Result<Value, Error> + Send + 'static>;

/// One order: which verb of which device.
struct VerbJob {
    description: String,
    running: Running<Result<Value, Error>>,
    /// None: the result of the conversation is the answer.
    then: Option<Continuation>,
}

#[derive(Default)]
struct JobTable {
    last: u64,
    open: BTreeMap<u64, VerbJob>,
}

/// The orders of a class.
#[derive(Default)]
pub(crate) struct VerbJobs(Mutex<JobTable>);

impl VerbJobs {
    fn table(&self) -> MutexGuard<'_, JobTable> {
        self.0.lock()
    }

    /// O2: whether there is space for one more.
    pub(super) fn reserve_slot(&self) -> Result<(), Error> {
        let mut table = self.table();
        if table.open.len() < VERB_JOBS_MAX {
            return Ok(());
        }
        let ended = table.open.iter().find(|(_, order)| order.running.is_ended());
        match ended.map(|(number, _)| *number) {
            Some(oldest) => drop(table.open.remove(&oldest)),
            None => {
                let what = format!(
                    "{VERB_JOBS_MAX} verbs wait for their devices; each ends when its commands \
                     have timed out, or when `ashlar cam reset` resets its device"
                );
                return Err(Error::new(Errno::Busy, what));
            }
        }
        Ok(())
    }

    fn is_of(&self, number: u64, what: &str) -> bool {
        self.table().open.get(&number).is_some_and(|order| order.description == what)
    }

    fn is_ended(&self, number: u64) -> bool {
        self.table().open.get(&number).is_none_or(|order| order.running.is_ended())
    }
}

/// A device, on the core that talks with it.
pub(super) struct DeviceOnCore<'a> {
    pub(super) found: &'a NamedDevice,
    pub(super) core: &'a Rc<Core>,
}

impl DeviceOnCore<'_> {
    /// The name in the request.
    pub(super) fn name(&self) -> &str {
        &self.found.name
    }

    /// Sends one command, through the device's queue.
    pub(super) async fn send(&self, request: Request) -> Result<PassResult, Error> {
        pass::send(&self.found.unit, self.core, &request).await
    }
}

/// The result of a verb, from a core.
type VerbFuture<'a, A> = Local<'a, Result<A, Error>>;

impl CamClass {
    /// Talks with a device on a core, and waits a moment for the result.
    pub(super) fn run_on_device<A: Serialize + 'static>(
        &self,
        control: &mut GraphControl,
        (verb, on): (&'static str, &str),
        run: impl for<'a> FnOnce(DeviceOnCore<'a>) -> VerbFuture<'a, A> + Send + 'static,
    ) -> Result<Deferred<A>, Error> {
        let found = self.disk(on)?;
        self.run_on_core(control, (verb, on), move |core| {
            Box::pin(async move { run(DeviceOnCore { found: &found, core }).await })
        })
    }

    /// Has a conversation on a core and waits a moment for the result.
    pub(super) fn run_on_core<A: Serialize + 'static>(
        &self,
        control: &mut GraphControl,
        order: (&'static str, &str),
        talk: impl for<'a> FnOnce(&'a Rc<Core>) -> VerbFuture<'a, A> + Send + 'static,
    ) -> Result<Deferred<A>, Error> {
        let verb = order.0;
        let stored = self.run_on_core_then(
            control,
            order,
            move |core| Box::pin(async move { to_json(verb, &talk(core).await?) }),
            None,
        );
        stored.map(Deferred::stored)
    }

    /// The same, with something left to do for the control thread.
    pub(super) fn run_on_core_then(
        &self,
        control: &mut GraphControl,
        (verb, on): (&'static str, &str),
        talk: impl for<'a> FnOnce(&'a Rc<Core>) -> VerbFuture<'a, Value> + Send + 'static,
        then: Option<Continuation>,
    ) -> Result<Value, Error> {
        self.verb_jobs.reserve_slot()?;
        let running = control.begin_on_core(verb, talk)?;
        let order = VerbJob { description: named(verb, on), running, then };
        let number = {
            let mut table = self.verb_jobs.table();
            table.last += 1;
            let number = table.last;
            table.open.insert(number, order);
            number
        };
        self.job_progress(control, (verb, on), number)
    }

    /// How far an order is (O1).
    pub(crate) fn job_progress(
        &self,
        control: &mut GraphControl,
        (verb, on): (&str, &str),
        number: u64,
    ) -> Result<Value, Error> {
        let what = named(verb, on);
        // O3
        if self.verb_jobs.is_of(number, &what) {
            if !control.wait_until(LOOK, |_| self.verb_jobs.is_ended(number)) {
                let again = json!({ "name": on, "ticket": number });
                return Ok(Unfinished { what, again, ..Unfinished::default() }.to_value());
            }
            let order = self.verb_jobs.table().open.remove(&number);
            if let Some(VerbJob { running, then, .. }) = order
                && let Some(result) = running.take()
            {
                return match then {
                    Some(then) => result.and_then(|_| then(self, control)),
                    None => result,
                };
            }
        }
        Err(Error::new(Errno::Canceled, format!("{what}: its answer was not fetched")))
    }
}

fn named(verb: &str, on: &str) -> String {
    format!("{verb} {on}")
}
