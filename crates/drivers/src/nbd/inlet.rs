//! Where a connection's bytes come from and go to: the stream as it is, or through TLS.

use std::cell::RefCell;
use std::rc::Rc;

use bio::{Buf, Pool, Seg};
use reactor::Stream;

use super::ending::Ending;
use super::tls::{BATCH_MAX, Secure};
use crate::common::cause::Cause;
use crate::common::inbox::{self, BUSY_BYTES, Source};
use crate::common::pump::Words;
use crate::outbox::Outbox;

/// Receives for one connection.
pub(crate) type Inbox = inbox::Inbox<Inlet>;

/// What comes in on one connection.
pub(crate) struct Inlet {
    stream: Stream,
    secure: Option<(Rc<Secure>, Cipher)>,
}

/// Encrypted bytes that were received and not fed yet.
struct Cipher {
    page: Buf,
    at: usize,
    end: usize,
}

impl Cipher {
    /// Receives more; 0 at the end of the stream.
    async fn receive(&mut self, stream: &Stream) -> Result<usize, Ending> {
        let page = self.page.seg(0, BUSY_BYTES).ok_or(Cause::NoMemory)?;
        let n = stream.recv(&page).await.map_err(|e| Cause::lost(&e))?;
        (self.at, self.end) = (0, n);
        Ok(n)
    }

    /// Feeds what was received; answers how much of it was taken.
    fn feed(&mut self, secure: &Secure) -> Result<usize, Ending> {
        let fresh = self.page.seg(self.at, self.end - self.at);
        let fed = fresh.map_or(Ok(0), |seg| seg.with(|b| secure.feed(b)))?;
        self.at += fed;
        Ok(fed)
    }
}

impl Inlet {
    /// In the clear.
    pub fn new(stream: Stream) -> Inlet {
        Inlet { stream, secure: None }
    }
}

impl Source for Inlet {
    type Error = Ending;

    async fn receive(&mut self, room: &Seg) -> Result<usize, Ending> {
        let Some((secure, cipher)) = &mut self.secure else {
            return self.stream.recv(room).await.map_err(|e| Cause::lost(&e).into());
        };
        loop {
            match secure.read(room) {
                Ok(0) => {}
                Err(Ending::Line(Cause::PeerClosed)) => return Ok(0),
                other => return other,
            }
            if cipher.at == cipher.end && cipher.receive(&self.stream).await? == 0 {
                return Ok(0);
            }
            cipher.feed(secure)?;
        }
    }

    fn plain(&self) -> Option<&Stream> {
        self.secure.is_none().then_some(&self.stream)
    }
}

impl Inbox {
    /// From now on what arrives is encrypted.
    pub fn secure(&mut self, secure: Rc<Secure>) -> Result<(), Ending> {
        let cipher = Cipher { page: self.large()?, at: 0, end: 0 };
        self.source.secure = Some((secure, cipher));
        Ok(())
    }

    /// Goes on until keys are agreed on.
    pub async fn shake(&mut self) -> Result<(), Ending> {
        loop {
            let stream = self.source.stream.clone();
            let Some((secure, cipher)) = &mut self.source.secure else { return Ok(()) };
            if !secure.is_handshaking() {
                return Ok(());
            }
            if cipher.receive(&stream).await? == 0 {
                return Err(Cause::Cut.into());
            }
            // It may be full of what comes behind the handshake, and take no more.
            let mut fed = Ok(1);
            while cipher.at < cipher.end && fed.as_ref().is_ok_and(|n| *n > 0) {
                fed = cipher.feed(secure);
            }
            // It has something to say, an alert for instance.
            self.stir();
            fed?;
        }
    }
}

/// TLS of a connection, once it has begun.
pub(crate) type Coat = RefCell<Option<Rc<Secure>>>;

/// What goes out on one connection.
pub(crate) struct Outlet<'a> {
    out: &'a RefCell<Outbox>,
    coat: &'a Coat,
    cipher: Outbox,
}

impl Outlet<'_> {
    /// In the clear until there is a coat.
    pub fn new<'a>(out: &'a RefCell<Outbox>, coat: &'a Coat, memory: &Pool) -> Outlet<'a> {
        Outlet { out, coat, cipher: Outbox::new(memory.clone()) }
    }

    /// Encrypts what is to be sent next.
    fn wrap(&mut self, secure: &Secure, batch: &mut Vec<Seg>) -> Result<(), Ending> {
        let mut clear = 0;
        while clear < BATCH_MAX {
            let taken = self.out.borrow_mut().take(batch);
            if taken == 0 {
                break;
            }
            clear += taken;
            secure.write(batch, &mut self.cipher)?;
            batch.clear();
        }
        secure.write(&[], &mut self.cipher)
    }
}

impl Words<Ending> for Outlet<'_> {
    fn wait(&self) -> bool {
        self.out.borrow().bytes() > 0
            || self.cipher.bytes() > 0
            || self.coat.borrow().as_ref().is_some_and(|s| s.wants_write())
    }

    fn take(&mut self, batch: &mut Vec<Seg>) -> Result<(usize, usize), Ending> {
        let secure = self.coat.borrow().clone();
        if self.cipher.bytes() == 0
            && let Some(secure) = &secure
        {
            self.wrap(secure, batch)?;
        }
        let taken = match &secure {
            Some(_) => self.cipher.take(batch),
            None => self.out.borrow_mut().take(batch),
        };
        if self.out.borrow().is_broken() || self.cipher.is_broken() {
            return Err(Cause::NoMemory.into());
        }
        Ok((taken, self.cipher.bytes()))
    }

    fn rest(&mut self) {
        self.out.borrow_mut().rest();
        self.cipher.rest();
    }
}
