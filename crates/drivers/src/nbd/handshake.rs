//! Handshake of one connection: the client's name, the exports, and TLS.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use engine::registry::Denied;
use engine::{CloseReason as EngineReason, Login, Transport};
use reactor::Address;
use transport::{CommonReason, LogSubject, ReceiveBuffer, Tls as Encryption};
use wire::nbd::{
    Agreed, Export, Exports, Form, Handshake, Listed, Settings, Step, Tls, Unavailable,
};

use super::close_reason::CloseReason;
use super::exports::ExportLookup;
use super::params::{Checked, TlsPolicy};
use super::protocol::Connection;
use super::session::NbdSession;
use super::{NAME, exports};

/// The exports as one client sees them.
struct ClientExports<'a> {
    conn: &'a Rc<Connection>,
    targets: Vec<Arc<Checked>>,
    initiator: String,
    entered: Option<Rc<NbdSession>>,
    /// Names whose refusal was noted, as hashes: the names may be 256 KiB of a client's input.
    refused: BTreeSet<u64>,
}

/// The name by which access groups know a client without a certificate.
fn name_of(peer: &Address) -> String {
    match peer {
        Address::Inet(at) => format!("ip:{}", at.ip().to_canonical()),
        Address::Unix(_) | Address::Ether(_) => peer.to_string(),
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn by_tls(name: String) -> String {
    format!("tls {name}")
}

/// Runs the handshake; returns the session of the transmission phase.
pub(crate) async fn run(
    conn: &Rc<Connection>,
    rx: &mut ReceiveBuffer,
) -> Result<Rc<NbdSession>, CloseReason> {
    let targets = conn.core.shared.own.targets.at(&conn.at);
    let Some(first) = targets.first().cloned() else {
        return Err(CloseReason::Refused("no target listens here any more".into()));
    };
    conn.handshake_s.set(first.params.handshake_timeout);
    let tls = match first.params.tls {
        TlsPolicy::Off => Tls::Off,
        TlsPolicy::Allow => Tls::Allow,
        TlsPolicy::Require => Tls::Require,
    };
    let mut out = Vec::new();
    let mut handshake = Handshake::new(Settings { tls }, &mut out);
    let initiator = name_of(&conn.peer);
    let mut seen =
        ClientExports { conn, targets, initiator, entered: None, refused: BTreeSet::new() };
    loop {
        if conn.core.shared.own.registry.login_gate().is_closed() {
            // D2: a refusal in `out` is not meant.
            return Err(CloseReason::Closed(EngineReason::Stopping));
        }
        conn.io.tx.borrow_mut().put(&out);
        out.clear();
        conn.io.wake();
        conn.io.wait_for_space().await;
        rx.fill(1).await?;
        let arrived = rx.arrived();
        let result = rx.peek(arrived, |b| handshake.input(b, &mut seen, &mut out));
        let (used, step) = match result {
            Ok(done) => done,
            Err(hangup) => {
                let Some(name) = &hangup.name else {
                    return Err(CloseReason::Refused(hangup.why));
                };
                seen.note_refusal(name, hangup.why.clone());
                return Err(CloseReason::NoExport(hangup.why));
            }
        };
        rx.consume(used);
        match step {
            Step::More | Step::Answered => {}
            Step::StartTls => {
                conn.io.tx.borrow_mut().put(&out);
                out.clear();
                seen.start_tls(&first, rx).await?;
                handshake.secured();
            }
            Step::Abort => {
                conn.io.tx.borrow_mut().put(&out);
                return Err(CloseReason::Aborted);
            }
            Step::Transmit(agreed) => {
                conn.io.tx.borrow_mut().put(&out);
                conn.io.wake();
                let session =
                    seen.entered.take().ok_or(CloseReason::Protocol("no export entered"))?;
                session.begin(&agreed);
                log(conn, &session, &agreed);
                conn.enter(&session);
                return Ok(session);
            }
        }
    }
}

fn log(conn: &Connection, session: &NbdSession, agreed: &Agreed) {
    let form = match agreed.form {
        Form::Simple => "simple replies",
        Form::Structured => "structured replies",
        Form::Extended => "extended headers",
    };
    let about = LogSubject { peer: &conn.peer, name: &session.frontend.initiator };
    let what = format_args!("export {:?} is {}, {form}", agreed.name, agreed.export.name);
    conn.core.log.info_about(about, what);
}

impl ClientExports<'_> {
    async fn start_tls(
        &mut self,
        target: &Checked,
        rx: &mut ReceiveBuffer,
    ) -> Result<(), CloseReason> {
        let keys = target.keys.as_ref().ok_or(CloseReason::Protocol("TLS without keys"))?;
        // The consent is sent in the clear; nothing else may be.
        self.conn.io.flushed().await;
        if rx.arrived() > 0 {
            return Err(CloseReason::Refused("unencrypted bytes after STARTTLS".into()));
        }
        let tls = Rc::new(Encryption::begin(keys)?);
        if let Err(reason) = self.conn.io.secure(tls.clone(), rx).await {
            if let CommonReason::Tls(why) = &reason {
                self.note_denied("", format!("TLS: {why}"));
            }
            return Err(reason.into());
        }
        if let Some(name) = tls.client() {
            self.initiator = format!("tls:{name}");
            // Refusals of this name are another client's.
            self.refused.clear();
        }
        Ok(())
    }

    /// Notes a refusal once for each name: clients repeat it, by another option.
    fn note_refusal(&mut self, name: &str, text: String) {
        if self.refused.insert(hash(name)) {
            self.note_denied(name, text);
        }
    }

    fn warn_denied(&self, name: &str, text: &str) {
        let target = self.targets.first().map_or("", |t| t.spec.name.as_str());
        let who = &self.initiator;
        self.conn.warn(format_args!("{who} may not use {name:?} of {target}: {text}"));
    }

    fn note_denied(&self, name: &str, text: String) {
        self.warn_denied(name, &text);
        let conn = self.conn;
        let target = self.targets.first().map_or("", |t| t.spec.name.as_str());
        conn.core.shared.own.registry.note_denied(Denied {
            at_ns: conn.core.reactor.now(),
            driver: NAME.into(),
            target: if name.is_empty() { target.into() } else { format!("{target}/{name}") },
            initiator: self.initiator.clone(),
            from: Some(conn.peer.clone()),
            text,
        });
    }

    /// Reports that no export has that name. The client gets a short answer; the full reason is
    /// recorded for the operator.
    fn unknown(&mut self, name: &str, enter: bool) -> Unavailable {
        let engine = &self.conn.core.own;
        let mut nobody = self.targets.iter().filter_map(|t| {
            let port = engine.find_target(NAME, &t.spec.name)?;
            let decision = port.decide(&self.initiator, &self.conn.local);
            (!decision.grants()).then_some(decision.reason)
        });
        let text = nobody.next().unwrap_or_else(|| {
            format!("no export is called {name:?} among those of {}", self.initiator)
        });
        if enter {
            self.note_refusal(name, text);
        }
        Unavailable::Unknown(format!("no export of that name for {}", self.initiator))
    }

    fn enter(&mut self, found: &exports::FoundExport, name: &str) -> Result<(), Unavailable> {
        let conn = self.conn;
        let Some(place) = found.target.claim_connection() else {
            let text = "too many connections at this target";
            self.note_refusal(name, text.into());
            return Err(Unavailable::Denied(text.into()));
        };
        let session = NbdSession::enter(conn, &found.entry, self.initiator.clone(), Some(place));
        let tls = conn.io.tls().map_or("none".into(), |t| t.label());
        let login = Login {
            target: found.port.clone(),
            initiator: self.initiator.clone(),
            port_id: conn.number.to_be_bytes().to_vec(),
            transport_id: Vec::new(),
            portal: conn.local.clone(),
            from: conn.peer.clone(),
            reinstates: false,
            labels: vec![
                ("tls", tls),
                ("auth", conn.io.tls().and_then(|t| t.client()).map_or("none".into(), by_tls)),
                ("export", found.entry.device.name()),
                ("lun", found.entry.lun.to_string()),
            ],
        };
        let transport: Rc<dyn Transport> = session.clone();
        let nexus = match conn.core.own.login(login, transport) {
            Ok(nexus) => nexus,
            Err(refused) => {
                // The engine has counted it.
                if self.refused.insert(hash(name)) {
                    self.warn_denied(name, &refused.text);
                }
                return Err(Unavailable::Ending(refused.text));
            }
        };
        session.attach(nexus);
        self.entered = Some(session);
        Ok(())
    }
}

impl Exports for ClientExports<'_> {
    fn find(&mut self, name: &str, enter: bool) -> Result<Export, Unavailable> {
        let engine = &self.conn.core.own;
        let (who, at) = (&self.initiator, &self.conn.local);
        let found = match exports::find(engine, &self.targets, who, at, name) {
            ExportLookup::Found(found) => found,
            ExportLookup::Awaited(lun) => {
                let text = format!("the disk of LUN {lun} is not there yet; try again");
                return Err(Unavailable::Ending(text));
            }
            ExportLookup::Unknown => return Err(self.unknown(name, enter)),
        };
        if enter {
            self.enter(&found, name)?;
        }
        Ok(exports::describe(&found))
    }

    fn list(&mut self) -> Option<Vec<Listed>> {
        let open: Vec<_> = self.targets.iter().filter(|t| t.params.list).cloned().collect();
        if open.is_empty() {
            return None;
        }
        let (engine, local) = (&self.conn.core.own, &self.conn.local);
        Some(exports::list(&exports::all(engine, &open, &self.initiator, local)))
    }
}
