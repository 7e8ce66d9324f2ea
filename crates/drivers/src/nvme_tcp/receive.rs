//! PDUs of a queue.

use std::rc::Rc;

use transport::ReceiveBuffer;
use wire::nvme::codes::{fatal, pdu as kind, pdu_flag as flag};
use wire::nvme::{Command, Data, Fault, TERM_LEN_MAX, Terminate};

use super::close_reason::CloseReason;
use super::data::{CAPSULE_MAX, HOST_DATA_MAX};
use super::pdu_reader::Head;
use super::queue::Queue;

/// Reads until the connection ends.
pub(crate) async fn run(queue: &Rc<Queue>, rx: &mut ReceiveBuffer) -> CloseReason {
    loop {
        if let Err(reason) = step(queue, rx).await {
            return reason;
        }
    }
}

async fn step(queue: &Rc<Queue>, rx: &mut ReceiveBuffer) -> Result<(), CloseReason> {
    let conn = &queue.conn;
    conn.io.wait_for_space().await;
    let head = conn.head(rx).await?;
    match head.frame.common.kind {
        kind::COMMAND => command(queue, rx, &head).await,
        kind::HOST_DATA => data(queue, rx, &head).await,
        kind::HOST_TERMINATES => {
            let mut bytes = head.bytes().to_vec();
            // At most 128 bytes.
            debug_assert!(head.frame.total_len() <= TERM_LEN_MAX as usize);
            bytes.extend(conn.text(rx, &head.frame).await?.unwrap_or_default());
            Err(CloseReason::Terminated(Terminate::decode(&bytes).map_or(0, |word| word.reason)))
        }
        _ => Err(conn.fault(&head, Fault::of(fatal::SEQUENCE, "begun a second time"))),
    }
}

async fn command(
    queue: &Rc<Queue>,
    rx: &mut ReceiveBuffer,
    head: &Head,
) -> Result<(), CloseReason> {
    let conn = &queue.conn;
    if head.frame.data_len > CAPSULE_MAX {
        let what = "more data in a capsule than allowed";
        return Err(conn.fault(head, Fault::of(fatal::LIMIT, what)));
    }
    let [_, _, _, _, _, _, _, _, command @ ..] = head.first::<72>();
    let command = Command::decode(&command);
    if !queue.take_entry() {
        let what = "more commands than the queue has entries";
        return Err(conn.fault(head, Fault::of(fatal::SEQUENCE, what)));
    }
    if queue.is_io() {
        queue.io_command(rx, &head.frame, command).await
    } else {
        queue.admin_command(rx, &head.frame, command).await
    }
}

/// An H2CData.
async fn data(queue: &Rc<Queue>, rx: &mut ReceiveBuffer, head: &Head) -> Result<(), CloseReason> {
    let (conn, frame) = (&queue.conn, &head.frame);
    let pdu = Data::decode(&head.first());
    if pdu.len > HOST_DATA_MAX {
        let what = "more data in one PDU than negotiated";
        return Err(conn.fault(head, Fault::of(fatal::LIMIT, what)));
    }
    let last = frame.common.has(flag::LAST);
    let admitted = queue.tasks.borrow_mut().admit(&pdu, frame.data_len, last);
    let tag = admitted.map_err(|fault| conn.fault(head, fault))?;
    queue.take_data(rx, frame, tag, &pdu).await
}
