//! Slow requests of a host, with their layers, over the API.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rig::peer;
use serde_json::Value;

use crate::fixture::Fixture;

const LIMIT: Duration = Duration::from_secs(60);

const DISKS: &str = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"8MiB\"\n\
                     [[geom]]\nclass = \"nop\"\nname = \"late\"\nprovider = \"d0\"\n\
                     read_delay_percent = 100\ndelay_ms = 40\n";

fn ask(fixture: &Fixture, query: &str) -> Value {
    let mut stream = UnixStream::connect(fixture.path("ashlar.sock")).unwrap();
    let head = "HTTP/1.1\r\nHost: ashlar\r\nConnection: close";
    write!(stream, "GET /v1/trace?{query} {head}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{text}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn slow_reads_of_a_host_name_the_layer_that_held_them() {
    let mut fixture = Fixture::new("slow");
    fixture.configure(DISKS, "0 = \"late\"");
    fixture.start();
    let begun = ask(&fixture, "slow_ns=20000000");
    assert_eq!(begun["requests"].as_array().map(Vec::len), Some(0), "{begun:#}");
    let url = fixture.url(0);
    let host = std::thread::spawn(move || peer::qemu_io(&url, &["read 4k 8k"; 100]));
    let query = format!("slow_ns=20000000&after={}&lun=late", begun["last"]);
    // The names of a host are known while its session exists.
    let of_host = |request: &&Value| {
        let layer = &request["layer"];
        layer["offset_bytes"] == 4096 && layer["length_bytes"] == 8192 && !request["lun"].is_null()
    };
    let mut request = Value::Null;
    fixture.until("a request of the host is found", LIMIT, || {
        let found = ask(&fixture, &query);
        request = found["requests"].as_array().into_iter().flatten().find(of_host).cloned().into();
        !request.is_null()
    });
    host.join().unwrap().unwrap();
    assert_eq!((&request["operation"], &request["user"]), (&"read".into(), &"lun:late".into()));
    assert_eq!((&request["lun"], &request["is_complete"]), (&0.into(), &true.into()));
    assert!(request["initiator"].as_str().is_some_and(|name| !name.is_empty()), "{request:#}");
    assert_eq!(request["layer"]["geom"], "nop:late");
    let none = ask(&fixture, &format!("slow_ns=20000000&after={}&geom=d9", begun["last"]));
    assert_eq!(none["requests"].as_array().map(Vec::len), Some(0), "{none:#}");
    fixture.ashlar(&["trace", "--seconds", "0"]).ends(0).prints(&["took 10.0ms or longer"]);
    fixture.stop();
}
