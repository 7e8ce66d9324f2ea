//! Examples of verbs: each line is run on a daemon in this process, with objects that have the
//! names of the example. An example that is in no script and has no reason not to be fails.

use std::collections::BTreeSet;

use daemon::class_verbs;
use mgmt::ClassVerbs;
use mgmt::verbs::{Entry, Run, VERBS};
use serde_json::Value;

use crate::by_hand::Site;

/// Lines that are run in order on one daemon.
struct Script {
    name: &'static str,
    /// Memory disks of 4 MiB, by name.
    disks: &'static str,
    /// Further sections; `FOLDER` is the folder of the daemon.
    sections: &'static str,
    /// Command lines without the program's name, one a line.
    lines: &'static str,
}

/// In the place of the name that an array gets when it is labelled.
const ARRAY: &str = "Intel-1234abcd";

const SCRIPTS: &[Script] = &[
    Script {
        name: "control",
        disks: "d0",
        sections: "",
        lines: "
            status
            status --json
            status --alive
            tree
            tree --up d0
            graph
            graph d0 --up
            graph --format dot | dot -Tsvg
            list
            list providers d0
            list connections
            list listeners
            sessions
            sessions --denied
            reservations
            reservations --json
            rates d0
            rates --samples disk:d0
            journal
            journal --after 120
            history
            inspect d0
            alua show
            alua set default standby
            attach --list
        ",
    },
    Script {
        name: "tray",
        disks: "cd0 disc2",
        sections: "[[unit]]\nprovider = 'cd0'\nremovable = true\n\
                   [[target]]\ndriver = 'local'\nname = 'here'\n\
                   [[access]]\ntarget = 'here'\ngroup = 'g'\ninitiators = ['*']\n\
                   luns = { 0 = 'cd0' }\n",
        lines: "
            tray eject cd0
            tray load cd0
            tray eject cd0
            tray load cd0 disc2
        ",
    },
    Script {
        name: "part",
        disks: "",
        sections: "[[disk]]\nname = 'ada0'\nkind = 'file'\npath = 'FOLDER/ada0'\n\
                   create = true\nsize = '64GiB'\n",
        lines: "
            part create ada0 --scheme gpt
            part add ada0 --type linux-data --size 10G --align 1M --label root
            part add ada0 --type linux-data --size 10G
            part modify ada0 --index 2 --label home
            part resize ada0 --index 2 --size 20G
            part set ada0 bootme --index 2
            part unset ada0 bootme --index 2
            part set -a bootonce -i 2 ada0
            part unset -a bootonce -i 2 ada0
            part show
            part show ada0 --labels
            part status
            part status -s ada0
            part list
            part list ada0
            list geoms part
            part modify ada0 --index 2 --label later --no-commit
            part commit ada0
            part modify ada0 --index 2 --label never --no-commit
            part undo ada0
            part delete ada0 --index 1 --yes-destroy ada0p1
            part destroy ada0 --yes-destroy ada0
            part create ada0 --scheme gpt
            part destroy -F ada0
        ",
    },
    Script {
        name: "geom",
        disks: "d0",
        sections: "",
        lines: "
            part create d0 --scheme gpt
            part add d0 --type linux-data
            geom nop insert name=slow provider=d0p1
            geom nop configure name=slow delay_ms=1 read_delay_percent=100
            geom nop remove name=slow
        ",
    },
    Script {
        name: "filters",
        disks: "d0 d1 d2",
        sections: "[[geom]]\nclass = 'nop'\nname = 'n0'\nprovider = 'd0'\n\
                   [[geom]]\nclass = 'nop'\nname = 'a'\nprovider = 'd1'\n\
                   [[geom]]\nclass = 'limit'\nname = 'l0'\nprovider = 'd2'\n",
        lines: "
            nop configure --read-fail-percent 5 n0
            nop reset a
            limit configure --iops 500 l0
        ",
    },
    Script {
        name: "limit",
        disks: "d0",
        sections: "[[geom]]\nclass = 'limit'\nname = 'a'\nprovider = 'd0'\n",
        lines: "limit reset a",
    },
    Script {
        name: "sched",
        disks: "d0",
        sections: "",
        lines: "
            sched insert -a rr d0
            sched configure -a as --options wait_ms=3 d0.sched.
            sched stats d0.sched.
            sched reset d0.sched.
            sched destroy d0.sched.
            sched create -a deadline d0
        ",
    },
    Script {
        name: "trim",
        disks: "d0",
        sections: "",
        lines: "
            trim insert d0 --zeroes drop
            trim configure d0.trim --share 20
            trim stats d0.trim
            trim now d0.trim
            trim destroy d0.trim
            trim create d0
        ",
    },
    Script {
        name: "label",
        disks: "d0",
        sections: "",
        lines: "
            label create usb d0
            label stop label/usb
            label create usb d0
            label destroy label/usb
            label label usb d0
            label refresh d0
            label clear d0
        ",
    },
    Script {
        name: "concat",
        disks: "d0 d1 d2",
        sections: "",
        lines: "
            concat create data d0 d1
            concat append data d2
            concat stop data
            concat label data d0 d1
            concat dump d0
            concat stop data
            concat start data
            concat destroy data
            concat clear d0 d1
        ",
    },
    Script {
        name: "stripe",
        disks: "d0 d1",
        sections: "",
        lines: "
            stripe create data d0 d1
            stripe stop data
            stripe label data d0 d1
            stripe dump d0
            stripe stop data
            stripe start data
            stripe destroy data
            stripe clear d0 d1
        ",
    },
    Script {
        name: "mirror",
        disks: "d0 d1 d2",
        sections: "",
        lines: "
            mirror create data d0 d1
            mirror stop data
            mirror label -b round-robin data d0 d1
            mirror configure -b prefer data
            mirror dump d0
            mirror insert data d2
            mirror remove data d1
            mirror forget data
            mirror insert data d1
            mirror rebuild data d1
            mirror deactivate data d1
            mirror activate data d1
            mirror stop data
            mirror start data
            mirror destroy data
            mirror clear d0 d1
        ",
    },
    Script {
        name: "same",
        disks: "d0 d1",
        sections: "",
        lines: "
            mirror label --assume-same data d0 d1
            mirror resize data
            mirror verify data
            mirror pause data
            mirror resume data
        ",
    },
    Script {
        name: "multipath",
        disks: "",
        sections: "[[disk]]\nname = 'd0'\nkind = 'memory'\nsize = '4MiB'\nserial = 'one'\n\
                   [[disk]]\nname = 'd1'\nkind = 'memory'\nsize = '4MiB'\nserial = 'one'\n",
        lines: "
            multipath create data d0 d1
            multipath getactive data
            multipath rotate data
            multipath prefer data d1
            multipath fail data d1
            multipath restore data d1
            multipath remove data d1
            multipath add data d1
            multipath configure -R data
            multipath destroy data
            multipath label data d0
            multipath dump d0
            multipath stop data
            multipath start data
        ",
    },
    Script {
        name: "raid",
        disks: "d0 d1",
        sections: "",
        lines: "
            raid label Intel data RAID1 d0 d1
            raid configure --sync-rate 50MiB Intel-1234abcd
            raid pause data
            raid resume data
            raid dump d0
            raid fail Intel-1234abcd d1
        ",
    },
    Script {
        name: "file",
        disks: "",
        sections: "[[disk]]\nname = 'd0'\nkind = 'file'\npath = 'FOLDER/d0'\ncreate = true\n\
                   size = '1GiB'\n",
        lines: "disk resize d0 --size 2GiB",
    },
    Script {
        name: "model",
        disks: "",
        sections: "[[disk]]\nname = 'd0'\nkind = 'model'\nsize = '1MiB'\n",
        lines: "
            disk fail d0 read --offset 0 --length 4096 --times 1
            disk delay d0 --delay-ms 20
            disk lie d0 --lies
            disk hang d0
            disk release d0
            disk power-cut d0
            disk heal d0
        ",
    },
    Script {
        name: "cam",
        disks: "",
        sections: "",
        lines: "
            cam attach mps0 transport=sas disks=4 size=1GiB
            cam devlist -v
            cam rescan 0
            cam inquiry da0
            cam readcap da0
            cam reportluns da0
            cam tags da0 -N 32
            cam modepage da0 -m 8
            cam defects da0 -G
            cam cmd da0 -c \"12 0 0 0 v:i1 0\" 36 -i 36 \"s8 z8 z16 z4\"
            cam reset da0
            cam detach mps0
        ",
    },
    Script {
        name: "shelf",
        disks: "",
        sections: "",
        lines: "
            cam attach mps1 transport=sas disks=2 size=1MiB enclosure=21
            cam enclosure ses0
            cam smpphylist ses0
            cam locate da0 -s on
            cam attach ahcich0 transport=sata disks=1 size=1MiB
            cam identify ada0
            cam fault da0 --fails 1 --hangs 1
            cam fault da0 --clear
        ",
    },
    Script {
        name: "fs",
        disks: "",
        sections: "[[disk]]\nname = 'big0'\nkind = 'memory'\nsize = '32MiB'\n\
                   [[disk]]\nname = 'big1'\nkind = 'memory'\nsize = '32MiB'\n\
                   [[geom]]\nclass = 'fs'\nname = 'main'\nmembers = ['big0', 'big1']\n\
                   create = true\n",
        lines: "
            fs stats main
            fs statw main
            fs printconf main
            fs version main
            fs users main
            fs newuser main rob
            fs who main
            fs files main
            fs allow main
            fs disallow main
            fs duallow main sys
            fs ahead main --workers 20
            fs sync main
            fs dump main --wait
            fs dumps main
            fs acct main --dump last
            fs dumpctl main off
            fs copying main off
            fs check main --rdall
            fs cons main who
            fs help main
            fs halt main
            fs start main
        ",
    },
];

