//! `reset`: of a disk, and of a port of a multiplier.

use bio::{Errno, Segs};
use geom::Error;
use serde_json::{Value, json};
use wire::ata::{pm_value, pscr};

use super::orders::Talk;
use crate::ccb::{Ccb, Command, Flags, Owner, Priority};
use crate::periph::Facts;
use crate::periph::pass::{Data, Request};
use crate::probe::{LINK_POLL_NS, LINK_TRIES, RESET_NS, register};

/// How long a reset may take, ms.
const RESET_TIMEOUT_MS: u32 = 10_000;

impl Talk<'_> {
    pub(super) async fn reset(&self, params: &Value) -> Result<Value, Error> {
        if let Some(port) = params["port"].as_u64() {
            return self.reset_port(port).await;
        }
        let ccb = Ccb {
            command: Command::Reset,
            flags: Flags::RAW,
            priority: Priority::Dev,
            timeout_ms: RESET_TIMEOUT_MS,
            retries: 0,
            length: 0,
            owner: Owner::Task(0),
        };
        let (name, unit) = (self.name(), &self.found.unit);
        let ended = unit.execute(self.core, ccb, &Segs::new()).await;
        match ended.result {
            Ok(_) => Ok(json!({ "message": format!("{name} was reset") })),
            Err(e) => Err(Error::new(e, format!("{name}: {}", ended.outcome.status.text()))),
        }
    }

    async fn reset_port(&self, port: u64) -> Result<Value, Error> {
        let name = self.name();
        let refuse = |kind, what: String| Err(Error::new(kind, format!("{name}: {what}")));
        let Facts::Multiplier(facts) = &self.found.facts else {
            let what = "it is no port multiplier; without -p it is reset itself";
            return refuse(Errno::NotSup, what.into());
        };
        let Some(number) = u8::try_from(port).ok().filter(|n| usize::from(*n) < facts.ports.len())
        else {
            let what = format!("port={port}: it has {} ports, from 0 on", facts.ports.len());
            return refuse(Errno::Inval, what);
        };
        let reactor = self.core.reactor();
        self.port(number, pscr::CONTROL, Some(pscr::RESET)).await?;
        reactor.sleep(RESET_NS).await;
        self.port(number, pscr::CONTROL, Some(0)).await?;
        let mut status = self.port(number, pscr::STATUS, None).await?;
        for _ in 0..LINK_TRIES {
            if status & pscr::DET != pscr::SEEN {
                break;
            }
            reactor.sleep(LINK_POLL_NS).await;
            status = self.port(number, pscr::STATUS, None).await?;
        }
        // What the reset itself did there: nobody was exchanged.
        let error = self.port(number, pscr::ERROR, None).await?;
        self.port(number, pscr::ERROR, Some(error)).await?;
        match status & pscr::DET {
            pscr::UP => Ok(json!({ "message": format!("port {port} of {name} was reset") })),
            pscr::SEEN => refuse(
                Errno::Io,
                format!(
                    "the link of port {port} does not come up again; `ashlar cam reset {name} \
                         -p {port}` tries once more"
                ),
            ),
            _ => Ok(json!({ "message": format!("port {port} of {name} was reset; it is empty") })),
        }
    }

    /// Reads or writes a register of a port.
    async fn port(&self, port: u8, which: u16, value: Option<u32>) -> Result<u32, Error> {
        let command = register(port, which, value).command;
        let answer = self.send(Request::helped(command, Data::None)).await?;
        let said = pm_value(answer.ended.outcome.answer);
        answer.good(&format!("{}: port {port}", self.name())).map(|_| said)
    }
}
