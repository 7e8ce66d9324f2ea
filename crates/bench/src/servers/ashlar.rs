//! Ashlar itself, with a usual configuration.

use std::fs;
use std::path::Path;

use super::child::{self, Child, Scratch};
use super::{Backing, Keys, MEMORY_BYTES, Server};
use crate::error::Error;

const TARGET: &str = "iqn.2026-11.bench.ashlar:ashlar";
/// The provider of the stripe over all disks, and its name.
const STRIPE: (&str, &str) = ("stripe/data", "data");
/// Bytes of the disk that has none.
const NULL_BYTES: u64 = 1 << 40;

pub(super) fn start(
    binary: &str,
    core: Option<usize>,
    backings: &[Backing],
    keys: &Keys,
) -> Result<Server, Error> {
    let scratch = Scratch::new("ashlar")?;
    let home = scratch.path();
    let portal = child::free_address()?;
    let file = home.join("ashlar.toml");
    let text = configuration(home, &portal.to_string(), core.is_some(), backings, keys);
    fs::write(&file, text).map_err(|e| Error::system(file.display(), e))?;
    let mut command = child::pinned(Path::new(binary), core)?;
    command.arg("serve").arg(&file);
    let mut child = Child::start("ashlar", &mut command, &home.join("log"))?;
    child.wait_port(portal)?;
    let luns = (0..).take(if keys.stripe.is_empty() { backings.len() } else { 1 }).collect();
    Ok(Server {
        name: "ashlar",
        portal,
        target: TARGET.to_owned(),
        digest_target: Some(TARGET.to_owned()),
        luns,
        child,
        _scratch: vec![scratch],
    })
}

fn configuration(
    home: &Path,
    portal: &str,
    one_core: bool,
    backings: &[Backing],
    keys: &Keys,
) -> String {
    let quoted = |path: &Path| format!("{:?}", path.to_string_lossy());
    let mut text = format!(
        "[daemon]\nsocket = {}\nhistory = {}\n",
        quoted(&home.join("control.sock")),
        quoted(&home.join("history"))
    );
    if one_core {
        text.push_str("cores = 1\n");
    }
    text.push_str(&format!("{}\n", keys.daemon));
    let mut luns = Vec::new();
    for (n, backing) in backings.iter().enumerate() {
        let kind = match backing {
            Backing::Null => format!("kind = \"null\"\nsize = {NULL_BYTES}"),
            Backing::Memory => format!("kind = \"memory\"\nsize = {MEMORY_BYTES}"),
            Backing::File(path) => format!("kind = \"file\"\npath = {}", quoted(path)),
            Backing::Nbd(address, export) => {
                format!("kind = \"nbd\"\naddress = \"{address}\"\nexport = \"{export}\"")
            }
        };
        text.push_str(&format!("\n[[disk]]\nname = \"disk{n}\"\n{kind}\n{}\n", keys.disk));
        if !keys.unit.is_empty() {
            text.push_str(&format!("\n[[unit]]\nprovider = \"disk{n}\"\n{}\n", keys.unit));
        }
        luns.push(format!("{n} = \"disk{n}\""));
    }
    if !keys.stripe.is_empty() {
        let disks: Vec<String> = (0..backings.len()).map(|n| format!("\"disk{n}\"")).collect();
        text.push_str(&format!(
            "\n[[geom]]\nclass = \"stripe\"\nname = \"{}\"\nmembers = [{}]\n{}\n",
            STRIPE.1,
            disks.join(", "),
            keys.stripe
        ));
        luns = vec![format!("0 = \"{}\"", STRIPE.0)];
    }
    text.push_str(&format!(
        "\n[[target]]\ndriver = \"iscsi\"\nname = \"{TARGET}\"\nlisten = [\"{portal}\"]\n\
         connections_per_peer = 65536\n{}\n\n\
         [[access]]\ntarget = \"{TARGET}\"\ngroup = \"bench\"\n\
         initiators = [\"iqn.2026-11.bench.ashlar:*\"]\nluns = {{ {} }}\n",
        keys.target,
        luns.join(", ")
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_lines_are_in_their_sections() {
        let keys = Keys {
            daemon: "spin_us = 50",
            disk: "connections = 1",
            unit: "write_cache = false",
            stripe: "",
            target: "initial_r2t = false",
        };
        let nbd = [Backing::Nbd("127.0.0.1:10809".parse().expect("an address"), "null")];
        let of = |keys: &Keys| configuration(Path::new("/x"), "[::1]:1", true, &nbd, keys);
        let text = of(&keys);
        let sections: Vec<&str> = text.split("\n[").collect();
        for (section, line) in [
            ("[daemon]", "cores = 1\nspin_us = 50\n"),
            ("[disk]]", "export = \"null\"\nconnections = 1\n"),
            ("[unit]]", "provider = \"disk0\"\nwrite_cache = false\n"),
            ("[target]]", "initial_r2t = false\n"),
        ] {
            let found = sections.iter().find(|text| text.starts_with(section));
            assert!(found.is_some_and(|text| text.contains(line)), "{section}: {text}");
        }
        let text = of(&Keys::default());
        assert!(!text.contains("[[unit]]") && !text.contains("[[geom]]"), "{text}");
    }

    #[test]
    fn stripe_over_all_disks_is_the_only_lun() {
        let keys = Keys { stripe: "strip = 4096", ..Keys::default() };
        let memory = [Backing::Memory, Backing::Memory];
        let text = configuration(Path::new("/x"), "[::1]:1", true, &memory, &keys);
        let stripe = "name = \"data\"\nmembers = [\"disk0\", \"disk1\"]\nstrip = 4096\n";
        assert!(text.contains(stripe), "{text}");
        assert!(text.contains("luns = { 0 = \"stripe/data\" }\n"), "{text}");
    }
}
