//! Both directions of a connection's stream, in the clear or through TLS.

use std::cell::RefCell;
use std::rc::Rc;

use bio::{Buf, Pool, Seg};
use reactor::Stream;

use crate::reason::CommonReason;
use crate::receive_buffer::BUSY_BYTES;
use crate::tls::{BATCH_MAX, Tls};
use crate::transmit_queue::TransmitQueue;

/// Received bytes of one connection, in the clear or decrypted.
pub struct Incoming {
    stream: Stream,
    tls: Option<(Rc<Tls>, Ciphertext)>,
}

/// Received bytes that are not decrypted yet.
struct Ciphertext {
    pool: Pool,
    /// None: the next receive allocates it.
    page: Option<Buf>,
    at: usize,
    end: usize,
}

impl Ciphertext {
    /// Receives more; 0 at the end of the stream.
    async fn receive(&mut self, stream: &Stream) -> Result<usize, CommonReason> {
        if self.page.is_none() {
            self.page = Some(stream.buffer(&self.pool, BUSY_BYTES).await);
        }
        let page = self.part(0, BUSY_BYTES).ok_or(CommonReason::NoMemory)?;
        let n = stream.recv(&page).await.map_err(|e| CommonReason::lost(&e))?;
        (self.at, self.end) = (0, n);
        Ok(n)
    }

    fn part(&self, at: usize, len: usize) -> Option<Seg> {
        self.page.as_ref().and_then(|page| page.seg(at, len))
    }

    /// Decrypts; returns how many bytes were taken.
    fn decrypt(&mut self, tls: &Tls) -> Result<usize, CommonReason> {
        let fresh = self.part(self.at, self.end - self.at);
        let fed = fresh.map_or(Ok(0), |seg| seg.with(|b| tls.process_received(b)))?;
        self.at += fed;
        Ok(fed)
    }
}

/// Sends close_notify, which marks the stream as complete, behind all messages that TLS has queued
/// itself.
pub(crate) async fn send_end(
    stream: &Stream,
    tls: &Tls,
    memory: &Pool,
) -> Result<(), CommonReason> {
    tls.close();
    send_messages(stream, tls, memory).await
}

/// Sends the messages that TLS has queued itself: those of its handshake, an alert.
async fn send_messages(stream: &Stream, tls: &Tls, memory: &Pool) -> Result<(), CommonReason> {
    let (mut cipher, mut batch) = (TransmitQueue::new(memory.clone()), Vec::new());
    tls.write(&[], &mut cipher)?;
    if cipher.is_broken() {
        return Err(CommonReason::NoMemory);
    }
    cipher.take(&mut batch);
    stream.send(&mut batch).await.map_err(|e| CommonReason::lost(&e))
}

/// In the clear.
impl From<Stream> for Incoming {
    fn from(stream: Stream) -> Incoming {
        Incoming { stream, tls: None }
    }
}

impl Incoming {
    /// Decrypts from now on; encrypted bytes are received into memory of `pool`.
    pub(crate) fn secure(&mut self, tls: Rc<Tls>, pool: Pool) {
        self.tls = Some((tls, Ciphertext { pool, page: None, at: 0, end: 0 }));
    }

    /// Agrees on keys with a client, and decrypts from now on. A silent client holds no memory.
    pub async fn handshake(&mut self, tls: Rc<Tls>, pool: &Pool) -> Result<(), CommonReason> {
        self.secure(tls.clone(), pool.clone());
        while tls.is_handshaking() {
            self.readable().await?;
            let received = self.handshake_step().await;
            // An alert informs the client of the error.
            let sent = send_messages(&self.stream, &tls, pool).await;
            received.and(sent)?;
        }
        Ok(())
    }

    /// Sends close_notify, if the stream is encrypted. No other send may be under way.
    pub async fn send_end(&self) -> Result<(), CommonReason> {
        match &self.tls {
            Some((tls, cipher)) => send_end(&self.stream, tls, &cipher.pool).await,
            None => Ok(()),
        }
    }

