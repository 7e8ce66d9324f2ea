//! Byte stream of a connection, over any transport.
//!
//! Boxed as [`Stream`], because hyper would be contained once for each type of stream.

use tokio::io::{AsyncRead, AsyncWrite};

/// See the module.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
