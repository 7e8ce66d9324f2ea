//! The main job on an embedded default, for a first look.
//!
//! ```text
//!   images + configuration --> daemon (a child) --> partitions --> access
//!                                  |
//!               serve: until it is stopped      act: the initiator's part, then stop
//! ```

mod act;
mod setup;
mod tools;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::error::{Error, Kind};
use crate::progress::stopped;
use act::act;
use setup::{Site, connection_commands, start, write_configs};
use tools::Tools;

/// The user's choices.
pub struct Wish {
    /// Folder for images, configuration, socket and log.
    pub folder: PathBuf,
    /// Address that the target listens on.
    pub listen: String,
    /// Serve until stopped instead of acting as an initiator.
    pub serve: bool,
}

/// How often a daemon that serves is looked after.
const LOOK: Duration = Duration::from_millis(200);

/// Shows it with that `ashlar`; every step is printed to `out`.
pub fn run(wish: Wish, ashlar: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let folder = std::path::absolute(&wish.folder);
    let folder = folder.map_err(|e| Error::system(wish.folder.display(), e))?;
    let site = Site { folder, listen: wish.listen };
    write_configs(&site)?;
    let socket = site.socket();
    let mut tools = Tools { out, ashlar, socket: &socket };
    let mut child = start(&site, &mut tools)?;
    let played = if wish.serve {
        connection_commands(&site).iter().for_each(|line| tools.print_note(line));
        until_stopped(&mut child)
    } else {
        act(&site, &mut tools)
    };
    tools.print_note("stopping the daemon");
    let failed = |e| Error::system("stop the daemon", e);
    if child.try_wait().map_err(failed)?.is_none() {
        let pid = child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().map_err(failed)?;
    }
    let ended = child.wait().map_err(failed)?;
    played?;
    if !ended.success() {
        return Err(Error::new(Kind::Server, format!("the daemon ended: {ended}")));
    }
    tools.print_note(&format!("done; the images are in {}", site.folder.display()));
    Ok(())
}

/// Waits for a signal, or for the daemon's end.
fn until_stopped(child: &mut Child) -> Result<(), Error> {
    while !stopped() {
        if child.try_wait().map_err(|e| Error::system("wait for the daemon", e))?.is_some() {
            break;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
