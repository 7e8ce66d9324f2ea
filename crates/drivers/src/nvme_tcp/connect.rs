//! Connection setup: negotiation, and the Connect command that turns a connection into a queue.

use std::rc::Rc;
use std::sync::Arc;

use engine::registry::Denied;
use engine::{CloseReason as EngineReason, Login, Transport};
use transport::{LogSubject, ReceiveBuffer};
use wire::nvme::codes::{DISCOVERY_NQN, admin, fabrics, fatal, pdu as kind};
use wire::nvme::{
    CONNECT_LEN, Command, Completion, Connect, ConnectData, DYNAMIC_CONTROLLER, Fault, Framer,
    Initialize, Sgl, Status,
};

use super::NAME;
use super::close_reason::CloseReason;
use super::controller::{Controller, Host, QueueLocation};
use super::controllers::NUMBER_MAX;
use super::data::{CAPSULE_MAX, HOST_DATA_MAX};
use super::params::Checked;
use super::protocol::Connection;
use super::queue::{Queue, Shape};
use super::tasks::DEPTH;
use crate::connection_claim::ConnectionClaim;

/// How often a host that is let in later looks whether its last commands have ended, ns.
const PAUSE_NS: u64 = 5_000_000;

/// A refused Connect: the status, the offset of the wrong field, and its place (data: true).
struct ConnectRefusal(Status, u16, bool);

impl ConnectRefusal {
    fn result(&self) -> u64 {
        u64::from(self.1) | u64::from(self.2) << 16
    }
}

/// Continues until the connection is a queue.
pub(crate) async fn run(
    conn: &Connection,
    rx: &mut ReceiveBuffer,
) -> Result<Rc<Queue>, CloseReason> {
    let targets = conn.core.shared.own.targets.at(&conn.at);
    let Some(first) = targets.first() else {
        return Err(CloseReason::Refused("no target listens here any more"));
    };
    conn.handshake_s.set(first.params.handshake_timeout);
    initialize(conn, rx, first).await?;
    loop {
        conn.io.wait_for_space().await;
        let head = conn.head(rx).await?;
        if head.frame.common.kind != kind::COMMAND {
            let what = "not a command: there is no queue yet";
            return Err(conn.fault(&head, Fault::of(fatal::SEQUENCE, what)));
        }
        if head.frame.data_len > CAPSULE_MAX {
            let what = "more data in a capsule than allowed";
            return Err(conn.fault(&head, Fault::of(fatal::LIMIT, what)));
        }
        let data = conn.text(rx, &head.frame).await?;
        if conn.core.shared.own.registry.login_gate().is_closed() {
            // D2: a stopping driver closes the connection and sends no refusal.
            return Err(CloseReason::Closed(EngineReason::Stopping));
        }
        let [_, _, _, _, _, _, _, _, command @ ..] = head.first::<72>();
        let command = Command::decode(&command);
        let end = |result, status| Completion { result, head: 1, id: command.id, status };
        match enter(conn, &command, data.as_deref()).await {
            Ok(queue) => {
                conn.complete(&end(queue.controller.number.into(), Status::SUCCESS));
                conn.enter(&queue);
                return Ok(queue);
            }
            Err(no) => conn.complete(&end(no.result(), no.0)),
        }
        conn.io.wake();
    }
}

async fn initialize(
    conn: &Connection,
    rx: &mut ReceiveBuffer,
    target: &Checked,
) -> Result<(), CloseReason> {
    let head = conn.head(rx).await?;
    if head.frame.common.kind != kind::INITIALIZE_REQUEST {
        return Err(
            conn.fault(&head, Fault::of(fatal::SEQUENCE, "not a PDU that begins a connection"))
        );
    }
    let wish = Initialize::decode(&head.first()).map_err(|fault| conn.fault(&head, fault))?;
    let [header, data] = target.digests();
    let header_digest = Checked::digest(header, wish.header_digest);
    let data_digest = Checked::digest(data, wish.data_digest);
    let (Some(header_digest), Some(data_digest)) = (header_digest, data_digest) else {
        let what = "digests are required here and the host wants none";
        return Err(
            conn.fault(&head, Fault { reason: fatal::UNSUPPORTED, at: 11, description: what })
        );
    };
    let answer = Initialize {
        response: true,
        alignment: 0,
        header_digest,
        data_digest,
        most: HOST_DATA_MAX,
    };
    conn.io.tx.borrow_mut().put(&answer.encode());
    conn.own.framer.set(Framer { from_controller: false, header_digest, data_digest });
    conn.own.alignment.set(wish.alignment);
    conn.io.wake();
    Ok(())
}

