//! Files of the packages: every named file exists, both packages have the same files, and the tools
//! of systemd accept the units.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Highest exposure of the service in `systemd-analyze security`, tenths.
const EXPOSURE_MAX: &str = "20";

/// Destinations that only one of the packages has, or that differ by distribution.
const OWN_PLACES: &[&str] =
    &["usr/share/zsh/vendor-completions/", "usr/share/zsh/site-functions/", "usr/share/licenses/"];

fn manifest() -> String {
    fs::read_to_string(Path::new(ROOT).join("crates/ashlar/Cargo.toml")).expect("a manifest")
}

/// The lines of one table of the manifest.
fn table<'m>(manifest: &'m str, name: &str) -> Vec<&'m str> {
    let head = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| *line != head).skip(1);
    lines.take_while(|line| !line.starts_with('[')).collect()
}

/// The texts in quotation marks of a line.
fn quoted(line: &str) -> Vec<&str> {
    line.split('"').skip(1).step_by(2).collect()
}

/// Source, destination and mode of each file of a package.
fn assets<'m>(manifest: &'m str, name: &str) -> Vec<[&'m str; 3]> {
    let lines = table(manifest, name).into_iter();
    let lines = lines.skip_while(|line| !line.starts_with("assets")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with(']'));
    let asset = |line: &'m str| match quoted(line)[..] {
        [source, dest, mode, ..] => [source, dest.trim_start_matches('/'), mode],
        _ => panic!("no source, destination and mode: {line}"),
    };
    lines.map(asset).collect()
}

/// Whether a file of the tree has the path, whose last part may begin with `*`. Generated files are
/// in `target`.
fn is_there(source: &str) -> bool {
    if source.trim_start_matches("../").starts_with("target/") {
        return true;
    }
    let path = Path::new(ROOT).join("crates/ashlar").join(source);
    let Some((_, ending)) = source.split_once("/*") else { return path.is_file() };
    let fits = |name: &Path| name.to_string_lossy().ends_with(ending);
    let found = fs::read_dir(path.with_file_name(""));
    found.is_ok_and(|found| found.flatten().any(|entry| fits(&entry.path())))
}

#[test]
fn files_of_the_packages_exist_and_are_the_same_in_both() {
    let text = manifest();
    let packages = ["package.metadata.deb", "package.metadata.generate-rpm"];
    let [deb, rpm] = packages.map(|name| {
        let all = assets(&text, name);
        assert!(all.len() > 15, "{name}: {all:?}");
        for [source, _, mode] in &all {
            assert!(is_there(source), "{name}: {source} is missing");
            assert!(["644", "755"].contains(mode), "{name}: {source} has mode {mode}");
        }
        let is_common = |dest: &str| !OWN_PLACES.iter().any(|own| dest.starts_with(own));
        let common = all.into_iter().filter(|[_, dest, _]| is_common(dest));
        common.collect::<BTreeSet<_>>()
    });
    let different: Vec<_> = deb.symmetric_difference(&rpm).collect();
    assert!(different.is_empty(), "in one package only: {different:?}");
    let named = ["license-file", "changelog", "_script"];
    for line in text.lines().filter(|line| named.iter().any(|key| line.contains(key))) {
        let source = quoted(line).into_iter().find(|word| word.starts_with("../"));
        let source = source.unwrap_or_else(|| panic!("no path: {line}"));
        assert!(is_there(source), "{source} is missing");
    }
    for script in ["postinst", "prerm", "postrm"] {
        assert!(is_there(&format!("../../contrib/deb/{script}")), "{script} is missing");
    }
    for missing in ["../../contrib/none", "../../none/*", "../../docs/*.none"] {
        assert!(!is_there(missing), "{missing}");
    }
}

