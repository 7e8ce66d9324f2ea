//! Commands of the first file servers of this kind, and the commands that replace them here.

/// The present form of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Replacement {
    /// These words instead.
    Command(Vec<String>),
    /// No command; the text names its replacement.
    Removed(&'static str),
}

/// Names of commands that are none any more, and what takes their place.
const REMOVED: &[(&str, &str)] = &[
    ("aoe", "AoE targets are disks of the graph: `ashlar cam list`, `ashlar disk`"),
    ("apc", MACHINE),
    ("arp", MACHINE),
    (
        "cec",
        "`console = [\"ether:eth0\"]` of its configuration opens it; `ashlar fs list` shows where",
    ),
    ("cfs", ONE_FILE_SYSTEM),
    ("config", CONFIG),
    ("copydev", COPY),
    ("copyworm", COPY),
    ("cpu", MACHINE),
    ("date", MACHINE),
    ("devcopy", COPY),
    ("e820", MACHINE),
    ("end", CONFIG),
    ("filsys", CONFIG),
    ("ip", CONFIG),
    ("memory", MACHINE),
    ("myrictl", MACHINE),
    ("part", "partitions are layers of the graph: `ashlar part`"),
    ("passwd", "users prove themselves with certificates: `plan9_tls` of its configuration"),
    ("pcihinv", MACHINE),
    ("profile", MACHINE),
    ("queryjuke", JUKEBOX),
    ("rawcopy", COPY),
    ("readonly", "`attaches off` keeps clients out; a unit can be `read_only`"),
    ("resetparams", "block sizes are read from the cache device, not compiled in"),
    ("route", MACHINE),
    ("scsi", DISKS),
    ("service", CONFIG),
    ("sntp", MACHINE),
    ("statd", DISKS),
    ("state", MACHINE),
    ("stati", DISKS),
    ("statm", DISKS),
    ("statr", DISKS),
    ("wormeject", JUKEBOX),
    ("wormingest", JUKEBOX),
    ("wormoffline", JUKEBOX),
    ("wormonline", JUKEBOX),
    ("wormreset", JUKEBOX),
    ("writeconf", CONFIG),
];
const CONFIG: &str = "see its section of `ashlar.toml`: `ashlar diff`, `ashlar apply`";
const COPY: &str = "each device of the WORM is copied to by itself (`statw`); a mirror is a layer";
const DISKS: &str = "disks are the graph's: `ashlar list`, `ashlar top`; the WORM's: `statw`";
const JUKEBOX: &str = "jukeboxes are not supported: any provider of the graph can be the WORM";
const ONE_FILE_SYSTEM: &str =
    "a console is of one file system; on the command line the name is the first word";
const MACHINE: &str = "it is the machine's own, or `ashlar top`";

/// Options of `check`, each a word, and their present forms.
const CHECK: &[(&str, &str)] = &[
    ("bad", "--fix"),
    ("free", "--fix"),
    ("pdir", "--pdir"),
    ("pfile", "--pfile"),
    ("rdall", "--rdall"),
    ("rtmp", "--rtmp"),
    ("tag", "--fix"),
    ("touch", "--rdall"),
    ("trim", "--fix"),
];

/// Subcommands of `cwcmd`, likewise.
const CWCMD_REMOVED: &[(&str, &str)] = &[
    ("allflag", "a dump does not walk the tree; its cost is independent of the size of the tree"),
    ("clearacct", "`acct` counts what is there, and has nothing to clear"),
    ("loadcache", CACHE),
    ("morecache", CACHE),
    ("mvstate", "a block's state follows from its address (`statw`), and cannot be set"),
    ("savecache", CACHE),
    ("searchtag", "`recover` and `dumps` find superblocks along the chain; `blockcmp` one block"),
    ("storesb", CHAIN),
    ("test", "`check --rdall` reads everything"),
    ("touchsb", CHAIN),
];
const CACHE: &str = "the cache device keeps what was read over a restart; `check --rdall` fills it";
const CHAIN: &str = "superblocks are written with each dump and verified at each start: `dumps`";

fn is_number(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

fn replacing_command(words: &[&str]) -> Option<Replacement> {
    Some(Replacement::Command(words.iter().map(|w| (*w).to_owned()).collect()))
}

/// The present form of a line; `None` if it never was a command, or still is one.
pub(super) fn replacement(words: &[String]) -> Option<Replacement> {
    let all: Vec<&str> = words.iter().map(String::as_str).collect();
    let switch = |word: &str| if word == "0" { "off" } else { "on" };
    match all.as_slice() {
        ["chatty"] | ["flag", "chat"] => replacing_command(&["trace"]),
        ["chatty", level] => replacing_command(&["trace", switch(level)]),
        ["flag", "chat", connection] => {
            replacing_command(&["trace", "on", "--connection", connection])
        }
        ["flag", "allow"] => replacing_command(&["allow"]),
        ["flag", ..] => Some(Replacement::Removed(
            "`trace on` for `chat`, `allow`, `attaches off`; other words are the daemon's log",
        )),
        ["check", "ream"] => Some(Replacement::Removed(
            "`check --rdall` names blocks without a correct copy, and `clean` makes such a block a \
             hole",
        )),
        ["check", words @ ..] => {
            let known = |w: &&str| CHECK.iter().find(|(n, _)| n == w).map(|(_, now)| *now);
            words.iter().any(|w| known(w).is_some()).then(|| {
                let now = words.iter().map(|w| known(w).unwrap_or(w));
                Replacement::Command(["check"].into_iter().chain(now).map(str::to_owned).collect())
            })
        }
        ["clean", _, block] if is_number(block) => Some(Replacement::Removed(
            "the address that the block is to have is missing: 0 makes it a hole; `clean PATH` \
             lists what they have",
        )),
        ["clean", path, block, at] if is_number(block) => {
            replacing_command(&["clean", path, "--block", block, "--address", at])
        }
        ["dump", name] if !name.starts_with('-') => Some(Replacement::Removed(ONE_FILE_SYSTEM)),
        ["stats", letters] if letters.chars().all(|c| c == '-' || c.is_alphabetic()) => {
            replacing_command(&["stats"])
        }
        ["time"] => Some(Replacement::Removed("the command to time is missing: `time sync`")),
        ["noattach"] => replacing_command(&["attaches", "off"]),
        ["stata"] => replacing_command(&["stats"]),
        ["statq"] => replacing_command(&["statw"]),
        ["cwcmd", rest @ ..] => match rest {
            ["startdump", on] => replacing_command(&["copying", switch(on)]),
            ["prchain", ..] => replacing_command(&["dumps"]),
            ["acct"] => replacing_command(&["acct"]),
            ["blockcmp", worm, ..] => replacing_command(&["blockcmp", worm]),
            [name, ..] => {
                let gone = CWCMD_REMOVED.iter().find(|(n, _)| n == name);
                Some(Replacement::Removed(gone.map_or(
                    "its subcommands here: acct, blockcmp, prchain, startdump",
                    |(_, why)| why,
                )))
            }
            [] => Some(Replacement::Removed(
                "its subcommands here: acct, blockcmp, prchain, startdump",
            )),
        },
        [name, ..] => {
            REMOVED.iter().find(|(n, _)| n == name).map(|(_, why)| Replacement::Removed(why))
        }
        [] => None,
    }
}
