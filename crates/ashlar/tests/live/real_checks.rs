//! Two guests that many checks share: one uses daemons of this machine, the other has the daemon in
//! it. A check is the function `check` of its module, with a daemon of its own. All checks run, and
//! every failure is reported with the name of its check. Two boots.
//!
//! One check: `ASHLAR_CHECK=nvme cargo test -p ashlar --test live real_checks::daemons_of`.

use std::fs::File;
use std::path::PathBuf;

use rig::guest::{Device, Image, Kit, SharedGuest, run_checks};
use rig::proc::{self, Scratch, free_port};

use crate::fixture::MachineLock;
use crate::real_tap::Tap;
use crate::{
    real_aoe, real_discard, real_disk, real_gateways, real_kernel, real_layers, real_lio,
    real_local, real_missing, real_multipath, real_nbd, real_nvme, real_queues, real_sg, real_tap,
    real_tools,
};

/// A guest that uses daemons of this machine.
struct Host {
    guest: SharedGuest,
    /// The port of this machine that leads to the guest's own target.
    port: u16,
    /// The end of a cable whose other end is the guest's card `eth2`.
    tap: Tap,
}

/// Checks of daemons of this machine. LIO is last: nothing removes its configuration.
const OF_HOST: &[(&str, fn(&mut Host))] = &[
    ("kernel", |host| real_kernel::check(&mut host.guest)),
    ("tools", |host| real_tools::check(&mut host.guest)),
    ("disk", |host| real_disk::check(&mut host.guest)),
    ("layers", |host| real_layers::check(&mut host.guest)),
    ("multipath", |host| real_multipath::check(&mut host.guest)),
    ("nbd", |host| real_nbd::check(&mut host.guest)),
    ("nvme", |host| real_nvme::check(&mut host.guest)),
    ("gateways", |host| real_gateways::check(&mut host.guest)),
    ("queues", |host| real_queues::check(&mut host.guest)),
    ("missing", |host| real_missing::check(&mut host.guest)),
    ("tap", |host| real_tap::check(&mut host.guest, &host.tap)),
    ("lio", |host| real_lio::check(&mut host.guest, host.port)),
];

/// A guest with the program `ashlar` and two disks.
struct Machine {
    guest: SharedGuest,
    /// Image of its SCSI disk with the serial number `one`.
    scsi: PathBuf,
    /// Image of its virtio disk.
    virtio: PathBuf,
}

/// Checks of the daemon in the guest. `discard` loads the emulated SCSI disk with other parameters,
/// `aoe` leaves a cable and a shelf.
const OF_MACHINE: &[(&str, fn(&mut Machine))] = &[
    ("local", |machine| real_local::check(&mut machine.guest)),
    ("sg", |machine| real_sg::check(&mut machine.guest, &machine.scsi)),
    ("discard", |machine| real_discard::check(&mut machine.guest, &machine.virtio)),
    ("aoe", |machine| real_aoe::check(&mut machine.guest)),
];

#[test]
fn daemons_of_this_machine_serve_a_real_kernel() {
    let _turn = MachineLock::exclusive();
    let tools = [Kit::ScsiTools, Kit::FileSystems, Kit::Multipath];
    let kits = [&tools[..], &[Kit::Nbd, Kit::Nvme, Kit::Aoe, Kit::Lio]].concat();
    let image = Image::with_kits(&kits).unwrap();
    let port = free_port().unwrap();
    let tap = Tap::new();
    let devices = [Device::Forward(port), Device::Tap(tap.name(), real_tap::GUEST)];
    let guest = SharedGuest::new(image, &devices);
    run_checks(&mut Host { guest, port, tap }, OF_HOST);
}

#[test]
fn the_daemon_in_a_guest_uses_and_serves_its_kernel() {
    let _turn = MachineLock::exclusive();
    let scratch = Scratch::new("machine").unwrap();
    let program = proc::stripped(env!("CARGO_BIN_EXE_ashlar"), scratch.path()).unwrap();
    let kits = [Kit::Local, Kit::FileSystems, Kit::ScsiDisks, Kit::VirtioDisks, Kit::Aoe];
    let image = Image::with_programs(&kits, &[(program.as_path(), "bin/ashlar")]).unwrap();
    let disk = |name: &str, bytes: u64| {
        let path = scratch.path().join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    };
    let scsi = disk("scsi.img", real_sg::DISK_BYTES);
    let virtio = disk("virtio.img", real_discard::DISK_BYTES);
    let devices = [Device::Scsi(&scsi, "one"), Device::Discard(&virtio)];
    let guest = SharedGuest::new(image, &devices);
    run_checks(&mut Machine { guest, scsi, virtio }, OF_MACHINE);
}