#[test]
fn runbook_of_a_silent_daemon_is_in_the_packages() {
    let rules = fs::read_to_string(Path::new(ROOT).join("contrib/monitoring/ashlar.rules.yml"));
    let rules = rules.expect("a file");
    let link = rules.split("\"file:///").nth(1).and_then(|rest| rest.split('#').next());
    let link = link.expect("a link to a file");
    let text = manifest();
    let assets = assets(&text, "package.metadata.deb");
    let (folder, name) = link.rsplit_once('/').expect("a folder");
    let installed = assets.iter().find(|[_, dest, _]| dest.trim_end_matches('/') == folder);
    let [source, ..] = installed.unwrap_or_else(|| panic!("no package has {folder}"));
    assert!(is_there(&source.replace("*.md", name)), "{source} has no {name}");
}

#[test]
fn version_of_the_debian_changelog_is_that_of_the_workspace() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).expect("a file");
    let (workspace, changelog) = (read("Cargo.toml"), read("contrib/deb/changelog"));
    let version = workspace.lines().find_map(|line| line.strip_prefix("version = "));
    // In a version of Debian, `~` sorts before a release.
    let version = version.expect("a version").trim_matches('"').replacen('-', "~", 1);
    assert!(
        changelog.starts_with(&format!("ashlar ({version}-1) ")),
        "contrib/deb/changelog does not begin with version {version}-1"
    );
}

/// Configurations that a user edits.
fn configurations() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let packaged = ["contrib/ashlar.toml", "contrib/container/ashlar.toml"];
    let mut all: Vec<PathBuf> = packaged.iter().map(|path| root.join(path)).collect();
    let entries = fs::read_dir(root.join("examples")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    all.extend(paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml")));
    all
}

/// Folder into which a package with these files installs a file of the tree.
fn installed_folder(all: &[[&str; 3]], path: &Path) -> Option<PathBuf> {
    let path = path.strip_prefix(ROOT).expect("a path of the tree");
    let is_own = |[source, ..]: &&[&str; 3]| {
        let source = Path::new(source.trim_start_matches("../"));
        source == path || source.ends_with("*") && source.parent() == path.parent()
    };
    all.iter().find(is_own).map(|[_, dest, _]| PathBuf::from(dest))
}

/// A path without its parts `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            other => out.push(other),
        }
    }
    out
}

#[test]
fn installed_configurations_lead_to_an_installed_schema() {
    let text = manifest();
    let all = assets(&text, "package.metadata.deb");
    let is_installed = |path: &Path| {
        let is_own = |[source, dest, _]: &[&str; 3]| {
            let name = Path::new(source).file_name().expect("a name");
            Path::new(dest).join(name) == path
        };
        all.iter().any(is_own)
    };
    let mut count = 0;
    for path in configurations() {
        let text = fs::read_to_string(&path).expect("a file");
        let schema = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
        let schema = schema.unwrap_or_else(|| panic!("{}: no #:schema", path.display()));
        let Some(folder) = installed_folder(&all, &path) else { continue };
        let schema = match schema.strip_prefix("file:///") {
            Some(absolute) => PathBuf::from(absolute),
            None => normal(&folder.join(schema)),
        };
        assert!(is_installed(&schema), "{}: no package has {}", path.display(), schema.display());
        count += 1;
    }
    assert!(count > 4, "{count} configurations are in the package");
}

#[test]
fn configurations_name_the_schema_of_their_keys() {
    let all = configurations();
    assert!(all.len() > 4, "{all:?}");
    let installed = "file:///usr/share/ashlar/ashlar.schema.json";
    let [source, dest, _] = assets(&manifest(), "package.metadata.deb")
        .into_iter()
        .find(|[source, ..]| source.ends_with(".schema.json"))
        .map(|asset| asset.map(str::to_owned))
        .expect("the package has the schema");
    assert!(is_there(&source) && installed.starts_with(&format!("file:///{dest}")), "{dest}");
    for path in all {
        let text = fs::read_to_string(&path).expect("a file");
        let schema = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
        let schema = schema.unwrap_or_else(|| panic!("{}: no #:schema", path.display()));
        let is_known = schema == installed || path.with_file_name(schema).is_file();
        assert!(is_known, "{}: {schema}", path.display());
    }
}

