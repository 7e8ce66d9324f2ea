//! Commands of the first file servers of this kind, and the commands that replace them here.

/// The present form of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Today {
    /// These words instead.
    Typed(Vec<String>),
    /// No command; says what takes its place.
    Gone(&'static str),
}

/// Names of commands that are none any more, and what takes their place.
const GONE: &[(&str, &str)] = &[
    ("aoe", "AoE targets are disks of the graph: `ashlar cam list`, `ashlar disk`"),
    ("apc", MACHINE),
    ("arp", MACHINE),
    (
        "cec",
        "`console = [\"ether:eth0\"]` of its configuration opens it; `ashlar fs list` shows where",
    ),
    ("cfs", ONE),
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
const CONFIG: &str = "its section of `ashlar.toml` says it: `ashlar diff`, `ashlar apply`";
const COPY: &str = "each device of the WORM is copied to by itself (`statw`); a mirror is a layer";
const DISKS: &str = "disks are the graph's: `ashlar list`, `ashlar top`; the WORM's: `statw`";
const JUKEBOX: &str = "there is no jukebox: any provider of the graph can be the WORM";
const ONE: &str = "a console is of one file system; on the command line the name is the first word";
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
const CW_GONE: &[(&str, &str)] = &[
    ("allflag", "a dump walks nothing: it moves a line, whatever the size of the tree"),
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

fn typed(words: &[&str]) -> Option<Today> {
    Some(Today::Typed(words.iter().map(|w| (*w).to_owned()).collect()))
}

/// The present form of a line; `None` if it never was a command, or still is one.
pub(super) fn today(words: &[String]) -> Option<Today> {
    let all: Vec<&str> = words.iter().map(String::as_str).collect();
    let switch = |word: &str| if word == "0" { "off" } else { "on" };
    match all.as_slice() {
        ["chatty"] | ["flag", "chat"] => typed(&["trace"]),
        ["chatty", level] => typed(&["trace", switch(level)]),
        ["flag", "chat", connection] => typed(&["trace", "on", "--connection", connection]),
        ["flag", "allow"] => typed(&["allow"]),
        ["flag", ..] => Some(Today::Gone(
            "`trace on` for `chat`, `allow`, `attaches off`; other words are the daemon's log",
        )),
        ["check", "ream"] => Some(Today::Gone(
            "a block that no device has right is named by `check --rdall`, and `clean` makes it a \
             hole",
        )),
        ["check", words @ ..] => {
            let known = |w: &&str| CHECK.iter().find(|(n, _)| n == w).map(|(_, now)| *now);
            words.iter().any(|w| known(w).is_some()).then(|| {
                let now = words.iter().map(|w| known(w).unwrap_or(w));
                Today::Typed(["check"].into_iter().chain(now).map(str::to_owned).collect())
            })
        }
        ["clean", _, block] if is_number(block) => Some(Today::Gone(
            "the address that the block is to have is missing: 0 makes it a hole; `clean PATH` \
             lists what they have",
        )),
        ["clean", path, block, at] if is_number(block) => {
            typed(&["clean", path, "--block", block, "--address", at])
        }
        ["dump", name] if !name.starts_with('-') => Some(Today::Gone(ONE)),
        ["stats", letters] if letters.chars().all(|c| c == '-' || c.is_alphabetic()) => {
            typed(&["stats"])
        }
        ["time"] => Some(Today::Gone("what is to be timed is missing: `time sync`")),
        ["noattach"] => typed(&["attaches", "off"]),
        ["stata"] => typed(&["stats"]),
        ["statq"] => typed(&["statw"]),
        ["cwcmd", rest @ ..] => match rest {
            ["startdump", on] => typed(&["copying", switch(on)]),
            ["prchain", ..] => typed(&["dumps"]),
            ["acct"] => typed(&["acct"]),
            ["blockcmp", worm, ..] => typed(&["blockcmp", worm]),
            [name, ..] => {
                let gone = CW_GONE.iter().find(|(n, _)| n == name);
                Some(Today::Gone(gone.map_or(
                    "its subcommands here: acct, blockcmp, prchain, startdump",
                    |(_, why)| why,
                )))
            }
            [] => Some(Today::Gone("its subcommands here: acct, blockcmp, prchain, startdump")),
        },
        [name, ..] => GONE.iter().find(|(n, _)| n == name).map(|(_, why)| Today::Gone(why)),
        [] => None,
    }
}
