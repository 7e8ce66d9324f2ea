//! Virtual Ethernet cable (veth) with both ends on this machine. Needs root.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Two connected interfaces, which are removed when this is dropped.
pub struct Cable {
    /// Names of the interfaces.
    pub ends: [String; 2],
}

/// Runs `ip`, which must succeed.
///
/// # Panics
///
/// When it fails.
pub fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip is there (iproute2)");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {why}", words.join(" "));
}

impl Cable {
    /// A cable for frames of up to `mtu` bytes, with both interfaces up.
    pub fn create(mtu: &str) -> Cable {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("tk{end}{}-{number}", std::process::id());
        let cable = Cable { ends: [name('a'), name('b')] };
        let [a, b] = &cable.ends;
        ip(&["link", "add", a, "mtu", mtu, "type", "veth", "peer", "name", b, "mtu", mtu]);
        cable.up(0);
        cable.up(1);
        cable
    }

    /// Sets an interface up.
    pub fn up(&self, end: usize) {
        ip(&["link", "set", &self.ends[end], "up"]);
    }

    /// Changes the longest frame of both interfaces.
    pub fn mtu(&self, mtu: &str) {
        self.ends.iter().for_each(|end| ip(&["link", "set", end, "mtu", mtu]));
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // The peer is removed too.
        let _ = Command::new("ip").args(["link", "del", &self.ends[0]]).status();
    }
}
