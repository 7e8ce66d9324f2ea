//! Text requests in the full feature phase: SendTargets, and the few keys that may still change.
//!
//! ```text
//!   request C=1 --> collected, empty answer with a tag --> request C=1 ... --> request C=0
//!   answer longer than the initiator takes: C=1 and a tag --> empty request with it --> the rest
//! ```

use wire::WireError;
use wire::iscsi::{
    Negotiation, Offer, Pdu, RejectReason, Side, TAG_NONE, TextBuilder, TextInput, TextRequest,
    TextResponse, pairs,
};

use super::close_reason::CloseReason;
use super::discovery::send_targets;
use super::session::IscsiSession;

/// Longest piece of text in one answer, bytes for any initiator.
const PIECE_MAX: usize = 64 * 1024;

/// The exchange under way; one at a time.
pub(crate) struct TextState {
    /// Tag that the next request must carry; [`TAG_NONE`] when none is expected.
    tag: u32,
    input: TextInput,
    rest: Vec<u8>,
}

impl Default for TextState {
    fn default() -> TextState {
        TextState { tag: TAG_NONE, input: TextInput::default(), rest: Vec::new() }
    }
}

impl IscsiSession {
    pub fn text_request(&self, pdu: &TextRequest, data: &[u8]) -> Result<(), CloseReason> {
        let mut state = self.text.take();
        if pdu.target_tag == TAG_NONE {
            // A new exchange ends one that was not finished.
            state = TextState::default();
        } else if pdu.target_tag != state.tag {
            return self.refuse_text(pdu, "unknown target transfer tag");
        }
        if !state.rest.is_empty() {
            if !data.is_empty() || pdu.more {
                return self.refuse_text(pdu, "new text before the end of the target's answer");
            }
            return self.answer_text(state, pdu);
        }
        match state.input.append(data, pdu.more) {
            Ok(None) => self.answer_text(state, pdu),
            Ok(Some(text)) => match self.act_on_text(&text) {
                Ok(answer) => {
                    state.rest = answer;
                    self.answer_text(state, pdu)
                }
                Err(error) => self.refuse_text(pdu, error.field),
            },
            Err(error) => self.refuse_text(pdu, error.field),
        }
    }

    fn refuse_text(&self, pdu: &TextRequest, why: &str) -> Result<(), CloseReason> {
        self.conn.warn(format_args!("text request refused: {why}"));
        let mut bhs = [0; wire::iscsi::BHS_LEN];
        pdu.encode(&mut bhs);
        self.reject(RejectReason::Protocol, &bhs)
    }

    /// Sends the next piece; keeps the rest for the next request.
    fn answer_text(&self, mut state: TextState, pdu: &TextRequest) -> Result<(), CloseReason> {
        let max = usize::try_from(self.params.get().send_data_len_max).unwrap_or(PIECE_MAX);
        let later = state.rest.split_off(state.rest.len().min(max.min(PIECE_MAX)));
        let piece = std::mem::replace(&mut state.rest, later);
        let more = !state.rest.is_empty();
        let last = pdu.last && !more && !state.input.is_pending();
        state.tag = if last { TAG_NONE } else { self.next_transfer_tag() };
        let response = TextResponse {
            last,
            more,
            lun: pdu.lun,
            task_tag: pdu.task_tag,
            target_tag: state.tag,
            sn: self.numbers(true),
            data_len: u32::try_from(piece.len()).unwrap_or(0),
        };
        *self.text.borrow_mut() = state;
        self.send(&response, &piece);
        Ok(())
    }

    fn act_on_text(&self, text: &[u8]) -> Result<Vec<u8>, WireError> {
        let all = pairs(text)?;
        let mut out = Vec::new();
        let mut keys = Vec::with_capacity(all.len());
        for (key, value) in all {
            match key {
                "SendTargets" => match send_targets(self, value) {
                    Some(text) => out.extend_from_slice(&text),
                    None => out.extend_from_slice(b"SendTargets=Reject\0"),
                },
                _ => keys.push((key, value)),
            }
        }
        let offer = self.target.as_ref().map_or(Offer::default(), |t| t.offer());
        let discovery = self.is_discovery();
        let mut negotiation =
            Negotiation::full_feature(Side::Target, discovery, offer, self.params.get());
        let mut answers = TextBuilder::new();
        negotiation.receive(&keys, &mut answers)?;
        self.params.set(negotiation.finish()?);
        out.extend_from_slice(answers.bytes());
        Ok(out)
    }
}