/// Reads the part of Connect that all queues have in common.
fn read(command: &Command, data: Option<&[u8]>) -> Result<(Connect, ConnectData), ConnectRefusal> {
    if command.opcode != admin::FABRICS || command.fabrics_type() != fabrics::CONNECT {
        return Err(ConnectRefusal(Status::SEQUENCE, 0, false));
    }
    let data = data.ok_or(ConnectRefusal(Status::TRANSPORT, 0, false))?;
    if command.sgl.kind != Sgl::IN_CAPSULE {
        return Err(ConnectRefusal(Status::SGL_TYPE, 0, false));
    }
    let connect = Connect::decode(command);
    if connect.format != 0 {
        return Err(ConnectRefusal(Status::CONNECT_FORMAT, 0, false));
    }
    let bytes =
        data.first_chunk::<CONNECT_LEN>().ok_or(ConnectRefusal(Status::SGL_LENGTH, 0, false))?;
    let whole = usize::try_from(command.sgl.len) == Ok(data.len()) && data.len() == CONNECT_LEN;
    if !whole {
        return Err(ConnectRefusal(Status::SGL_LENGTH, 0, false));
    }
    let names = ConnectData::decode(bytes)
        .map_err(|at| ConnectRefusal(Status::CONNECT_PARAMETER, at, true))?;
    if connect.size == 0 || connect.size >= DEPTH {
        return Err(ConnectRefusal(Status::CONNECT_PARAMETER, Connect::SIZE_AT, false));
    }
    Ok((connect, names))
}

async fn enter(
    conn: &Connection,
    command: &Command,
    data: Option<&[u8]>,
) -> Result<Rc<Queue>, ConnectRefusal> {
    let (connect, names) = read(command, data)?;
    let shared = &conn.core.shared;
    let controller_id = names.controller;
    let host = Host { name: names.host, id: names.host_id, subsystem: names.subsystem };
    let target = match host.subsystem == DISCOVERY_NQN {
        true => None,
        false => Some(visible(conn, &host)?),
    };
    let place = match &target {
        Some(target) => {
            Some(target.claim_connection().ok_or(ConnectRefusal(Status::CONNECT_BUSY, 0, false))?)
        }
        None => None,
    };
    let controller = if connect.queue == 0 {
        if controller_id != DYNAMIC_CONTROLLER {
            return Err(ConnectRefusal(
                Status::CONNECT_PARAMETER,
                ConnectData::CONTROLLER_AT,
                true,
            ));
        }
        // S2
        while shared.own.is_leaving(&host) {
            conn.core.reactor.sleep(PAUSE_NS).await;
        }
        let make = |number| Controller::new(number, host.clone(), target.clone(), shared);
        let numbers = target.as_ref().map_or(1..=NUMBER_MAX, |t| t.params.controllers());
        shared.own.add_controller(numbers, make).ok_or(ConnectRefusal(
            Status::CONNECT_BUSY,
            0,
            false,
        ))?
    } else {
        associated(conn, &connect, controller_id, &host)?
    };
    attach_queue(conn, &connect, controller, place)
}

/// The subsystem that a host names. One that is hidden from the host is answered like one that does
/// not exist, so that names cannot be guessed.
fn visible(conn: &Connection, host: &Host) -> Result<Arc<Checked>, ConnectRefusal> {
    let found = conn.core.shared.own.targets.get_at(&conn.at, &host.subsystem);
    let port = conn.core.own.find_target(NAME, &host.subsystem);
    let why = match (&found, port) {
        (Some(_), Some(port)) => Some(port.decide(&host.name, &conn.local)),
        _ => None,
    };
    match (found, why) {
        (Some(target), Some(decision)) if decision.grants() => Ok(target),
        (_, decision) => {
            let missing = || format!("no subsystem {} at {}", host.subsystem, conn.at);
            note_denied(conn, host, decision.map_or_else(missing, |d| d.reason));
            Err(ConnectRefusal(Status::CONNECT_PARAMETER, ConnectData::SUBSYSTEM_AT, true))
        }
    }
}

