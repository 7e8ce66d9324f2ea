//! The verb `blockcmp`: the copies of a block on the devices of the WORM.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, about, answers, param_error};
use crate::volume::Copy;

answers! {
    /// The copies of a block.
    Compared {
        /// Result for people.
        text: String,
        /// Address of the block.
        address: u64,
        /// The copy of each device.
        copies: Vec<Copy>,
        /// Copies without a fault.
        sound: usize,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Blockcmp {
    /// Address of the block on the WORM
    address: String,
}

impl Verb<FileServer> for Blockcmp {
    const NAME: &'static str = "blockcmp";
    const DOC: &'static str = "Compare the copies of a block with its expected contents";
    const DETAIL: &'static str = "`fs clean NAME PATH` lists the block addresses of a file. \
         Nothing is repaired: reading the file repairs it.";
    const POSITIONAL: &'static [&'static str] = &["name", "address"];
    const EXAMPLE: &'static str = "fs blockcmp main 1234";
    type Answer = Compared;

    fn run(self, Call { host, .. }: Call) -> Running<Compared> {
        Box::pin(async move {
            let fs = host.files()?;
            let address =
                self.address.parse().map_err(|_| param_error::<Self>("an address is a number"))?;
            let own =
                fs.volume("blocks of an image carry no checksum").map_err(about("blockcmp"))?;
            let copies = own.volume().copies(address).await.map_err(about("blockcmp"))?;
            let mut text = String::new();
            for Copy { device, at, fault } in &copies {
                let what = match (at, fault) {
                    (None, _) => "not there".to_owned(),
                    (Some(at), None) => format!("as it should be, in block {at}"),
                    (Some(at), Some(fault)) => format!("block {at}: {fault}"),
                };
                let _ = writeln!(text, "{device:<24} {what}");
            }
            let sound = copies.iter().filter(|c| c.at.is_some() && c.fault.is_none()).count();
            Ok(Compared { text, address, copies, sound })
        })
    }
}
