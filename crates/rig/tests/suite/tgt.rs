//! The rig shown against Debian's tgt, without a guest: tools, costs, the conformance suite.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rig::peer::{self, Load, Store, Tgt, TgtConfig};
use rig::proc::{self, Scratch};
use rig::testcu::{self, Flavour, Outcome};
use rig::{Chap, packages};

const DISK_BYTES: u64 = 256 << 20;

fn file_backed(scratch: &Scratch, chap: Option<Chap>) -> Tgt {
    packages::ensure_host().unwrap();
    let image = scratch.path().join("disk.img");
    File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
    let mut config = TgtConfig::new(Store::File(image));
    config.chap = chap;
    Tgt::start(config).unwrap()
}

#[test]
fn conformance_results_of_tgt_match_the_expectations() {
    let _turn = crate::turn();
    let scratch = Scratch::new("testcu").unwrap();
    let tgt = file_backed(&scratch, None);
    let report = testcu::run_all(&[Flavour::new("thin", tgt.target().url())]).unwrap();
    println!("iscsi-test-cu against tgt: {}", report.summary());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tgt-testcu.txt");
    report.assert_expected(&file, "RIG_TESTCU_WRITE");
    assert!(report.count(Outcome::Pass) >= 165, "{}", report.summary());
}

#[test]
fn libiscsi_tools_work_before_and_after_a_target_kill() {
    let _turn = crate::turn();
    let scratch = Scratch::new("tools").unwrap();
    let mut tgt = file_backed(&scratch, None);
    let url = tgt.target().url();
    let listing = peer::iscsi_ls(tgt.target().portal).unwrap();
    assert!(listing.contains(&tgt.target().iqn) && listing.contains("Size:255M"), "{listing}");
    assert!(peer::iscsi_inq(&url, None).unwrap().contains("DIRECT_ACCESS"));
    assert!(peer::iscsi_inq(&url, Some(0)).unwrap().contains("SUPPORTED_VPD_PAGES"));

    peer::qemu_io(&url, &["write -P 0x5a 1M 64k", "flush"]).unwrap();
    let old = tgt.pid().unwrap();
    tgt.kill().unwrap();
    assert!(peer::qemu_io(&url, &["read 0 4k"]).is_err(), "a killed target answers");
    tgt.restart().unwrap();
    assert_ne!(tgt.pid().unwrap(), old);
    peer::qemu_io(&url, &["read -P 0x5a 1M 64k", "read -P 0 0 4k"]).unwrap();
    assert!(peer::qemu_io(&url, &["read -P 0x5b 1M 64k"]).is_err(), "a wrong pattern passes");

    let copy = scratch.path().join("copy.img");
    peer::download(&url, &copy).unwrap();
    let mut bytes = Vec::new();
    File::open(&copy).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, DISK_BYTES);
    let written = (1 << 20)..(1 << 20) + (64 << 10);
    assert!(bytes[written.clone()].iter().all(|byte| *byte == 0x5a));
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), written.len());
}

#[test]
fn chap_login_needs_the_right_secret() {
    let _turn = crate::turn();
    let scratch = Scratch::new("chap").unwrap();
    let chap = Chap { user: "alice".into(), secret: "twelve-bytes!".into(), mutual: None };
    let tgt = file_backed(&scratch, Some(chap.clone()));
    peer::iscsi_inq(&tgt.target().url_with(&chap), None).unwrap();
    assert!(peer::iscsi_inq(&tgt.target().url(), None).is_err(), "let in without a secret");
    let wrong = Chap { secret: "another-secret".into(), ..chap };
    assert!(peer::iscsi_inq(&tgt.target().url_with(&wrong), None).is_err(), "a wrong secret");
}

#[test]
fn costs_of_a_null_peer_are_counted() {
    let _turn = crate::turn();
    packages::ensure_host().unwrap();
    let config = TgtConfig { core: Some(0), ..TgtConfig::new(Store::Null) };
    let tgt = Tgt::start(config).unwrap();
    let (pid, url) = (tgt.pid().unwrap(), tgt.target().url());
    let load = Load { depth: 32, blocks: 8, random: true, seconds: 1, core: None };
    let (rate, counts) = proc::counts_during(pid, || peer::iscsi_perf(&url, load)).unwrap();
    let requests = rate * f64::from(load.seconds);
    let cpu_us = counts.cpu_ns as f64 / 1e3 / requests;
    println!("tgt, null store, 4 KiB at depth 32: {rate:.0} a second, {cpu_us:.2} us each");
    println!("{counts:?}");
    assert!(rate > 100.0, "{rate}");
    assert!(counts.cpu_ns > 0 && counts.took >= Duration::from_secs(1), "{counts:?}");
    if let Some(syscalls) = counts.syscalls {
        assert!(syscalls > 100, "{counts:?}");
    }
    assert!(proc::resident_bytes(pid).unwrap() > 100_000);
}
