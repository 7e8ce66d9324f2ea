//! Optional parts of a guest beyond the initiator and ext4: modules, programs, files, by purpose.

use std::path::Path;

use anyhow::{Context, Result};

/// A set of tools for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kit {
    /// udevd with Debian's rules, dm-multipath and multipathd. `start_udevd` and
    /// `start_multipathd` of `lib.sh` run them.
    Multipath,
    /// sg3_utils, ddpt and the generic SCSI driver.
    ScsiTools,
    /// XFS, and the tools that check, grow and trim it and ext4.
    FileSystems,
    /// The kernel's network block device and its client.
    Nbd,
    /// The kernel's host of NVMe over TCP, and nvme-cli.
    Nvme,
    /// Linux' own RAID, and mdadm.
    Raid,
    /// dmraid, and the kernel modules for the devices that it creates.
    Dmraid,
    /// Parts that a daemon in the guest needs to make LUNs block devices there.
    Local,
    /// The kernel's client of 9P, with a kernel that has one; git and rsync.
    Ninep,
    /// SCSI disks of the guest's own, and the kernel's emulated one, which can inject failures.
    ScsiDisks,
    /// Disks behind virtio.
    VirtioDisks,
    /// The kernel's AoE driver, its tools, and two ends of an Ethernet cable that can drop frames.
    Aoe,
    /// The kernel's own iSCSI target, which configfs configures.
    Lio,
}

#[derive(Default)]
pub(super) struct Parts {
    /// Modules by name; their dependencies are found in the modules themselves.
    pub modules: &'static [&'static str],
    /// Programs of the host's own packages, by name; they are copied to /usr/sbin.
    pub host: &'static [&'static str],
    /// Programs and plug-ins in the unpacked packages, at the same place in the guest.
    pub unpacked: &'static [&'static str],
    /// Libraries that programs load by name while they run.
    pub loaded: &'static [&'static str],
    /// Other files of the unpacked packages.
    pub files: &'static [&'static str],
    /// Files of the rig's own: place, text.
    pub own: &'static [(&'static str, &'static str)],
    /// Links: name and target.
    pub links: &'static [(&'static str, &'static str)],
}

/// Paths are checked every second, and no request fails while no path is left. The map's name is
/// the unit's identity that udev knows (its designator of VPD page 83h).
const MULTIPATH_CONF: &str = "\
defaults {
    polling_interval 1
    max_polling_interval 1
    path_checker tur
    checker_timeout 5
    path_grouping_policy multibus
    path_selector \"round-robin 0\"
    no_path_retry queue
    user_friendly_names no
    find_multipaths no
    fast_io_fail_tmo 2
    verbosity 2
}
";

const BASE: Parts = Parts {
    modules: &[
        "virtio_pci",
        "virtio_net", // the network card
        "scsi_transport_iscsi",
        "iscsi_tcp",
        "sd_mod", // the initiator and its disks
        "crc32c_generic",
        "ext4",
        "nls_ascii", // checksums, the file system
    ],
    host: &["mke2fs"],
    unpacked: &["sbin/iscsid", "sbin/iscsiadm"],
    loaded: &[],
    files: &[],
    own: &[
        ("etc/passwd", "root::0:0:root:/:/bin/sh\n"),
        ("etc/group", "root:x:0:\ndisk:x:6:\ntty:x:5:\n"),
        ("etc/iscsi/iscsid.conf", "node.startup = manual\n"),
    ],
    links: &[],
};

const MULTIPATH: Parts = Parts {
    modules: &["dm_mod", "dm_multipath", "dm_round_robin", "dm_service_time"],
    host: &[],
    unpacked: &[
        "bin/udevadm",
        "lib/udev/scsi_id",
        "sbin/dmsetup",
        "sbin/kpartx",
        "sbin/multipath",
        "sbin/multipathd",
        "lib/multipath/libchecktur.so",
        "lib/multipath/libcheckdirectio.so",
        "lib/multipath/libpriosysfs.so",
        "lib/multipath/libprioalua.so",
        "lib/multipath/libprioconst.so",
    ],
    // The C library wants it to end a thread.
    loaded: &["libgcc_s.so.1"],
    files: &[
        "lib/udev/rules.d/50-udev-default.rules",
        "lib/udev/rules.d/55-dm.rules",
        "lib/udev/rules.d/56-dm-mpath.rules",
        "lib/udev/rules.d/60-block.rules",
        "lib/udev/rules.d/60-multipath.rules",
        "lib/udev/rules.d/60-persistent-storage.rules",
        "lib/udev/rules.d/60-persistent-storage-dm.rules",
        "lib/udev/rules.d/95-dm-notify.rules",
    ],
    own: &[("etc/multipath.conf", MULTIPATH_CONF), ("etc/udev/udev.conf", "")],
    links: &[("lib/systemd/systemd-udevd", "/bin/udevadm")],
};

