//! Arrays that a Linux in a guest and the class here use in turn: disks as images, names, and the
//! common parts of the guest's steps.

use std::fmt::Write;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use geom::Access;
use md5::{Digest, Md5};
use rig::guest::{Boot, Device, Image, Kit, Run, Script, SharedGuest};
use rig::proc::Scratch;

use crate::world::{Disk, Media, World};

/// Bytes that are written and compared.
pub const BYTES: usize = 1 << 20;

/// Size of every disk; records of DDF take most of it.
pub const DISK_BYTES: usize = 48 << 20;

/// Disks of the guest: as many as its largest check uses.
const DISKS: usize = 25;

/// Longest time for a script of a guest.
const DEADLINE: Duration = Duration::from_secs(900);

/// A guest with Linux' own RAID and dmraid, for one check after the other.
pub struct LinuxRaid {
    guest: SharedGuest,
    /// Images of its disks, in the order of [`device`]. A check saves those that it uses, first.
    pub images: Vec<PathBuf>,
    /// Images and serial numbers of its SCSI disks, which dmraid reads.
    pub scsi: Vec<(PathBuf, String)>,
    /// Has the images.
    _scratch: Scratch,
}

impl LinuxRaid {
    /// With empty disks, and SCSI disks of these serial numbers. The first script boots it.
    pub fn new(serials: Vec<String>) -> LinuxRaid {
        let scratch = Scratch::new("raid-guest").expect("a folder");
        let image = |name: &str| {
            let path = scratch.path().join(format!("{name}.img"));
            let file = File::create(&path).expect("an image");
            file.set_len(DISK_BYTES as u64).expect("a size");
            path
        };
        let images: Vec<PathBuf> = (0..DISKS).map(|n| image(&n.to_string())).collect();
        let scsi: Vec<_> = serials.into_iter().map(|serial| (image(&serial), serial)).collect();
        let disks = images.iter().map(|path| Device::Disk(path));
        let devices: Vec<Device<'_>> = disks.chain([Device::ScsiBus(&scsi)]).collect();
        let image = Image::with_kits(&[Kit::Dmraid, Kit::Raid]).expect("an image");
        let guest = SharedGuest::new(image, &devices);
        LinuxRaid { guest, images, scsi, _scratch: scratch }
    }

    /// The guest runs a script, which must succeed.
    pub fn play(&mut self, script: &Script) -> Run {
        let how = Boot { deadline: DEADLINE, core: None };
        let run = self.guest.run(script, how, &mut |_, _| Ok(())).expect("a guest");
        run.expect_ok().unwrap_or_else(|e| panic!("{e:#}"));
        println!("{}", run.summary());
        run
    }
}

pub fn sum(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The guest's name of disk number `n`.
pub fn device(n: usize) -> String {
    format!("/dev/vd{}", char::from(b'a' + n as u8))
}

pub fn disk_of(bytes: Vec<u8>) -> Disk {
    let media = Media { durable: bytes.clone(), bytes, ..Media::default() };
    Disk(Arc::new(Mutex::new(media)))
}

pub fn attach(world: &mut World, first: usize, disks: &[Disk]) {
    for (i, disk) in disks.iter().enumerate() {
        let device = device(first + i);
        let name = device.trim_start_matches("/dev/");
        world.attach_as(name, &device, disk, 512, (0, 0));
    }
}

pub fn has_volume(control: &geom::GraphControl) -> bool {
    let view = control.topology.view(0);
    view.iter().any(|g| g.class == "raid" && !g.withering && !g.providers.is_empty())
}

/// Waits until the volume is there and in order.
pub fn in_order(world: &mut World) {
    let story = |w: &World| {
        let view = w.control.topology.view(0);
        view.iter().map(|g| format!("{:?}\n", g.show)).collect::<String>()
    };
    assert!(world.control.wait_until(Duration::from_secs(40), has_volume), "{}", story(world));
    for _ in 0..2000 {
        let view = world.control.topology.view(0);
        let geom = view.iter().find(|g| g.class == "raid" && !g.withering).expect("an array");
        let show: String = geom.show.iter().map(|(_, v)| v.clone() + "\n").collect();
        if geom.show[0].1 == "OPTIMAL" && !show.contains("dirty") {
            return world.control.settle().expect("at rest");
        }
        world.control.wait_until(Duration::from_millis(5), |_| false);
    }
    panic!("{}", story(world));
}

pub fn read(world: &mut World, len: usize) -> Vec<u8> {
    let open = world.open(&world.volume(), Access::READ);
    let bytes = world.read(&open, 0, len).expect("read");
    world.close(open);
    bytes
}

pub const ENV: &str = "export IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1 MDADM_NO_UDEV=1
mkdir -p /dev/md /run/mdadm /etc
echo 'AUTO +imsm +ddf' >/etc/mdadm.conf
";

/// The array that is not a container.
pub const FIND: &str = "found=$(awk '/ raid[0-9]/ { print $1 }' /proc/mdstat | head -n 1)
[ -n \"$found\" ] || { cat /proc/mdstat; exit 1; }
[ -b /dev/$found ] || mknod /dev/$found b $(tr : ' ' </sys/block/$found/dev)
md=/dev/$found
";

pub const STOP: &str = "sync
action=/sys/block/$found/md/sync_action
within 30 sh -c \"[ ! -e $action ] || grep -q idle $action\"
within 10 mdadm --stop $md
within 10 mdadm --stop --scan
";
