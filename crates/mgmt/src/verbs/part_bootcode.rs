//! part bootcode: boot code into the table's sector and into a partition.

use super::part::PartVerb;
use crate::api::{Error, Kind, Result};
use classes::part::request::{Bootcode, Edit};
use std::io::ErrorKind;
use std::path::Path;
use wire::iscsi::encode_base64;

/// Most bytes of a file that are read: the most that a partition may be given, and one more. A
/// longer file is refused.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file as the API takes it.
fn file(option: &str, path: &str) -> Result<String> {
    let op = "part bootcode";
    let fail = |e: std::io::Error| {
        let kind = if e.kind() == ErrorKind::InvalidInput { Kind::Usage } else { Kind::System };
        Error::new(kind, op, format!("{option}: {e}")).at(path.to_owned())
    };
    let refuse = |why: &str| {
        Err(Error::new(Kind::Usage, op, format!("{option}: {why}")).at(path.to_owned()))
    };
    let most = FILE_BYTES_MAX.saturating_add(1);
    let bytes = bio::read_regular(Path::new(path), most).map_err(fail)?;
    match u64::try_from(bytes.len()) {
        Ok(0) => refuse("the file is empty"),
        Ok(1..=FILE_BYTES_MAX) => Ok(encode_base64(&bytes)),
        _ => refuse(&format!(
            "the file has more than {FILE_BYTES_MAX} bytes, which no boot code has"
        )),
    }
}

impl PartVerb for Edit<Bootcode> {
    const COMMAND: &'static str = "part.bootcode";
    const FROM_FILES: &'static [&'static str] = &["bootcode", "partcode"];

    fn prepare(&mut self) -> Result<()> {
        for (option, given) in [("-b", &mut self.of.bootcode), ("-p", &mut self.of.partcode)] {
            if let Some(path) = given {
                *path = file(option, path)?;
            }
        }
        Ok(())
    }
}
