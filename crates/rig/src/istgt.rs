//! A second peer target, Debian's istgt: FreeBSD's old one, with proofs and digests of its own.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::peer::wait_port;
use crate::proc::{self, Proc, Scratch};
use crate::{Chap, Target};

/// A target that does not answer within this time is not coming.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A running istgt with one target of one disk, which wants a proof and digests. Killed when
/// dropped.
pub struct Istgt {
    target: Target,
    daemon: Option<Proc>,
    config: PathBuf,
    scratch: Scratch,
}

impl Istgt {
    /// Starts it on a free port of 127.0.0.1, on an image file.
    pub fn start(disk: &Path, chap: &Chap) -> Result<Istgt> {
        let (port, other) = (proc::free_port()?, proc::free_port()?);
        let target = Target {
            portal: SocketAddr::from(([127, 0, 0, 1], port)),
            iqn: "iqn.2026-11.test.ashlar:disk1".to_string(),
            lun: 0,
        };
        let scratch = Scratch::new("istgt")?;
        let (config, auth) = (scratch.path().join("conf"), scratch.path().join("auth"));
        let (user, secret) = chap.mutual.as_ref().context("istgt proves itself too")?;
        let proof = format!(
            "[AuthGroup1]\n  Auth \"{}\" \"{}\" \"{user}\" \"{secret}\"\n",
            chap.user, chap.secret
        );
        fs::write(&auth, proof)?;
        // It refuses secrets that others may read.
        fs::set_permissions(&auth, fs::Permissions::from_mode(0o600))?;
        fs::write(&config, sections(scratch.path(), disk, target.portal, other))?;
        let mut istgt = Istgt { target, daemon: None, config, scratch };
        istgt.boot()?;
        Ok(istgt)
    }

    /// Its address.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Kills the daemon with SIGKILL; the port is closed afterwards, the file keeps its contents.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
        }
        Ok(())
    }

    /// A new daemon on the same port with the same target.
    pub fn boot(&mut self) -> Result<()> {
        let mut command = proc::command("istgt", None)?;
        command.arg("-D").arg("-c").arg(&self.config);
        let mut daemon = Proc::start("istgt", &mut command, &self.scratch.path().join("log"))?;
        daemon.wait_ready(START_LIMIT, || wait_port(self.target.portal).is_ok())?;
        self.daemon = Some(daemon);
        Ok(())
    }
}

/// Its configuration: all sections that it insists on.
fn sections(here: &Path, disk: &Path, portal: SocketAddr, other: u16) -> String {
    let (here, disk) = (here.display(), disk.display());
    format!(
        "[Global]\n  NodeBase \"iqn.2026-11.test.ashlar\"\n  PidFile {here}/pid\n  \
         AuthFile {here}/auth\n  MediaDirectory {here}\n  LogFacility \"local7\"\n  Timeout 30\n  \
         NopInInterval 20\n  DiscoveryAuthMethod Auto\n  MaxSessions 16\n  MaxConnections 4\n  \
         MaxR2T 32\n  MaxOutstandingR2T 16\n  DefaultTime2Wait 1\n  DefaultTime2Retain 60\n  \
         FirstBurstLength 262144\n  MaxBurstLength 1048576\n  \
         MaxRecvDataSegmentLength 262144\n  InitialR2T Yes\n  ImmediateData Yes\n  \
         DataPDUInOrder Yes\n  DataSequenceInOrder Yes\n  ErrorRecoveryLevel 0\n\
         [UnitControl]\n  AuthMethod CHAP Mutual\n  AuthGroup AuthGroup1\n  \
         Portal UC1 127.0.0.1:{other}\n  Netmask 127.0.0.1\n\
         [PortalGroup1]\n  Portal DA1 {portal}\n\
         [InitiatorGroup1]\n  InitiatorName \"ALL\"\n  Netmask 127.0.0.0/8\n\
         [LogicalUnit1]\n  TargetName disk1\n  Mapping PortalGroup1 InitiatorGroup1\n  \
         AuthMethod CHAP Mutual\n  AuthGroup AuthGroup1\n  UseDigest Header Data\n  \
         UnitType Disk\n  QueueDepth 32\n  LUN0 Storage {disk} Auto\n"
    )
}
