//! TCP server that accepts connections and sends nothing, as one whose disk hangs. While it is not
//! silent, it forwards connections to another server.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Switches that the thread of the listener reads.
#[derive(Default)]
struct Switches {
    is_silent: AtomicBool,
    is_over: AtomicBool,
}

/// See the module.
pub(crate) struct SilentServer {
    pub(crate) at: SocketAddr,
    switches: Arc<Switches>,
}

impl SilentServer {
    /// A server in front of the one at `behind`, which is not silent yet.
    pub(crate) fn new(behind: SocketAddr) -> SilentServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let switches = Arc::<Switches>::default();
        let seen = switches.clone();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for client in listener.incoming().map_while(Result::ok) {
                if seen.is_over.load(Ordering::Acquire) {
                    return;
                }
                if seen.is_silent.load(Ordering::Acquire) {
                    held.push(client);
                } else {
                    held.clear();
                    forward(&client, behind);
                }
            }
        });
        SilentServer { at, switches }
    }

    /// Later connections get no answer, or those that wait are closed and later ones are forwarded.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.switches.is_silent.store(is_silent, Ordering::Release);
        self.wake();
    }

    /// The listener looks at its switches when a connection arrives.
    fn wake(&self) {
        drop(TcpStream::connect(self.at));
    }
}

impl Drop for SilentServer {
    fn drop(&mut self) {
        self.switches.is_over.store(true, Ordering::Release);
        self.wake();
    }
}

/// Copies bytes in both directions until one side ends.
fn forward(client: &TcpStream, behind: SocketAddr) {
    let Ok(server) = TcpStream::connect(behind) else { return };
    // A delay of small segments is of no use here.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    for (from, to) in [(client, &server), (&server, client)] {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}
