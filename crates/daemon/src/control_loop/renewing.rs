//! Rereading of the files of secrets, certificates and keys. Sessions continue; later logins use
//! the new content.

use disks::DiskClass;
use fileserver::{FS_CLASS, FsClass};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{Config, DiskConfig, GeomConfig};
use mgmt::plan::FileSection;
use serde_json::Value;

use super::ControlLoop;
use crate::buses;
use crate::catalog::check_geom;
use crate::errors::from_geom;
use crate::exports::{Files, check_target, judge_group};

const OP: &str = "read files anew";

fn no_section(of: &FileSection) -> Error {
    Error::new(Kind::NotFound, OP, "no such section").at(of.to_string())
}

/// Why the files of a section could not be read again. On a thread that may block.
pub fn check_files(of: &FileSection, config: &Config) -> Result<()> {
    let none = || no_section(of);
    match of {
        FileSection::Target(name) => {
            check_target(config.target(name).ok_or_else(none)?)?;
            let mut groups = config.access.iter().filter(|group| group.target == *name);
            groups.try_for_each(judge_group)
        }
        FileSection::Bus(name) => buses::check(config.bus(name).ok_or_else(none)?),
        FileSection::Disk(name) => check_disk(OP, config.disk(name).ok_or_else(none)?),
        FileSection::Fs(name) => check_geom(OP, config.geom(name).ok_or_else(none)?),
        // The control side reads and checks the files of these.
        FileSection::Api | FileSection::Webhook(_) => Ok(()),
    }
}

/// Why the kind of a disk would refuse its keys, or the files that they name. On a thread that may
/// block.
pub fn check_disk(op: &str, disk: &DiskConfig) -> Result<()> {
    let (name, params) = (disk.name.as_str(), Value::Object(disk.params.clone()));
    let checked = disks::kind(&disk.kind).map_or(Ok(()), |kind| kind.check(name, &params));
    checked.map_err(|e| from_geom(op, name, e))
}

impl ControlLoop {
    /// Reads the files of a section again.
    pub(super) fn renew(&mut self, of: &FileSection) -> Result<()> {
        let config = self.config();
        let none = || no_section(of);
        match of {
            FileSection::Target(name) => {
                self.exports.renew(config.target(name).ok_or_else(none)?, &config)
            }
            FileSection::Bus(name) => buses::renew(self, config.bus(name).ok_or_else(none)?),
            FileSection::Disk(name) => self.update_disk(OP, config.disk(name).ok_or_else(none)?),
            FileSection::Fs(name) => {
                let files = Files::of_fs(config.geom(name).ok_or_else(none)?);
                let read = FsClass::reload_keys(&mut self.control.topology, name);
                read.map_err(|e| from_geom(OP, name, e))?;
                self.exports.files.set_own(of.clone(), files);
                Ok(())
            }
            FileSection::Api | FileSection::Webhook(_) => Ok(()),
        }
    }

    /// An open disk takes over the live keys of its section, and reads its files again.
    pub(super) fn update_disk(&mut self, op: &str, disk: &DiskConfig) -> Result<()> {
        let (files, params) = (Files::of_disk(disk), Value::Object(disk.params.clone()));
        let done = DiskClass::update_params(&mut self.control.topology, &disk.name, &params);
        done.map_err(|e| from_geom(op, &disk.name, e))?;
        self.exports.files.set_own(FileSection::Disk(disk.name.clone()), files);
        Ok(())
    }

    /// Records the files with which a geom was made.
    pub(super) fn keep_files(&self, geom: &GeomConfig, files: Files) {
        if geom.class == FS_CLASS {
            self.exports.files.set_own(FileSection::Fs(geom.name.clone()), files);
        }
    }

    /// A disk is removed.
    pub(super) fn forget_disk(&mut self, name: &str) {
        self.exports.files.forget(FileSection::Disk(name.to_owned()));
        self.openings.abandon(name);
        self.medium_index.remove(name);
        self.reattach.forget(name);
    }

    /// A geom is removed.
    pub(super) fn forget_files(&self, geom: &GeomConfig) {
        if geom.class == FS_CLASS {
            self.exports.files.forget(FileSection::Fs(geom.name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration whose `PEM` is a file without a certificate, and the path of the file.
    fn with_broken_file(name: &str, text: &str) -> (Config, String) {
        let file = std::env::temp_dir().join(format!("ashlar-{name}-{}.pem", std::process::id()));
        std::fs::write(&file, "nothing\n").unwrap();
        let path = file.to_str().unwrap().to_owned();
        let text = text.replace("PEM", &path);
        let config = mgmt::config::read(&text, "a.toml", &crate::catalog::catalog()).unwrap();
        (config, path)
    }

    #[track_caller]
    fn expect_refused(of: &FileSection, (config, path): (Config, String)) {
        let refused = check_files(of, &config).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let wanted = format!("{path}: the file contains no certificate");
        assert!(refused.source.contains(&wanted), "{refused:?}");
    }

    #[test]
    fn broken_certificate_of_a_target_is_refused_before_it_is_used() {
        let text = "[[target]]\ndriver = 'nbd'\nname = 'n'\nlisten = ['127.0.0.1:10809']\n\
                    tls = 'require'\ntls_certificate = 'PEM'\ntls_key = 'PEM'\n";
        let of = FileSection::Target("n".into());
        expect_refused(&of, with_broken_file("target", text));
        assert_eq!(check_files(&of, &Config::default()).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn broken_ca_of_a_disk_is_refused_before_it_is_used() {
        let text = "[[disk]]\nname = 'd'\nkind = 'nbd'\naddress = '127.0.0.1:1'\ntls_ca = 'PEM'\n";
        expect_refused(&FileSection::Disk("d".into()), with_broken_file("disk", text));
    }
}
