//! Graph in the formats of other programs, read by these programs.

use std::process::Command;

use rig::{packages, proc};

use crate::fixture::Fixture;

/// The package of `dot`.
const PACKAGES: &str = include_str!("../../../../ci/packages/graph.txt");

const DISKS: &str = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"8MiB\"\n\
                     [[disk]]\nname = \"d1\"\nkind = \"memory\"\nsize = \"8MiB\"\n\
                     [[geom]]\nclass = \"mirror\"\nname = \"m0\"\nmembers = [\"d0\", \"d1\"]\n";

#[test]
fn graphviz_draws_the_graph_of_a_daemon() {
    packages::ensure_installed(PACKAGES).unwrap();
    let mut fixture = Fixture::new("graph");
    fixture.configure(DISKS, "0 = \"mirror/m0\"");
    fixture.start();
    let dot = fixture.ok(&["graph", "--format", "dot"]);
    fixture.write("graph.dot", &dot);
    let mut draw = Command::new(proc::tool("dot").unwrap());
    let svg = proc::run(draw.arg("-Tsvg").arg(fixture.path("graph.dot"))).unwrap();
    assert_eq!(svg.matches("class=\"node\"").count(), 4, "two disks, a mirror, a LUN: {svg}");
    assert_eq!(svg.matches("class=\"edge\"").count(), 3, "{svg}");
    let own = fixture.ok(&["graph", "--format", "svg"]);
    assert!(own.starts_with("<svg xmlns=") && own.contains("mirror/m0"), "{own}");
    fixture.stop();
}
