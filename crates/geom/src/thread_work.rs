//! Work of other threads that the control thread waits for, such as a save of a record.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bio::sync::Mutex;

use crate::control::{GraphControl, Inbox};

/// Time after which the work is looked at again. Its end wakes the control thread before.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Wakes the control thread at the end of the work.
struct InboxWaker(Arc<Inbox>);

impl Wake for InboxWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

impl GraphControl {
    /// Waits for work of another thread, however long it takes. Events are processed and the watch
    /// is called meanwhile, so that questions are answered.
    pub fn wait_for<T>(&mut self, work: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(InboxWaker(self.inbox().clone())));
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(work);
        let mut result = None;
        loop {
            self.wait_until(LOOK_INTERVAL, |_| {
                if let Poll::Ready(ready) = work.as_mut().poll(&mut context) {
                    result = Some(ready);
                }
                result.is_some()
            });
            if let Some(result) = result.take() {
                return result;
            }
        }
    }

    /// The result of a call that may hang. It runs on a thread of its own, and is waited for as
    /// above, but at most for `limit`. `None`: it has not ended, and its result is dropped when it
    /// does; or no thread can start.
    pub fn run_elsewhere<T: Send + 'static>(
        &mut self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place: Arc<Mutex<Option<T>>> = Arc::default();
        let (result, inbox) = (place.clone(), self.inbox().clone());
        let run = move || {
            let ended = call();
            *result.lock() = Some(ended);
            inbox.wake();
        };
        std::thread::Builder::new().name("ashlar-blocking".into()).spawn(run).ok()?;
        self.wait_until(limit, |_| place.lock().is_some());
        place.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;

    /// Work that ends when the watch is called.
    #[derive(Default)]
    struct Work {
        is_done: bool,
        waker: Option<Waker>,
    }

    #[test]
    fn watch_is_called_while_work_of_another_thread_is_waited_for() {
        let wait = Box::new(|inbox: &Inbox, most| inbox.sleep(most));
        let mut control = GraphControl::new(Vec::new(), Arc::default(), wait, Box::new(|| 0));
        let watched = Rc::new(RefCell::new(Work::default()));
        let work = watched.clone();
        control.set_watch(Box::new(move |_, _| {
            let mut work = watched.borrow_mut();
            work.is_done = true;
            work.waker.take().into_iter().for_each(Waker::wake);
        }));
        let result = control.wait_for(poll_fn(|context| {
            let mut work = work.borrow_mut();
            if work.is_done {
                return Poll::Ready("stored");
            }
            work.waker = Some(context.waker().clone());
            Poll::Pending
        }));
        assert_eq!(result, "stored");
    }

    #[test]
    fn call_that_hangs_elsewhere_is_given_up_and_others_are_made() {
        let wait = Box::new(|inbox: &Inbox, most| inbox.sleep(most));
        let mut control = GraphControl::new(Vec::new(), Arc::default(), wait, Box::new(|| 0));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let hangs = move || released.recv().is_err();
        assert_eq!(control.run_elsewhere(Duration::ZERO, hangs), None);
        assert_eq!(control.run_elsewhere(LOOK_INTERVAL, || 7), Some(7));
        drop(release);
    }
}
