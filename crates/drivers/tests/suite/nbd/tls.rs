//! Certificates made on the spot, clients of GnuTLS (libnbd, QEMU), and our server.

use std::path::PathBuf;

use rig::papers::{self, Good};
use serde_json::json;

use crate::nbd::server::{MEMORY_BYTES, Server, Shape};
use crate::nbd::tools::try_run;

/// A CA and the certificates that it signed, in folders as libnbd and QEMU want them.
pub struct Papers(papers::Papers);

impl Papers {
    pub fn new() -> Papers {
        rig::packages::ensure_host().unwrap();
        let papers = papers::Papers::new("drivers-nbd-tls").unwrap();
        let own = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        let alice = "subjectAltName=DNS:alice.example";
        papers.authority("ca").unwrap();
        papers.sign("ca", "server", "localhost", own, Good::Now).unwrap();
        papers.sign("ca", "alice", "alice", alice, Good::Now).unwrap();
        papers.authority("other").unwrap();
        papers.sign("other", "mallory", "alice", alice, Good::Now).unwrap();
        Papers(papers)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    pub fn params(&self, tls: &str, clients: bool) -> serde_json::Value {
        json!({
            "tls": tls,
            "tls_certificate": self.file("server/server-cert.pem"),
            "tls_key": self.file("server/server-key.pem"),
            "tls_client_ca": if clients { self.file("ca.pem") } else { PathBuf::new() },
        })
    }

    fn url(&self, server: &Server, who: &str, export: &str) -> String {
        let folder = self.file(who);
        let port = server.portal.port();
        format!("nbds://localhost:{port}/{export}?tls-certificates={}", folder.display())
    }
}

fn size(url: &str) -> Result<String, String> {
    try_run("nbdinfo", &["--size", url])
}

#[test]
fn client_is_identified_by_its_certificate() {
    let papers = Papers::new();
    let params = papers.params("require", true);
    let server = Server::start(Shape { params, ..Shape::default() });
    server.allow(&["tls:alice"]);
    let good = papers.url(&server, "alice", "memory");
    assert_eq!(size(&good).unwrap().trim(), MEMORY_BYTES.to_string());
    let plain = size(&server.url("memory")).unwrap_err();
    assert!(plain.contains("TLS"), "{plain}");
    assert!(size(&papers.url(&server, "mallory", "memory")).is_err(), "another CA's");
    let denied = server.registry.denied();
    assert!(denied.iter().any(|d| d.text.contains("TLS")), "{denied:?}");
    server.allow(&["tls:bob"]);
    assert!(size(&good).is_err(), "masked by name");
    let denied = server.registry.denied();
    assert_eq!(denied.last().unwrap().initiator, "tls:alice");
}

#[test]
fn data_is_transferred_over_tls_in_both_directions() {
    let papers = Papers::new();
    let params = papers.params("allow", true);
    let server = Server::start(Shape { params, ..Shape::default() });
    let bytes: Vec<u8> =
        (0..MEMORY_BYTES / 4).flat_map(|i| (i as u32 ^ 0x5a5a).to_le_bytes()).collect();
    let (up, down) = (papers.file("up"), papers.file("down"));
    std::fs::write(&up, &bytes).unwrap();
    let url = papers.url(&server, "alice", "memory");
    try_run("nbdcopy", &["--connections=3", up.to_str().unwrap(), &url]).unwrap();
    try_run("nbdcopy", &["--connections=2", &url, down.to_str().unwrap()]).unwrap();
    assert!(std::fs::read(&down).unwrap() == bytes);
    // The same in the clear, as `allow` permits.
    try_run("nbdcopy", &[&server.url("memory"), down.to_str().unwrap()]).unwrap();
    assert!(std::fs::read(&down).unwrap() == bytes);
    let creds =
        format!("tls-creds-x509,id=t,endpoint=client,dir={}", papers.file("alice").display());
    let image = format!(
        "driver=nbd,server.type=inet,server.host=localhost,server.port={},{}",
        server.portal.port(),
        "export=memory,tls-creds=t"
    );
    let out = try_run(
        "qemu-img",
        &[
            "compare",
            "--object",
            &creds,
            "--image-opts",
            &image,
            &format!("driver=raw,file.filename={}", up.display()),
        ],
    );
    assert!(out.unwrap().contains("identical"));
}

#[test]
fn nbdkit_connects_over_tls() {
    let papers = Papers::new();
    let params = papers.params("require", false);
    let server = Server::start(Shape { params, ..Shape::default() });
    let folder = format!("tls-certificates={}", papers.file("alice").display());
    let port = format!("port={}", server.portal.port());
    let out = try_run(
        "nbdkit",
        &[
            "-U",
            "-",
            "nbd",
            "hostname=localhost",
            &port,
            "export=memory",
            "tls=require",
            &folder,
            "--run",
            "nbdinfo --size \"$uri\"",
        ],
    );
    assert_eq!(out.unwrap().trim(), MEMORY_BYTES.to_string());
    // Without client certificates a client is known by its address.
    server.allow(&["ip:127.0.0.1"]);
    assert!(size(&papers.url(&server, "alice", "memory")).is_ok());
}

#[test]
fn targets_at_one_address_agree_about_tls() {
    let papers = Papers::new();
    let server = Server::start(Shape::default());
    let spec = drivers::TargetSpec {
        name: "second".into(),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        params: papers.params("require", true),
        ..drivers::TargetSpec::default()
    };
    let error = server.driver.set_target(spec).unwrap_err();
    assert!(error.message.contains("TLS"), "{error}");
}
