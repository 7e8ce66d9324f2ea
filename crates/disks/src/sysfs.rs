//! Kernel data about a block device in /sys and /proc. Missing or odd files are no error: the value
//! is then not known.

use std::path::{Path, PathBuf};

/// Longest file read, bytes; of a longer one the rest is ignored.
const TEXT_MAX: u64 = 64 * 1024;

/// The known properties of a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Its name in /dev, without the directory.
    pub(crate) name: String,
    /// Model, or another description.
    pub(crate) descr: String,
    /// Serial number; empty when there is none.
    pub(crate) serial: String,
    /// Its location in the machine.
    pub(crate) physpath: String,
    /// It rotates; None when the kernel does not report it.
    pub(crate) rotational: Option<bool>,
    /// Smallest unit of a discard, bytes; zero when it cannot.
    pub(crate) discard_granularity: u64,
    /// Start of the first such unit, bytes.
    pub(crate) discard_alignment: u64,
    /// Largest discard, bytes; zero when it cannot.
    pub(crate) discard_max: u64,
    /// Largest zeroing by command, bytes; zero when it cannot.
    pub(crate) zeroes_max: u64,
    /// Zeroing is known to write every block.
    pub(crate) zeroing_writes: bool,
    /// `write back` or `write through`.
    pub(crate) write_cache: String,
    /// Its physical blocks begin where it does.
    pub(crate) is_aligned: bool,
    /// The kernel refuses writers.
    pub(crate) read_only: bool,
}

fn text(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut out = Vec::new();
    std::fs::File::open(path).ok()?.take(TEXT_MAX).read_to_end(&mut out).ok()?;
    Some(String::from_utf8_lossy(&out).trim_matches(['\0', '\n', ' ']).to_string())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The serial number page of a SCSI disk: four bytes of header, then text (SPC, VPD page 80h).
fn serial_page(path: &Path) -> Option<String> {
    let page = std::fs::read(path).ok()?;
    let serial = String::from_utf8_lossy(page.get(4..)?).trim().to_string();
    (!serial.is_empty()).then_some(serial)
}

fn first(of: impl IntoIterator<Item = Option<String>>) -> String {
    of.into_iter().flatten().find(|s| !s.is_empty()).unwrap_or_default()
}

/// Looks a device up by its number.
pub(crate) fn facts(device: (u32, u32)) -> Facts {
    let link = PathBuf::from(format!("/sys/dev/block/{}:{}", device.0, device.1));
    let own = std::fs::canonicalize(&link).unwrap_or(link);
    let partition = text(&own.join("partition"));
    let disk = match &partition {
        Some(_) => own.parent().unwrap_or(&own).to_path_buf(),
        None => own.clone(),
    };
    let mut serial = first([
        text(&disk.join("serial")),
        text(&disk.join("device/serial")),
        serial_page(&disk.join("device/vpd_pg80")),
        text(&disk.join("dm/uuid")),
        text(&disk.join("wwid")),
        text(&disk.join("device/wwid")),
    ]);
    if let (Some(index), false) = (&partition, serial.is_empty()) {
        serial.push_str(&format!("-part{index}"));
    }
    let vendor = text(&disk.join("device/vendor")).filter(|v| !v.starts_with("0x"));
    let model = text(&disk.join("device/model"));
    let descr = first([
        model.map(|m| match vendor {
            Some(v) => format!("{v} {m}"),
            None => m,
        }),
        text(&disk.join("loop/backing_file")).map(|f| format!("loop device on {f}")),
        text(&disk.join("dm/name")).map(|n| format!("device mapper {n}")),
    ]);
    let queue = disk.join("queue");
    let name = own.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Facts {
        descr: if descr.is_empty() { format!("block device {name}") } else { descr },
        name,
        serial,
        physpath: own.strip_prefix("/sys/devices").unwrap_or(&own).display().to_string(),
        rotational: number(&queue.join("rotational")).map(|r| r != 0),
        discard_granularity: number(&queue.join("discard_granularity")).unwrap_or(0),
        discard_alignment: number(&own.join("discard_alignment")).unwrap_or(0),
        discard_max: number(&queue.join("discard_max_bytes")).unwrap_or(0),
        zeroes_max: number(&queue.join("write_zeroes_max_bytes")).unwrap_or(0),
        zeroing_writes: zeroing_writes(&disk),
        write_cache: text(&queue.join("write_cache")).unwrap_or_default(),
        is_aligned: number(&own.join("alignment_offset")) == Some(0),
        read_only: number(&own.join("ro")).is_some_and(|r| r != 0),
    }
}

/// Whether zeroing writes the blocks. A SCSI disk shows the kernel's choice (sd, `zeroing_mode`):
/// WRITE SAME that unmaps, or one that writes, or plain writes. Other disks report with Linux 6.17
/// that they unmap, but a disk that does not report it need not write either. A loop device does
/// not.
fn zeroing_writes(disk: &Path) -> bool {
    if number(&disk.join("queue/write_zeroes_unmap_max_hw_bytes")).is_some_and(|max| max > 0) {
        return false;
    }
    let units = std::fs::read_dir(disk.join("device/scsi_disk"));
    let modes = units.into_iter().flatten().flatten();
    modes
        .filter_map(|unit| text(&unit.path().join("zeroing_mode")))
        .any(|mode| mode == "write" || mode == "writesame")
}

/// The users of a device, in plain words: mounts of it and of its partitions, and devices that the
/// kernel has stacked on it. Empty when nothing is found.
pub(crate) fn users(device: (u32, u32)) -> Vec<String> {
    let link = PathBuf::from(format!("/sys/dev/block/{}:{}", device.0, device.1));
    let own = std::fs::canonicalize(&link).unwrap_or(link);
    let mut devices = vec![(format!("{}:{}", device.0, device.1), own.clone())];
    for entry in std::fs::read_dir(&own).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists()
            && let Some(dev) = text(&entry.path().join("dev"))
        {
            devices.push((dev, entry.path()));
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut out = Vec::new();
    for (number, path) in devices {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        for at in mounted_at(&mounts, &number) {
            out.push(format!("{name} is mounted at {at}"));
        }
        for holder in std::fs::read_dir(path.join("holders")).into_iter().flatten().flatten() {
            out.push(format!("{name} is part of {}", holder.file_name().to_string_lossy()));
        }
    }
    out
}

/// Mount points of a device number in the text of /proc/self/mountinfo (proc(5)): the third
/// field is the number, the fifth the mount point.
fn mounted_at<'a>(mounts: &'a str, number: &str) -> Vec<&'a str> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(2);
            (fields.next()? == number).then(|| fields.nth(1)).flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_by_number() {
        let text = "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n\
                    30 22 8:21 / /srv rw - xfs /dev/sdb5 rw\n\
                    31 22 8:2 /home /home rw - ext4 /dev/sda2 rw\n\
                    odd\n";
        assert_eq!(mounted_at(text, "8:2"), ["/", "/home"]);
        assert_eq!(mounted_at(text, "8:21"), ["/srv"]);
        assert!(mounted_at(text, "8:1").is_empty());
    }
}