/// Examples that are not run, each group with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "they need the folder of the API, which `serve` gives",
        "audit
         audit --limit 10 --json
         token create backup --role viewer --target iqn.2026-11.org.example:store
         token create monitoring --role viewer
         token list
         token revoke monitoring",
    ),
    (
        "they read files of the caller",
        "apply
         apply new.toml --dry-run
         apply --yes-destroy scratch
         plan
         plan new.toml --json
         part bootcode -b /boot/pmbr -p /boot/gptboot -i 1 ada0
         part bootcode -b /boot/boot0 ada1
         part bootcode ada0 -p boot1.efifat -i 1 --yes-destroy ada0p1",
    ),
    (
        "they need earlier configurations",
        "undo
         undo --to 12 --dry-run",
    ),
    (
        "they need root and the kernel's block devices",
        "attach 0
         attach d0 --target here
         attach 0 --by fuse
         detach 0
         detach /dev/loop0
         detach 0 --force",
    ),
    (
        "they need hosts or other machines",
        "tree --down iqn.1993-08.org.debian:01:a
         sessions end 7 --yes
         access check iqn.1998-01.com.vmware:esx1
         access check tls:backup --portal 192.0.2.1:10809
         access who d0p1
         lun forget-name d0
         cam discover 10.0.0.1:3260 --initiator iqn.2026-01.org.example:host7
         cam aoeconfig ada0 --set host7
         cam aoemask ada0 02:00:00:00:00:01 02:00:00:00:00:02 --add
         cam aoereserve ada0 --set
         fs hangup main 3
         fs trace main on --connection 3",
    ),
    (
        "they need damaged, grown or former contents of disks",
        "wipe d0
         wipe d0 --yes-destroy d0
         wipe d0 --only gpt --only 0x1fe
         part recover ada0
         concat relocate d0 --was 10GiB
         stripe relocate d0 --was 10GiB
         mirror relocate d0 --was 10GiB
         multipath relocate d0 --was 10GiB
         raid relocate d0 --was 10GiB
         fs ream main
         fs recover standby --force --dump 2026/1121
         fs replace main far
         fs grow main",
    ),
    (
        "they need two paths to one disk",
        "multipath label -A data d0 d1
         multipath clear d0 d1",
    ),
    (
        "they need larger arrays, which the tests of the class make",
        "raid add Intel-1234abcd more RAID0
         raid delete Intel-1234abcd more
         raid insert Intel-1234abcd d2
         raid remove Intel-1234abcd d1
         raid consistency Intel-1234abcd --policy ppl
         raid verify Intel-1234abcd
         raid start Intel-1234abcd
         raid stop data
         raid destroy data
         raid clear d0 d1",
    ),
    (
        "they need files in a file server, which its own tests make",
        "fs history main /lib/ndb/local
         fs yesterday main /usr/rob/thesis.ms --copy
         fs diff main /lib/ndb/local --from yesterday
         fs fstat main /adm/users
         fs attaches standby off
         fs ls main /adm
         fs cat main /dump/2026/1121/adm/users
         fs create main /lib sys sys 775 d
         fs remove main /tmp/x
         fs clri main /tmp/x
         fs clean main /tmp/x --block 3 --address 0
         fs blockcmp main 1234
         fs disk main /images/vm0 --size 10GiB
         fs undisk main vm0",
    ),
];

