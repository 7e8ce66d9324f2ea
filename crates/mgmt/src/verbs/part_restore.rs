//! part restore: the backup of a partition table, read from standard input.

use super::part::PartVerb;
use crate::api::{Error, Kind, Result};
use classes::part::request::{Edit, Restore};
use std::io::Read;

/// Bytes of a backup that are read: a GPT of 4096 slots has less than one of them. A longer one
/// is refused.
const BACKUP_BYTES_MAX: u64 = 4 << 20;

impl PartVerb for Edit<Restore> {
    const COMMAND: &'static str = "part.restore";
    const FROM_FILES: &'static [&'static str] = &["backup"];

    fn prepare(&mut self) -> Result<()> {
        let params = &mut self.of;
        if params.backup.is_some() {
            return Ok(());
        }
        if params.geoms.is_empty() {
            return Err(Error::new(Kind::Usage, "part restore", "no provider is named"));
        }
        let mut text = String::new();
        let fail = |e: std::io::Error| Error::new(Kind::System, "read standard input", e);
        let limit = BACKUP_BYTES_MAX.saturating_add(1);
        std::io::stdin().take(limit).read_to_string(&mut text).map_err(fail)?;
        if u64::try_from(text.len()).is_ok_and(|len| len > BACKUP_BYTES_MAX) {
            let why = format!("more than {BACKUP_BYTES_MAX} bytes, which no backup has");
            return Err(Error::new(Kind::Usage, "part restore", why));
        }
        params.backup = Some(text);
        Ok(())
    }
}
