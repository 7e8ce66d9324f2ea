//! Config strings of real machines, and random ones: the printed form parses to the same value.

use reactor::SeededRandom;
use testkit::Seeds;

use super::*;

fn parse(text: &str) -> Device {
    text.parse().unwrap_or_else(|w| panic!("{text}: {w}"))
}

#[test]
fn config_strings_of_the_first_file_servers_are_parsed() {
    for text in [
        "ce565.0{e565.1e545.1}",
        "cp(e565.0)0.3276800{e565.1e545.1}",
        "cp(e545.0)0.3276800e545.1",
        "cpe220.0\"fscache\"{e220.1e221.1}",
        "cp(w0)50.1f{w1w2}",
        "o",
        "n",
        "[w0w1w2]",
        "xw1.0.2",
        "j(w6w5w4)(r0r1l2)",
        "c\"da0\"{\"da1\"\"mirror/m0\"}",
        "(h0.1m2a3.1)",
        "p('it\"s'w0)10.20",
    ] {
        let device = parse(text);
        assert_eq!(parse(&device.to_string()), device, "{text}");
    }
    assert_eq!(parse("ce565.0{e565.1e545.1}").to_string(), "ce565.0{e565.1e545.1}");
    // A list with one member is that member; an iterator counts up or down.
    assert_eq!(parse("((w1))"), Device::Disk(Disk::Wren, vec![1]));
    assert_eq!(parse("(w<5-3>)").to_string(), "(w5w4w3)");
    assert_eq!(parse("{e565.<0-2>}").to_string(), "{e565.0e565.1e565.2}");
    assert_eq!(parse("(r<0-1>l7)").to_string(), "(r0r1l7)");
    assert_eq!(parse("[/dev/sda]"), Device::Path("/dev/sda".into()));
    assert_eq!(parse("w/dev/sda"), parse("\"/dev/sda\""));
}

#[test]
fn parse_errors_report_reason_and_offset() {
    for (text, at, why) in [
        ("", 0, "a device is missing"),
        ("w0junk", 2, "\"junk\" follows a complete device"),
        ("{w0", 1, "'}' is missing"),
        ("()", 2, "a list without members"),
        ("{cw0w1w2}", 1, "a cached WORM or its dumps cannot be part of another device"),
        ("cw0cw1w2", 3, "a cached WORM or its dumps cannot be part of another device"),
        ("e565", 4, "an AoE target is eSHELF.SLOT"),
        ("w<0-2>", 0, "several devices where one is wanted: use ( ), [ ] or { }"),
        ("(w<0-9999>)", 3, "an iterator of more than 4096 values"),
        ("(e<0-1>.<0-1>)", 2, "one number of a device may be an iterator"),
        ("p(w0)90.20", 5, "a part that ends behind 100 percent"),
        ("p(w0)500.200", 5, "a part that ends before it begins"),
        ("p(w0)5.0", 5, "a part of no size"),
        ("w99999999999", 1, "a number beyond any device"),
        ("\"da0", 0, "the \" that ends a name is missing"),
        ("z", 0, "'z' begins no device"),
        ("j(w0)", 5, "sides in ( ) are missing"),
    ] {
        let wrong = text.parse::<Device>().unwrap_err();
        assert_eq!((wrong.at, wrong.reason.as_str()), (at, why), "{text}");
    }
    let deep = "(".repeat(10_000);
    assert!(deep.parse::<Device>().unwrap_err().reason.contains("too deep"));
}

fn some(r: &mut SeededRandom, depth: u32, outer: bool) -> Device {
    let few = |r: &mut SeededRandom| {
        let n = 2 + r.below(3);
        (0..n).map(|_| some(r, depth + 1, false)).collect::<Vec<_>>()
    };
    let one = |r: &mut SeededRandom| Box::new(some(r, depth + 1, false));
    let n = |r: &mut SeededRandom| r.below(1000) as u32;
    match if depth > 3 { 8 + r.below(6) } else { r.below(14 + 2 * u64::from(outer)) } {
        0 => Device::Cat(few(r)),
        1 => Device::Interleave(few(r)),
        2 => Device::Mirror(few(r)),
        3 => Device::Once(one(r)),
        4 => Device::Swapped(one(r)),
        5 => Device::Part(one(r), r.below(50), 1 + r.below(50)),
        6 => Device::Part(one(r), r.below(50), 101 + r.below(5000)),
        7 => Device::Named(one(r), format!("n{}", n(r))),
        8 => Device::None,
        9 => Device::Disk(Disk::Wren, (0..1 + r.below(3)).map(|_| n(r)).collect()),
        10 => Device::Disk(Disk::Ahci, (0..1 + r.below(2)).map(|_| n(r)).collect()),
        11 => Device::Aoe(n(r), n(r)),
        12 => Device::Path(["da0", "/dev/x y", "it's", "mirror/\"m\""][r.below(4) as usize].into()),
        13 => Device::Labelled(n(r)),
        14 => Device::Dumps,
        _ => Device::Cached(one(r), one(r)),
    }
}

/// Characters that spoil a config string.
const SIGNS: &str = "(){}[]<>-.\"'/cfjoprwe019π";

#[test]
fn exposing_j_printed_config_string_parses_to_the_same_device() {
    for seed in Seeds::of(1000) {
        let mut r = SeededRandom::new(seed);
        for _ in 0..5 {
            let device = some(&mut r, 0, true);
            let text = device.to_string();
            assert_eq!(text.parse(), Ok(device), "{text}");
            // Spoiled, it is refused, or prints to what parses to the same again.
            let mut spoiled: Vec<char> = text.chars().collect();
            for _ in 0..1 + r.below(3) {
                let at = r.below(spoiled.len() as u64) as usize;
                spoiled[at] = SIGNS.chars().nth(r.below(24) as usize).unwrap();
            }
            let spoiled: String = spoiled.into_iter().collect();
            if let Ok(device) = spoiled.parse::<Device>() {
                assert_eq!(device.to_string().parse(), Ok(device), "{spoiled}");
            }
        }
    }
}

#[test]
fn config_mode_lines_survive_parsing_and_printing() {
    let text = "service emelie\nfilsys main ce565.0{e565.1e545.1}\nfilsys dump o\nfilsys other w3\n\
ream other\ndumpctl no\nnoattach\nip0 10.0.0.1\n";
    let settings = Settings::parse(text).unwrap();
    assert_eq!(settings.to_string(), text);
    assert_eq!(Settings::parse(&settings.to_string()), Ok(settings));
    for (yes, no) in [("yes", "no"), ("on", "off"), ("1", "0")] {
        assert!(!Settings::parse(&format!("dumpctl {yes}")).unwrap().nodump);
        assert!(Settings::parse(&format!("dumpctl {no}")).unwrap().nodump);
    }
    let taken_back = Settings::parse("filsys a w0\nfilsys a\nend\nnonsense").unwrap();
    assert_eq!(taken_back, Settings::default());
    for (text, why) in [
        ("dumpctl maybe", "line 1: at character 9: dumpctl is yes or no"),
        ("\nfilsys main cw0", "line 2: at character 16: a device is missing"),
        ("filsys dump o", "filsys dump: no cached WORM before it has dumps"),
        ("ream main", "ream or recover: no filsys main"),
        ("reboot", "line 1: at character 1: no such command of config mode"),
    ] {
        assert_eq!(Settings::parse(text).unwrap_err(), why);
    }
}
