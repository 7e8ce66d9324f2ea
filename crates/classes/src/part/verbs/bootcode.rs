//! The `bootcode` verb: boot code of the scheme, of a partition, or both.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, Edit, PartAnswer, PartCode, Table, TableBefore, TableEdit, Uses, edit};
use crate::part::bootcode::may_write;
use crate::part::class::{PartClass, refusal};

/// Types of partitions for boot code.
const BOOT_TYPES: [&str; 3] = ["freebsd-boot", "bios-boot", "prep-boot"];

/// Boot code: the scheme's, a partition's, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bootcode {
    /// Provider with the table.
    pub geom: String,
    /// File with the boot code of the scheme. Over the API: `0b` and its bytes in base64.
    #[serde(default)]
    #[schemars(extend("x-short" = "b"))]
    pub bootcode: Option<String>,
    /// File for the start of a partition. Over the API: `0b` and its bytes in base64.
    #[serde(default)]
    #[schemars(extend("x-short" = "p"))]
    pub partcode: Option<String>,
    /// Index of the partition that receives the file of -p, from 1.
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
    /// Replace the disk's serial number, which is inside the boot code, with that of the file.
    #[serde(default)]
    #[schemars(extend("x-short" = "N"))]
    pub skip_serial: bool,
    /// Name of the partition's provider, if the partition is not of a type for boot code.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

impl TableEdit for Bootcode {
    fn geom(&self) -> &str {
        &self.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        let Bootcode { bootcode, skip_serial, partcode, index, yes_destroy, .. } = self;
        let TableBefore { name, table, uses, .. } = *before;
        let code = partition_code(table, uses, partcode, index)?;
        let partition = code.as_ref().map(|code| before.part_name(table, code.index()));
        let boot = bootcode.map(|text| binary("bootcode", &text)).transpose()?;
        let next = match (&boot, &code) {
            (Some(boot), _) => table.boot_code(boot, skip_serial, &uses.written),
            (None, Some(_)) if !skip_serial => Ok(table.clone()),
            (None, Some(_)) => return Err(lacks("skip_serial is for bootcode")),
            (None, None) => return Err(lacks("give bootcode, or partcode and index")),
        };
        let next = next.map_err(refusal)?;
        if let Some(code) = code.as_ref().filter(|code| !is_for_boot_code(table, code.index())) {
            before.require_consent(code.index(), &yes_destroy)?;
        }
        let message = partition.map(|on| format!("partcode written to {on}"));
        let message =
            message.into_iter().chain(boot.map(|_| format!("bootcode written to {name}")));
        let message = message.collect::<Vec<_>>().join("\n");
        Ok(Change { code, ..Change::of(next, None, message) })
    }
}

impl Verb<PartClass> for Edit<Bootcode> {
    const NAME: &'static str = "bootcode";
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
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part bootcode -b /boot/pmbr -p /boot/gptboot -i 1 ada0";
    const MORE_EXAMPLES: &'static [&'static str] = &[
        "part bootcode -b /boot/boot0 ada1",
        "part bootcode ada0 -p boot1.efifat -i 1 --yes-destroy ada0p1",
    ];
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        may_write(control, &of)?;
        edit(control, of, at_once)
    }
}

/// Whether a partition is of a type for boot code: it contains nothing else.
fn is_for_boot_code(table: &Table, index: u32) -> bool {
    let kind = table.entry(index).and_then(|entry| entry.kind.alias());
    kind.is_some_and(|kind| BOOT_TYPES.contains(&kind))
}

fn lacks(what: &str) -> Error {
    Error::inval(what)
}

fn partition_code(
    table: &Table,
    uses: &Uses,
    text: Option<String>,
    index: Option<u32>,
) -> Result<Option<PartCode>, Error> {
    match (text, index) {
        (Some(text), Some(index)) => {
            let code = binary("partcode", &text)?;
            table.partition_code(index, &code, &uses.written).map(Some).map_err(refusal)
        }
        (Some(_), None) => {
            Err(lacks("index (-i) is missing: which partition is partcode (-p) for?"))
        }
        (None, Some(_)) => Err(lacks("index (-i) is for partcode (-p), which is missing")),
        (None, None) => Ok(None),
    }
}

/// A binary value in text, as iSCSI has it (RFC 7143 6.1).
fn binary(field: &str, text: &str) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; text.len()];
    let len = match text {
        "0b" | "0x" => 0,
        _ => {
            let read = wire::iscsi::decode_binary(text, &mut out).map(<[u8]>::len);
            read.map_err(|_| lacks(&format!("{field} is neither 0b and base64 nor 0x and digits")))?
        }
    };
    out.truncate(len);
    Ok(out)
}
