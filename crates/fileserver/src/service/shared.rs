//! Shared state of the control thread and a file server's core: orders one way, answers and status
//! the other.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bio::sync::{Mutex, MutexGuard};
use geom::{ConsumerId, Error, GeomId, Local, Notifier, ServedClient};
use serde_json::Value;
use tls::Keys;

use super::class::Site;
use super::copies::Copies;
use super::disks::FileDisk;
use super::file_disks::DiskFault;
use super::host::Host;
use super::params::FsParams;
use super::readers::Questions;
use crate::config::Device;
use crate::volume::{Facts, ReadAhead, Report};

/// Answers kept for requesters that did not return.
const RESULTS_MAX: usize = 256;

/// How far a file server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Its devices are being read.
    #[default]
    Opening,
    /// Clients are served.
    Serving,
    /// It cannot: why, and what to do.
    Refused(String, String),
    /// Everything is being made durable.
    Halting,
    /// It has released its devices' contents.
    Halted,
}

/// How it is, for lists.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// See [`Phase`].
    pub phase: Phase,
    /// Its volume.
    pub facts: Facts,
    /// Devices of the WORM.
    pub members: Vec<Report>,
    /// Copies of dumps to them.
    pub copies: Copies,
    /// Clients that are connected.
    pub clients: usize,
    /// The connections of clients, counted by client and portal.
    pub connected: BTreeMap<ServedClient, usize>,
    /// Addresses that are listened at.
    pub listens: Vec<String>,
    /// Addresses of the section that a change of the listeners has lost.
    pub lost_listens: Vec<String>,
    /// The last dump: when (ns since 1970), and its path.
    pub last: Option<(u64, String)>,
    /// When the next one is taken by the clock, if it may be, ns since 1970.
    pub next: Option<u64>,
    /// No client can attach.
    pub noattach: bool,
    /// Permissions are not looked at.
    pub allow: bool,
    /// No dumps by the clock, at any `next`.
    pub nodump: bool,
    /// Dumps are not copied to the WORM.
    pub nocopy: bool,
    /// Messages of clients are kept.
    pub traced: bool,
    /// A user may read and search every directory.
    pub duallow: bool,
    /// How much is read ahead, where a verb changed that.
    pub ahead: Option<ReadAhead>,
    /// Files that are to be disks: names of providers and paths.
    pub wanted_disks: BTreeMap<String, String>,
    /// Files that are disks.
    pub disks: Vec<FileDisk>,
    /// Disks that are missing, or whose file has lost its name.
    pub disk_faults: Vec<DiskFault>,
    /// The fault of the last automatic dump.
    pub dump_fault: Option<String>,
    /// The last client that could not prove to be a user, and the reason.
    pub last_refused: Option<String>,
}

/// A question that sends the answer to its caller itself.
pub(crate) type Question = Box<dyn FnOnce(Rc<Host>) -> Local<'static, ()> + Send>;

/// An edit of the section: its parameters from now on.
pub(crate) struct Edit {
    /// The new parameters.
    pub params: FsParams,
    /// The keys that these name.
    pub keys: Option<Keys>,
}

/// An order for the core.
pub(crate) enum HostRequest {
    /// A verb: its number, its name, its parameters.
    Verb(u64, String, Value),
    /// The section was edited: the number of the order, and the edit.
    Edit(u64, Box<Edit>),
    /// A question of a thread that waits for the answer itself.
    Ask(Question),
    /// Everything is made durable, and the host ends.
    Stop,
}

/// An event for the geom.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// Every core has the graph with its consumers.
    GraphReady,
    /// Every core has the graph with the consumer of a device that returned.
    MemberReattached(ConsumerId),
    /// An answer is there, or the phase is another one.
    Changed,
    /// It has halted.
    Halted,
}

/// How far a verb is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The present activity.
    pub activity: String,
    /// So many of `total`; 0: unknown.
    pub done: u64,
    /// See `done`.
    pub total: u64,
}

enum RequestState {
    InProgress(Progress),
    Done(Result<Value, Error>),
}

#[derive(Default)]
struct Mailbox {
    requests: VecDeque<HostRequest>,
    results: HashMap<u64, RequestState>,
    next: u64,
    waker: Option<Waker>,
    /// Those who wait for the phase to change.
    watchers: Vec<Waker>,
}

/// See the module.
pub struct HostShared {
    /// Name of the geom.
    pub name: String,
    /// Its number.
    pub geom: GeomId,
    /// The way to it and to the cores.
    pub notifier: Notifier,
    /// The device that it uses.
    pub device: Device,
    /// The machine.
    pub site: Site,
    /// Questions of readers.
    pub(super) questions: Questions,
    /// See `params`.
    params: Mutex<Arc<FsParams>>,
    /// For clients that connect by TLS from now on.
    keys: Mutex<Option<Keys>>,
    mailbox: Mutex<Mailbox>,
    status: Mutex<Status>,
}

impl HostShared {
    pub fn new(
        name: &str,
        (notifier, geom): (Notifier, GeomId),
        params: FsParams,
        device: Device,
        site: Site,
    ) -> Arc<HostShared> {
        let status = Status { wanted_disks: params.disks.clone(), ..Status::default() };
        Arc::new(HostShared {
            name: name.to_owned(),
            geom,
            notifier,
            device,
            site,
            questions: Questions::default(),
            params: Mutex::new(Arc::new(params)),
            keys: Mutex::default(),
            mailbox: Mutex::default(),
            status: Mutex::new(status),
        })
    }

