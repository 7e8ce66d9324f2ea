//! Files of secrets, certificates and keys that are read again. Sessions go on; what logs in later
//! meets what is in them now.

use control::api::{Error, Kind, Result};
use control::config::GeomConfig;
use control::plan::FilesOf;
use fileserver::FsClass;

use super::ControlLoop;
use crate::buses;
use crate::errors::from_geom;
use crate::exports::Files;

const OP: &str = "read files anew";

impl ControlLoop {
    /// Reads the files of a section again.
    pub(super) fn renew(&mut self, of: &FilesOf) -> Result<()> {
        let config = self.config();
        let none = || Error::new(Kind::NotFound, OP, "no such section").at(of.to_string());
        match of {
            FilesOf::Target(name) => {
                self.exports.renew(config.target(name).ok_or_else(none)?, &config)
            }
            FilesOf::Bus(name) => buses::renew(self, config.bus(name).ok_or_else(none)?),
            FilesOf::Fs(name) => {
                let files = Files::of_fs(config.geom(name).ok_or_else(none)?);
                let read = FsClass::renew(&mut self.control.topology, name);
                read.map_err(|e| from_geom(OP, name, e))?;
                self.exports.files.set_own(of.clone(), files);
                Ok(())
            }
        }
    }

    /// A geom was made with what is in these files.
    pub(super) fn keep_files(&self, geom: &GeomConfig, files: Files) {
        if geom.class == "fs" {
            self.exports.files.set_own(FilesOf::Fs(geom.name.clone()), files);
        }
    }

    /// A geom is removed.
    pub(super) fn forget_files(&self, geom: &GeomConfig) {
        if geom.class == "fs" {
            self.exports.files.forget(FilesOf::Fs(geom.name.clone()));
        }
    }
}
