//! `readcap`: capacity of a disk.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{DiskName, one_of};
use crate::class::CamClass;
use crate::periph::Facts;

/// Show the last block and block length of a disk
#[derive(Deserialize, JsonSchema)]
pub(super) struct Readcap {
    name: DiskName,
    /// Show only the block length
    #[schemars(extend("x-short" = "b"))]
    block: bool,
    /// Show only the last block or the size
    #[schemars(extend("x-short" = "s"))]
    size: bool,
    /// Show the number of blocks instead of the last block
    #[schemars(extend("x-short" = "N"))]
    blocks: bool,
    /// Human-readable size, K = 1024 bytes (camcontrol's -h)
    human: bool,
    /// Human-readable size, k = 1000 bytes
    #[schemars(extend("x-short" = "H"))]
    decimal: bool,
    /// Print only numbers
    #[schemars(extend("x-short" = "q"))]
    quiet: bool,
}

/// The capacity of a disk.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReadcapAnswer {
    /// Result for people.
    text: String,
    /// Address of the last block.
    last_block: u64,
    /// Size of a block, bytes.
    block_length: u32,
}

impl Verb<CamClass> for Readcap {
    const NAME: &'static str = "readcap";
    const EXAMPLE: &'static str = "readcap da0";
    type Answer = ReadcapAnswer;

    fn run(self, (class, _): At<'_, CamClass>) -> Result<ReadcapAnswer, Error> {
        let found = class.disk(&self.name.0)?;
        let medium = match &found.facts {
            Facts::Scsi(f) => f.capacity.map(|c| (c.blocks, c.block_len)),
            Facts::Ata(f) => Some((f.identify.sectors, f.identify.sector_bytes)),
            Facts::Multiplier(_) | Facts::Bridge(_) => None,
        };
        let none = || Error::new(Errno::NotSup, format!("{} has no medium", found.name));
        let (blocks, block_len) = medium.ok_or_else(none)?;
        let text = self.capacity(blocks, block_len)?;
        let last_block = blocks.saturating_sub(1);
        Ok(ReadcapAnswer { text, last_block, block_length: block_len })
    }
}

impl Readcap {
    /// A capacity in camcontrol's words.
    fn capacity(&self, blocks: u64, block_len: u32) -> Result<String, Error> {
        let Readcap { block, size, blocks: number, human, decimal, quiet, .. } = *self;
        let people = human || decimal;
        for (wrong, a, b) in [
            (block && number, "-b", "-N"),
            (block && size, "-b", "-s"),
            (people && quiet, "--human or -H", "-q"),
            (people && block, "--human or -H", "-b"),
            (human && decimal, "--human", "-H"),
        ] {
            if wrong {
                return Err(one_of(a, b));
            }
        }
        let word = |word: &'static str| if quiet { "" } else { word };
        let mut parts = Vec::new();
        if people {
            let bytes = blocks.saturating_mul(u64::from(block_len));
            parts.push(format!("Device Size: {}", scaled(bytes, decimal)));
        } else if number {
            parts.push(format!("{}{blocks}", word("Blocks: ")));
        } else if !block {
            parts.push(format!("{}{}", word("Last Block: "), blocks.saturating_sub(1)));
        }
        if !size {
            parts.push(format!("{}{block_len}{}", word("Block Length: "), word(" bytes")));
        }
        Ok(parts.join(", ") + "\n")
    }
}

/// At most three digits, and one behind the point below ten, as humanize_number(3) has it.
fn scaled(bytes: u64, decimal: bool) -> String {
    let (step, units) = match decimal {
        true => (1000.0, ["B", "k", "M", "G", "T", "P", "E"]),
        false => (1024.0, ["B", "K", "M", "G", "T", "P", "E"]),
    };
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    format!("{value:.digits$} {}", units.get(unit).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn capacity(blocks: u64, block_len: u32, params: &Value) -> Result<String, Error> {
        let mut params = params.clone();
        params["name"] = "da0".into();
        geom::parse_params::<Readcap>("cam readcap", &params)?.capacity(blocks, block_len)
    }

    #[test]
    fn capacities_are_printed_as_by_camcontrol() {
        let two_tb = 3_907_029_168;
        for (params, want) in [
            (json!({}), "Last Block: 3907029167, Block Length: 512 bytes\n"),
            (json!({ "block": true }), "Block Length: 512 bytes\n"),
            (json!({ "block": true, "quiet": true }), "512\n"),
            (json!({ "size": true }), "Last Block: 3907029167\n"),
            (json!({ "blocks": true }), "Blocks: 3907029168, Block Length: 512 bytes\n"),
            (json!({ "blocks": true, "size": true, "quiet": true }), "3907029168\n"),
            (json!({ "quiet": true }), "3907029167, 512\n"),
            (json!({ "human": true }), "Device Size: 1.8 T, Block Length: 512 bytes\n"),
            (json!({ "decimal": true, "size": true }), "Device Size: 2.0 T\n"),
        ] {
            assert_eq!(capacity(two_tb, 512, &params).as_deref(), Ok(want), "{params}");
        }
        for (a, b) in [
            ("block", "blocks"),
            ("block", "size"),
            ("human", "quiet"),
            ("decimal", "quiet"),
            ("human", "block"),
            ("human", "decimal"),
        ] {
            let both = json!({ a: true, b: true });
            assert!(capacity(1, 512, &both).is_err_and(|e| e.message.contains("one of them")));
        }
        for (bytes, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 K"),
            (10_189, "10 K"),
            (64 << 20, "64 M"),
            (1023 << 20, "1.0 G"),
            (u64::MAX, "16 E"),
        ] {
            assert_eq!(scaled(bytes, false), want);
        }
        assert_eq!(scaled(999_499, true), "999 k");
    }
}