#[test]
fn scripts_of_the_packages_are_valid_shell() {
    for path in [
        "contrib/deb/postinst",
        "contrib/deb/prerm",
        "contrib/deb/postrm",
        "contrib/rpm/post.sh",
        "contrib/rpm/preun.sh",
        "contrib/rpm/postun.sh",
        "contrib/udev/ashlar-name",
        "ci/package-test/lib.sh",
        "ci/package-test/chroot.sh",
        "ci/package-test/guest.sh",
    ] {
        let out = Command::new("/bin/sh").arg("-n").arg(Path::new(ROOT).join(path)).output();
        let out = out.expect("a shell");
        assert!(out.status.success(), "{path}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn removal_unloads_the_apparmor_profile_of_a_stopped_daemon() {
    let profile = assets(&manifest(), "package.metadata.deb")
        .into_iter()
        .find(|[source, ..]| source.contains("/apparmor/"))
        .map(|[_, dest, _]| format!("/{dest}ashlar"))
        .expect("the package has the profile");
    for (path, stop) in [
        ("contrib/deb/prerm", "deb-systemd-invoke stop"),
        ("contrib/rpm/preun.sh", "disable --now"),
    ] {
        let script = fs::read_to_string(Path::new(ROOT).join(path)).expect("a script");
        let unload = format!("apparmor_parser -R {profile}");
        let (stops, unloads) = (script.find(stop), script.find(&unload));
        assert!(stops.is_some() && stops < unloads, "{path} does not end with {unload}");
    }
}

/// Files outside of the daemon's own folders, with the rule for each.
#[test]
fn apparmor_profile_permits_the_fixed_paths_that_the_daemon_reads() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).expect(path);
    let profile = read("contrib/apparmor/ashlar");
    for (source, words, rule) in [
        ("daemon/src/attach/host.rs", "/proc/swaps", "@{PROC}/swaps r,"),
        ("daemon/src/initiator.rs", "/etc/iscsi/init", "/etc/iscsi/initiatorname.iscsi r,"),
        ("daemon/src/plant.rs", "available_parallelism", "@{sys}/fs/cgroup/** r,"),
        ("disks/src/kind.rs", "/etc/machine-id", "/etc/machine-id r,"),
        ("disks/src/sysfs.rs", "/sys/devices", "@{sys}/devices/** r,"),
        ("disks/src/sysfs.rs", "/proc/self/mountinfo", "@{PROC}/@{pid}/** r,"),
        ("drivers/src/nbd/file.rs", "/etc/passwd", "include <abstractions/nameservice>"),
        ("mgmt/src/log_form.rs", "/run/systemd/journal/socket", "include <abstractions/base>"),
        ("mgmt/src/remote.rs", "/etc/ssl/certs/", "include <abstractions/ssl_certs>"),
        ("mgmt/src/webhook/mod.rs", "/sys/kernel/hostname", "@{PROC}/sys/kernel/hostname r,"),
    ] {
        assert!(read(&format!("crates/{source}")).contains(words), "{source}: {words} is not read");
        assert!(profile.lines().any(|line| line.trim() == rule), "no rule {rule} for {source}");
    }
}

