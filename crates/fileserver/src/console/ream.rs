//! The verb `ream`: a new file system on the devices.

use bio::Errno;
use geom::{Consent, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::start::{check_idle, outcome};
use super::{Call, FileServer, Running, about};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Ream {
    /// Name of a device whose contents may be lost
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    /// Destroy an existing file system with all its dumps
    #[schemars(extend("x-short" = "f"))]
    force: bool,
}

impl Verb<FileServer> for Ream {
    const NAME: &'static str = "ream";
    const DOC: &'static str = "Create a new file system on its devices; contents are lost";
    const DETAIL: &'static str = "Devices with contents are refused: each device with recognised \
         contents must be named with --yes-destroy, and --force allows devices that a file server \
         wrote.";
    const EXAMPLE: &'static str = "fs ream main";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            check_idle(&host)?;
            if !self.force && !host.is_blank().await {
                let what = "devices are not blank; --force destroys their contents, including \
                            every dump";
                return Err(Error::new(Errno::Busy, what));
            }
            host.ream().await.map_err(about("ream"))?;
            host.open(false).await;
            outcome(&host, "new file system created; serving files")
        })
    }
}
