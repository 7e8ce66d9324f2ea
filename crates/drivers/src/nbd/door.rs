//! The handshake on one connection: who comes, which exports there are, and TLS.

use std::rc::Rc;
use std::sync::Arc;

use engine::registry::Denied;
use engine::{CloseReason, Login, Transport};
use reactor::Address;
use wire::nbd::{
    Agreed, Export, Exports, Form, Handshake, Listed, Settings, Step, Tls, Unavailable,
};

use super::connection::Connection;
use super::ending::Ending;
use super::exports::Search;
use super::inlet::Inbox;
use super::params::{Checked, TlsPolicy};
use super::session::Session;
use super::tls::Secure;
use super::{NAME, exports};
use crate::common::journal::About;

/// What happens at the door of one connection.
struct Door<'a> {
    conn: &'a Rc<Connection>,
    targets: Vec<Arc<Checked>>,
    initiator: String,
    entered: Option<Rc<Session>>,
}

/// The name by which access groups know a client without a certificate.
fn name_of(peer: &Address) -> String {
    match peer {
        Address::Inet(at) => format!("ip:{}", at.ip().to_canonical()),
        Address::Unix(_) | Address::Ether(_) => peer.to_string(),
    }
}

fn by_tls(name: String) -> String {
    format!("tls {name}")
}

/// Goes through the handshake; answers the session that transmission belongs to.
pub(crate) async fn run(conn: &Rc<Connection>, inbox: &mut Inbox) -> Result<Rc<Session>, Ending> {
    let targets = conn.here.shared.targets.at(&conn.at);
    let Some(first) = targets.first().cloned() else {
        return Err(Ending::Refused("no target listens here any more".into()));
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
    let mut door = Door { conn, targets, initiator, entered: None };
    loop {
        if conn.here.shared.registry.doors().are_closed() {
            // D2: a refusal in `out` is not meant.
            return Err(Ending::Closed(CloseReason::Stopping));
        }
        conn.line.out.borrow_mut().bytes_of(&out);
        out.clear();
        conn.line.kick();
        conn.line.room().await;
        inbox.fill(1).await?;
        let here = inbox.arrived();
        let result = inbox.with(here, |b| handshake.input(b, &mut door, &mut out));
        let (used, step) = match result {
            Ok(done) => done,
            Err(hangup) => {
                if let Some(name) = &hangup.name {
                    door.note_denied(name, hangup.why.clone());
                }
                return Err(Ending::Refused(hangup.why));
            }
        };
        inbox.take(used);
        match step {
            Step::More | Step::Answered => {}
            Step::StartTls => {
                conn.line.out.borrow_mut().bytes_of(&out);
                out.clear();
                door.start_tls(&first, inbox).await?;
                handshake.secured();
            }
            Step::Abort => {
                conn.line.out.borrow_mut().bytes_of(&out);
                return Err(Ending::Aborted);
            }
            Step::Transmit(agreed) => {
                conn.line.out.borrow_mut().bytes_of(&out);
                conn.line.kick();
                let session = door.entered.take().ok_or(Ending::Protocol("no export entered"))?;
                session.begin(&agreed);
                log(conn, &session, &agreed);
                *conn.session.borrow_mut() = Some(session.clone());
                return Ok(session);
            }
        }
    }
}

fn log(conn: &Connection, session: &Session, agreed: &Agreed) {
    let form = match agreed.form {
        Form::Simple => "simple replies",
        Form::Structured => "structured replies",
        Form::Extended => "extended headers",
    };
    let about = About { peer: &conn.peer, name: &session.front.initiator };
    let what = format_args!("export {:?} is {}, {form}", agreed.name, agreed.export.name);
    conn.here.hall.journal.tell(about, what);
}

impl Door<'_> {
    async fn start_tls(&mut self, target: &Checked, inbox: &mut Inbox) -> Result<(), Ending> {
        let keys = target.keys.as_ref().ok_or(Ending::Protocol("TLS without keys"))?;
        // The consent goes in the clear; nothing else may.
        self.conn.line.flushed().await;
        if inbox.arrived() > 0 {
            return Err(Ending::Refused("bytes in the clear behind STARTTLS".into()));
        }
        let secure = Rc::new(Secure::begin(keys)?);
        inbox.secure(secure.clone())?;
        self.conn.secure(secure.clone());
        if let Err(ending) = inbox.shake().await {
            if let Ending::Tls(why) = &ending {
                self.note_denied("", format!("TLS: {why}"));
            }
            return Err(ending);
        }
        if let Some(name) = secure.client() {
            self.initiator = format!("tls:{name}");
        }
        Ok(())
    }

    fn note_denied(&self, name: &str, text: String) {
        let conn = self.conn;
        let target = self.targets.first().map_or("", |t| t.spec.name.as_str());
        conn.here.shared.registry.note_denied(Denied {
            at_ns: conn.here.core.now(),
            driver: NAME.into(),
            target: if name.is_empty() { target.into() } else { format!("{target}/{name}") },
            initiator: self.initiator.clone(),
            from: Some(conn.peer.clone()),
            text,
        });
    }

    /// Why there is no export of that name: for the client, and in full for whoever may know.
    fn unknown(&self, name: &str, enter: bool) -> Unavailable {
        let engine = &self.conn.here.engine;
        let mut nobody = self.targets.iter().filter_map(|t| {
            let port = engine.find_target(NAME, &t.spec.name)?;
            let decision = port.decide(&self.initiator, &self.conn.local);
            (!decision.grants()).then_some(decision.why)
        });
        let text = nobody.next().unwrap_or_else(|| {
            format!("no export is called {name:?} among those of {}", self.initiator)
        });
        if enter {
            self.note_denied(name, text);
        }
        Unavailable::Unknown(format!("no export of that name for {}", self.initiator))
    }

    fn enter(&mut self, found: &exports::Found, name: &str) -> Result<(), Unavailable> {
        let conn = self.conn;
        let Some(place) = found.target.place() else {
            let text = "too many connections at this target";
            self.note_denied(name, text.into());
            return Err(Unavailable::Denied(text.into()));
        };
        let session = Session::enter(conn, &found.entry, self.initiator.clone(), Some(place));
        let tls = conn.tls().map_or("none".into(), |t| t.label());
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
                ("auth", conn.tls().and_then(|t| t.client()).map_or("none".into(), by_tls)),
                ("export", found.entry.device.name()),
                ("lun", found.entry.lun.to_string()),
            ],
        };
        let transport: Rc<dyn Transport> = session.clone();
        let entered = conn.here.engine.login(login, transport);
        let nexus = entered.map_err(|refused| Unavailable::Ending(refused.text))?;
        session.attach(nexus);
        self.entered = Some(session);
        Ok(())
    }
}

impl Exports for Door<'_> {
    fn find(&mut self, name: &str, enter: bool) -> Result<Export, Unavailable> {
        let engine = &self.conn.here.engine;
        let (who, at) = (&self.initiator, &self.conn.local);
        let found = match exports::find(engine, &self.targets, who, at, name) {
            Search::Found(found) => found,
            Search::Awaited(lun) => {
                let text = format!("the disk of LUN {lun} is not there yet; try again");
                return Err(Unavailable::Ending(text));
            }
            Search::Unknown => return Err(self.unknown(name, enter)),
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
        let (engine, local) = (&self.conn.here.engine, &self.conn.local);
        Some(exports::list(&exports::all(engine, &open, &self.initiator, local)))
    }
}
