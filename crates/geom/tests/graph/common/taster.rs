//! A class that knows its disks by their first byte.

use std::sync::Arc;

use bio::Errno;
use geom::{Claim, Class, Create, Error, Local, ProviderId, TasteOutcome, Taster, Topology};

use super::Log;

/// The byte that each tasting class looks for: `MAGIC` + its number.
pub const MAGIC: u8 = 0xa0;

/// How a tasting class behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tasting {
    /// Claims providers that have its magic with a shim of its own.
    Claims,
    /// Wants it, is refused.
    Refused,
    /// The same, and it hides the provider that it refuses.
    Hides,
    /// Withers the provider when it claims it.
    Destroys,
    /// Opens the disk for writing and closes it again when it claims it.
    Writes,
    /// As `Claims`, on providers made by tasting too.
    Nests,
    /// As `Claims`, by a geom that is called as the disk.
    Names,
}

pub struct Taste {
    pub name: &'static str,
    pub number: u8,
    pub mode: Tasting,
    pub written: bool,
    pub log: Log,
}

impl Taste {
    pub fn class(name: &'static str, number: u8, log: &Log) -> Arc<Taste> {
        let how = Tasting::Claims;
        Arc::new(Taste { name, number, mode: how, written: false, log: log.clone() })
    }

    pub fn with_mode(name: &'static str, number: u8, how: Tasting, log: &Log) -> Arc<Taste> {
        Arc::new(Taste { name, number, mode: how, written: false, log: log.clone() })
    }
}

impl Class for Taste {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        "Knows its disks by their first byte."
    }

    fn is_named_after_provider(&self) -> bool {
        self.mode == Tasting::Names
    }

    fn hides_refused(&self) -> bool {
        self.mode == Tasting::Hides
    }

    fn tastes(&self) -> bool {
        true
    }

    fn tastes_written(&self) -> bool {
        self.written
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome> {
        self.log.lock().unwrap().push(format!("{} tastes {}", self.name, disk.name));
        Box::pin(async move {
            if disk.name.contains('.') && self.mode != Tasting::Nests {
                return TasteOutcome::No("made by tasting".into());
            }
            match disk.read(0, disk.sector_bytes as usize).await {
                Err(e) => TasteOutcome::No(format!("cannot be read: {}", e.name())),
                Ok(b) if b.first() == Some(&(MAGIC + self.number)) => TasteOutcome::Yes(
                    "the first byte says so".into(),
                    Box::new(b[0]) as geom::Claim,
                ),
                Ok(b) => TasteOutcome::No(format!("first byte is {:#x}", b.first().unwrap_or(&0))),
            }
        })
    }

    fn claim(&self, t: &mut Topology, on: ProviderId, _: &str, claim: Claim) -> Result<(), Error> {
        assert_eq!(claim.downcast_ref(), Some(&(MAGIC + self.number)));
        let name = format!("{}.{}", t.provider_name(on), self.name);
        self.log.lock().unwrap().push(format!("{} claims {}", self.name, t.provider_name(on)));
        match self.mode {
            Tasting::Refused | Tasting::Hides => return Err(Error::of(Errno::NoSpc, "claim")),
            Tasting::Destroys => {
                t.wither_provider(on, Errno::NxIo);
                return Ok(());
            }
            Tasting::Writes => {
                let geom =
                    t.new_geom(self.name, &name, "writes", super::pass_through::plain(""))?;
                let c = t.attach_new(geom, on).map_err(|e| Error::of(e, "attach"))?;
                let write = geom::Access::WRITE;
                t.access(c, write).map_err(|e| Error::of(e, "open"))?;
                t.access(c, write.inverse()).map_err(|e| Error::of(e, "close"))?;
                t.wither_geom(geom, Errno::NxIo);
                return Ok(());
            }
            Tasting::Claims | Tasting::Nests | Tasting::Names => {}
        }
        let disk = t.provider_name(on).to_owned();
        let called = if self.mode == Tasting::Names { &disk } else { &name };
        let geom = t.new_geom(self.name, called, "tasted", super::pass_through::plain("spoils"))?;
        super::pass_through::fill(t, geom, &name, on, false, false).map(|_| ())
    }

    fn create(&self, t: &mut Topology, request: &Create<'_>) -> Result<geom::GeomId, Error> {
        let geom = t.new_geom(self.name, request.name, "made", super::pass_through::plain(""))?;
        super::pass_through::fill(t, geom, request.name, request.members[0], false, false)
    }
}
