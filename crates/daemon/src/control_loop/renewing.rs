//! Rereading of the files of secrets, certificates and keys. Sessions go on; later logins use the
//! new content.

use fileserver::FsClass;
use mgmt::api::{Error, Kind, Result};
use mgmt::config::GeomConfig;
use mgmt::plan::FileSection;

use super::ControlLoop;
use crate::buses;
use crate::errors::from_geom;
use crate::exports::Files;

const OP: &str = "read files anew";

impl ControlLoop {
    /// Reads the files of a section again.
    pub(super) fn renew(&mut self, of: &FileSection) -> Result<()> {
        let config = self.config();
        let none = || Error::new(Kind::NotFound, OP, "no such section").at(of.to_string());
        match of {
            FileSection::Target(name) => {
                self.exports.renew(config.target(name).ok_or_else(none)?, &config)
            }
            FileSection::Bus(name) => buses::renew(self, config.bus(name).ok_or_else(none)?),
            FileSection::Fs(name) => {
                let files = Files::of_fs(config.geom(name).ok_or_else(none)?);
                let read = FsClass::reload_keys(&mut self.control.topology, name);
                read.map_err(|e| from_geom(OP, name, e))?;
                self.exports.files.set_own(of.clone(), files);
                Ok(())
            }
        }
    }

    /// Records the files with which a geom was made.
    pub(super) fn keep_files(&self, geom: &GeomConfig, files: Files) {
        if geom.class == "fs" {
            self.exports.files.set_own(FileSection::Fs(geom.name.clone()), files);
        }
    }

    /// A geom is removed.
    pub(super) fn forget_files(&self, geom: &GeomConfig) {
        if geom.class == "fs" {
            self.exports.files.forget(FileSection::Fs(geom.name.clone()));
        }
    }
}
