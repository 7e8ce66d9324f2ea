//! A simulated kernel with a generic SCSI driver. Its one disk is slow, fails in transport and by
//! itself, hangs until the kernel aborts its commands, disappears and returns.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use bio::{Direction, Segs};
use cam::sims::sg::{DeviceCallback, FoundDevice, Machine, Node};
use geom::{Core, Local};
use reactor::{SCSI_NODE_COMMANDS_MAX, SENSE_MAX, ScsiAnswer, ScsiRequest, SeededRandom};
use testkit::clock::MS;
use wire::scsi::{Capacity, Identity, inquiry_data, read_capacity16};

pub const SECTOR: usize = 512;
const ENODEV: i32 = 19;
const EDOM: i32 = 33;

/// DID_*.
const NO_CONNECT: u16 = 1;
const TIME_OUT: u16 = 3;
const RESET: u16 = 8;
const SOFT_ERROR: u16 = 0x0b;

/// Faults that the kernel injects.
#[derive(Clone, Copy, Default)]
pub struct Ways {
    /// Longest time of a command, ns.
    pub slow_ns: u64,
    /// Of a thousand, commands that hang: half of them were carried out.
    pub hangs: u32,
    /// How long the kernel takes to get one back behind its timeout, ns.
    pub recovery_ns: u64,
    /// Of a thousand, commands that fail on the way there, not carried out.
    pub soft: u32,
    /// Of a thousand, TASK SET FULL and unit attentions.
    pub full: u32,
    pub attention: u32,
    /// Of a thousand, reads that return half.
    pub short: u32,
    /// A reset ends no command.
    pub stuck: bool,
}

#[derive(Default)]
pub struct Counts {
    pub hung: u64,
    pub full_nodes: u64,
    pub resets: u64,
}

pub struct KernelState {
    pub ways: Ways,
    pub bytes: Vec<u8>,
    pub there: bool,
    /// The configuration names the device.
    pub is_named: bool,
    /// How often the device was given back.
    pub releases: u64,
    pub serial: &'static str,
    pub counts: Counts,
    random: SeededRandom,
    generation: u64,
    news: Option<DeviceCallback>,
    /// Commands before it are ended by a reset.
    resets: u64,
}

/// See the module.
pub struct Kernel(Mutex<KernelState>);

