//! A guest that runs one script after another, so that one boot serves many checks.
//!
//! The first script is in the initramfs. After each script that succeeded, the guest ends what the
//! script left behind (`clean.sh`) and loads the next one over HTTP. A guest whose script failed is
//! killed, and the next script boots another: a failure changes nothing for later checks.

use std::any::Any;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::boot::{Boot, Console, Running, drive};
use super::image::{HOST, Image};
use super::script::{Run, Script};

/// Marks a guest that waits for another script after the last step.
const MARK: &str = "rig/shared";
/// Longest pause of the guest while it loads a script.
const LOAD_LIMIT: Duration = Duration::from_secs(60);
/// The only check that runs; unset: all.
const ONLY: &str = "ASHLAR_CHECK";

/// A further device of a shared guest.
pub enum Device<'a> {
    /// An image as a virtio disk: `/dev/vda`, `/dev/vdb` and so on, in their order. Between two
    /// scripts the image contains the flushed writes of the first, and the host may change it.
    Disk(&'a Path),
    /// An image as a SCSI disk with a serial number.
    Scsi(&'a Path, &'a str),
    /// Images as disks of one SCSI bus, with serial numbers. The guest finds them in any order:
    /// `/sys/block/sd*/device/vpd_pg80` identifies each.
    ScsiBus(&'a [(PathBuf, String)]),
    /// An image as a virtio disk that frees blocks on discard and has no command that zeroes.
    Discard(&'a Path),
    /// A second network card, `eth1`. This port of the host's loopback leads to port 3260 of the
    /// guest, which takes 10.0.3.15/24 as its address there.
    Forward(u16),
    /// A network card with this address at a tap device of the host, the last of the guest: `eth2`
    /// behind [`Device::Forward`], else `eth1`.
    Tap(&'a str, &'a str),
}

impl Device<'_> {
    /// Options of the emulator for device `number`.
    fn options(&self, number: usize) -> Vec<String> {
        match self {
            Device::Disk(disk) => {
                let mut options = drive(number, disk).to_vec();
                let disk = format!("virtio-blk-pci,drive=disk{number}");
                options.extend(["-device".into(), disk]);
                options
            }
            Device::Scsi(disk, serial) => {
                let mut options = drive(number, disk).to_vec();
                let disk = format!("scsi-hd,drive=disk{number},bus=scsi{number}.0,serial={serial}");
                options.extend(["-device".into(), format!("virtio-scsi-pci,id=scsi{number}")]);
                options.extend(["-device".into(), disk]);
                options
            }
            Device::ScsiBus(disks) => {
                let mut options = vec!["-device".into(), format!("virtio-scsi-pci,id=bus{number}")];
                for (at, (disk, serial)) in disks.iter().enumerate() {
                    let on_bus = format!("{number}-{at}");
                    let place = format!("bus=bus{number}.0,scsi-id={at}");
                    options.extend(drive(&on_bus, disk));
                    let disk = format!("scsi-hd,drive=disk{on_bus},{place},serial={serial}");
                    options.extend(["-device".into(), disk]);
                }
                options
            }
            Device::Discard(disk) => {
                let [option, medium] = drive(number, disk);
                let disk = format!("virtio-blk-pci,drive=disk{number},discard=on,write-zeroes=off");
                vec![option, medium + ",discard=unmap", "-device".into(), disk]
            }
            Device::Forward(port) => {
                let forward = format!("hostfwd=tcp:127.0.0.1:{port}-10.0.3.15:3260");
                let host = format!("user,id=forward,net=10.0.3.0/24,{forward}");
                // Behind the card that every guest has: the kernel counts them by their slots.
                let card = "virtio-net-pci,netdev=forward,romfile=,addr=0x1d".into();
                vec!["-netdev".into(), host, "-device".into(), card]
            }
            Device::Tap(tap, mac) => {
                let host = format!("tap,id=tap,ifname={tap},script=no,downscript=no");
                let card = format!("virtio-net-pci,netdev=tap,mac={mac},romfile=,addr=0x1e");
                vec!["-netdev".into(), host, "-device".into(), card]
            }
        }
    }
}

/// See the module.
pub struct SharedGuest {
    image: Image,
    devices: Vec<String>,
    /// None: not booted yet, or the last script failed.
    running: Option<Running>,
}

impl SharedGuest {
    /// A guest that the first script boots.
    pub fn new(image: Image, devices: &[Device<'_>]) -> SharedGuest {
        let devices = devices.iter().enumerate();
        let devices = devices.flat_map(|(number, device)| device.options(number)).collect();
        SharedGuest { image, devices, running: None }
    }

    /// Like [`super::boot()`], in the guest of the last script if that succeeded. The deadline
    /// counts from here.
    pub fn run(
        &mut self,
        script: &Script,
        how: Boot,
        on_line: &mut dyn FnMut(&str, &mut Console) -> Result<()>,
    ) -> Result<Run> {
        let mut running = match self.running.take() {
            Some(mut running) => {
                let port = offer(Image::steps(script))?;
                running.send(&format!("http://{HOST}:{port}/"))?;
                running
            }
            None => {
                let mut marked = script.clone();
                marked.file(MARK, "");
                Running::boot(&self.image, &marked, how.core, &self.devices)?
            }
        };
        let record = running.follow(script, how.deadline, on_line);
        if record.succeeded() {
            self.running = Some(running);
            return Ok(record.finish());
        }
        Ok(running.end(record))
    }
}

/// Serves bytes to the first client of a port of the loopback.
fn offer(bytes: Vec<u8>) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen for the guest")?;
    let port = listener.local_addr()?.port();
    // A guest that does not load it fails its script.
    std::thread::spawn(move || serve(&listener, &bytes));
    Ok(port)
}

/// Answers one HTTP request.
fn serve(listener: &TcpListener, bytes: &[u8]) -> io::Result<()> {
    let (mut line, _) = listener.accept()?;
    line.set_read_timeout(Some(LOAD_LIMIT))?;
    line.set_write_timeout(Some(LOAD_LIMIT))?;
    let mut reader = BufReader::new(line.try_clone()?);
    let mut request = String::new();
    // An empty line ends the request.
    while reader.read_line(&mut request)? > "\r\n".len() {}
    write!(line, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
    line.write_all(bytes)?;
    line.shutdown(Shutdown::Write)?;
    io::copy(&mut reader, &mut io::sink()).map(drop)
}

/// Runs every check, also after one that failed, and reports all failures at the end.
/// `ASHLAR_CHECK=NAME` runs one of them.
///
/// # Panics
///
/// If a check panicked, or no check has the name in `ASHLAR_CHECK`.
pub fn run_checks<T>(shared: &mut T, checks: &[(&str, fn(&mut T))]) {
    let only = std::env::var(ONLY).ok();
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let (mut ran, mut failed) = (0, Vec::new());
    for (name, check) in checks.iter().filter(|(name, _)| wanted(name)) {
        println!("check {name}");
        ran += 1;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(shared))) {
            failed.push(format!("check {name}: {}", message(&*panic)));
        }
    }
    assert!(ran > 0, "{ONLY}: no check has this name ({only:?})");
    assert!(failed.is_empty(), "{} of {ran} checks failed\n{}", failed.len(), failed.join("\n"));
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&'static str>().copied());
    text.unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_runs_and_every_failure_is_named() {
        let mut calls = Vec::new();
        let checks: &[(&str, fn(&mut Vec<u8>))] = &[
            ("first", |calls| calls.push(1)),
            ("second", |_| panic!("no disk")),
            ("third", |calls| calls.push(3)),
            ("fourth", |_| assert_eq!(1, 2, "two sessions")),
        ];
        let panic = catch_unwind(AssertUnwindSafe(|| run_checks(&mut calls, checks))).unwrap_err();
        assert_eq!(calls, [1, 3]);
        let text = message(&*panic);
        for part in ["2 of 4 checks failed", "check second: no disk", "check fourth: assert"] {
            assert!(text.contains(part), "no `{part}` in: {text}");
        }
    }

    #[test]
    fn a_script_is_offered_over_http() {
        use std::io::Read;
        let port = offer(b"070701".to_vec()).unwrap();
        let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\n070701");
    }

    #[test]
    fn devices_have_names_of_their_own() {
        let bus = [(PathBuf::from("/c"), "two".to_owned())];
        let devices = [
            Device::Scsi(Path::new("/a"), "one"),
            Device::Discard(Path::new("/b")),
            Device::Forward(7),
            Device::Tap("tap0", "02:00:00:00:00:07"),
            Device::ScsiBus(&bus),
        ];
        let options = devices.iter().enumerate().flat_map(|(number, d)| d.options(number));
        let options = options.collect::<Vec<_>>().join(" ");
        for part in ["file=/a,format=raw,if=none,id=disk0", "scsi-hd,drive=disk0,bus=scsi0.0,"] {
            assert!(options.contains(part), "no `{part}` in: {options}");
        }
        assert!(options.contains("id=disk1,discard=unmap -device virtio-blk-pci,drive=disk1,"));
        let on_bus = "scsi-hd,drive=disk4-0,bus=bus4.0,scsi-id=0,serial=two";
        assert!(options.contains("id=disk4-0 ") && options.contains(on_bus), "{options}");
        let cards = ["netdev=forward,romfile=,addr=0x1d", "netdev=tap,mac=02:00:00:00:00:07,"];
        assert!(cards.iter().all(|card| options.contains(card)), "{options}");
    }
}