/// Standard output of a program that must succeed.
fn output_of(program: &str, words: &[&str]) -> String {
    let out = Command::new(program).args(words).output().expect("it runs");
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {words:?}: {complaint}");
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn image_of_the_container_is_whole_unprivileged_and_reproducible() {
    let folder = std::env::temp_dir().join(format!("tidy-image-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let script = Path::new(ROOT).join("contrib/oci-image");
    let script = script.to_str().expect("a path");
    let [first, second] = ["first.tar", "second.tar"].map(|name| {
        let archive = folder.join(name).to_str().expect("a path").to_owned();
        output_of(script, &["/bin/true", "x86_64", "ashlar:test", &archive]);
        archive
    });
    assert!(fs::read(&first).expect("it") == fs::read(&second).expect("it"), "they differ");
    let to = folder.to_str().expect("a path");
    output_of("tar", &["--extract", "--file", &first, "--directory", to]);
    let json = |path: &str| -> serde_json::Value {
        let text = fs::read_to_string(folder.join(path)).expect(path);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}\n{text}"))
    };
    // Every blob has the content and the size that refer to it.
    let blob = |descriptor: &serde_json::Value| {
        let digest = descriptor["digest"].as_str().expect("a digest").replace("sha256:", "");
        let path = format!("blobs/sha256/{digest}");
        let whole = folder.join(&path).to_str().expect("a path").to_owned();
        assert!(output_of("sha256sum", &[&whole]).starts_with(&digest), "{digest}");
        let size = fs::metadata(&whole).expect("a blob").len();
        assert_eq!(descriptor["size"].as_u64(), Some(size), "{digest}");
        (path, whole)
    };
    let image = json(&blob(&json("index.json")["manifests"][0]).0);
    let settings = json(&blob(&image["config"]).0);
    assert_eq!(settings["config"]["User"], "64000:64000");
    assert_eq!(settings["architecture"], "amd64");
    // A degraded daemon still serves: a supervisor must not end it for that.
    let check = &settings["config"]["Healthcheck"]["Test"];
    assert_eq!(*check, serde_json::json!(["CMD", "/usr/bin/ashlar", "status", "--alive"]));
    let compose = fs::read_to_string(Path::new(ROOT).join("contrib/container/compose.yaml"));
    let same = "test: [CMD, /usr/bin/ashlar, status, --alive]";
    assert!(compose.expect("a file").contains(same), "compose.yaml has another check");
    for port in ["564/tcp", "3260/tcp", "4420/tcp", "7320/tcp", "10809/tcp"] {
        assert!(settings["config"]["ExposedPorts"].get(port).is_some(), "{port}");
    }
    let layer = blob(&image["layers"][0]).1;
    let unpacked = output_of("sh", &["-c", &format!("gzip -dc {layer} | sha256sum")]);
    let digest = unpacked.split_whitespace().next().expect("a digest");
    assert_eq!(settings["rootfs"]["diff_ids"][0], format!("sha256:{digest}"));
    let files = output_of("tar", &["--list", "--verbose", "--numeric-owner", "--file", &layer]);
    for [owner, name] in [
        ["-rwxr-xr-x 0/0", "./usr/bin/ashlar"],
        ["-rw-r--r-- 0/0", "./etc/ashlar/ashlar.toml"],
        ["drwx------ 64000/64000", "./run/ashlar/"],
        ["drwx------ 64000/64000", "./var/lib/ashlar/"],
    ] {
        let line = files.lines().find(|line| line.ends_with(name)).expect(name);
        assert!(line.starts_with(owner), "{line}");
    }
    fs::remove_dir_all(&folder).expect("gone");
}

#[test]
fn copyright_file_names_the_authors_of_the_page() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).expect("a file");
    let (page, copyright) = (read("web/src/licences.txt"), read("contrib/deb/copyright"));
    let authors = page.lines().filter_map(|line| line.split_once("Copyright ")).map(|(_, rest)| {
        let owner = rest.trim_start_matches("(c) ").split("  ").next();
        owner.expect("a first part").trim()
    });
    let mut count = 0;
    for author in authors {
        count += 1;
        assert!(copyright.contains(author), "contrib/deb/copyright lacks: {author}");
    }
    assert!(count > 2, "{page}");
}