    /// Its parameters, as they were edited last.
    pub fn params(&self) -> Arc<FsParams> {
        self.params.lock().clone()
    }

    /// The host has taken over an edit.
    pub(super) fn set_params(&self, params: FsParams) {
        *self.params.lock() = Arc::new(params);
    }

    /// The keys of its listeners for TLS; none without such listeners.
    pub fn keys(&self) -> Option<Keys> {
        self.keys.lock().clone()
    }

    /// Reads the files of its keys: they apply to clients that connect from now on. Blocks while a
    /// file system hangs.
    pub fn read_keys(&self) -> Result<(), Error> {
        let keys = self.params().keys()?;
        self.replace_keys(keys);
        Ok(())
    }

    /// Sets the keys of its listeners for TLS; returns the former ones.
    pub(super) fn replace_keys(&self, keys: Option<Keys>) -> Option<Keys> {
        std::mem::replace(&mut *self.keys.lock(), keys)
    }

    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock()
    }

    fn send(&self, order: impl FnOnce(&mut Mailbox) -> HostRequest) {
        let waker = {
            let mut mailbox = self.mailbox();
            let order = order(&mut mailbox);
            mailbox.requests.push_back(order);
            mailbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Requests a verb; returns the number of its answer.
    pub fn submit_verb(&self, verb: &str, params: &Value) -> u64 {
        self.submit(|number| HostRequest::Verb(number, verb.to_owned(), params.clone()))
    }

    /// Requests an edit of the section; returns the number of the answer.
    pub(crate) fn submit_edit(&self, edit: Edit) -> u64 {
        self.submit(|number| HostRequest::Edit(number, Box::new(edit)))
    }

    fn submit(&self, order: impl FnOnce(u64) -> HostRequest) -> u64 {
        let mut number = 0;
        self.send(|mailbox| {
            mailbox.next += 1;
            number = mailbox.next;
            let oldest = number.saturating_sub(RESULTS_MAX as u64);
            mailbox.results.retain(|n, a| *n > oldest || matches!(a, RequestState::InProgress(_)));
            mailbox.results.insert(number, RequestState::InProgress(Progress::default()));
            order(number)
        });
        number
    }

    /// Sends a question to the host.
    pub(crate) fn ask(&self, question: Question) {
        self.send(|_| HostRequest::Ask(question));
    }

    /// Has the host end.
    pub fn stop(&self) {
        self.send(|_| HostRequest::Stop);
    }

    /// The answer, which is removed, or the progress; `None`: no such request.
    pub fn take_result(&self, number: u64) -> Option<Result<Result<Value, Error>, Progress>> {
        let mut mailbox = self.mailbox();
        if let Some(RequestState::InProgress(progress)) = mailbox.results.get(&number) {
            return Some(Err(progress.clone()));
        }
        match mailbox.results.remove(&number) {
            Some(RequestState::Done(result)) => Some(Ok(result)),
            _ => None,
        }
    }

    /// Ends the wait for an answer: the answer, if it is there.
    pub(crate) fn give_up(&self, number: u64) -> Option<Result<Value, Error>> {
        match self.mailbox().results.remove(&number) {
            Some(RequestState::Done(result)) => Some(result),
            _ => None,
        }
    }

    /// Whether a caller waits for the answer.
    pub(crate) fn is_awaited(&self, number: u64) -> bool {
        self.mailbox().results.contains_key(&number)
    }

    /// True when the answer is there.
    pub fn is_done(&self, number: u64) -> bool {
        !matches!(self.mailbox().results.get(&number), Some(RequestState::InProgress(_)))
    }

    /// The host answers.
    pub fn complete(&self, number: u64, result: Result<Value, Error>) {
        self.mailbox().results.insert(number, RequestState::Done(result));
        self.notifier.post(self.geom, Box::new(Message::Changed));
    }

    /// The host reports the progress of a verb.
    pub fn set_progress(&self, number: u64, progress: Progress) {
        if let Some(answer) = self.mailbox().results.get_mut(&number) {
            *answer = RequestState::InProgress(progress);
        }
    }

    /// The host's next order.
    pub(crate) async fn next_request(&self) -> HostRequest {
        poll_fn(|cx| {
            let mut mailbox = self.mailbox();
            match mailbox.requests.pop_front() {
                Some(order) => Poll::Ready(order),
                None => {
                    mailbox.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// How it is.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// The host reports its state.
    pub fn update_status(&self, f: impl FnOnce(&mut Status)) {
        let changed = {
            let mut status = self.status.lock();
            let before = status.phase.clone();
            f(&mut status);
            before != status.phase
        };
        if changed {
            let watchers = std::mem::take(&mut self.mailbox().watchers);
            watchers.into_iter().for_each(Waker::wake);
            self.notifier.post(self.geom, Box::new(Message::Changed));
        }
    }

    /// The geom reads the reports.
    pub fn notify_geom(&self) {
        self.notifier.post(self.geom, Box::new(Message::Changed));
    }

    /// Until its phase is one that `f` likes.
    pub async fn wait_for_phase(&self, f: impl Fn(&Phase) -> bool) {
        poll_fn(|cx| {
            // The mailbox first, so that no change between the look and the entry is lost.
            let mut mailbox = self.mailbox();
            let is = f(&self.status.lock().phase);
            if is {
                return Poll::Ready(());
            }
            mailbox.watchers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
