//! Keys and certificates made on the spot by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::proc::{self, Scratch};

/// A folder with certificate authorities and the certificates that they signed.
pub struct Papers(Scratch);

/// The ways of saying how long a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    /// Two days.
    Now,
    /// It was, until a moment ago.
    Before,
}

impl Papers {
    /// An empty folder.
    pub fn new(name: &str) -> Result<Papers> {
        Ok(Papers(Scratch::new(name)?))
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn openssl(&self, arguments: &str) -> Result<()> {
        let mut command = Command::new(proc::tool("openssl")?);
        proc::run(command.current_dir(self.folder()).args(arguments.split(' ')))?;
        Ok(())
    }

    /// Makes a certificate authority: `NAME.pem` and `NAME.key`.
    pub fn authority(&self, name: &str) -> Result<()> {
        let how = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        let files = format!("-keyout {name}.key -out {name}.pem -subj /CN={name}");
        self.openssl(&format!("{how} {files}"))
    }

    /// Makes an RSA key: `NAME.key`.
    pub fn rsa_key(&self, name: &str, bits: u32) -> Result<()> {
        let how = format!("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:{bits}");
        self.openssl(&format!("{how} -out {name}.key"))
    }

    /// A key and a certificate in a folder of their own, with `ca.pem` beside them, named as
    /// libnbd and QEMU want them: `NAME/client-key.pem`, `server-key.pem` for `server`.
    pub fn sign(
        &self,
        by: &str,
        name: &str,
        common: &str,
        alternative: &str,
        good: Good,
    ) -> Result<()> {
        let (folder, mine) = (self.folder(), self.file(name));
        std::fs::create_dir(&mine).with_context(|| format!("{}", mine.display()))?;
        std::fs::write(folder.join("ext"), alternative)?;
        let side = if name == "server" { "server" } else { "client" };
        let (key, cert) = (format!("{name}/{side}-key.pem"), format!("{name}/{side}-cert.pem"));
        let how = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        self.openssl(&format!("{how} -keyout {key} -out {name}.csr -subj /CN={common}"))?;
        let days = if good == Good::Now { 2 } else { 0 };
        let ca = format!("-CA {by}.pem -CAkey {by}.key -CAcreateserial -days {days} -extfile ext");
        self.openssl(&format!("x509 -req -in {name}.csr {ca} -out {cert}"))?;
        if good == Good::Before {
            // It is good to the end of the second in which it was signed.
            sleep(Duration::from_secs(1));
        }
        std::fs::copy(folder.join("ca.pem"), mine.join("ca-cert.pem"))?;
        Ok(())
    }
}
