//! The Python client: its generator makes it of the program's own OpenAPI document, its types are
//! consistent, and it works over TLS with tokens. Needs Python 3.11 with venv, and is left out
//! without it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::papers::{Good, Papers};
use rig::{packages, proc};

use crate::fixture::Fixture;

/// The generator and the libraries, for pip.
const REQUIREMENTS: &str = include_str!("../../../../ci/packages/python.txt");

/// Those that the client itself does not need.
const TOOLS: [&str; 2] = ["openapi-python-client", "mypy"];

/// Longest installation by pip.
const INSTALL: Duration = Duration::from_secs(300);
/// Longest check of the types: every model is read.
const TYPES: Duration = Duration::from_secs(300);
/// Longest run of the generator, of a build, and of the client.
const RUN: Duration = Duration::from_secs(120);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/python")
}

#[track_caller]
fn run(command: &mut Command, limit: Duration) -> String {
    let ran = proc::run_limited(command, limit).unwrap();
    assert!(ran.ok(), "{ran:?}");
    ran.output
}

/// The programs of a virtual environment with the requirements. The environment is kept in the
/// cache of the rig while the requirements are the same.
fn environment() -> PathBuf {
    let test = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))";
    let is_usable = || {
        let python = proc::tool("python3").ok()?;
        let ran = proc::run_limited(Command::new(&python).args(["-c", test]), RUN).unwrap();
        ran.ok().then_some(python)
    };
    let python = is_usable().or_else(|| {
        packages::ensure_installed(packages::VENV_LIST).unwrap();
        is_usable()
    });
    let python = python.expect("Python 3.11 with venv");
    let home = packages::cache().unwrap().join("python");
    let (bin, complete) = (home.join("bin"), home.join(".complete"));
    if std::fs::read_to_string(&complete).is_ok_and(|installed| installed == REQUIREMENTS) {
        return bin;
    }
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&home), RUN);
    let list = home.join("requirements.txt");
    std::fs::write(&list, REQUIREMENTS).unwrap();
    let mut install = Command::new(bin.join("pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(list);
    run(&mut install, INSTALL);
    std::fs::write(complete, REQUIREMENTS).unwrap();
    bin
}

/// Generates the client, builds it, and installs it into the folder that is returned.
fn install(fixture: &Fixture, bin: &Path) -> PathBuf {
    let document = fixture.path("openapi.json");
    std::fs::write(&document, fixture.ok(&["openapi"])).unwrap();
    let (project, site) = (fixture.path("client"), fixture.path("site"));
    let path = std::env::join_paths([bin, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let mut generate = Command::new(folder().join("generate"));
    let said = run(generate.arg(&document).arg(&project).env("PATH", path), RUN);
    assert!(!said.contains("Warning"), "{said}");
    let mut build = Command::new(bin.join("pip"));
    build.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]);
    run(build.args(["--no-build-isolation", "--target"]).arg(&site).arg(&project), RUN);
    assert!(site.join("ashlar_client/py.typed").exists(), "the package has types");
    site
}

/// Checks the types of the part of the client that is not generated, and of a program that uses it.
fn check_types(fixture: &Fixture, bin: &Path, site: &Path) {
    let mut mypy = Command::new(bin.join("mypy"));
    mypy.args(["--strict", "-m", "ashlar_client.connect", "-m", "check", "--cache-dir"]);
    mypy.arg(fixture.path("mypy")).env("PYTHONPATH", site).env("MYPYPATH", folder());
    let said = run(&mut mypy, TYPES);
    assert!(said.contains("no issues found in 2 source files"), "{said}");
}

#[test]
fn python_client_is_generated_and_used_over_tls() {
    let bin = environment();
    let mut fixture = Fixture::new("python-client");
    let papers = Papers::new("python-client-papers").unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "server", "localhost", "subjectAltName=IP:127.0.0.1", Good::Now).unwrap();
    for (from, to) in [("server/server-cert.pem", "api.pem"), ("server/server-key.pem", "api.key")]
    {
        std::fs::copy(papers.file(from), fixture.path(to)).unwrap();
    }
    let port = proc::free_port().unwrap();
    let text = format!(
        "[api]\nlisten = [\"127.0.0.1:{port}\"]\ntls_certificate = \"api.pem\"\n\
         tls_key = \"api.key\"\n[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"8MiB\"\n"
    );
    fixture.configure(&text, "0 = \"d0\"");
    fixture.start();
    for role in ["admin", "viewer"] {
        let token = fixture.ok(&["token", "create", role, "--role", role]);
        fixture.secret(role, &token);
    }
    let is_open = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    fixture.until("the API is served", RUN, is_open);
    let site = install(&fixture, &bin);
    check_types(&fixture, &bin, &site);
    let mut check = Command::new(bin.join("python"));
    check.arg(folder().join("check.py")).arg(format!("https://127.0.0.1:{port}"));
    check.arg(papers.file("ca.pem"));
    for name in ["admin", "viewer", "ashlar.sock", "ashlar.toml"] {
        check.arg(fixture.path(name));
    }
    let said = run(check.env("PYTHONPATH", site), RUN);
    let done = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(done, 12, "{said}");
    fixture.stop();
}

#[test]
fn python_client_has_the_version_of_the_program() {
    let project = std::fs::read_to_string(folder().join("pyproject.toml")).unwrap();
    let version = format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"));
    assert!(project.contains(&version), "contrib/python/pyproject.toml: not{version}");
    let is_library = |line: &&str| !TOOLS.iter().any(|tool| line.starts_with(tool));
    for library in packages::names(REQUIREMENTS).into_iter().filter(is_library) {
        assert!(project.contains(library), "contrib/python/pyproject.toml: not {library}");
    }
}
