//! Refusals of a file server's console, and the clients that it keeps out until a command admits
//! them.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rig::proc;

use crate::fixture::{Fixture, file_disk, ninep};

/// Longest way of a change from a server to where it is looked for.
const SOON: Duration = Duration::from_secs(20);

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()))
}

/// Disks on new files of so many MiB.
fn disks(fixture: &Fixture, all: &[(&str, u64)]) -> String {
    let made = all.iter().map(|(name, mib)| {
        let file = format!("{name}.img");
        fixture.image(&file, mib << 20);
        file_disk(name, &file)
    });
    made.collect()
}

/// A client at the socket of a console.
struct Console {
    line: UnixStream,
    prompt: String,
}

impl Console {
    fn of(fixture: &Fixture, name: &str) -> Console {
        let line = UnixStream::connect(fixture.path(&format!("{name}.cons"))).unwrap();
        line.set_read_timeout(Some(SOON)).unwrap();
        let mut console = Console { line, prompt: format!("{name}: ") };
        console.read_to_prompt();
        console
    }

    /// Output up to the next prompt.
    fn read_to_prompt(&mut self) -> String {
        let (mut received, mut some) = (Vec::new(), [0; 4096]);
        while !received.ends_with(self.prompt.as_bytes()) {
            let n = self.line.read(&mut some).unwrap();
            assert!(n > 0, "it hangs up: {}", String::from_utf8_lossy(&received));
            received.extend(&some[..n]);
        }
        String::from_utf8_lossy(&received[..received.len() - self.prompt.len()]).into_owned()
    }

    fn types(&mut self, text: &str) -> String {
        self.line.write_all(format!("{text}\n").as_bytes()).unwrap();
        self.read_to_prompt()
    }

    /// All visible facts about the files: the findings of a check, every name, and the dumps.
    fn sees(&mut self) -> String {
        self.types("check --pfile --pdir") + &self.types("dumps")
    }

    /// Each line is refused with these words, in which NAME is the server's, and changes nothing.
    fn is_refused(&mut self, name: &str, table: &[(&str, &[&str])]) {
        let before = self.sees();
        for (line, words) in table {
            let output = self.types(line);
            for word in *words {
                let word = word.replace("NAME", name);
                assert!(output.contains(&word), "{name}: `{line}`: no `{word}` in `{output}`");
            }
            assert_eq!(self.sees(), before, "{name}: `{line}` has changed something");
        }
    }
}

const BOTH: &[&str] = &["check: --dry", "--fix", "both"];
const ONE: &[&str] = &["check: --rtmp removes", "--dry changes nothing", "one of them"];
const RTMP: &[&str] = &["check --rtmp", "a dump is never changed", "leave --dump out"];
const FIX: &[&str] = &["check --fix", "a dump is never changed", "leave --dump out"];

/// Lines that are wrong for every server, and the words of their refusals.
const WRONG: &[(&str, &[&str])] = &[
    ("check --frob", &["unexpected argument `--frob`", "`help check`"]),
    ("check --fix --frob", &["unexpected argument `--frob`", "`help check`"]),
    ("check --rtmp extra", &["unexpected argument `extra`", "`help check`"]),
    ("check --dump", &["--dump: a value is missing", "2026/1121", "yesterday"]),
    ("check --rtmp --dump", &["--dump: a value is missing"]),
    ("check --dump 1999/0101", &["no dump 1999/0101", "ashlar fs dumps NAME"]),
    ("check --dry", BOTH),
    ("check --dry --rdall --pfile", BOTH),
    ("check --dry --dump last", BOTH),
    ("check --rtmp --dry", ONE),
    ("check --rtmp --fix --dry", ONE),
    ("check --rtmp --dump last", RTMP),
    ("check --rtmp --dump all", RTMP),
    ("check --rtmp --fix --dump last", RTMP),
    ("check --fix --dump last", FIX),
    ("check --fix --dump 1999/0101", FIX),
    ("check --fix --dry --dump all", FIX),
];

