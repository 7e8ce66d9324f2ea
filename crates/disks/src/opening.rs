//! Opening of a disk apart from the graph: the part that blocks while a medium does not answer.
//!
//! [`Opener::open`] runs on any thread; [`crate::DiskClass::install`] adds the result to the graph
//! on the control thread and does not block.

use bio::Errno;
use geom::{Error, Notifier};
use serde_json::Value;

use crate::kind::{Open, Opened, Site};
use crate::medium::Medium;
use crate::registry::{KINDS, kind};

/// Opens disks for one graph, on any thread.
#[derive(Clone)]
pub struct Opener {
    pub(crate) site: Site,
    pub(crate) notifier: Notifier,
}

/// An open disk that is not in the graph. Dropping it closes its medium.
pub struct OpenedDisk {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) cores: usize,
    pub(crate) opened: Opened,
}

impl Opener {
    /// Opens a disk of `kind`. Blocks while its medium does not answer.
    ///
    /// # Errors
    /// No such kind, and those of [`crate::Kind::open`].
    pub fn open(&self, kind_name: &str, name: &str, params: &Value) -> Result<OpenedDisk, Error> {
        let Some(kind) = kind(kind_name) else {
            let known: Vec<&str> = KINDS.iter().map(|k| k.name()).collect();
            let what = format!("no kind of disk {kind_name}; there are {}", known.join(", "));
            return Err(Error::new(Errno::NoEnt, what));
        };
        let request = Open { name, params, site: &self.site, notifier: &self.notifier };
        let opened = kind.open(&request)?;
        Ok(self.opened(kind.name(), name, opened))
    }

    pub(crate) fn opened(&self, kind: &'static str, name: &str, opened: Opened) -> OpenedDisk {
        OpenedDisk { kind, name: name.to_owned(), cores: self.site.cores, opened }
    }
}

impl OpenedDisk {
    /// The file or device of this machine that it has open; `None`: it has none.
    pub fn medium(&self) -> Option<Medium> {
        self.opened.unit.medium()
    }

    /// Closes a disk that is not used, and removes the file that its opening has made. Blocks.
    pub fn discard(mut self) {
        self.opened.unit.undo_creation();
    }
}
