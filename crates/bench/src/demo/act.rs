//! The initiator's part, with tools from Debian's packages.

use std::fs;

use super::setup::{IQN, Site};
use super::tools::Tools;
use crate::error::{Error, Kind};

/// Acts as an initiator: finds the target, copies a file system in and out, compares.
pub fn act(site: &Site, tools: &mut Tools<'_>) -> Result<(), Error> {
    let portal = site.portal();
    tools.print_note("what an initiator sees");
    tools.run("iscsi-ls", &["-s", &format!("iscsi://{portal}")])?;
    tools.run("iscsi-inq", &[&format!("iscsi://{portal}/{IQN}/0")])?;

    let lun = format!("iscsi://{portal}/{IQN}/0");
    let (out, back) = (text(site, "tree.img"), text(site, "back.img"));
    tools.print_note("a file system with a real tree, copied into the partition over iSCSI");
    // A leftover of an earlier run; there may be none.
    let _ = fs::remove_file(site.file("tree.img"));
    let doc = ["/usr/share/doc/e2fsprogs", "/usr/share/doc"];
    let tree = doc.into_iter().find(|d| fs::metadata(d).is_ok()).unwrap_or("/etc");
    let size = "192M";
    tools.run("mke2fs", &["-q", "-t", "ext4", "-L", "tree", "-d", tree, &out, size])?;
    tools.run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &out, &lun])?;

    tools.print_note("and back");
    let _ = fs::remove_file(site.file("back.img"));
    tools.run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &lun, &back])?;
    tools.run("e2fsck", &["-fn", &back])?;
    let (a, b) = (read(site, "tree.img")?, read(site, "back.img")?);
    if a != b {
        return Err(Error::new(Kind::Data, "the bytes read back are not those written"));
    }
    tools.print_note(&format!("{} bytes, equal", a.len()));

    tools.print_note("a LUN that is read-only for this group refuses to be written");
    let ro = format!("iscsi://{portal}/{IQN}/3");
    match tools.run("qemu-io", &["-f", "raw", "-c", "write -P 1 0 4k", &ro]) {
        Ok(text) if text.contains("wrote") => {
            return Err(Error::new(Kind::Data, "the read-only LUN was written"));
        }
        Ok(_) => {}
        Err(e) => {
            tools.print_note(&format!("refused, as it should be: {}", first_line(&e.message)))
        }
    }

    tools.print_note("the whole picture");
    tools.ashlar(&["tree"])?;
    tools.ashlar(&["part", "show"])?;
    tools.ashlar(&["status"])?;
    Ok(())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

fn text(site: &Site, name: &str) -> String {
    site.file(name).display().to_string()
}

fn read(site: &Site, name: &str) -> Result<Vec<u8>, Error> {
    fs::read(site.file(name)).map_err(|e| Error::system(name, e))
}
