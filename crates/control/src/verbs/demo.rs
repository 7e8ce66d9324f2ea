//! demo: the main job on an embedded default.

use std::path::PathBuf;
use std::pin::pin;
use std::process::{Child, Command};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::{Local, LocalVerb, Verb};
use super::serve::stopped;
use crate::api::{Error, Kind, Result};
use crate::demo::{Site, Tools, act, lay_out, start};

/// See the module.
pub struct Demo;

/// What `demo` takes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Params {
    /// Folder for images, configuration, socket and log; made when there is none.
    pub data: String,
    /// Address that the target listens on.
    pub listen: String,
    /// Serve until stopped instead of acting as an initiator.
    pub serve: bool,
}

impl Default for Params {
    fn default() -> Params {
        Params { data: "run".into(), listen: "127.0.0.1:3260".into(), serve: false }
    }
}

/// What `demo` answers when it has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The folder.
    pub data: String,
    /// What was exported.
    pub target: String,
}

impl Verb for Demo {
    type Params = Params;
    type Answer = Answer;
    const NAME: &'static str = "demo";
    const DOC: &'static str = "Make images, lay out a graph, export it, and be the initiator";
    const DETAIL: &'static str = "Runs a daemon of its own in a folder of its own and stops it at \
        the end. With --serve it prints what to type to connect, and serves until stopped.";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar demo", "ashlar demo --serve --data /tmp/try --listen 127.0.0.1:3261"];

    fn table(answer: &Answer) -> String {
        format!("done; the images are in {}\n", answer.data)
    }
}

/// How often a daemon that serves is looked after.
const LOOK: Duration = Duration::from_millis(500);

/// Waits for SIGINT or SIGTERM, or for the daemon's end.
fn until_stopped(child: &mut Child) -> Result<()> {
    let failed = |e: std::io::Error| Error::new(Kind::System, "demo", e);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let mut stop = pin!(stopped());
        loop {
            tokio::select! {
                _ = &mut stop => return Ok(()),
                () = tokio::time::sleep(LOOK) => {}
            }
            if child.try_wait().map_err(failed)?.is_some() {
                return Ok(());
            }
        }
    })
}

impl LocalVerb for Demo {
    fn run(local: &mut Local<'_>, params: Params) -> Result<Answer> {
        let failed = |e: std::io::Error| Error::new(Kind::System, "demo", e);
        let ashlar = std::env::current_exe().map_err(failed)?;
        let folder = std::path::absolute(PathBuf::from(&params.data)).map_err(failed)?;
        let site = Site { folder, listen: params.listen.clone() };
        lay_out(&site)?;
        let socket = site.socket();
        let mut tools = Tools { out: &mut *local.out, ashlar: &ashlar, socket: &socket };
        let mut child = start(&site, &mut tools)?;
        let played = if params.serve {
            for line in crate::demo::how_to_connect(&site) {
                tools.say(&line);
            }
            Ok(())
        } else {
            act(&site, &mut tools)
        };
        if params.serve {
            until_stopped(&mut child)?;
        }
        tools.say("stopping the daemon");
        if child.try_wait().map_err(failed)?.is_none() {
            let pid = child.id().to_string();
            Command::new("kill").args(["-TERM", &pid]).status().map_err(failed)?;
        }
        let ended = child.wait().map_err(failed)?;
        played?;
        if !ended.success() {
            return Err(Error::new(Kind::System, "demo", format!("the daemon ended: {ended}")));
        }
        Ok(Answer { data: params.data, target: crate::demo::IQN.into() })
    }
}
