//! Test daemon with a folder of its own for each transcript, and its command runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use geom::{ArgKind, ArgSpec, MessageAnswer, VerbSpec};
use testkit::Folder;

use super::super::*;
use crate::config::Catalog;
use crate::fake::{FakePlant, catalog};
use crate::http::{self, BoundSocket};
use crate::service::{Archive, Control};

/// A daemon in a thread, and the folder it lives in.
pub(super) struct Daemon {
    pub(super) folder: Folder,
    pub(super) plant: Arc<FakePlant>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Output and exit code of a command.
pub(super) struct CommandOutput {
    pub(super) exit: Exit,
    pub(super) out: String,
    pub(super) err: String,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Daemon {
    pub(super) fn start() -> Daemon {
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new(&format!("cli-{n}"));
        let listening = BoundSocket::at(&folder.join("a.sock")).expect("free");
        let plant = Arc::new(FakePlant::new());
        let archive = Archive::new(&folder.join("history"), 8);
        let boxed = Box::new(plant.clone());
        let control = Control::new(boxed, toy_catalog(), &Default::default(), archive);
        let control = Arc::new(control.with_api_folder(&folder.join("api")));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().expect("a runtime");
            let until = async { drop(stopped.await) };
            runtime.block_on(http::serve(listening, control, until)).expect("served");
        });
        Daemon { folder, plant, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(super) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.folder.join(name), text).expect("scratch");
        self.path(name)
    }

    pub(super) fn client(&self) -> Client {
        Client::new(&self.folder.join("a.sock"))
    }

    /// Runs `ashlar LINE`; `@` at the start of a word is replaced by the daemon's folder.
    pub(super) fn run_line(&self, line: &str) -> CommandOutput {
        let folder = format!("{}/", self.folder.display());
        let words = line.split(' ').map(|w| match w.strip_prefix('@') {
            Some(name) => format!("{folder}{name}"),
            None => w.to_owned(),
        });
        let words = words.chain(["--socket".to_owned(), self.path("a.sock")]);
        let mut output = run_words(words.map(OsString::from).collect());
        output.out = output.out.replace(&folder, "@");
        output.err = output.err.replace(&folder, "@");
        output
    }

    /// The same, and it must end with `exit`; returns the output.
    pub(super) fn expect_exit(&self, line: &str, exit: Exit) -> String {
        let output = self.run_line(line);
        assert_eq!(output.exit, exit, "{line}\n{}{}", output.out, output.err);
        if output.out.is_empty() { output.err } else { output.out }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the daemon ended well");
        }
    }
}

pub(super) const TOY: ClassVerbs = ClassVerbs {
    name: "toy",
    doc: "A class with a verb.",
    verbs: &[VerbSpec {
        name: "label",
        doc: "Label providers",
        detail: "",
        args: &[
            ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "The name" },
            ArgSpec { name: "providers", short: None, kind: ArgKind::Names(2), doc: "On what" },
            ArgSpec { name: "size", short: Some('s'), kind: ArgKind::Bytes, doc: "How large" },
            ArgSpec { name: "force", short: Some('f'), kind: ArgKind::Flag, doc: "Though open" },
            ArgSpec {
                name: "balance",
                short: Some('b'),
                kind: ArgKind::Choice(&["load", "prefer"]),
                doc: "How reads are spread",
            },
            ArgSpec {
                name: "form",
                short: Some('o'),
                kind: ArgKind::Choice(&["big", "little"]),
                doc: "How it is written",
            },
        ],
        example: "toy label -b load -s 4k data d0 d1",
        writes: true,
        params: geom::schema_of::<serde_json::Value>,
        answer: geom::schema_of::<MessageAnswer>,
    }],
};

/// The catalog of the tests, with a class that has a verb.
fn toy_catalog() -> Catalog {
    Catalog { class_verbs: Some(|| vec![TOY]), ..catalog() }
}

pub(super) fn app() -> App {
    App {
        version: env!("CARGO_PKG_VERSION"),
        catalog: toy_catalog,
        classes: || vec![TOY],
        class: |name| (name == TOY.name).then_some(TOY),
        launch: |_| Ok(Box::new(FakePlant::new())),
    }
}

pub(super) fn run_words(words: Vec<OsString>) -> CommandOutput {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = run(&app(), words, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    CommandOutput { exit, out: text(out), err: text(err) }
}