/// The link below /dev/ashlar of a block device with this attribute in sysfs.
fn link(device: &str, attribute: &str, text: &str) -> Option<String> {
    let sysfs = std::env::temp_dir().join(format!("tidy-sysfs-{device}-{}", std::process::id()));
    let file = sysfs.join("block").join(device).join(attribute);
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(&file, format!("{text}\n")).expect("an attribute");
    let helper = Path::new(ROOT).join("contrib/udev/ashlar-name");
    let out = Command::new(helper).arg(device).env("SYSFS", &sysfs).output().expect("it runs");
    fs::remove_dir_all(&sysfs).expect("gone");
    let name = String::from_utf8(out.stdout).expect("a name");
    assert_eq!(out.status.success(), !name.is_empty(), "{text}");
    out.status.success().then(|| name.trim_end().to_owned())
}

#[test]
fn attached_luns_and_no_other_devices_have_a_link() {
    let nbd = |text: &str| link("nbd0", "backend", text);
    assert_eq!(nbd("ashlar here 7 2 ro 4096 a b c").as_deref(), Some("here.7"));
    assert_eq!(nbd("ashlar a/../b 0 1 rw 512 s").as_deref(), Some("a_.._b.0"));
    assert_eq!(nbd("nbdkit here 7"), None);
    assert_eq!(nbd(""), None);
    let on_loop = |file: &str| link("loop0", "loop/backing_file", file);
    assert_eq!(on_loop("/run/ashlar/attached/here.0/d0").as_deref(), Some("here.0"));
    assert_eq!(on_loop("/srv/here.0/d0.img"), None);
    assert_eq!(link("sda", "size", "1"), None);
}

/// The units in a folder of their own, with a program that exists.
fn units(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tidy-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for unit in ["ashlar.service", "ashlar.socket"] {
        let text = fs::read_to_string(Path::new(ROOT).join("contrib/systemd").join(unit));
        let text = text.expect("a unit").replace("/usr/bin/ashlar ", "/bin/true ");
        fs::write(folder.join(unit), text).expect("a unit");
    }
    folder
}

fn systemd_analyze(words: &[&str], units: &[PathBuf]) -> String {
    let out = Command::new("systemd-analyze").args(words).args(units).output();
    let out = out.expect("systemd-analyze runs: `make deps-check` installs it");
    let output = [out.stdout, out.stderr].concat();
    let output = String::from_utf8_lossy(&output).into_owned();
    assert!(out.status.success(), "systemd-analyze {words:?}:\n{output}");
    output
}

#[test]
fn units_are_valid_and_their_service_is_confined() {
    let folder = units("units");
    let (service, socket) = (folder.join("ashlar.service"), folder.join("ashlar.socket"));
    let output = systemd_analyze(&["verify", "--man=no"], &[service.clone(), socket]);
    assert!(!output.contains("ashlar."), "{output}");
    // Of `sandbox = true`: no set of systemd 252 has them.
    let text = fs::read_to_string(&service).expect("a unit");
    let filters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
    let named: Vec<&str> = filters.iter().flat_map(|filter| filter.split(' ')).collect();
    for call in ["seccomp", "landlock_create_ruleset", "landlock_restrict_self"] {
        assert!(named.contains(&call), "{call}: {filters:?}");
    }
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    systemd_analyze(&["security", "--offline=yes", &threshold], &[service]);
    fs::remove_dir_all(&folder).expect("gone");
}

#[test]
fn drop_ins_are_read_without_a_complaint() {
    let drop_ins = fs::read_dir(Path::new(ROOT).join("contrib/systemd/drop-ins"));
    for drop_in in drop_ins.expect("a folder") {
        let path = drop_in.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let folder = units(&name);
        fs::create_dir_all(folder.join("ashlar.service.d")).expect("a folder");
        fs::copy(&path, folder.join("ashlar.service.d/own.conf")).expect("a drop-in");
        let units = [folder.join("ashlar.service"), folder.join("ashlar.socket")];
        let output = systemd_analyze(&["verify", "--man=no"], &units);
        assert!(!output.contains("own.conf"), "{name}: {output}");
        fs::remove_dir_all(&folder).expect("gone");
    }
}
