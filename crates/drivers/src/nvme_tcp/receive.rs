//! PDUs of a queue.

use std::rc::Rc;

use wire::nvme::codes::{fatal, pdu as kind, pdu_flag as flag};
use wire::nvme::{Command, Data, Fault, TERM_LEN_MAX, Terminate};

use super::data::{CAPSULE_MAX, HOST_DATA_MAX};
use super::ending::Ending;
use super::inlet::{Head, Inlet};
use super::queue::Queue;

/// Reads until the connection ends.
pub(crate) async fn run(queue: &Rc<Queue>, inlet: &mut Inlet) -> Ending {
    loop {
        if let Err(ending) = step(queue, inlet).await {
            return ending;
        }
    }
}

async fn step(queue: &Rc<Queue>, inlet: &mut Inlet) -> Result<(), Ending> {
    let conn = &queue.conn;
    conn.line.room().await;
    let head = conn.head(inlet).await?;
    match head.frame.common.kind {
        kind::COMMAND => command(queue, inlet, &head).await,
        kind::HOST_DATA => data(queue, inlet, &head).await,
        kind::HOST_TERMINATES => {
            let mut bytes = head.bytes().to_vec();
            // At most 128 bytes.
            debug_assert!(head.frame.total_len() <= TERM_LEN_MAX as usize);
            bytes.extend(conn.text(inlet, &head.frame).await?.unwrap_or_default());
            Err(Ending::Terminated(Terminate::decode(&bytes).map_or(0, |word| word.reason)))
        }
        _ => Err(conn.fault(&head, Fault::of(fatal::SEQUENCE, "begun a second time"))),
    }
}

async fn command(queue: &Rc<Queue>, inlet: &mut Inlet, head: &Head) -> Result<(), Ending> {
    let conn = &queue.conn;
    if head.frame.data_len > CAPSULE_MAX {
        let what = "more data in a capsule than it may have";
        return Err(conn.fault(head, Fault::of(fatal::LIMIT, what)));
    }
    let [_, _, _, _, _, _, _, _, command @ ..] = head.first::<72>();
    let command = Command::decode(&command);
    if !queue.take_entry() {
        let what = "more commands than the queue has entries";
        return Err(conn.fault(head, Fault::of(fatal::SEQUENCE, what)));
    }
    if queue.is_io() {
        queue.io_command(inlet, &head.frame, command).await
    } else {
        queue.admin_command(inlet, &head.frame, command).await
    }
}

/// An H2CData.
async fn data(queue: &Rc<Queue>, inlet: &mut Inlet, head: &Head) -> Result<(), Ending> {
    let (conn, frame) = (&queue.conn, &head.frame);
    let pdu = Data::decode(&head.first());
    if pdu.len > HOST_DATA_MAX {
        let what = "more data in one PDU than was agreed on";
        return Err(conn.fault(head, Fault::of(fatal::LIMIT, what)));
    }
    let last = frame.common.has(flag::LAST);
    let admitted = queue.tasks.borrow_mut().admit(&pdu, frame.data_len, last);
    let tag = admitted.map_err(|fault| conn.fault(head, fault))?;
    queue.take_data(inlet, frame, tag, &pdu).await
}
