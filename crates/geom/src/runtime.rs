//! Threads for the cores, and the control side that belongs to them.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use bio::{Pool, PoolConfig};
use reactor::{Config, Mailer, PortChoice, PortReport, Reactor, WaitFor};

use crate::control::{GraphControl, Inbox};
use crate::core::{Core, Message};

/// Time between two looks at memory that is not needed any more, ns.
const COOL_NS: u64 = 1_000_000_000;

/// Runs on each core's thread.
type OnCore = dyn Fn(&Rc<Core>) + Send + Sync;

/// Shape of a runtime.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeConfig {
    /// Cores, each a thread; at least one.
    pub cores: usize,
    /// How they talk to the kernel.
    pub port: PortChoice,
    /// How long a core looks for work before it sleeps, ns.
    pub spin_ns: u64,
    /// Bytes of buffers each core may hold.
    pub pool_bytes: usize,
}

/// Cores that run until [`Runtime::stop`].
pub struct Runtime {
    control: Option<GraphControl>,
    cores: Vec<Mailer<Message>>,
    reports: Vec<PortReport>,
    threads: Vec<JoinHandle<Vec<String>>>,
    stopping: Arc<AtomicBool>,
}

struct Ready {
    mailer: Mailer<Message>,
    report: PortReport,
}

impl Runtime {
    /// Starts the cores; `on_core` runs on each one's thread before its first turn.
    pub fn start(
        config: RuntimeConfig,
        on_core: impl Fn(&Rc<Core>) + Send + Sync + 'static,
    ) -> io::Result<Runtime> {
        let inbox = Arc::new(Inbox::default());
        let stopping = Arc::new(AtomicBool::new(false));
        let on_core: Arc<OnCore> = Arc::new(on_core);
        let mut runtime = Runtime {
            control: None,
            cores: Vec::new(),
            reports: Vec::new(),
            threads: Vec::new(),
            stopping: stopping.clone(),
        };
        for id in 0..config.cores.max(1) as u32 {
            let (ready, started) = mpsc::sync_channel(1);
            let (inbox, stopping, on_core) = (inbox.clone(), stopping.clone(), on_core.clone());
            let thread = std::thread::Builder::new()
                .name(format!("ashlar-core{id}"))
                .spawn(move || run_core(id, config, &inbox, &stopping, &*on_core, &ready))?;
            runtime.threads.push(thread);
            match await_start(&started) {
                Ok(up) => {
                    runtime.cores.push(up.mailer);
                    runtime.reports.push(up.report);
                }
                Err(e) => {
                    runtime.stop();
                    return Err(e);
                }
            }
        }
        let wait = Box::new(|inbox: &Inbox, most| inbox.sleep(most));
        let control =
            GraphControl::new(runtime.cores.clone(), inbox, wait, Box::new(reactor::monotonic_ns));
        runtime.control = Some(control);
        Ok(runtime)
    }

    /// The control side; `None` when it was taken already.
    pub fn take_control(&mut self) -> Option<GraphControl> {
        self.control.take()
    }

    /// How each core talks to the kernel, and why.
    pub fn reports(&self) -> &[PortReport] {
        &self.reports
    }

    /// Ends every core after its current turn and waits for the threads. Returns the resources that
    /// the kernel did not return, as text for a log: see [`Reactor::shutdown`].
    pub fn stop(&mut self) -> Vec<String> {
        self.stopping.store(true, Ordering::Release);
        for core in &self.cores {
            // A core that has ended needs no waking.
            let _ = core.send(Message::Call(Box::new(|_| ())));
        }
        // A core that panicked has reported its panic.
        self.threads.drain(..).flat_map(|thread| thread.join().unwrap_or_default()).collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

fn await_start(started: &Receiver<io::Result<Ready>>) -> io::Result<Ready> {
    started.recv().unwrap_or_else(|_| Err(io::Error::other("the core's thread ended at once")))
}

/// Memory that a burst took returns to the system a while after it (pool P4). An idle core is not
/// woken for it.
async fn cool(core: Rc<Core>) {
    loop {
        poll_fn(|cx| core.pool().poll_warm(cx.waker())).await;
        core.reactor().sleep(COOL_NS).await;
        core.pool().cool();
        while core.pool().cool_part() > 0 {
            core.reactor().yield_now().await;
        }
    }
}

fn run_core(
    id: u32,
    config: RuntimeConfig,
    inbox: &Arc<Inbox>,
    stopping: &AtomicBool,
    on_core: &OnCore,
    ready: &SyncSender<io::Result<Ready>>,
) -> Vec<String> {
    let reactor = Reactor::start(Config {
        name: format!("core{id}"),
        port: config.port,
        spin_ns: config.spin_ns,
        ..Config::default()
    });
    let reactor = match reactor {
        Ok(r) => r,
        Err(e) => {
            // Who started it waits for this.
            let _ = ready.send(Err(e));
            return Vec::new();
        }
    };
    let pool = Pool::new(PoolConfig { limit_bytes: config.pool_bytes });
    let report = reactor.port();
    let (core, mailer) = Core::new(id, reactor, pool, inbox.report());
    core.reactor().clone().spawn("pool", cool(core.clone()));
    on_core(&core);
    if ready.send(Ok(Ready { mailer, report })).is_err() {
        return Vec::new();
    }
    while !stopping.load(Ordering::Acquire) {
        core.turn(WaitFor::Forever);
    }
    core.reactor().shutdown()
}