fn lines(text: &'static str) -> Vec<&'static str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The examples of all verbs of the daemon, without the program's name. A line for a shell, with
/// redirected input or output, is left out.
fn examples(classes: &[ClassVerbs]) -> BTreeSet<String> {
    let by_daemon = VERBS.iter().filter(|verb| matches!(verb.run, Run::Daemon(_)));
    let own = by_daemon.flat_map(Entry::examples);
    let of_class = |class: &ClassVerbs| {
        class.verbs.iter().map(|verb| class.example(verb)).collect::<Vec<String>>()
    };
    let all = own.chain(classes.iter().flat_map(of_class));
    let typed = all.filter(|line| !line.contains(['<', '>']));
    typed.filter_map(|line| line.strip_prefix("ashlar ").map(str::to_owned)).collect()
}

/// Runs a command line as the command does, but without a socket.
fn run_line(site: &Site, classes: &[ClassVerbs], line: &str) -> Result<(), String> {
    let (verb, params) =
        mgmt::parse(classes, &format!("ashlar {line}")).map_err(|e| e.to_string())?;
    let Run::Daemon(run) = verb.run else { return Err("the daemon has no such verb".into()) };
    let answer = run(&site.control, params, &mut |_| {}).map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_str(&answer).map_err(|e| e.to_string())?;
    (verb.table)(&answer).map(drop).map_err(|e| e.to_string())
}

/// The name of the array that was made, if one was.
fn array(site: &Site) -> Option<String> {
    let state = site.control.plant().state().expect("a state");
    state.geoms.into_iter().find(|geom| geom.class == "raid").map(|geom| geom.name)
}

/// The lines of a script that fail, each with its error.
fn failures(script: &Script, classes: &[ClassVerbs]) -> Vec<String> {
    let site = Site::launched(&format!("examples-{}", script.name));
    let disk = |name: &str| format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '4MiB'\n");
    let disks: String = script.disks.split_whitespace().map(disk).collect();
    let folder = site.folder.to_str().expect("a path");
    let text = disks + &script.sections.replace("FOLDER", folder);
    site.apply(&site.read(&text));
    let run = |line: &'static str| {
        let array = if line.contains(ARRAY) { array(&site) } else { None };
        let typed = array.map_or_else(|| line.to_owned(), |name| line.replace(ARRAY, &name));
        let error = run_line(&site, classes, &typed).err()?;
        Some(format!("{}: `{typed}`: {error}", script.name))
    };
    lines(script.lines).into_iter().filter_map(run).collect()
}

