//! The verb `disk`: a file as a disk.

use bio::Errno;
use geom::{Bytes, Deserialize, Error, JsonSchema, Verb};

use super::{Call, FileServer, Running, about, answers, paths};
use crate::files::{Change, Kind, New};
use crate::service::Host;
use crate::users::ADM;
use crate::volume::View;

answers! {
    /// A disk in a file.
    Made {
        /// Result in one sentence.
        message: String,
        /// Name of the disk's provider.
        provider: String,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Disk {
    /// Path of the file from the root; /dump/2026/1121/... for a file of a dump
    path: String,
    /// Name of the provider [default: the last part of the path]
    #[serde(rename = "as")]
    provider: Option<String>,
    /// Create the file sparse, with this size, if it does not exist
    #[schemars(extend("x-short" = "s"))]
    size: Option<Bytes>,
}

impl Verb<FileServer> for Disk {
    const NAME: &'static str = "disk";
    const DOC: &'static str = "Make a file a disk for LUNs and layers";
    const DETAIL: &'static str = "The file of a dump is a read-only disk: yesterday's state of a \
         LUN can be a LUN beside it (with `read_only = true` in its [[unit]] section). A dump \
         taken while the disk is written has the state that a loss of power at that moment would \
         have left. The disk exists until the daemon stops; `disks` in the configuration makes it \
         permanent.";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs disk main /images/vm0 --size 10GiB";
    const WRITES: bool = true;
    type Answer = Made;

    fn run(self, Call { host, .. }: Call) -> Running<Made> {
        Box::pin(async move {
            let path = self.path.as_str();
            let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
            let provider = self.provider.as_deref().unwrap_or(last).to_owned();
            if let Some(Bytes(size)) = self.size {
                make(&host, path, size).await?;
            }
            host.add_disk(&provider, path).await?;
            Ok(Made { message: format!("{path} is the disk {provider}"), provider })
        })
    }
}

/// An empty file of that size, if there is none.
async fn make(host: &Host, path: &str, size: u64) -> Result<(), Error> {
    let fs = host.files()?;
    if path.starts_with("/dump/") {
        return Err(Error::new(Errno::RoFs, format!("{path}: dumps cannot be changed")));
    }
    if let Some(found) = paths::find(&fs, View::Live, path).await.map_err(about(path))? {
        if found.inode.size == size {
            return Ok(());
        }
        let what = format!("{path}: exists with {} bytes; leave --size out", found.inode.size);
        return Err(Error::new(Errno::Exist, what));
    }
    let (dir, name) = paths::parent_dir(&fs, path).await?;
    let new = New { kind: Kind::File, mode: 0o660, uid: ADM, gid: ADM, ..New::default() };
    let sized = Change { size: Some(size), by: ADM, ..Change::default() };
    let result = fs.run(|f| {
        let ino = f.create(dir, name.as_bytes(), &new)?;
        f.set(ino, &sized)
    });
    result.await.map_err(about(path))
}
