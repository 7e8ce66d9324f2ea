//! The notifier: connects a geom's data path and tasks with the topology and the other cores.
//!
//! A layer runs on every core and owns nothing. It sends its geom a message when a decision
//! concerns all cores (a member failed, the first write needs a mark on the disks). The geom lives
//! on the control thread and handles messages in the order of that thread. It returns its decision
//! as calls to the cores. Nothing here blocks, and no message is lost while the daemon runs. The
//! control thread forwards a message that a core's mailbox could not take, and retries until it
//! fits.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use bio::Ticket;
use reactor::{Mailer, SendError};

use crate::class::Local;
use crate::control::Inbox;
use crate::core::{Call, Core, Message};
use crate::topology::{Event, GeomId};

/// A message to a geom from its layers and tasks; the geom knows the type ([`message_of`]).
pub type Notice = Box<dyn Any + Send>;

/// A conversation that a geom starts on a core; the geom receives its answer as a message.
pub type Task = Box<dyn for<'a> FnOnce(&'a Rc<Core>) -> Local<'a, Notice> + Send>;

/// The message to a geom whose task did not end: the core stopped, or the time was up.
#[derive(Debug, PartialEq, Eq)]
pub struct Unanswered;

/// The message in a notice to a geom whose layers and tasks send `M` only.
///
/// # Errors
///
/// [`Unanswered`]: a task of the geom did not end.
pub fn message_of<M: 'static>(notice: Notice) -> Result<M, Unanswered> {
    notice.downcast::<M>().map(|message| *message).map_err(|other| {
        debug_assert!(other.is::<Unanswered>(), "an unknown notice");
        Unanswered
    })
}

/// See the module. Clones are cheap and reach the same daemon.
#[derive(Clone, Default)]
pub struct Notifier(Option<Arc<NotifierInner>>);

struct NotifierInner {
    inbox: Arc<Inbox>,
    cores: Vec<Mailer<Message>>,
}

impl Notifier {
    /// Between a control thread's inbox and the cores.
    pub(crate) fn new(inbox: Arc<Inbox>, cores: Vec<Mailer<Message>>) -> Notifier {
        Notifier(Some(Arc::new(NotifierInner { inbox, cores })))
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.0.as_ref().map_or(0, |lines| lines.cores.len())
    }

    /// Calls [`crate::Geom::on_notice`] on the control thread. Callable from any thread.
    pub fn post(&self, geom: GeomId, notice: Notice) {
        if let Some(lines) = &self.0 {
            lines.inbox.post(Event::Notice(geom, notice));
        }
    }

    /// Runs something on a core's thread. Callable from any thread. Calls of one thread run in
    /// order, but for those sent while the mailbox was full: these may run later.
    pub fn call(&self, core: usize, call: Call) {
        let Some(lines) = &self.0 else { return };
        let Some(mailer) = lines.cores.get(core) else { return };
        match mailer.send(Message::Call(call)) {
            // A core that has ended runs nothing any more.
            Ok(()) | Err(SendError::Closed(_)) => {}
            Err(SendError::Full(message)) => lines.inbox.forward(core, message),
        }
    }

    /// Wakes a Bio that waits on a core: its layer's `ready` is called with `Ok(0)`.
    pub fn restart(&self, core: usize, ticket: Ticket) {
        self.call(
            core,
            Box::new(move |core| {
                core.restart(ticket);
            }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_is_a_message_of_the_geom_or_unanswered() {
        assert_eq!(message_of::<u8>(Box::new(7u8)), Ok(7));
        assert_eq!(message_of::<u8>(Box::new(Unanswered)), Err(Unanswered));
    }
}
