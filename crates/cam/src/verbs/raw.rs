//! `cmd`: a command as somebody typed it, and what the device answers.

use std::fmt::Write;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Error, VerbSpec};
use serde_json::{Value, json};

use super::{DEVICE, Found, option, verb};
use crate::ccb::{CDB_LEN_MAX, Command, Registers};
use crate::periph::pass::{self, Answer, Data, Request};

pub(super) const CMD: VerbSpec = VerbSpec {
    detail: "The command goes to the device as it is, through the queue of its disk, and is \
             neither retried nor checked: one that writes, writes under whoever has the disk open. \
             Bytes are hexadecimal. For ATA they are, as with camcontrol: command, features, LBA \
             low, mid and high, device, the same four of 48 bits (LBA low, mid, high, features), \
             count, count of 48 bits; NCQ commands are refused. The text ends with the device's \
             own error where it refuses.",
    ..verb(
        "cmd",
        "Send a raw command to a device",
        &[
            DEVICE,
            option("cdb", 'c', ArgKind::Text, "A SCSI command: \"12 0 0 0 24 0\""),
            option("ata", 'a', ArgKind::Text, "An ATA command: \"ec 0 0 0 0 0 0 0 0 0 1 0\""),
            option("receive", 'i', ArgKind::Bytes, "So many bytes come from the device"),
            // camcontrol's -o says here how answers are shown.
            ArgSpec {
                name: "send",
                short: None,
                kind: ArgKind::Text,
                doc: "These bytes go to the device",
            },
            option("timeout", 't', ArgKind::Number, "Milliseconds that it may take; default: 5000"),
            option("recover", 'E', ArgKind::Flag, "Retry and cure as for a disk's commands"),
        ],
        "cmd da0 -c \"12 0 0 0 24 0\" -i 36",
    )
};

/// Most bytes that may be typed.
const TYPED_MAX: usize = 65_536;

fn bytes(what: &str, text: &str) -> Result<Vec<u8>, Error> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let out: Option<Vec<u8>> = words
        .map(|word| u8::from_str_radix(word.trim_start_matches("0x"), 16).ok())
        .take(TYPED_MAX + 1)
        .collect();
    match out {
        Some(out) if !out.is_empty() && out.len() <= TYPED_MAX => Ok(out),
        _ => {
            let why = format!("{what}: bytes in hexadecimal are wanted, as in \"12 0 0 0 24 0\"");
            Err(Error::new(Errno::Inval, why))
        }
    }
}

fn registers(bytes: &[u8]) -> Result<Registers, Error> {
    let refuse = |why: &str| Error::new(Errno::Inval, format!("ata: {why}"));
    let [command, features, a, b, c, device, d, e, f, features_ext, count, count_ext] =
        *bytes.as_array::<12>().ok_or_else(|| refuse("12 registers are wanted"))?;
    if matches!(command, 0x60 | 0x61 | 0x63..=0x65) {
        return Err(refuse(
            "a queued command would need a tag of the disk's own; use READ DMA EXT",
        ));
    }
    let extended = [d, e, f, features_ext, count_ext].iter().any(|byte| *byte != 0);
    Ok(Registers {
        command,
        features: u16::from_le_bytes([features, features_ext]),
        count: u16::from_le_bytes([count, count_ext]),
        lba: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
        device,
        extended,
        queued: false,
    })
}

fn request(params: &Value) -> Result<Request, Error> {
    let text = |key: &str| params[key].as_str();
    let refuse = |why: &str| Err(Error::new(Errno::Inval, why));
    let command = match (text("cdb"), text("ata")) {
        (Some(cdb), None) => {
            let cdb = bytes("cdb", cdb)?;
            if cdb.len() > CDB_LEN_MAX || cdb.len() < 6 {
                return refuse("cdb: commands of 6 to 16 bytes are carried");
            }
            Command::scsi(&cdb)
        }
        (None, Some(ata)) => Command::Ata(registers(&bytes("ata", ata)?)?),
        _ => return refuse("a command is wanted: -c for SCSI or -a for ATA"),
    };
    let data = match (params["receive"].as_u64(), text("send")) {
        (Some(_), Some(_)) => return refuse("data go one way: -i or --send"),
        (Some(len), None) => match u32::try_from(len) {
            Ok(len) => Data::In(len),
            Err(_) => return refuse("receive: more than any bus carries"),
        },
        (None, Some(text)) => Data::Out(bytes("send", text)?),
        (None, None) => Data::None,
    };
    let mut request = Request::new(command, data);
    if let Some(ms) = params["timeout"].as_u64() {
        request.timeout_ms = u32::try_from(ms).unwrap_or(u32::MAX);
    }
    request.recover = params["recover"].as_bool().unwrap_or(false);
    Ok(request)
}

