//! The folder, the configuration, the daemon, the partitions.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::tools::Tools;
use crate::error::{Error, Kind};
use crate::servers::pinned;

/// Longest wait for the daemon to answer.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// Name of the demo's target.
pub const IQN: &str = "iqn.2026-11.example.ashlar:demo";

/// Where the demo lives.
pub struct Site {
    pub folder: PathBuf,
    /// Where its target listens.
    pub listen: String,
}

impl Site {
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.file("ashlar.sock")
    }

    /// The address that initiators on this machine type.
    pub fn portal(&self) -> String {
        self.listen.replace("0.0.0.0", "127.0.0.1")
    }
}

fn disks(site: &Site) -> String {
    let at = |name: &str| site.file(name).display().to_string();
    format!(
        r#"# The demo's configuration: change it and run `ashlar plan`, then `ashlar apply`.
[daemon]
socket = "{socket}"
history = "{history}"

# Two image files. They are sparse: what is not used takes no space.
[[disk]]
name = "d0"
kind = "file"
path = "{d0}"
create = true
size = "256MiB"

[[disk]]
name = "d1"
kind = "file"
path = "{d1}"
create = true
size = "128MiB"

# A scratch disk in memory.
[[disk]]
name = "scratch"
kind = "memory"
size = "64MiB"

# A layer between a disk and those who use it: it can fail and delay on demand.
[[geom]]
class = "nop"
name = "d1.nop"
provider = "d1"
"#,
        socket = site.socket().display(),
        history = at("history"),
        d0 = at("d0.img"),
        d1 = at("d1.img"),
    )
}

fn exports(site: &Site) -> String {
    format!(
        r#"
[[target]]
driver = "iscsi"
name = "{IQN}"
listen = ["{listen}"]

# A host sees only LUNs that a group grants.
[[access]]
target = "{IQN}"
group = "everybody"
initiators = ["iqn.*"]
luns = {{ 0 = "d0p1", 1 = "d1.nop", 2 = "scratch", 3 = {{ provider = "d0p2", mode = "ro" }} }}
"#,
        listen = site.listen
    )
}

/// Writes the configuration of the disks, and the whole one unless it exists already.
pub fn write_configs(site: &Site) -> Result<(), Error> {
    let failed = |path: &Path, e: std::io::Error| Error::system(path.display(), e);
    fs::create_dir_all(&site.folder).map_err(|e| failed(&site.folder, e))?;
    let whole = site.file("ashlar.toml");
    let first = site.file("disks.toml");
    fs::write(&first, disks(site)).map_err(|e| failed(&first, e))?;
    if !whole.exists() {
        fs::write(&whole, disks(site) + &exports(site)).map_err(|e| failed(&whole, e))?;
    }
    Ok(())
}

/// Starts the daemon, partitions the first disk when it is empty, exports everything.
pub fn start(site: &Site, tools: &mut Tools<'_>) -> Result<Child, Error> {
    if TcpStream::connect(site.portal()).is_ok() {
        let portal = site.portal();
        let why = format!("{portal} is in use; stop what listens there, or name another --listen");
        return Err(Error::new(Kind::System, why));
    }
    let log = site.file("daemon.log");
    let failed = |e: std::io::Error| Error::system("start the daemon", e);
    let output = fs::File::create(&log).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    tools.print_note(&format!("starting the daemon; its log is {}", log.display()));
    let mut child = pinned(tools.ashlar, None)?
        .arg("serve")
        .arg(site.file("disks.toml"))
        .arg(format!("--socket={}", site.socket().display()))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    match export(site, tools, &mut child) {
        Ok(()) => Ok(child),
        Err(e) => {
            // The child is ours alone; only the first error matters now.
            let _ = child.kill();
            let _ = child.wait();
            Err(e)
        }
    }
}

fn export(site: &Site, tools: &mut Tools<'_>, child: &mut Child) -> Result<(), Error> {
    wait(site, tools, child)?;
    let shown = tools.ashlar(&["part", "show"])?;
    if !shown.contains("d0") {
        tools.print_note("an empty disk: a partition table with two partitions");
        tools.ashlar(&["part", "create", "--scheme=gpt", "d0"])?;
        let add = ["part", "add", "--type=linux-data", "--align=1MiB"];
        tools.ashlar(&[&add[..], &["--size=192MiB", "--label=tree", "d0"]].concat())?;
        tools.ashlar(&[&add[..], &["--label=rest", "d0"]].concat())?;
    }
    let whole = site.file("ashlar.toml").display().to_string();
    tools.print_note("what applying the whole configuration would do, and doing it");
    let socket = format!("--socket={}", site.socket().display());
    let program = tools.ashlar.display().to_string();
    // `plan` ends with 6 when there is something to do: not a failure.
    tools.show(&program, &["plan", &whole, &socket]);
    tools.ashlar(&["apply", &whole])?;
    Ok(())
}

fn wait(site: &Site, tools: &mut Tools<'_>, child: &mut Child) -> Result<(), Error> {
    let program = tools.ashlar.display().to_string();
    let socket = format!("--socket={}", site.socket().display());
    let until = Instant::now() + START_DEADLINE;
    while Instant::now() < until {
        if tools.quietly(&program, &["status", &socket]).is_ok() {
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            let log = fs::read_to_string(site.file("daemon.log")).unwrap_or_default();
            let why = format!("the daemon ended ({status}):\n{}", log.trim());
            return Err(Error::new(Kind::Server, why));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(Error::new(Kind::Timeout, "the daemon does not answer"))
}

/// Commands to type to connect.
pub fn connection_commands(site: &Site) -> Vec<String> {
    let portal = site.portal();
    let socket = site.socket().display().to_string();
    vec![
        "serving. To connect from this machine:".to_owned(),
        format!("  open-iscsi:  iscsiadm -m discovery -t st -p {portal}"),
        format!("               iscsiadm -m node -T {IQN} -p {portal} --login"),
        format!("  QEMU:        qemu-img info iscsi://{portal}/{IQN}/0"),
        format!("  libiscsi:    iscsi-ls -s iscsi://{portal}"),
        format!("to look:       ashlar tree --socket={socket}    (also: status, top, sessions)"),
        "to stop:       Ctrl-C".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_configuration_is_valid_and_grants_four_luns() {
        let site = Site { folder: "x".into(), listen: "127.0.0.1:3260".into() };
        let text = disks(&site) + &exports(&site);
        let value: toml_edit::DocumentMut = text.parse().expect("TOML");
        let luns = value["access"][0]["luns"].as_inline_table().expect("a table");
        assert_eq!(luns.len(), 4);
    }
}