    /// Waits until [`Incoming::receive`] has something to return. A connection that waits so holds
    /// no memory here.
    pub async fn readable(&mut self) -> Result<(), CommonReason> {
        if let Some((tls, cipher)) = &mut self.tls {
            if cipher.at < cipher.end || tls.is_readable() {
                return Ok(());
            }
            cipher.page = None;
        }
        self.stream.readable().await.map_err(|e| CommonReason::lost(&e))
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// TLS, if the stream is encrypted.
    pub fn tls(&self) -> Option<&Rc<Tls>> {
        self.tls.as_ref().map(|(tls, _)| tls)
    }

    /// Receives the next bytes; 0 at the end of the stream.
    #[inline]
    pub async fn receive(&mut self, room: &Seg) -> Result<usize, CommonReason> {
        match &self.tls {
            None => self.stream.recv(room).await.map_err(|e| CommonReason::lost(&e)),
            Some(_) => self.decrypt(room).await,
        }
    }

    async fn decrypt(&mut self, room: &Seg) -> Result<usize, CommonReason> {
        let Some((tls, cipher)) = &mut self.tls else { return Ok(0) };
        loop {
            match tls.read(room) {
                Ok(0) => {}
                Err(CommonReason::PeerClosed) => return Ok(0),
                other => return other,
            }
            if cipher.at == cipher.end && cipher.receive(&self.stream).await? == 0 {
                return Ok(0);
            }
            cipher.decrypt(tls)?;
        }
    }

    /// The stream, unless it is encrypted.
    pub(crate) fn plain(&self) -> Option<&Stream> {
        self.tls.is_none().then_some(&self.stream)
    }

    /// Receives and decrypts once; false when keys are agreed on and nothing was received.
    pub(crate) async fn handshake_step(&mut self) -> Result<bool, CommonReason> {
        let Some((tls, cipher)) = &mut self.tls else { return Ok(false) };
        if !tls.is_handshaking() {
            return Ok(false);
        }
        if cipher.receive(&self.stream).await? == 0 {
            return Err(CommonReason::Truncated);
        }
        // It may be full of bytes that follow the handshake, and take no more.
        while cipher.at < cipher.end && cipher.decrypt(tls)? > 0 {}
        Ok(true)
    }
}

/// Bytes to be sent on one connection.
pub struct Outgoing<'a> {
    tx: &'a RefCell<TransmitQueue>,
    tls: &'a RefCell<Option<Rc<Tls>>>,
    cipher: TransmitQueue,
}

impl Outgoing<'_> {
    /// In the clear while `tls` is empty.
    pub fn new<'a>(
        tx: &'a RefCell<TransmitQueue>,
        tls: &'a RefCell<Option<Rc<Tls>>>,
        memory: &Pool,
    ) -> Outgoing<'a> {
        Outgoing { tx, tls, cipher: TransmitQueue::new(memory.clone()) }
    }

    /// Encrypts the next bytes.
    fn encrypt(&mut self, tls: &Tls, batch: &mut Vec<Seg>) -> Result<(), CommonReason> {
        let mut clear = 0;
        while clear < BATCH_MAX {
            let taken = self.tx.borrow_mut().take(batch);
            if taken == 0 {
                break;
            }
            clear += taken;
            tls.write(batch, &mut self.cipher)?;
            batch.clear();
        }
        tls.write(&[], &mut self.cipher)
    }

    /// True when there is something to send.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.tx.borrow().bytes() > 0
            || self.cipher.bytes() > 0
            || self.tls.borrow().as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Takes the next bytes to send; returns how many they are, and how many are ready behind them.
    pub fn take(&mut self, batch: &mut Vec<Seg>) -> Result<(usize, usize), CommonReason> {
        let tls = self.tls.borrow().clone();
        if self.cipher.bytes() == 0
            && let Some(tls) = &tls
        {
            self.encrypt(tls, batch)?;
        }
        let taken = match &tls {
            Some(_) => self.cipher.take(batch),
            None => self.tx.borrow_mut().take(batch),
        };
        if self.tx.borrow().is_broken() || self.cipher.is_broken() {
            return Err(CommonReason::NoMemory);
        }
        Ok((taken, self.cipher.bytes()))
    }

    /// Everything that was taken is sent.
    pub fn release(&mut self) {
        self.tx.borrow_mut().release();
        self.cipher.release();
    }
}
