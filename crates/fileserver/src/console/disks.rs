//! Files as disks.

use std::rc::Rc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME, about, paths};
use crate::files::{Change, Kind, New};
use crate::service::Host;
use crate::users::ADM;
use crate::volume::View;

pub(super) const DISK: Command = Command {
    spec: VerbSpec {
        name: "disk",
        doc: "Make a file a disk, which LUNs and layers can stand on",
        detail: "The file of a dump is a disk that can be read only: yesterday's state of a LUN is \
                 a LUN beside it (a [[unit]] section says `read_only = true` of it). A dump taken \
                 while it is written holds what a loss of power at that moment would have left. \
                 Until the file server is opened again; `disks` of the configuration says it for \
                 good.",
        args: &[
            NAME,
            ArgSpec {
                name: "path",
                short: None,
                kind: ArgKind::Name,
                doc: "The file, from the root; /dump/2026/1121/... for that of a dump",
            },
            ArgSpec {
                name: "as",
                short: None,
                kind: ArgKind::Text,
                doc: "Name of the provider [default: the last part of the path]",
            },
            ArgSpec {
                name: "size",
                short: Some('s'),
                kind: ArgKind::Bytes,
                doc: "Make the file if it is not there, of so many bytes, without taking room",
            },
        ],
        example: "fs disk main /images/vm0 --size 10GiB",
        writes: true,
    },
    run: |host, args| Box::pin(disk(host, args)),
};

async fn disk(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let path = args.need("path");
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    let name = args.text("as").unwrap_or(last).to_owned();
    if let Some(size) = args.number("size") {
        make(&host, path, size).await?;
    }
    host.add_disk(&name, path).await?;
    Ok(json!({ "message": format!("{path} is the disk {name}"), "provider": name }))
}

/// An empty file of that size, if there is none.
async fn make(host: &Host, path: &str, size: u64) -> Result<(), Error> {
    let fs = host.files()?;
    if path.starts_with("/dump/") {
        return Err(Error::new(Errno::RoFs, format!("{path}: dumps are kept as they are")));
    }
    if let Some(found) = paths::find(&fs, View::Live, path).await.map_err(about(path))? {
        if found.inode.size == size {
            return Ok(());
        }
        let what =
            format!("{path}: it is there, with {} bytes; leave --size out", found.inode.size);
        return Err(Error::new(Errno::Exist, what));
    }
    let (dir, name) = paths::place(&fs, path).await?;
    let new = New { kind: Kind::File, mode: 0o660, uid: ADM, gid: ADM, ..New::default() };
    let sized = Change { size: Some(size), by: ADM, ..Change::default() };
    let made = fs.run(|f| {
        let ino = f.create(dir, name.as_bytes(), &new)?;
        f.set(ino, &sized)
    });
    made.await.map_err(about(path))
}

pub(super) const UNDISK: Command = Command {
    spec: VerbSpec {
        name: "undisk",
        doc: "Make a file a disk no longer; the file stays",
        detail: "Those who use the disk lose it: take it away from them first.",
        args: &[
            NAME,
            ArgSpec {
                name: "disk",
                short: None,
                kind: ArgKind::Name,
                doc: "The provider, as `fs list` shows it",
            },
        ],
        example: "fs undisk main vm0",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            host.files()?;
            let name = args.need("disk");
            host.remove_disk(name)?;
            Ok(json!({ "message": format!("{name} is no disk any more") }))
        })
    },
};
