//! Manual pages of section 7: `ashlar(7)`, the overview, and `ashlar-concepts(7)`, the terms.

use super::man_sections::{Items, examples, exits, files, items, name, verbatim};
use clap_mangen::roff::{Roff, roman};

/// File name of the overview.
pub(super) const OVERVIEW_PAGE: &str = "ashlar.7";
/// File name of the terms.
pub(super) const CONCEPTS_PAGE: &str = "ashlar-concepts.7";

const ABOUT: &[&str] = &[
    "Ashlar is a block-storage system in user space. A daemon combines disks into mirrors, arrays \
     and partitions, and exports them over iSCSI, NBD, NVMe/TCP and ATA over Ethernet, or as block \
     devices of the same machine. It also serves files over 9P with permanent daily dumps.",
    "One file, ashlar.toml, describes the system. ashlar plan compares it with the running daemon \
     and prints the necessary steps, each with its risk for connected hosts. ashlar apply carries \
     out all of the steps or none. ashlar undo returns to the previous configuration.",
    "A step is safe, disruptive (the plan names the hosts that notice it), or destroys data. A \
     step that destroys data needs --yes-destroy NAME.",
];

const OBJECTS: Items<'static> = &[
    ("disk", "a file, block device, memory or remote export: the bottom of the graph"),
    ("bus", "a transport to disks that are discovered, such as da0 and ada0"),
    ("geom", "a layer of a class, such as mirror, raid, part, multipath, trim or limit"),
    ("provider", "a block device that a disk or geom offers to layers and LUNs above it"),
    ("target", "a target port of a driver: iscsi, nbd, nvme_tcp, aoe or local"),
    ("access", "a group of initiators of a target, with the LUNs that they see"),
    ("unit", "properties of a provider's logical unit: serial number, names, protection"),
    ("alua", "a group of target ports with a common access state"),
];

const SESSION: &[&str] = &[
    "$ cat ashlar.toml",
    "[[disk]]",
    "name = \"d0\"",
    "kind = \"file\"",
    "path = \"d0.img\"",
    "create = true",
    "size = \"64MiB\"",
    "",
    "[[target]]",
    "driver = \"iscsi\"",
    "name = \"iqn.2026-11.org.example:store\"",
    "listen = [\"127.0.0.1:3260\"]",
    "",
    "[[access]]",
    "target = \"iqn.2026-11.org.example:store\"",
    "group = \"hosts\"",
    "initiators = [\"iqn.2026-11.org.example:host1\"]",
    "luns = { 0 = \"d0\" }",
    "$ ashlar serve ashlar.toml &",
    "$ ashlar status",
    "$ ashlar tree",
    "$ ashlar access check iqn.2026-11.org.example:host1",
    "$ sed -i s/64MiB/128MiB/ ashlar.toml",
    "$ ashlar plan ashlar.toml",
    "$ ashlar apply ashlar.toml",
    "$ ashlar undo",
];

const EXAMPLES: &[&str] = &[
    "ashlar doctor",
    "ashlar status",
    "ashlar plan ashlar.toml",
    "ashlar apply ashlar.toml",
    "ashlar schema disk",
    "ashlar explain ASH-0022",
];

/// The sections of `ashlar-concepts(7)`, in their order.
const CONCEPTS: Items<'static> = &[
    (
        "GRAPH",
        "A provider is a block device inside the daemon. A geom is a layer of a class. It uses \
         providers below it through consumers and offers providers above it. The graph begins at \
         disks and ends at logical units (LUNs). ashlar tree prints it.",
    ),
    (
        "TASTING",
        "When a provider appears, classes read it and decide whether it contains their metadata. \
         Mirrors, arrays and partitions are found in this way after a restart. When the first \
         writer opens a provider, layers that depend on its old contents are removed (spoil). \
         When the last writer closes it, classes taste it again. A consumer whose provider \
         disappeared is orphaned. A geom withers until its last user has closed it.",
    ),
    (
        "ACCESS COUNTS",
        "r1w1e1 counts the readers, writers and exclusive users of a provider. An exclusive user \
         excludes all other writers. An open that conflicts with another is refused with EPERM.",
    ),
    (
        "MASKING",
        "A section [[access]] connects patterns of initiator names with LUNs. An initiator that \
         no group names sees no target. ashlar access check NAME prints the LUNs of an initiator, \
         and ashlar access who PROVIDER prints the initiators of a provider.",
    ),
    (
        "IDENTITY",
        "Hosts recognise a LUN by its serial number and its NAA name, EUI-64 or UUID. These names \
         belong to the disk, not to its path or LUN number. With another serial number the LUN is \
         another disk for hosts; the plan reports such an edit.",
    ),
    (
        "RESERVATIONS",
        "A persistent reservation belongs to an initiator port and a target port. It outlives the \
         session, and the daemon stores it in the state folder before it acknowledges the \
         command. ashlar reservations lists holders and registrants.",
    ),
    (
        "CRASH SAFETY",
        "Data that was written and then flushed is safe after a crash of the daemon or the \
         machine. A write that was acknowledged but not flushed can be lost if a disk has a \
         volatile cache. A mirror records that it is being written before the first write; after \
         a crash it copies the data that may differ. The failure of a member is recorded on the \
         other members before the write that it missed is acknowledged, so that the failed member \
         cannot become the newest copy.",
    ),
];

const CONCEPT_EXAMPLES: &[&str] = &[
    "ashlar tree",
    "ashlar list providers",
    "ashlar inspect d0",
    "ashlar access check iqn.2026-11.org.example:host1",
    "ashlar reservations",
];

/// A section of paragraphs.
fn paragraphs(roff: &mut Roff, title: &str, texts: &[&str]) {
    roff.control("SH", [title]);
    for text in texts {
        roff.control("PP", []);
        roff.text([roman(*text)]);
    }
}

fn overview() -> String {
    let mut roff = Roff::new();
    name(&mut roff, ("ashlar", "7"), "overview of the Ashlar storage system");
    paragraphs(&mut roff, "DESCRIPTION", ABOUT);
    items(&mut roff, "OBJECTS", OBJECTS);
    roff.control("SH", ["FIRST SESSION"]);
    verbatim(&mut roff, SESSION.iter().copied());
    exits(&mut roff);
    examples(&mut roff, EXAMPLES);
    files(&mut roff);
    roff.render()
}

fn concepts() -> String {
    let mut roff = Roff::new();
    name(&mut roff, ("ashlar-concepts", "7"), "terms of the Ashlar storage system");
    let about = "The terms of the other pages. They are those of GEOM and CAM of FreeBSD and of \
                 the SCSI standards.";
    paragraphs(&mut roff, "DESCRIPTION", &[about]);
    for (title, text) in CONCEPTS {
        paragraphs(&mut roff, title, &[*text]);
    }
    examples(&mut roff, CONCEPT_EXAMPLES);
    files(&mut roff);
    roff.render()
}

/// The pages with their names.
pub(super) fn pages() -> [(String, String); 2] {
    [(OVERVIEW_PAGE.to_owned(), overview()), (CONCEPTS_PAGE.to_owned(), concepts())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn every_example_of_section_7_is_a_command_line() {
        let session = SESSION.iter().filter_map(|line| line.strip_prefix("$ "));
        let session = session.filter(|line| line.starts_with("ashlar "));
        let examples = EXAMPLES.iter().chain(CONCEPT_EXAMPLES).copied();
        for line in session.chain(examples) {
            let words = line.trim_end_matches(" &").split(' ');
            let matches = command(&[]).try_get_matches_from(words);
            assert!(matches.is_ok(), "{line}: {:?}", matches.err());
        }
    }
}
