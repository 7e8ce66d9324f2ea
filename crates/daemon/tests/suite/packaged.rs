//! Configurations that packages and images contain.

use std::path::Path;

use daemon::catalog;
use mgmt::config::read;

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name);
    std::fs::read_to_string(path).expect("a file of the checkout")
}

#[test]
fn packaged_configuration_serves_nothing_until_its_example_is_enabled() {
    let packaged = text("ashlar.toml");
    let config = read(&packaged, "ashlar.toml", &catalog()).expect("well-formed");
    assert!(config.disk.is_empty() && config.target.is_empty() && config.access.is_empty());
    // Images of the example can be added without a restart.
    assert!(config.daemon.sandbox);
    assert!(config.daemon.sandbox_folders.iter().any(|folder| folder == "/var/lib/ashlar"));
    let enabled = packaged.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with("[[") || rest.contains(" = ") => format!("{rest}\n"),
        _ => format!("{line}\n"),
    });
    let config = read(&enabled.collect::<String>(), "ashlar.toml", &catalog());
    let config = config.expect("the example is well-formed");
    assert_eq!((config.disk.len(), config.target.len(), config.access.len()), (1, 1, 1));
}

#[test]
fn configuration_of_the_container_is_valid() {
    let config = read(&text("container/ashlar.toml"), "ashlar.toml", &catalog());
    assert_eq!(config.expect("well-formed").target.len(), 1);
}
