//! Verbs that a device may take its time for: a command is begun, and whoever asked is told to ask
//! again while it is under way, so that others are served meanwhile.
//!
//! Invariants
//!  O1  The control thread waits for no device longer than [`LOOK`] at a time.
//!  O2  Every order ends by the deadline of its command: what nobody comes for is forgotten then,
//!      when there is need of its place.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bio::Errno;
use geom::{Control, Error, Running};
use serde_json::{Value, json};

use crate::class::CamClass;

/// How long a device is waited for before whoever asked is told to ask again.
const LOOK: Duration = Duration::from_millis(20);

/// Orders under way and answers that nobody has come for; a further order is refused when all are
/// under way.
const ORDERS_MAX: usize = 64;

/// What is asked about an order, whatever came of it: has it ended, and how.
trait Pending: Send {
    fn is_ended(&self) -> bool;
    fn end(self: Box<Self>) -> Option<Result<Value, Error>>;
}

/// A conversation, and what becomes of its result on the control thread.
struct Begun<R, F> {
    running: Running<R>,
    show: F,
}

impl<R: Send, F: FnOnce(R) -> Result<Value, Error> + Send> Pending for Begun<R, F> {
    fn is_ended(&self) -> bool {
        self.running.is_ended()
    }

    fn end(self: Box<Self>) -> Option<Result<Value, Error>> {
        self.running.take().map(self.show)
    }
}

#[derive(Default)]
struct Book {
    last: u64,
    open: BTreeMap<u64, Box<dyn Pending>>,
}

/// The orders of a class.
#[derive(Default)]
pub(crate) struct Orders(Mutex<Book>);

impl Orders {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// O2: whether there is room for one more.
    fn make_room(&self) -> Result<(), Error> {
        let mut book = self.book();
        if book.open.len() < ORDERS_MAX {
            return Ok(());
        }
        let oldest = book.open.iter().find(|(_, order)| order.is_ended()).map(|(n, _)| *n);
        match oldest {
            Some(number) => drop(book.open.remove(&number)),
            None => {
                let what = format!(
                    "{ORDERS_MAX} commands are under way; each ends by its --timeout, or when \
                     `ashlar cam reset` resets its device"
                );
                return Err(Error::new(Errno::Busy, what));
            }
        }
        Ok(())
    }

    fn is_ended(&self, number: u64) -> bool {
        self.book().open.get(&number).is_none_or(|order| order.is_ended())
    }
}

impl CamClass {
    /// Begins what `begin` says and waits a moment for it; `show` makes the answer of what came.
    pub(super) fn order<R: Send + 'static>(
        &self,
        control: &mut Control,
        (what, on): (&str, &str),
        begin: impl FnOnce(&mut Control) -> Result<Running<R>, Error>,
        show: impl FnOnce(R) -> Result<Value, Error> + Send + 'static,
    ) -> Result<Value, Error> {
        self.orders.make_room()?;
        let order = Begun { running: begin(control)?, show };
        let number = {
            let mut book = self.orders.book();
            book.last += 1;
            let number = book.last;
            book.open.insert(number, Box::new(order));
            number
        };
        self.how_far(control, (what, on), number)
    }

    /// How far an order is (O1).
    pub(super) fn how_far(
        &self,
        control: &mut Control,
        (what, on): (&str, &str),
        number: u64,
    ) -> Result<Value, Error> {
        if !control.wait_until(LOOK, |_| self.orders.is_ended(number)) {
            return Ok(json!({ "unfinished": {
                "what": format!("{what} {on}"), "done": 0, "total": 0,
                "again": { "name": on, "ticket": number },
            } }));
        }
        let ended = self.orders.book().open.remove(&number);
        ended.and_then(Pending::end).unwrap_or_else(|| {
            Err(Error::new(Errno::Canceled, format!("{what} {on}: its answer was not fetched")))
        })
    }
}
