//! Packaged files under the tools that read them.

use std::path::Path;
use std::process::Command;

use rig::packages;

use crate::fixture::MachineLock;

const PACKAGES: &str = include_str!("../../../../ci/packages/packaging.txt");

/// Features of the kernel for which the profile is compiled: the running one may have no AppArmor.
const FEATURES: &str = "/etc/apparmor.d/abi/3.0";

#[test]
fn apparmor_profile_is_compiled() {
    let _turn = MachineLock::share();
    packages::ensure_installed(PACKAGES).unwrap();
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/apparmor/ashlar");
    // Nothing is loaded into the kernel, and no cache is read or written.
    let mut command = Command::new("/usr/sbin/apparmor_parser");
    command.args(["--skip-kernel-load", "--skip-cache", "--features-file", FEATURES]);
    let done = command.arg(profile).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
