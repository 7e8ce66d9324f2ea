//! part bootcode: boot code into the table's sector and into a partition.

use super::entry::{DaemonVerb, Verb};
use super::part::{self, Edit};
use super::part_show;
use crate::api::{Error, Kind, PartAnswer, Result};
use crate::plant::Progress;
use crate::service::Control;
use classes::part::request;
use std::io::ErrorKind;
use std::path::Path;
use wire::iscsi::encode_base64;

/// Most bytes of a file that are read: the most that a partition may be given, and one more. A
/// longer file is refused.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Types of partitions that are there for boot code: nothing else is in them.
const BOOT_TYPES: [&str; 3] = ["freebsd-boot", "bios-boot", "prep-boot"];

/// Writes it.
pub struct Bootcode;

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

impl Verb for Bootcode {
    type Params = Edit<request::Bootcode>;
    type Answer = PartAnswer;
    const NAME: &'static str = "part.bootcode";
    const DOC: &'static str = "Write boot code to a partition table or into a partition";
    const DETAIL: &'static str = "-b FILE is the boot code of the scheme. GPT, MBR: at most 512 \
        bytes, of which the first 446 are written to sector 0; a file longer than 446 bytes must \
        end with the boot signature 55 AA. Entries and signature are kept, and so is the disk's \
        serial number (bytes 440 to 443) unless -N is given or it is 0. BSD: at most 8192 bytes \
        with 55 AA at 510; a file of 512 bytes is a first stage and leaves the second stage \
        unchanged; the label in sector 1 is kept. An EBR has no boot code.\n\
        -p FILE -i INDEX is written to the start of a partition of a GPT or MBR, which must be \
        large enough and not open for writing; the rest of the last sector is filled with zeroes. \
        Requires --yes-destroy with the partition's name unless its type is freebsd-boot, \
        bios-boot or prep-boot and `ashlar inspect` finds nothing in it. This boot code is written \
        after the table.\n\
        With -b and -p, the verb accepts both files or refuses both. The command, not the daemon, \
        reads the files.";
    const EXAMPLES: &'static [&'static str] = &[
        "ashlar part bootcode -b /boot/pmbr -p /boot/gptboot -i 1 ada0",
        "ashlar part bootcode -b /boot/boot0 ada1",
        "ashlar part bootcode ada0 -p boot1.efifat -i 1 --yes-destroy ada0p1",
    ];
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const FROM_FILES: &'static [&'static str] = &["bootcode", "partcode"];

    fn prepare(params: &mut Self::Params, _app: &crate::App) -> Result<()> {
        for (option, given) in [("-b", &mut params.of.bootcode), ("-p", &mut params.of.partcode)] {
            if let Some(path) = given {
                *path = file(option, path)?;
            }
        }
        Ok(())
    }

    fn table(answer: &PartAnswer) -> String {
        part_show::answer(answer)
    }
}

/// Refuses to overwrite the start of a partition of another type unless its name was typed.
fn consent(control: &Control, params: &request::Bootcode) -> Result<()> {
    let (Some(index), true) = (params.index, params.partcode.is_some()) else { return Ok(()) };
    let entry = part::entry(control, "part bootcode", &params.geom, index)?;
    if BOOT_TYPES.contains(&entry.kind.as_str()) {
        return Ok(());
    }
    let what = format!("the code would overwrite the start of a partition of type {}", entry.kind);
    part::check_consent("part bootcode", &entry.name, &params.yes_destroy, &what)
}

impl DaemonVerb for Bootcode {
    fn run(
        control: &Control,
        params: Self::Params,
        progress: &mut Progress<'_>,
    ) -> Result<PartAnswer> {
        consent(control, &params.of)?;
        part::run_verb(control, Self::NAME, params.parts(), progress)
    }
}
