//! The body of an answer: whole, or lines as they are made.

use hyper::body::{Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// See the module.
pub enum Body {
    /// All of it at once.
    Full(Option<Bytes>),
    /// Until the sender is dropped.
    Lines(mpsc::Receiver<Bytes>),
}

impl Body {
    /// A body that is known already.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Body {
        Body::Full(Some(bytes.into()))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Body::Lines(lines) => lines.poll_recv(cx).map(|l| l.map(|b| Ok(Frame::data(b)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => {
                let length = bytes.as_ref().map_or(0, |b| b.len());
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Body::Lines(_) => SizeHint::default(),
        }
    }
}
