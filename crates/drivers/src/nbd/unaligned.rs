//! Requests that do not begin and end with blocks of the unit.
//!
//! Clients that did not request the block size send them (`nbd-client` and its kernel: sectors of
//! 512 bytes). READ takes the blocks around its range and answers a part of them. WRITE and
//! WRITE_ZEROES write whole blocks as always and change the two at the ends
//! (`block_requests::patch`). TRIM is a hint: it leaves the two alone.

use std::rc::Rc;

use bio::Segs;
use transport::ReceiveBuffer;
use wire::nbd::codes::command_flag as flag;
use wire::nbd::{Error, Request};

use super::close_reason::CloseReason;
use super::receive::{drop_payload, payload, piece_max};
use super::session::NbdSession;
use crate::block_requests::Work;
use crate::block_requests::patch::{Part, inner, outer, part};

/// First byte and bytes of the blocks that a checked request without payload works on; no bytes
/// when there is nothing to be done.
pub(super) fn span(session: &NbdSession, r: &Request, work: Work) -> (u64, u64) {
    let unit = u64::from(session.device().block_bytes());
    match work {
        _ if session.is_on_blocks(r) => (r.offset, r.len),
        Work::Read | Work::Cache => outer(unit, r.offset, r.len),
        Work::Trim => inner(unit, r.offset, r.len).unwrap_or((r.offset, 0)),
        _ => (r.offset, r.len),
    }
}

/// The part of the data of a READ that the client requested; None when it is all of it.
pub(super) fn cut(session: &NbdSession, r: &Request, at: u64, data: &Segs) -> Option<(u64, Segs)> {
    let end = at.saturating_add(data.len() as u64);
    let from = r.offset.max(at);
    let to = r.offset.saturating_add(r.len).min(end);
    if (from, to) == (at, end) {
        return None;
    }
    let mut out = session.conn().core.segs.take();
    let skip = usize::try_from(from - at).unwrap_or(usize::MAX);
    let len = usize::try_from(to.saturating_sub(from)).unwrap_or(0);
    // Both ends lie within the data.
    let _ = data.slice_into(skip, len, &mut out);
    Some((from, out))
}

/// WRITE_ZEROES of a range that begins or ends within a block.
pub(super) async fn zero(session: &Rc<NbdSession>, r: Request, work: Work) {
    let unit = u64::from(session.device().block_bytes());
    let parent = session.start_parent(r);
    if r.has(flag::FUA) {
        session.parent_flushes(parent);
    }
    let mut done = 0;
    while done < r.len {
        session.wait_for_capacity().await;
        let at = r.offset.saturating_add(done);
        done += match part(unit, at, r.len - done) {
            Part::Blocks(len) => {
                session.start_part(r, work, at, len, parent);
                len
            }
            Part::Bytes(len) => {
                let zeroes = vec![0; usize::try_from(len).unwrap_or(0)];
                session.start_patch(r, at, zeroes.into(), parent);
                len
            }
        };
    }
    session.parent_all_issued(parent);
}

/// WRITE of a range that begins or ends within a block.
pub(super) async fn write(
    session: &Rc<NbdSession>,
    rx: &mut ReceiveBuffer,
    r: Request,
) -> Result<(), CloseReason> {
    let unit = u64::from(session.device().block_bytes());
    let piece = piece_max(session);
    let parent = session.start_parent(r);
    let mut done = 0;
    while done < r.len {
        session.wait_for_capacity().await;
        let at = r.offset.saturating_add(done);
        let next = part(unit, at, r.len - done);
        let len = match next {
            Part::Blocks(len) => len.min(piece),
            Part::Bytes(len) => len,
        };
        let Some(data) = payload(session, rx, len).await? else {
            session.fail_parent(parent, Error::NoMem);
            drop_payload(session, rx, r.len - done).await?;
            break;
        };
        match next {
            Part::Blocks(_) => session.start_write(r, at, data, Some(parent)),
            Part::Bytes(_) => {
                session.start_patch(r, at, data.to_vec().into(), parent);
                session.conn().core.segs.put(data);
            }
        }
        done += len;
    }
    session.parent_all_issued(parent);
    Ok(())
}
