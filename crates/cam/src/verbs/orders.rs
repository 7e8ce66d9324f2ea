//! Orders: verbs that may take a device's time. The conversation with the device is begun on a
//! core. While it is under way the client has to ask again, so that others are served meanwhile.
//!
//! Invariants
//!  O1  The control thread waits for no device longer than [`LOOK`] at a time, whatever is asked:
//!      the scan of a bus is an order too.
//!  O2  Every order ends by the deadlines of its commands. An answer that is not fetched is
//!      forgotten after that, when its place is needed.
//!  O3  An answer is given to a client that asks for the same verb of the same device.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use geom::{Control, Core, Error, Local, Running};
use serde_json::{Value, json};

use super::Found;
use crate::class::CamClass;
use crate::periph::pass::{self, Answer, Request};

/// How long a device is waited for before the client has to ask again.
const LOOK: Duration = Duration::from_millis(20);

/// Orders under way and answers that were not fetched; a further order is refused when all are
/// under way.
const ORDERS_MAX: usize = 64;

/// Action of the control thread, and its answer, after a conversation that ended well.
pub(super) type Then =
    Box<dyn FnOnce(&CamClass, &mut Control) -> Result<Value, Error> + Send + 'static>;

/// One order: which verb of which device.
struct Order {
    what: String,
    running: Running<Result<Value, Error>>,
    /// None: the result of the conversation is the answer.
    then: Option<Then>,
}

#[derive(Default)]
struct Book {
    last: u64,
    open: BTreeMap<u64, Order>,
}

/// The orders of a class.
#[derive(Default)]
pub(crate) struct Orders(Mutex<Book>);

impl Orders {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }

    /// O2: whether there is room for one more.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        let mut book = self.book();
        if book.open.len() < ORDERS_MAX {
            return Ok(());
        }
        let ended = book.open.iter().find(|(_, order)| order.running.is_ended());
        match ended.map(|(number, _)| *number) {
            Some(oldest) => drop(book.open.remove(&oldest)),
            None => {
                let what = format!(
                    "{ORDERS_MAX} verbs wait for their devices; each ends when its commands have \
                     timed out, or when `ashlar cam reset` resets its device"
                );
                return Err(Error::new(Errno::Busy, what));
            }
        }
        Ok(())
    }

    fn is_of(&self, number: u64, what: &str) -> bool {
        self.book().open.get(&number).is_some_and(|order| order.what == what)
    }

    fn is_ended(&self, number: u64) -> bool {
        self.book().open.get(&number).is_none_or(|order| order.running.is_ended())
    }
}

/// A device, on the core that talks with it.
pub(super) struct Talk<'a> {
    pub(super) found: &'a Found,
    pub(super) core: &'a Rc<Core>,
}

impl Talk<'_> {
    /// The name by which it was asked for.
    pub(super) fn name(&self) -> &str {
        &self.found.name
    }

    /// Sends one command, through the device's queue.
    pub(super) async fn send(&self, request: Request) -> Result<Answer, Error> {
        pass::send(&self.found.unit, self.core, &request).await
    }
}

impl CamClass {
    /// Talks with a device on a core, and waits a moment for the result.
    pub(super) fn talk(
        &self,
        control: &mut Control,
        (verb, on): (&'static str, &str),
        say: impl for<'a> FnOnce(Talk<'a>) -> Local<'a, Result<Value, Error>> + Send + 'static,
    ) -> Result<Value, Error> {
        let found = self.disk(on)?;
        self.order(control, (verb, on), move |core| {
            Box::pin(async move { say(Talk { found: &found, core }).await })
        })
    }

    /// Has a conversation on a core and waits a moment for the result.
    pub(super) fn order(
        &self,
        control: &mut Control,
        order: (&'static str, &str),
        talk: impl for<'a> FnOnce(&'a Rc<Core>) -> Local<'a, Result<Value, Error>> + Send + 'static,
    ) -> Result<Value, Error> {
        self.order_then(control, order, talk, None)
    }

    /// The same, with something left to do for the control thread.
    pub(super) fn order_then(
        &self,
        control: &mut Control,
        (verb, on): (&'static str, &str),
        talk: impl for<'a> FnOnce(&'a Rc<Core>) -> Local<'a, Result<Value, Error>> + Send + 'static,
        then: Option<Then>,
    ) -> Result<Value, Error> {
        self.orders.make_room()?;
        let running = control.begin_on_core(verb, talk)?;
        let order = Order { what: named(verb, on), running, then };
        let number = {
            let mut book = self.orders.book();
            book.last += 1;
            let number = book.last;
            book.open.insert(number, order);
            number
        };
        self.how_far(control, (verb, on), number)
    }

    /// How far an order is (O1).
    pub(crate) fn how_far(
        &self,
        control: &mut Control,
        (verb, on): (&str, &str),
        number: u64,
    ) -> Result<Value, Error> {
        let what = named(verb, on);
        // O3
        if self.orders.is_of(number, &what) {
            if !control.wait_until(LOOK, |_| self.orders.is_ended(number)) {
                return Ok(json!({ "unfinished": {
                    "what": what, "done": 0, "total": 0,
                    "again": { "name": on, "ticket": number },
                } }));
            }
            let order = self.orders.book().open.remove(&number);
            if let Some(Order { running, then, .. }) = order
                && let Some(said) = running.take()
            {
                return match then {
                    Some(then) => said.and_then(|_| then(self, control)),
                    None => said,
                };
            }
        }
        Err(Error::new(Errno::Canceled, format!("{what}: its answer was not fetched")))
    }
}

fn named(verb: &str, on: &str) -> String {
    format!("{verb} {on}")
}
