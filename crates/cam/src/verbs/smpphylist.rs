//! `smpphylist`: the phys of a SAS expander.

use std::fmt::Write;

use bio::Errno;
use geom::{At, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use wire::smp::{Phy, ReportGeneral, SMP_RESPONSE_LEN, function, result};

use super::Device;
use super::enclosure::PeriphsByAddress;
use super::verb_jobs::DeviceOnCore;
use crate::ccb::{CamStatus, Command};
use crate::class::CamClass;
use crate::periph::pass::{self, Data, Request};

/// List the phys of a SAS expander and the attached devices
#[derive(Deserialize, JsonSchema)]
pub(super) struct Smpphylist {
    name: Device,
    /// List only phys with a known attached device
    #[schemars(extend("x-short" = "q"))]
    quiet: bool,
}

/// The phys of an expander.
#[derive(Serialize, JsonSchema)]
pub(super) struct SmpphylistAnswer {
    /// Result for people.
    text: String,
    /// Logical identifier of the enclosure, in hexadecimal.
    enclosure: String,
    /// Each phy.
    phys: Vec<ListedPhy>,
}

/// A phy of an expander.
#[derive(Serialize, JsonSchema)]
struct ListedPhy {
    /// Number of the phy.
    phy: u8,
    /// SAS address of the attached device, in hexadecimal.
    attached: String,
    /// NEGOTIATED LOGICAL LINK RATE: 8 is 1.5 Gbit/s, 9 is 3, 10 is 6, 11 is 12.
    rate: u8,
    /// Names of the attached device; null: unknown.
    periphs: Option<Vec<String>>,
}

impl Verb<CamClass> for Smpphylist {
    const NAME: &'static str = "smpphylist";
    const EXAMPLE: &'static str = "smpphylist ses0";
    type Answer = Deferred<SmpphylistAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let (found, quiet) = (class.disk(&self.name.0)?, self.quiet);
        let known = class.by_address(&found);
        class.run_on_core(control, (Self::NAME, &self.name.0), move |core| {
            Box::pin(async move { DeviceOnCore { found: &found, core }.phys(&known, quiet).await })
        })
    }
}

impl DeviceOnCore<'_> {
    /// Sends a request to the expander.
    async fn smp(&self, function: u8, phy: u8) -> Result<Vec<u8>, Error> {
        let on = self.name();
        let data = Data::In(SMP_RESPONSE_LEN as u32);
        let answer = self.send(Request::new(Command::Smp { function, phy }, data)).await?;
        match answer.ended.outcome.status {
            CamStatus::Complete | CamStatus::SmpError => Ok(answer.data),
            CamStatus::CannotProvide | CamStatus::Invalid => {
                let what = format!("{on} is not behind a SAS expander: no device answers SMP");
                Err(Error::new(Errno::NotSup, what))
            }
            _ => Err(Error::new(Errno::Io, format!("{on}: {}", pass::explain(&answer.ended)))),
        }
    }

    async fn phys(&self, known: &PeriphsByAddress, quiet: bool) -> Result<SmpphylistAnswer, Error> {
        let on = self.name();
        let decode_error = |e| Error::new(Errno::Io, format!("the expander of {on}: {e}"));
        let refused = |code: u8| {
            let what = format!("the expander of {on} refused: function result {code:02x}");
            Error::new(Errno::Io, what)
        };
        let general = ReportGeneral::decode(&self.smp(function::REPORT_GENERAL, 0).await?);
        let general = general.map_err(decode_error)?.map_err(refused)?;
        let plural = if general.phys == 1 { "PHY" } else { "PHYs" };
        let mut text = format!("{} {plural}:\nPHY  Attached SAS Address\n", general.phys);
        let mut phys = Vec::new();
        for number in 0..general.phys {
            let phy = match Phy::decode(&self.smp(function::DISCOVER, number).await?)
                .map_err(decode_error)?
            {
                Ok(phy) => phy,
                Err(result::VACANT) => continue,
                Err(code) => return Err(refused(code)),
            };
            let device = known.get(&phy.attached_sas_address);
            if quiet && device.is_none() {
                continue;
            }
            let _ = write!(text, "{number:3}  0x{:016x}", phy.attached_sas_address);
            if let Some((label, periphs)) = device {
                let _ = write!(text, "   {label} ({})", periphs.join(","));
            }
            text.push('\n');
            phys.push(ListedPhy {
                phy: number,
                attached: format!("{:016x}", phy.attached_sas_address),
                rate: phy.rate,
                periphs: device.map(|(_, periphs)| periphs.clone()),
            });
        }
        let enclosure = format!("{:016x}", general.enclosure);
        Ok(SmpphylistAnswer { text, enclosure, phys })
    }
}