const SCSI_TOOLS: Parts = Parts {
    modules: &["sg"],
    host: &[],
    unpacked: &[
        "usr/bin/ddpt",
        "usr/bin/ddptctl",
        "usr/bin/sg_compare_and_write",
        "usr/bin/sg_copy_results",
        "usr/bin/sg_format",
        "usr/bin/sg_get_lba_status",
        "usr/bin/sg_inq",
        "usr/bin/sg_logs",
        "usr/bin/sg_luns",
        "usr/bin/sg_modes",
        "usr/bin/sg_opcodes",
        "usr/bin/sg_persist",
        "usr/bin/sg_raw",
        "usr/bin/sg_readcap",
        "usr/bin/sg_requests",
        "usr/bin/sg_reset",
        "usr/bin/sg_rtpg",
        "usr/bin/sg_sanitize",
        "usr/bin/sg_start",
        "usr/bin/sg_stpg",
        "usr/bin/sg_sync",
        "usr/bin/sg_timestamp",
        "usr/bin/sg_turs",
        "usr/bin/sg_unmap",
        "usr/bin/sg_verify",
        "usr/bin/sg_vpd",
        "usr/bin/sg_wr_mode",
        "usr/bin/sg_write_same",
        "usr/bin/sg_write_x",
        "usr/bin/sg_xcopy",
    ],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

const SCSI_DISKS: Parts = Parts {
    modules: &["virtio_scsi", "sg", "scsi_debug"],
    host: &[],
    unpacked: &["usr/bin/sg_raw", "usr/bin/sg_turs"],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

const VIRTIO_DISKS: Parts = Parts {
    modules: &["virtio_blk"],
    host: &[],
    unpacked: &[],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

const FILE_SYSTEMS: Parts = Parts {
    modules: &["xfs"],
    host: &["resize2fs", "e2fsck", "fstrim"],
    unpacked: &["sbin/mkfs.xfs", "sbin/xfs_repair", "usr/sbin/xfs_growfs"],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

const NBD: Parts = Parts {
    modules: &["nbd"],
    host: &[],
    unpacked: &["sbin/nbd-client"],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

const NVME: Parts = Parts {
    modules: &["nvme_tcp"],
    // That of busybox knows less.
    host: &["blkdiscard"],
    unpacked: &["usr/sbin/nvme"],
    loaded: &[],
    files: &[],
    own: &[
        ("etc/nvme/hostnqn", "nqn.2026-11.test.ashlar:guest\n"),
        ("etc/nvme/hostid", "5f1e0c1a-7c1e-4b55-9c53-0b7d3e6c2a11\n"),
    ],
    links: &[],
};

const LOCAL: Parts = Parts {
    modules: &["nbd", "fuse", "loop"],
    // Those of busybox know less.
    host: &["losetup", "sync"],
    unpacked: &[],
    // The C library wants it to end a thread.
    loaded: &["libgcc_s.so.1"],
    files: &[],
    own: &[],
    links: &[],
};

const NINEP: Parts = Parts {
    modules: &["9pnet_fd", "9p"],
    host: &["git", "rsync"],
    unpacked: &[],
    loaded: &["libgcc_s.so.1"],
    files: &[],
    own: &[],
    // Programs that git runs are itself under other names.
    links: &[
        ("usr/lib/git-core/git", "/usr/sbin/git"),
        ("usr/lib/git-core/git-upload-pack", "/usr/sbin/git"),
        ("usr/lib/git-core/git-receive-pack", "/usr/sbin/git"),
    ],
};

const AOE: Parts = Parts {
    modules: &["aoe", "veth", "sch_netem"],
    host: &["ip", "tc", "aoeping", "aoecfg"],
    unpacked: &[],
    // The C library wants it to end a thread.
    loaded: &["libgcc_s.so.1"],
    files: &[],
    own: &[],
    links: &[],
};

const LIO: Parts = Parts {
    modules: &["target_core_mod", "target_core_file", "iscsi_target_mod"],
    host: &[],
    unpacked: &[],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

const RAID: Parts = Parts {
    modules: &["virtio_blk", "md_mod", "raid0", "raid1", "raid10", "raid456"],
    host: &["mdadm", "mdmon"],
    unpacked: &[],
    loaded: &["libgcc_s.so.1"],
    files: &[],
    own: &[],
    links: &[("sbin/mdmon", "/usr/sbin/mdmon"), ("sbin/mdadm", "/usr/sbin/mdadm")],
};

const DMRAID: Parts = Parts {
    modules: &["virtio_scsi", "dm_mod", "dm_mirror", "dm_raid"],
    host: &[],
    unpacked: &["sbin/dmraid", "sbin/dmsetup"],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

/// Parts of every guest, followed by those of the kits, in order.
pub(super) fn parts(kits: &[Kit]) -> Vec<Parts> {
    let more = kits.iter().map(|kit| match kit {
        Kit::Multipath => MULTIPATH,
        Kit::ScsiTools => SCSI_TOOLS,
        Kit::ScsiDisks => SCSI_DISKS,
        Kit::VirtioDisks => VIRTIO_DISKS,
        Kit::FileSystems => FILE_SYSTEMS,
        Kit::Nbd => NBD,
        Kit::Nvme => NVME,
        Kit::Local => LOCAL,
        Kit::Aoe => AOE,
        Kit::Lio => LIO,
        Kit::Ninep => NINEP,
        Kit::Raid => RAID,
        Kit::Dmraid => DMRAID,
    });
    std::iter::once(BASE).chain(more).collect()
}

/// The bytes of a file of the unpacked packages, also where a later Debian moved it below /usr.
pub(super) fn find(unpacked: &Path, file: &str) -> Result<std::path::PathBuf> {
    let places = [unpacked.join(file), unpacked.join("usr").join(file)];
    let found = places.into_iter().find(|place| place.is_file());
    found.with_context(|| format!("no {file} in the unpacked packages: see ci/packages/guest.txt"))
}
