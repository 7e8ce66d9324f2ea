//! A daemon with very many LUNs, each on a null disk of its own, exported over NBD.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::http::{Keep, call, get};
use crate::error::{Error, Kind};
use crate::nbd::servers::NULL_BYTES;
use crate::servers::{Child, Scratch, free_address, pinned};

/// Longest start: the steps of 16,384 disks.
const START_MAX: Duration = Duration::from_secs(300);
/// The export that the load reads.
pub(super) const EXPORT: &str = "d0";

/// A running daemon. Its process is killed when this is dropped.
pub(super) struct Daemon {
    pub portal: SocketAddr,
    pub socket: PathBuf,
    child: Child,
    _scratch: Scratch,
}

/// Answers of `status` during a start.
pub(super) struct Start {
    /// How long each was waited for.
    pub waits: Vec<Duration>,
    /// From the start of the process to the answer that the start is over.
    pub took: Duration,
}

impl Start {
    pub fn waits_ms(&self) -> Vec<f64> {
        self.waits.iter().map(|wait| wait.as_secs_f64() * 1e3).collect()
    }
}

impl Daemon {
    /// Starts `ashlar serve` with so many LUNs and further lines of `[daemon]`, on one core only
    /// when `core` is given.
    pub fn start(
        binary: &str,
        core: Option<usize>,
        luns: u64,
        keys: &str,
    ) -> Result<Daemon, Error> {
        let mut daemon = Daemon::launch(binary, core, luns, keys)?;
        daemon.child.wait_port(daemon.portal)?;
        daemon.check_disks(luns)?;
        Ok(daemon)
    }

    /// Starts it with so many LUNs, reads its status every 10 ms until it has started, and ends it.
    pub fn ask_during_start(binary: &str, core: Option<usize>, luns: u64) -> Result<Start, Error> {
        let begun = Instant::now();
        let mut daemon = Daemon::launch(binary, core, luns, "")?;
        let (socket, mut waits, mut failed) = (daemon.socket.clone(), Vec::new(), None);
        let has_started = || match call(&socket, "status") {
            Ok((answer, took)) => {
                waits.push(took);
                is_started(&String::from_utf8_lossy(&answer))
            }
            // It does not listen yet.
            Err(_) if waits.is_empty() => false,
            Err(error) => {
                failed = Some(error);
                true
            }
        };
        daemon.child.wait_for("the end of its start", has_started)?;
        let took = begun.elapsed();
        match failed {
            Some(error) => Err(error),
            None => daemon.check_disks(luns).map(|()| Start { waits, took }),
        }
    }

    fn launch(binary: &str, core: Option<usize>, luns: u64, keys: &str) -> Result<Daemon, Error> {
        let scratch = Scratch::new("ashlar-operate")?;
        let home = scratch.path();
        let portal = free_address()?;
        let one = if core.is_some() { "cores = 1\n" } else { "" };
        let file = home.join("ashlar.toml");
        let text = configuration(home, portal, luns, &format!("{one}{keys}"));
        fs::write(&file, text).map_err(|e| Error::system(file.display(), e))?;
        let mut command = pinned(Path::new(binary), core)?;
        command.arg("serve").arg(&file);
        let child = Child::start("ashlar", &mut command, &home.join("log"))?;
        let child = child.with_start_max(START_MAX);
        let socket = home.join("control.sock");
        Ok(Daemon { portal, socket, child, _scratch: scratch })
    }

    /// The process to measure.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Checks that all disks are there: a start also serves a part of them.
    fn check_disks(&self, wanted: u64) -> Result<(), Error> {
        let (page, _) = get(&self.socket, "/metrics", Keep::Body)?;
        let found = disks_in(&String::from_utf8_lossy(&page));
        if found == wanted {
            return Ok(());
        }
        let what = format!("ashlar: {found} of {wanted} disks are served:\n{}", self.child.log());
        Err(Error::new(Kind::Server, what))
    }
}

/// Whether an answer of `status` reports that the first configuration has been carried out.
fn is_started(answer: &str) -> bool {
    answer.replace(' ', "").contains("\"starting\":false")
}

/// Disks in a page of metrics.
fn disks_in(page: &str) -> u64 {
    page.lines().map(|line| u64::from(line.starts_with("ashlar_disk_size_bytes{"))).sum()
}

fn configuration(home: &Path, portal: SocketAddr, luns: u64, keys: &str) -> String {
    let quoted = |name: &str| format!("{:?}", home.join(name).to_string_lossy());
    let mut text = format!(
        "[daemon]\nsocket = {}\nhistory = {}\nstate = {}\n{keys}\n",
        quoted("control.sock"),
        quoted("history"),
        quoted("state"),
    );
    let disk =
        |n: u64| format!("[[disk]]\nname = \"d{n}\"\nkind = \"null\"\nsize = {NULL_BYTES}\n\n");
    text.extend((0..luns).map(disk));
    let map: Vec<String> = (0..luns).map(|n| format!("{n} = \"d{n}\"")).collect();
    text.push_str(&format!(
        "[[target]]\ndriver = \"nbd\"\nname = \"bench\"\nlisten = [\"{portal}\"]\n\n\
         [[access]]\ntarget = \"bench\"\ngroup = \"bench\"\ninitiators = [\"ip:127.0.0.1\"]\n\
         luns = {{ {} }}\n",
        map.join(", ")
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_a_disk_for_each_lun() {
        let portal = "127.0.0.1:10809".parse().expect("an address");
        let text = configuration(Path::new("/x"), portal, 300, "cores = 1\nsandbox = true\n");
        let document: toml_edit::DocumentMut = text.parse().expect("TOML");
        let disks = document["disk"].as_array_of_tables().expect("disks");
        let name = |n: usize| disks.get(n).and_then(|disk| disk["name"].as_str());
        assert_eq!((disks.len(), name(0), name(299)), (300, Some(EXPORT), Some("d299")));
        let access = document["access"].as_array_of_tables().and_then(|all| all.get(0));
        let luns = access.and_then(|access| access["luns"].as_inline_table()).expect("LUNs");
        assert_eq!(luns.len(), 300);
        assert_eq!(luns.get("299").and_then(|lun| lun.as_str()), Some("d299"));
        assert_eq!(document["daemon"]["sandbox"].as_bool(), Some(true));
    }

    #[test]
    fn answer_of_status_shows_the_end_of_a_start() {
        assert!(is_started("{\"answer\":{\"starting\": false}}"));
        assert!(is_started("{\"starting\":false}"));
        assert!(!is_started("{\"starting\":true}") && !is_started(""));
    }

    #[test]
    fn disks_of_a_page_of_metrics_are_counted() {
        let page = "# HELP ashlar_disk_size_bytes Size\n# TYPE ashlar_disk_size_bytes gauge\n\
                    ashlar_disk_size_bytes{disk=\"d0\",kind=\"null\"} 5\n\
                    ashlar_disk_size_bytes{disk=\"d1\",kind=\"null\"} 5\n\
                    ashlar_disk_health{disk=\"d1\",kind=\"null\",state=\"ok\"} 1\n";
        assert_eq!(disks_in(page), 2);
    }
}