#[test]
fn every_example_is_in_a_script_or_has_a_reason_not_to_be() {
    let run = SCRIPTS.iter().flat_map(|script| lines(script.lines));
    let not_run: Vec<&str> = NOT_RUN.iter().flat_map(|(_, text)| lines(text)).collect();
    let examples = examples(&class_verbs());
    let known: BTreeSet<&str> = run.chain(not_run.iter().copied()).collect();
    let missing: Vec<&String> =
        examples.iter().filter(|line| !known.contains(line.as_str())).collect();
    assert!(missing.is_empty(), "in no script and in no list: {missing:#?}");
    let former: Vec<&str> = not_run.into_iter().filter(|line| !examples.contains(*line)).collect();
    assert!(former.is_empty(), "no longer examples: {former:#?}");
}

#[test]
fn examples_succeed_on_the_objects_that_they_name() {
    let classes = class_verbs();
    let failed: Vec<String> =
        SCRIPTS.iter().flat_map(|script| failures(script, &classes)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn listings_of_every_class_succeed() {
    let (site, classes) = (Site::launched("examples-listings"), class_verbs());
    for class in &classes {
        for verb in ["status", "list"] {
            let line = format!("{} {verb}", class.name);
            assert_eq!(run_line(&site, &classes, &line), Ok(()), "{line}");
        }
    }
}
