//! A file server of the daemon, mounted by Linux. Its writes are in a dump, spoiled files are
//! restored while it is mounted, and the daemon may be killed in between.

use std::time::Duration;

use rig::guest::{Boot, HOST, Image, Kit, Script, boot};
use rig::proc;

use crate::fixture::{self, Fixture};

fn mount(port: u16, place: &str, aname: &str) -> String {
    format!(
        "mkdir -p {place}; mount -t 9p -o trans=tcp,port={port},version=9p2000,msize=131096 \
         -o uname=glenda,aname={aname} {HOST} {place}\n"
    )
}

#[test]
fn linux_client_restores_a_file_from_a_dump() {
    let mut fixture = Fixture::alone("fs-linux");
    let port = proc::free_port().unwrap();
    let mut text = String::new();
    for (name, mib) in [("ssd", 64), ("near", 128), ("far", 128)] {
        fixture.image(&format!("{name}.img"), mib << 20);
        text += &fixture::file_disk(name, &format!("{name}.img"));
    }
    text += &format!(
        "[[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"ssd\", \"near\", \"far\"]\n\
         create = true\nlinux = [\"127.0.0.1:{port}\"]\neverybody = \"glenda\"\n\
         dump_at = \"never\"\n"
    );
    fixture.configure(&text, "");
    fixture.start();
    let image = Image::with_kits(&[Kit::Ninep]).unwrap();
    let mut script = Script::new();
    let mounts = mount(port, "/n/main", "") + &mount(port, "/n/dump", "dump");
    script.step("mount", mounts.clone());
    script.step(
        "a file in a dump",
        "cd /n/main; mkdir usr; dd if=/dev/urandom of=usr/thesis bs=64k count=40 2>/dev/null
        sha1sum usr/thesis > /tmp/good; echo DO-DUMP; read -r day; echo DAY $day > /tmp/day
        cmp usr/thesis /n/dump/$day/usr/thesis",
    );
    script.step(
        "spoiled and brought back",
        "cd /n/main; echo nothing > usr/thesis; cat usr/thesis | grep -qx nothing
        echo DO-BACK; read -r done; sha1sum -c /tmp/good; touch usr/more; rm usr/more",
    );
    script.step(
        "the server was killed",
        format!(
            "cd /n/main; sync; echo kept > usr/kept; sync; cd /; echo DO-KILL; read -r done
            umount -l /n/main; umount -l /n/dump
            {mounts}cd /n/main; sha1sum -c /tmp/good; grep -qx kept usr/kept; ls /n/dump/20*/*"
        ),
    );
    let how = Boot { deadline: Duration::from_secs(400), core: None };
    let run = boot(&image, &script, how, &mut |line, console| {
        if line.contains("DO-DUMP") {
            let who = fixture.ok(&["fs", "who", "main"]);
            assert!(who.contains("glenda"), "{who}");
            let output = fixture.json(&["fs", "dump", "main", "--wait"]);
            let path = output["answer"]["path"].as_str().unwrap_or_default().to_owned();
            console.send(path.trim_start_matches("/dump/"))?;
        } else if line.contains("DO-BACK") {
            fixture.ok(&["fs", "yesterday", "main", "/usr/thesis", "--date", "last", "--copy"]);
            console.send("done")?;
        } else if line.contains("DO-KILL") {
            // A 9P mount without a daemon does not return: Linux mounts again.
            fixture.ok(&["fs", "sync", "main"]);
            fixture.kill();
            fixture.start();
            console.send("done")?;
        }
        Ok(())
    })
    .unwrap();
    run.expect_ok().unwrap();
    let found = fixture.json(&["fs", "check", "main", "--rdall"]);
    assert_eq!(found["answer"]["faults"], 0, "{found}");
    fixture.stop();
}