/// The same for a volume alone: an image has it.
const OF_IMAGES: &[(&str, &[&str])] = &[
    ("check --fix --dry", &["check --fix: --dry", "use a check without --fix"]),
    ("check --fix --dry --rdall", &["check --fix: --dry", "use a check without --fix"]),
];

const ALONE: &[&str] = &[
    "check --fix: 1 clients are connected",
    "ashlar fs who NAME",
    "ashlar fs attaches NAME off",
    "ashlar fs hangup NAME NUMBER",
];

/// While a client is connected.
const BESIDE: &[(&str, &[&str])] =
    &[("check --fix", ALONE), ("check --fix --rdall", ALONE), ("check --rtmp --fix", ALONE)];

#[test]
fn invalid_check_options_are_refused_and_change_nothing() {
    let mut fixture = Fixture::new("fs-refusals");
    let mut text = disks(&fixture, &[("ssd", 32), ("near", 64), ("cwcache", 32), ("cwworm", 64)]);
    let servers = [("main", "c'ssd''near'", ""), ("old", "c'cwcache''cwworm'", "image = true\n")];
    let at = servers.map(|(name, device, more)| {
        let at = free_address();
        text += &format!(
            "[[geom]]\nclass = \"fs\"\nname = \"{name}\"\nsettings = \"filsys main {device}\"\n\
             create = true\nplan9 = [\"{at}\"]\nconsole = [\"unix:{{here}}/{name}.cons\"]\n\
             dump_at = \"never\"\n{more}"
        );
        at
    });
    fixture.configure(&text, "");
    fixture.start();
    for ((name, ..), at) in servers.into_iter().zip(at) {
        let mut console = Console::of(&fixture, name);
        console.types("newuser rob");
        let output = console.types("dump --wait");
        let blocks = output.trim().strip_suffix(" blocks").and_then(|s| s.rsplit(' ').next());
        let blocks: Option<u64> = blocks.and_then(|n| n.parse().ok());
        assert!(blocks.is_some_and(|n| n > 3), "{name}: {output}");
        let output = console.types("check");
        assert!(output.contains("no faults") && !output.contains("highest 0;"), "{name}: {output}");
        let output = console.types("statw");
        assert!(output.contains("; a superblock in ") && !output.contains(" in 0\n"), "{output}");
        // Something that each of the options would change.
        let lines =
            ["create /t sys sys 664 t", "create /d sys sys 775 d", "create /d/x sys sys 664"];
        for line in lines.into_iter().chain(["clri /d"]) {
            console.types(line);
        }
        let before = console.sees();
        assert!(before.contains("/t\n") && !before.contains("no faults"), "{name}: {before}");
        console.is_refused(name, WRONG);
        if name == "main" {
            console.is_refused(name, OF_IMAGES);
        }
        let client = ninep::attach(at, "rob").unwrap().unwrap();
        console.is_refused(name, BESIDE);
        // The refused commands keep no client out.
        drop(ninep::attach(at, "rob").unwrap().unwrap());
        drop(client);
        fixture.until("they have left", SOON, || console.types("who") == "no clients\n");
        // And now it is done.
        let output = console.types("check --rtmp --fix");
        for word in ["repaired: /t is removed", "no faults"] {
            assert!(output.contains(word), "{name}: {output}");
        }
        assert!(output.matches("repaired: ").count() > 1, "{name}: {output}");
        assert!(!console.sees().contains("/t\n"), "{name}");
        drop(ninep::attach(at, "rob").unwrap().unwrap());
    }
    fixture.stop();
}

/// Results of the clients that try to attach all the time.
#[derive(Default)]
struct AttachAttempts {
    let_in: AtomicU64,
    turned_away: AtomicU64,
    over: AtomicBool,
}