/// Bytes as `hexdump -C` has them.
pub(super) fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (n, line) in bytes.chunks(16).enumerate() {
        let _ = write!(out, "{:08x} ", n * 16);
        for (i, byte) in line.iter().enumerate() {
            let _ = write!(out, "{}{byte:02x}", if i == 8 { "  " } else { " " });
        }
        let plain = |b: &u8| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' };
        let text: String = line.iter().map(plain).collect();
        let pad = (16 - line.len()) * 3 + usize::from(line.len() <= 8);
        let _ = writeln!(out, "{:pad$}  |{text}|", "");
    }
    out
}

impl Found {
    /// Sends one command, through the device's queue.
    pub(super) fn send(&self, control: &mut Control, request: Request) -> Result<Answer, Error> {
        let unit = self.unit.clone();
        control.run_on_core("a command", move |core| {
            Box::pin(async move { pass::send(&unit, core, &request).await })
        })?
    }

    pub(super) fn cmd(&self, control: &mut Control, params: &Value) -> Result<Value, Error> {
        let answer = self.send(control, request(params)?)?;
        if answer.ended.result.is_err() {
            let why = pass::explain(&answer.ended);
            let kind = answer.ended.result.err().unwrap_or(Errno::Io);
            return Err(Error::new(kind, format!("{}: {why}", self.name)));
        }
        let hex: String = answer.data.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(json!({
            "text": dump(&answer.data), "moved": answer.ended.outcome.moved, "data": hex,
        }))
    }
}

/// The device that a verb is about.
pub(super) const ANY_DEVICE: ArgSpec = ArgSpec {
    name: "name",
    short: None,
    kind: ArgKind::Name,
    doc: "A device by any of its names: da0, ada0, pass3, ses0",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_read_or_refused_by_name() {
        let asked = request(&json!({ "cdb": "12 0 0 0 0x24 0", "receive": 36 })).unwrap();
        assert_eq!(asked.command, Command::scsi(&[0x12, 0, 0, 0, 0x24, 0]));
        assert_eq!(asked.data, Data::In(36));
        let asked = request(&json!({ "ata": "25 1 2 3 4 40 5 6 7 8 9 a" })).unwrap();
        let Command::Ata(r) = asked.command else { panic!("ATA") };
        assert_eq!(
            (r.lba, r.features, r.count, r.extended),
            (0x0706_0504_0302, 0x801, 0xa09, true)
        );
        for (params, word) in [
            (json!({}), "-c"),
            (json!({ "cdb": "12", "ata": "ec" }), "-c"),
            (json!({ "cdb": "12 0 0" }), "6 to 16"),
            (json!({ "cdb": "xy" }), "hexadecimal"),
            (json!({ "cdb": "100" }), "hexadecimal"),
            (json!({ "cdb": "" }), "hexadecimal"),
            (json!({ "ata": "ec 0" }), "12 registers"),
            (json!({ "ata": "60 0 0 0 0 0 0 0 0 0 0 0" }), "queued"),
            (json!({ "cdb": "0 0 0 0 0 0", "receive": 1, "send": "1" }), "one way"),
            (json!({ "cdb": "0 0 0 0 0 0", "receive": 1u64 << 40 }), "receive"),
        ] {
            let e = request(&params).unwrap_err();
            assert!(e.what.contains(word), "{params}: {}", e.what);
        }
    }

    #[test]
    fn bytes_are_shown_as_by_hexdump() {
        let text = dump(b"ASHLAR virtual disk");
        let want = "\
00000000  41 53 48 4c 41 52 20 76  69 72 74 75 61 6c 20 64  |ASHLAR virtual d|
00000010  69 73 6b                                          |isk|
";
        assert_eq!(text, want);
    }
}
