//! Every command of the first file servers, and its present form here.

use super::compat::{Replacement, replacement};
use super::{parser, specs};

/// A typed line, and: "=" for the same command, another line, or a word of the answer instead.
const TYPED: &[(&str, &str)] = &[
    ("allow", "="),
    ("allow rob", "="),
    ("disallow", "="),
    ("duallow rob", "="),
    ("cfs main", "the name is the first word"),
    ("chatty 1", "trace on"),
    ("chatty 0", "trace off"),
    ("check", "="),
    ("check --rdall", "="),
    ("check rdall pfile", "check --rdall --pfile"),
    ("check tag", "check --fix"),
    ("check ream", "`clean`"),
    ("clean /x", "="),
    ("clean /x 3", "0 makes it a hole"),
    ("clean /x 3 17", "clean /x --block 3 --address 17"),
    ("clri /x", "="),
    ("create /x rob rob 664", "="),
    ("remove /x", "="),
    ("cwcmd mvstate 1 2", "cannot be set"),
    ("cwcmd prchain", "dumps"),
    ("cwcmd searchtag", "`recover`"),
    ("cwcmd touchsb", "verified at each start"),
    ("cwcmd storesb", "verified at each start"),
    ("cwcmd savecache", "the cache device keeps"),
    ("cwcmd loadcache", "the cache device keeps"),
    ("cwcmd morecache main 3", "the cache device keeps"),
    ("cwcmd blockcmp 12 34", "blockcmp 12"),
    ("cwcmd startdump 0", "copying off"),
    ("cwcmd startdump 1", "copying on"),
    ("cwcmd acct", "acct"),
    ("cwcmd clearacct", "nothing to clear"),
    ("cwcmd allflag", "does not walk the tree"),
    ("cwcmd test", "`check --rdall`"),
    ("cwcmd", "subcommands"),
    ("date", "machine"),
    ("devcopy w0 w1", "copied to by itself"),
    ("rawcopy w0 w1", "copied to by itself"),
    ("dump", "="),
    ("dump --wait", "="),
    ("dump main", "the name is the first word"),
    ("dumpctl on", "="),
    ("files", "="),
    ("flag", "`trace on`"),
    ("flag chat", "trace"),
    ("flag chat 3", "trace on --connection 3"),
    ("flag allow", "allow"),
    ("flag aoe", "daemon's log"),
    ("fstat /x", "="),
    ("halt", "="),
    ("hangup 3", "="),
    ("help", "="),
    ("newuser rob", "="),
    ("noattach", "attaches off"),
    ("passwd", "certificates"),
    ("printconf", "="),
    ("writeconf", "ashlar.toml"),
    ("part", "layers"),
    ("profile 1", "machine"),
    ("stata", "stats"),
    ("stats", "="),
    ("stats -abc", "stats"),
    ("statd", "the graph's"),
    ("state", "machine"),
    ("stati", "the graph's"),
    ("statm", "the graph's"),
    ("statr", "the graph's"),
    ("statq", "statw"),
    ("statw", "="),
    ("sync", "="),
    ("time", "`time sync`"),
    ("users", "="),
    ("users default", "="),
    ("users /adm/other", "="),
    ("version", "="),
    ("who", "="),
    ("who rob", "="),
    ("aoe link", "graph"),
    ("cec stat", "ether:eth0"),
    ("arp", "machine"),
    ("route", "machine"),
    ("sntp kick", "machine"),
    ("cpu", "machine"),
    ("trace", "="),
    ("memory", "machine"),
    ("pcihinv", "machine"),
    ("e820", "machine"),
    ("scsi", "the graph's"),
    ("apc", "machine"),
    ("myrictl", "machine"),
    ("wormreset", "jukeboxes are not supported"),
    ("wormeject 3", "jukeboxes are not supported"),
    ("wormingest 3", "jukeboxes are not supported"),
    ("wormoffline 3", "jukeboxes are not supported"),
    ("wormonline 3", "jukeboxes are not supported"),
];

#[test]
fn former_commands_are_parsed_or_refused_with_a_reason() {
    for (typed, wanted) in TYPED {
        let words = parser::words(typed).unwrap();
        match replacement(&words) {
            None => assert_eq!(*wanted, "=", "{typed} is a command of its own"),
            Some(Replacement::Command(now)) => assert_eq!(now.join(" "), *wanted, "{typed}"),
            Some(Replacement::Removed(why)) => {
                assert!(why.contains(wanted), "{typed}: {why}");
                let refusal = parser::parse_line(typed).unwrap_err();
                assert!(refusal.starts_with(typed) && refusal.ends_with(why), "{typed}: {refusal}");
                continue;
            }
        }
        let understood = parser::parse_line(typed);
        assert!(matches!(understood, Ok(Some(_))), "{typed}: {understood:?}");
    }
}

#[test]
fn current_verbs_are_not_shadowed_by_former_commands() {
    for verb in specs() {
        assert_eq!(replacement(&[verb.name.to_owned()]), None, "{}", verb.name);
    }
    assert!(parser::parse_line("frobnicate").is_err_and(|e| e.contains("`help` names them")));
}

#[test]
fn verb_examples_are_parsed_as_typed() {
    for verb in specs().iter().filter(|verb| verb.name != "cons") {
        let typed = verb.example.strip_prefix("fs ").unwrap_or(verb.example);
        let mut words: Vec<&str> = typed.split(' ').collect();
        // A console is of one file server.
        words.remove(1);
        let understood = parser::parse_line(&words.join(" "));
        assert!(matches!(understood, Ok(Some((name, _))) if name == verb.name), "{understood:?}");
    }
}