impl AttachAttempts {
    /// Attaches until it is over. It tries again where no server listens, or the connection is
    /// closed.
    fn attach_repeatedly(&self, at: SocketAddr) {
        while !self.over.load(Ordering::Relaxed) {
            match ninep::attach(at, "rob") {
                Ok(Ok(_)) => self.let_in.fetch_add(1, Ordering::Relaxed),
                Ok(Err(why)) if why == "system maintenance" => {
                    self.turned_away.fetch_add(1, Ordering::Relaxed)
                }
                Ok(Err(_)) | Err(_) => continue,
            };
        }
    }

    fn let_in(&self) -> u64 {
        self.let_in.load(Ordering::Relaxed)
    }

    fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Waits until another client was rejected.
    fn wait(&self, fixture: &Fixture) {
        let before = self.turned_away();
        fixture.until("somebody is turned away", SOON, || self.turned_away() > before + 2);
    }
}

/// Lets clients try to attach all the time while `during` runs; returns their results.
fn knocked(at: SocketAddr, during: impl FnOnce(&AttachAttempts)) -> AttachAttempts {
    let knocks = AttachAttempts::default();
    /// Also where the test fails meanwhile.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|s| {
        s.spawn(|| knocks.attach_repeatedly(at));
        s.spawn(|| knocks.attach_repeatedly(at));
        let _over = Over(&knocks.over);
        during(&knocks);
    });
    knocks
}

#[test]
fn standby_accepts_no_attach_before_the_command_that_allows_it() {
    let mut fixture = Fixture::new("fs-knocks");
    let at = free_address();
    let text = disks(&fixture, &[("ssd", 32), ("near", 64)]);
    // Slow, so that each step between two looks at it takes longer than it is to attach.
    let server = format!(
        "[[geom]]\nclass = \"nop\"\nname = \"slow\"\nprovider = \"ssd\"\ndelay_ms = 5\n\
         read_delay_percent = 100\n\
         [[geom]]\nclass = \"fs\"\nname = \"standby\"\ncreate = true\nplan9 = [\"{at}\"]\n\
         settings = \"filsys main c'slow''near'\\nnoattach\"\ndump_at = \"never\"\n"
    );
    fixture.configure(&(text + &server), "");
    fixture.start();
    fixture.ashlar(&["fs", "newuser", "standby", "rob"]).ends(0);
    fixture.ashlar(&["fs", "dump", "standby", "--wait"]).ends(0);
    let nobody =
        |knocks: AttachAttempts| assert_eq!(knocks.let_in(), 0, "of {}", knocks.turned_away());
    let halt = |fixture: &Fixture| drop(fixture.ashlar(&["fs", "halt", "standby"]).ends(0));
    let start = |fixture: &Fixture| drop(fixture.ashlar(&["fs", "start", "standby"]).ends(0));
    // Permissions that are not looked at are another matter, before a start and behind it.
    for word in ["disallow", "allow"] {
        fixture.ashlar(&["fs", word, "standby"]).ends(0);
        nobody(knocked(at, |knocks| {
            for _ in 0..4 {
                halt(&fixture);
                start(&fixture);
                knocks.wait(&fixture);
            }
            halt(&fixture);
            fixture.ashlar(&["fs", "recover", "standby", "--force"]).ends(0);
            knocks.wait(&fixture);
            fixture.ashlar(&["fs", word, "standby"]).ends(0);
            knocks.wait(&fixture);
        }));
    }
    nobody(knocked(at, |knocks| {
        for _ in 0..2 {
            fixture.stop();
            fixture.start();
            knocks.wait(&fixture);
        }
    }));
    // The word, and until the next start only.
    fixture.ashlar(&["fs", "attaches", "standby", "on"]).ends(0);
    knocked(at, |knocks| fixture.until("somebody is let in", SOON, || knocks.let_in() > 2));
    halt(&fixture);
    nobody(knocked(at, |knocks| {
        start(&fixture);
        knocks.wait(&fixture);
    }));
    fixture.stop();
}