impl Kernel {
    pub fn new(seed: u64, sectors: usize, ways: Ways) -> Arc<Kernel> {
        Arc::new(Kernel(Mutex::new(KernelState {
            ways,
            bytes: vec![0; sectors * SECTOR],
            there: true,
            is_named: true,
            releases: 0,
            serial: "NODE1",
            counts: Counts::default(),
            random: SeededRandom::new(seed),
            generation: 1,
            news: None,
            resets: 0,
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, KernelState> {
        self.0.lock().unwrap()
    }

    /// The device is pulled, or plugged in again.
    pub fn plug(&self, there: bool) {
        let mut state = self.state();
        state.there = there;
        state.generation += 1;
        let news = state.news.clone();
        drop(state);
        news.unwrap()(0);
    }
}

impl Machine for Kernel {
    fn devices(&self) -> u64 {
        1
    }

    fn named(&self) -> Vec<u64> {
        if self.state().is_named { vec![0] } else { Vec::new() }
    }

    fn set_devices(&self, devices: &[PathBuf]) -> Result<[Vec<u64>; 2], String> {
        let is_named = devices.contains(&PathBuf::from("/dev/sg0"));
        let was_named = std::mem::replace(&mut self.state().is_named, is_named);
        let list = |is_listed: bool| if is_listed { vec![0] } else { Vec::new() };
        Ok([list(was_named && !is_named), list(!was_named && is_named)])
    }

    fn release(&self, _: u64) {
        self.state().releases += 1;
    }

    fn find_device(&self, _: u64) -> Result<FoundDevice, String> {
        let state = self.state();
        if !state.is_named {
            return Err("/dev/sg0: not in the configuration".into());
        }
        let (place, generation) = ("2:0:3:0".to_string(), state.generation);
        if !state.there {
            return Err("/dev/sg0: No such file or directory".into());
        }
        Ok(FoundDevice { location: place, most_bytes: 16 << 10, generation })
    }

    fn begin(self: Arc<Self>, news: DeviceCallback) {
        self.state().news = Some(news);
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn close(&self) {}

    fn open(&self, _: u64, core: &Rc<Core>) -> io::Result<Rc<dyn Node>> {
        let state = self.state();
        if !state.there {
            return Err(io::Error::from_raw_os_error(ENODEV));
        }
        // The tests keep the kernel as long as the core.
        let (me, generation) = (std::ptr::from_ref(self) as usize, state.generation);
        let kernel = KERNELS
            .with_borrow(|all| all.iter().find(|k| Arc::as_ptr(k) as usize == me).unwrap().clone());
        let flights = RefCell::default();
        Ok(Rc::new(Opened { kernel, core: core.clone(), generation, in_flight: flights }))
    }

    fn reset(&self, _: u64, done: Box<dyn FnOnce(bool) + Send>) {
        let mut state = self.state();
        state.counts.resets += 1;
        state.resets += u64::from(!state.ways.stuck);
        drop(state);
        done(true);
    }
}

thread_local! {
    static KERNELS: RefCell<Vec<Arc<Kernel>>> = RefCell::default();
}

/// So that nodes find their kernel.
pub fn install(kernel: &Arc<Kernel>) {
    KERNELS.with_borrow_mut(|all| *all = vec![kernel.clone()]);
}

struct Flight {
    tag: u64,
    cdb: Vec<u8>,
    direction: Option<Direction>,
    data: Segs,
    due_ns: u64,
    resets: u64,
    planned_end: PlannedEnd,
}

#[derive(Clone, Copy, PartialEq)]
enum PlannedEnd {
    Fine,
    Short,
    Hung { done: bool },
    Soft,
    Status(u8),
    Attention,
}

struct Opened {
    kernel: Arc<Kernel>,
    core: Rc<Core>,
    generation: u64,
    in_flight: RefCell<Vec<Flight>>,
}

impl Node for Opened {
    fn send(&self, request: &ScsiRequest<'_>, data: Segs) -> Result<(), (io::Error, Segs)> {
        let state = &mut *self.kernel.state();
        if state.generation != self.generation {
            return Err((io::Error::from_raw_os_error(ENODEV), data));
        }
        let mut flights = self.in_flight.borrow_mut();
        if flights.len() == SCSI_NODE_COMMANDS_MAX as usize {
            state.counts.full_nodes += 1;
            return Err((io::Error::from_raw_os_error(EDOM), data));
        }
        let (ways, random) = (state.ways, &mut state.random);
        let media = matches!(request.cdb[0], 0x28 | 0x2a | 0x88 | 0x8a);
        let mut chance = |of: u32| media && random.chance(of);
        let fate = if chance(ways.hangs) {
            PlannedEnd::Hung { done: chance(500) }
        } else if chance(ways.soft) {
            PlannedEnd::Soft
        } else if chance(ways.full) {
            PlannedEnd::Status(0x28)
        } else if chance(ways.attention) {
            PlannedEnd::Attention
        } else if chance(ways.short) {
            PlannedEnd::Short
        } else {
            PlannedEnd::Fine
        };
        let now = self.core.reactor().fresh_now();
        let takes = match fate {
            // Its clock is not ours: it may be late a little earlier.
            PlannedEnd::Hung { .. } => u64::from(request.timeout_ms - 50) * MS + ways.recovery_ns,
            _ => state.random.below(ways.slow_ns.max(1)),
        };
        flights.push(Flight {
            tag: request.tag,
            cdb: request.cdb.to_vec(),
            direction: request.direction,
            data,
            due_ns: now + takes,
            resets: state.resets,
            planned_end: fate,
        });
        Ok(())
    }

    fn receive(&self) -> io::Result<Option<ScsiAnswer>> {
        let state = &mut *self.kernel.state();
        let now = self.core.reactor().fresh_now();
        let mut flights = self.in_flight.borrow_mut();
        let gone = state.generation != self.generation;
        let ended = |f: &Flight| gone || f.due_ns <= now || f.resets != state.resets;
        // Commands in flight when the device disappears are answered or not.
        if gone && state.random.chance(500) {
            return Err(io::Error::from_raw_os_error(ENODEV));
        }
        let Some(at) = flights.iter().position(ended) else {
            return if gone { Err(io::Error::from_raw_os_error(ENODEV)) } else { Ok(None) };
        };
        let flight = flights.remove(at);
        let early = flight.due_ns > now;
        let mut answer = ScsiAnswer {
            tag: flight.tag,
            status: 0,
            host_status: 0,
            driver_status: 0,
            // The kernel reports no residue of failed commands.
            moved: flight.data.len() as u32,
            sense: [0; SENSE_MAX],
            sense_len: 0,
            data: Segs::new(),
        };
        match flight.planned_end {
            _ if gone => answer.host_status = NO_CONNECT,
            _ if early => answer.host_status = RESET,
            PlannedEnd::Soft => answer.host_status = SOFT_ERROR,
            PlannedEnd::Status(status) => answer.status = status,
            PlannedEnd::Attention => check(&mut answer, [6, 0x2a, 0x01]),
            PlannedEnd::Hung { done } => {
                state.counts.hung += 1;
                if done {
                    state.carry_out(&flight, &mut answer);
                }
                (answer.status, answer.host_status) = (0, TIME_OUT);
            }
            PlannedEnd::Fine => state.carry_out(&flight, &mut answer),
            PlannedEnd::Short => {
                state.carry_out(&flight, &mut answer);
                if flight.direction == Some(Direction::In) {
                    answer.moved /= 2;
                    let rest = vec![0xee; flight.data.len() - answer.moved as usize];
                    flight.data.copy_from(answer.moved as usize, &rest);
                }
            }
        }
        answer.data = flight.data;
        Ok(Some(answer))
    }

    fn ready(&self) -> Local<'_, io::Result<()>> {
        Box::pin(async move {
            loop {
                let next =
                    self.in_flight.borrow().iter().map(|f| f.due_ns).min().unwrap_or(u64::MAX);
                let rest = next.saturating_sub(self.core.reactor().fresh_now());
                self.core.reactor().sleep(rest.clamp(100_000, 5 * MS)).await;
                let now = self.core.reactor().fresh_now();
                let state = self.kernel.state();
                let ended = |f: &Flight| f.due_ns <= now || f.resets != state.resets;
                let gone = state.generation != self.generation;
                if gone || self.in_flight.borrow().iter().any(ended) {
                    return Ok(());
                }
            }
        })
    }
}

fn check(answer: &mut ScsiAnswer, [key, asc, ascq]: [u8; 3]) {
    answer.status = 2;
    answer.sense[..8].copy_from_slice(&[0x70, 0, key, 0, 0, 0, 0, 10]);
    (answer.sense[12], answer.sense[13], answer.sense_len) = (asc, ascq, 18);
}

impl KernelState {
    fn carry_out(&mut self, flight: &Flight, answer: &mut ScsiAnswer) {
        let cdb = &flight.cdb;
        let be = |at: usize| u32::from_be_bytes(cdb[at..at + 4].try_into().unwrap()) as usize;
        let identity = || Identity {
            vendor: "Linux".into(),
            product: "disk for tests".into(),
            ..Identity::default()
        };
        let sectors = self.bytes.len() / SECTOR;
        let length = flight.data.len();
        let bytes = match cdb[0] {
            0x00 | 0x35 | 0x91 => Vec::new(),
            0x12 if cdb[1] & 1 == 0 => inquiry_data(&identity()),
            0x12 if cdb[2] == 0 => vec![0, 0, 0, 2, 0, 0x80],
            0x12 if cdb[2] == 0x80 => {
                [&[0, 0x80, 0, self.serial.len() as u8], self.serial.as_bytes()].concat()
            }
            // It has a further unit, which has a node of its own.
            0xa0 => [&[0, 0, 0, 16][..], &[0; 13], &[1], &[0; 6]].concat(),
            0x9e => {
                let capacity =
                    Capacity { blocks: sectors as u64, block_len: 512, ..Capacity::default() };
                read_capacity16(&capacity).to_vec()
            }
            0x28 | 0x88 => {
                let from = be(if cdb[0] == 0x28 { 2 } else { 6 }) * SECTOR;
                self.bytes[from..from + length].to_vec()
            }
            0x2a | 0x8a => {
                let from = be(if cdb[0] == 0x2a { 2 } else { 6 }) * SECTOR;
                self.bytes[from..from + length].copy_from_slice(&flight.data.to_vec());
                answer.moved = length as u32;
                return;
            }
            _ => return check(answer, [5, 0x20, 0]),
        };
        let moved = bytes.len().min(length);
        flight.data.copy_from(0, &bytes[..moved]);
        answer.moved = moved as u32;
    }
}
