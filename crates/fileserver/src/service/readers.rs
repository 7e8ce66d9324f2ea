//! Readers of the files of running file servers, for threads that may wait: the page for browsers.
//!
//! A reader puts each question into the mailbox of the file server, whose core answers it between
//! the requests of clients. The control thread is not used, and nothing is changed. Permissions of
//! files are not checked, as for the verbs of the console.
//!
//! At most [`QUESTIONS_MAX`] questions of a file server have no answer yet, and a further one is
//! refused at once. So a disk that hangs takes neither all threads of the API nor memory without a
//! limit.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bio::Errno;
use bio::sync::Mutex;
use geom::{Error, Local};
use serde_json::Value;

use super::host::Host;
use super::shared::HostShared;
use crate::console::{self, Found};
use crate::files::Reader;

/// Longest wait for one answer: a disk that hangs delays the answers of its file server.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Questions of one file server without an answer, also those whose caller has given up.
const QUESTIONS_MAX: usize = 64;

/// Verbs that readers may use: none of them changes anything.
const READING_VERBS: [&str; 4] = ["dumps", "history", "ls", "who"];

/// The error for a file server that does not run.
pub(super) fn no_server(name: &str) -> Error {
    let what = format!("there is no file server {name}; `ashlar fs status` lists them");
    Error::new(Errno::NoEnt, what)
}

/// The refusal of a further question.
fn too_many(name: &str) -> Error {
    let what = format!(
        "{name}: {QUESTIONS_MAX} reads have no answer yet (the limit); `ashlar status` shows \
         whether a disk hangs"
    );
    Error::new(Errno::Busy, what)
}

/// Number of the questions of one file server that have no answer yet. Clones count together.
#[derive(Clone, Default)]
pub(super) struct Questions(Arc<AtomicUsize>);

/// The place of a question among them.
struct Place(Questions);

impl Questions {
    /// Takes a place; `None`: there are [`QUESTIONS_MAX`].
    fn take(&self) -> Option<Place> {
        let place = Place(self.clone());
        // Dropping the value gives a place back that was taken beyond the limit.
        (self.0.fetch_add(1, Ordering::AcqRel) < QUESTIONS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Running file servers by name. Clones share the list.
#[derive(Clone, Default)]
pub struct FileServers(Arc<Mutex<BTreeMap<String, Weak<HostShared>>>>);

impl FileServers {
    /// Adds a file server. It leaves the list when it ends.
    pub(super) fn add(&self, shared: &Arc<HostShared>) {
        let mut all = self.0.lock();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(shared.name.clone(), Arc::downgrade(shared));
    }

    /// Names of the file servers.
    pub fn names(&self) -> Vec<String> {
        let all = self.0.lock();
        all.iter().filter(|(_, known)| known.strong_count() > 0).map(|(n, _)| n.clone()).collect()
    }

    /// Sends a question to the core of a file server, and waits for the answer.
    fn ask<T: Send + 'static>(
        &self,
        server: &str,
        question: impl FnOnce(Rc<Host>) -> Local<'static, Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let found = self.0.lock().get(server).and_then(Weak::upgrade);
        let shared = found.ok_or_else(|| no_server(server))?;
        let place = shared.questions.take().ok_or_else(|| too_many(server))?;
        let (to, answer) = mpsc::sync_channel(1);
        shared.ask(Box::new(move |host| {
            Box::pin(async move {
                let answer = question(host).await;
                drop(place);
                // The caller may have given up meanwhile.
                let _ = to.send(answer);
            })
        }));
        // A server that ends drops the question with its mailbox.
        drop(shared);
        match answer.recv_timeout(ANSWER_MAX) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(no_server(server)),
            Err(RecvTimeoutError::Timeout) => {
                let limit = ANSWER_MAX.as_secs();
                let what = format!(
                    "{server}: no answer within {limit} s; `ashlar status` shows whether a disk \
                     hangs"
                );
                Err(Error::new(Errno::TimedOut, what))
            }
        }
    }

    /// The answer of a verb that changes nothing: `dumps`, `history` or `ls`.
    ///
    /// # Errors
    /// Those of the verb; `NotSup` for another verb.
    pub fn query(&self, server: &str, verb: &str, params: &Value) -> Result<Value, Error> {
        if !READING_VERBS.contains(&verb) {
            let all = READING_VERBS.join(", ");
            let what = format!("{verb}: readers have only the verbs {all}; use `ashlar fs {verb}`");
            return Err(Error::new(Errno::NotSup, what));
        }
        let (verb, params) = (verb.to_owned(), params.clone());
        self.ask(server, move |host| {
            // Progress is reported to callers of the control thread, whose numbers begin with 1.
            Box::pin(async move { console::run(&host, 0, &verb, &params).await })
        })
    }

    /// Opens a file by its path: `/lib/profile`, or `/dump/2026/1121/lib/profile` of a dump.
    ///
    /// # Errors
    /// There is no such file, or it is a directory.
    pub fn open(&self, server: &str, path: &str) -> Result<OpenFile, Error> {
        let own = path.to_owned();
        let found = self.ask(server, move |host| {
            Box::pin(async move { console::find_file(&host, &host.files()?, &own).await })
        })?;
        let (servers, server, path) = (self.clone(), server.to_owned(), path.to_owned());
        Ok(OpenFile { servers, server, path, found, offset: 0, reader: Reader::default() })
    }
}

/// A file that is read from start to end, as it was when it was opened.
pub struct OpenFile {
    servers: FileServers,
    server: String,
    path: String,
    found: Found,
    offset: u64,
    reader: Reader,
}

impl OpenFile {
    /// The path by which it was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its size, in bytes.
    pub fn size(&self) -> u64 {
        self.found.inode.size
    }

    /// Time of the last change of its contents, ns since 1970.
    pub fn mtime_ns(&self) -> u64 {
        self.found.inode.mtime_ns
    }

    /// The next bytes, a piece of at most 64 KiB; none at the end. Only the last piece is shorter.
    ///
    /// # Errors
    /// The file has changed since it was opened, was removed or cannot be read.
    pub fn read(&mut self) -> Result<Vec<u8>, Error> {
        let (found, offset, reader) = (self.found.clone(), self.offset, self.reader);
        let path = self.path.clone();
        let (bytes, reader) = self.servers.ask(&self.server, move |host| {
            Box::pin(async move { console::piece(&host, (&found, &path), offset, reader).await })
        })?;
        self.offset += bytes.len() as u64;
        self.reader = reader;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_without_an_answer_are_bounded() {
        let questions = Questions::default();
        let mut places: Vec<Place> = (0..100).filter_map(|_| questions.take()).collect();
        assert_eq!(places.len(), QUESTIONS_MAX);
        assert!(questions.clone().take().is_none(), "clones count together");
        places.pop();
        places.extend(questions.take());
        assert_eq!(places.len(), QUESTIONS_MAX, "an answer gives its place back");
        assert!(too_many("main").message.starts_with("main: 64 reads"));
        drop(places);
        assert_eq!(questions.0.load(Ordering::Acquire), 0);
    }
}
