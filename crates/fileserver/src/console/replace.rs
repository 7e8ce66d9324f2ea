//! A new device in the place of one that the WORM has lost.

use bio::Errno;
use geom::{Consent, Deserialize, Error, JsonSchema, Verb};

use super::{Call, FileServer, Running, about, answers, error};
use crate::files::Served;
use crate::service::Host;

/// How often it is looked how far the copy is, ns.
const LOOK_NS: u64 = 100_000_000;
/// How long the new device may take to answer: its way is made while the verb begins, ns.
const ANSWER_NS: u64 = 5_000_000_000;

answers! {
    /// The device that takes another's place.
    Replaced {
        /// Result in one sentence.
        message: String,
        /// Dumps that are copied to it; absent if it needs none.
        #[serde(skip_serializing_if = "Option::is_none")]
        dumps: Option<usize>,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Replace {
    /// Device of the WORM, by its name in `fs statw`
    device: String,
    /// Name of a device whose contents may be lost
    #[serde(default, rename = "yes_destroy")]
    _consent: Consent,
    /// Destroy the contents of the new disk
    #[serde(default)]
    #[schemars(extend("x-short" = "f"))]
    force: bool,
}

impl Verb<FileServer> for Replace {
    const NAME: &'static str = "replace";
    const DOC: &'static str = "Copy the WORM to a new device that replaces a lost one";
    const DETAIL: &'static str = "The new disk must have the name of the lost one and be blank; \
         clients are served meanwhile. The command shows the progress of the copy. If it is \
         interrupted, the copy continues, and `fs status` shows the progress.";
    const POSITIONAL: &'static [&'static str] = &["name", "device"];
    const EXAMPLE: &'static str = "fs replace main far";
    const WRITES: bool = true;
    type Answer = Replaced;

    fn run(self, Call { host, number }: Call) -> Running<Replaced> {
        Box::pin(async move {
            let device = self.device.as_str();
            let fs = host.files()?;
            let Served::Volume(files) = &fs else {
                let what =
                    "an image has one WORM device; copy it with other tools while it is halted";
                return Err(Error::inval(what));
            };
            let volume = files.volume();
            let all: Vec<String> = fs.members().into_iter().map(|l| l.name).collect();
            let Some(leg) = all.iter().position(|name| name == device) else {
                let all = all.join(", ");
                let what = format!("{device} is not a device of the WORM; its devices are {all}");
                return Err(Error::new(Errno::NoEnt, what));
            };
            if !responds(&host, leg).await {
                let what =
                    format!("{device} does not answer; give a blank disk that name, then again");
                return Err(Error::new(Errno::NxIo, what));
            }
            let result = volume.replace(host.options(), leg, self.force).await;
            result.map_err(about("replace"))?;
            host.update_status();
            let mut total = 0;
            loop {
                host.files()?;
                let Some(l) = fs.members().into_iter().nth(leg) else { break };
                if let Some(why) = l.fault {
                    let what = format!(
                        "{device} is a device of the WORM now, but {why}; copying continues by \
                         itself when it answers, and `ashlar fs statw {}` shows how far",
                        host.shared.name
                    );
                    return Err(Error::new(Errno::Io, what));
                }
                if volume.is_joined(leg) && l.behind == 0 {
                    break;
                }
                if volume.is_joined(leg) && !fs.is_copying() {
                    let name = &host.shared.name;
                    let what = format!("copying is off: `ashlar fs copying {name} on`");
                    let message = format!("{device} is a device of the WORM; {what}");
                    return Ok(Replaced { message, dumps: None });
                }
                if let Some(why) = fs.facts().refused {
                    return Err(Error::new(Errno::Busy, why));
                }
                total = l.behind.max(total);
                let mut what = vec![format!("copy dumps to {device}")];
                what.extend(host.copy_progress(device).map(|copy| copy.pace()).unwrap_or_default());
                host.report_progress(number, what.join(", "), total - l.behind, total);
                host.server.reactor.sleep(LOOK_NS).await;
            }
            fs.sync().await.map_err(|f| error(&f))?;
            host.update_status();
            let dumps = fs.dumps().len();
            let message = format!("{device} is a device of the WORM and has every dump ({dumps})");
            Ok(Replaced { message, dumps: Some(dumps) })
        })
    }
}

/// It answers reads.
async fn responds(host: &Host, leg: usize) -> bool {
    let Some(medium) = host.options().members.get(leg).cloned() else { return false };
    let options = host.options();
    let reads = async {
        while options.is_blank(&*medium).await.is_err() {
            host.server.reactor.sleep(LOOK_NS).await;
        }
    };
    host.within(ANSWER_NS, reads).await.is_some()
}