/// The controller whose I/O queue it is to be.
fn associated(
    conn: &Connection,
    connect: &Connect,
    controller_id: u16,
    host: &Host,
) -> Result<Arc<Controller>, ConnectRefusal> {
    let wrong = ConnectRefusal(Status::CONNECT_PARAMETER, ConnectData::CONTROLLER_AT, true);
    let controller = conn.core.shared.own.controller(controller_id).ok_or(wrong)?;
    if controller.host.id != host.id {
        return Err(ConnectRefusal(Status::CONNECT_PARAMETER, ConnectData::HOST_ID_AT, true));
    }
    if controller.host != *host {
        return Err(ConnectRefusal(Status::CONNECT_PARAMETER, ConnectData::HOST_AT, true));
    }
    let Some(target) = &controller.target else {
        return Err(ConnectRefusal(Status::CONNECT_PARAMETER, Connect::QUEUE_AT, false));
    };
    if connect.queue > target.params.queues_max {
        return Err(ConnectRefusal(Status::CONNECT_PARAMETER, Connect::QUEUE_AT, false));
    }
    if !controller.configuration().is_enabled() {
        return Err(ConnectRefusal(Status::SEQUENCE, 0, false));
    }
    Ok(controller)
}

/// Takes the queue's place in its association and at the engine.
fn attach_queue(
    conn: &Connection,
    connect: &Connect,
    controller: Arc<Controller>,
    place: Option<ConnectionClaim>,
) -> Result<Rc<Queue>, ConnectRefusal> {
    let seat = QueueLocation { core: conn.core.id, connection: conn.number };
    let claim = controller.claim(connect.queue, seat);
    let claim = claim.ok_or(ConnectRefusal(Status::CONNECT_PARAMETER, Connect::QUEUE_AT, false))?;
    let target = controller.target.clone();
    let queue = Queue::new(conn, &controller, Shape::of(connect), claim, place);
    let Some(target) = target else {
        queue.began();
        return Ok(queue);
    };
    let framer = conn.own.framer.get();
    let digest = |on| if on { "CRC32C" } else { "none" }.to_owned();
    let engine = &conn.core.own;
    let Some(port) = engine.find_target(NAME, &target.spec.name) else {
        return Err(ConnectRefusal(Status::CONNECT_PARAMETER, ConnectData::SUBSYSTEM_AT, true));
    };
    let login = Login {
        target: port,
        initiator: controller.host.name.clone(),
        port_id: conn.number.to_be_bytes().to_vec(),
        transport_id: Vec::new(),
        portal: conn.local.clone(),
        from: conn.peer.clone(),
        // A Connect makes a controller of its own: no host ends the association of another.
        reinstates: false,
        labels: vec![
            ("controller", controller.number.to_string()),
            ("queue", connect.queue.to_string()),
            ("host-id", host_id_text(&controller.host.id)),
            ("header-digest", digest(framer.header_digest)),
            ("data-digest", digest(framer.data_digest)),
            ("auth", "none".into()),
        ],
    };
    let transport: Rc<dyn Transport> = queue.clone();
    // Refusals are noted by the engine.
    let hidden = ConnectRefusal(Status::CONNECT_PARAMETER, ConnectData::SUBSYSTEM_AT, true);
    let nexus = engine.login(login, transport).map_err(|_| hidden)?;
    queue.attach(nexus);
    let about = LogSubject { peer: &conn.peer, name: &controller.host.name };
    let what = format_args!("controller {}, queue {}", controller.number, connect.queue);
    conn.core.log.info_about(about, what);
    Ok(queue)
}

/// A host identifier, which is a UUID for most hosts.
fn host_id_text(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let at = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    [at(0, 8), at(8, 12), at(12, 16), at(16, 20), at(20, 32)].join("-")
}

fn note_denied(conn: &Connection, host: &Host, text: String) {
    conn.warn(format_args!("{} may not use {}: {text}", host.name, host.subsystem));
    conn.core.shared.own.registry.note_denied(Denied {
        at_ns: conn.core.reactor.now(),
        driver: NAME.into(),
        target: host.subsystem.clone(),
        initiator: host.name.clone(),
        from: Some(conn.peer.clone()),
        text,
    });
}
