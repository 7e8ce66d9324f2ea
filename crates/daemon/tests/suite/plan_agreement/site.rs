//! Folder with the files that the configurations name: an image under two names, secrets, and
//! certificates, which are made once for all walks.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use rig::papers::{Good, Papers};
use testkit::Folder;

/// Names of the files of TLS in a site. The second key is that of another certificate.
const TLS_FILES: [(&str, &str); 4] = [
    ("ca.pem", "ca.pem"),
    ("server/server-cert.pem", "own.pem"),
    ("server/server-key.pem", "own.key"),
    ("other/client-key.pem", "other.key"),
];

/// The certificates of all sites.
pub fn papers() -> Papers {
    rig::packages::ensure_host().expect("openssl");
    let papers = Papers::new("plan-agreement").expect("a folder");
    papers.authority("ca").expect("an authority");
    for name in ["server", "other"] {
        let names = "subjectAltName=DNS:localhost";
        papers.sign("ca", name, "localhost", names, Good::Now).expect("a certificate");
    }
    papers
}

/// The folder of a walk, removed on drop.
pub struct Site(pub Folder);

impl Site {
    pub fn new(seed: u64, papers: &Papers) -> Site {
        let site = Site(Folder::new(&format!("plan-agreement-{seed}")));
        symlink("image", site.0.join("alias")).expect("a link");
        let secrets = [("good", 0o600), ("back", 0o600), ("open", 0o644)];
        for (name, mode) in secrets {
            let path = site.0.join(name);
            std::fs::write(&path, format!("a secret that is long enough: {name}")).expect(name);
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
        }
        for (from, to) in TLS_FILES {
            std::fs::copy(papers.file(from), site.0.join(to)).expect(to);
        }
        site
    }
}
