//! `cmd`: a command as it was typed, and the answer of the device.

use std::collections::VecDeque;
use std::fmt::Write;

use bio::Errno;
use geom::{At, Bytes, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use wire::scsi::{Key, Sense};

use super::Device;
use super::format::{self, FieldValue};
use crate::ccb::{CDB_LEN_MAX, Command, Registers};
use crate::class::CamClass;
use crate::periph::pass::{self, Data, PASS_TIMEOUT_MAX_MS, PASS_TIMEOUT_MS, PassResult, Request};

/// Longest answer that a format is tried on.
const RECEIVED_MAX: usize = 16 << 20;

/// Send a raw command to a device
///
/// The command is sent to the device unchanged, through the queue of its disk, and is neither
/// retried nor checked: a write command changes the disk even while it is open. An ATA command has
/// the fields of camcontrol: command, features, LBA low, mid and high, device, the same four of 48
/// bits (LBA low, mid, high, features), count, count of 48 bits; NCQ commands are refused. If the
/// device fails the command, the output ends with the device's error. The daemon serves other
/// requests meanwhile; `ashlar cam reset` ends the command early.
///
/// The command is written as fields: a byte in hexadecimal, or a number and its width, in bits
/// (`3:b5`, the highest bit first) or in bytes (`1f00:i2`, the highest byte first). `v` takes the
/// next value from ARGS, decimal or with 0x. Names in {} and comments in /* */ are ignored.
///
/// The answer is shown as a dump of bytes, or as fields in the format of the last of ARGS: i1 to i4
/// are integers, b1 to b32 (or t) bits, cN is N characters, zN the same without trailing blanks. A
/// leading * skips a field, sN moves to byte N, s+N and s-N move forward and back. The values are
/// printed on one line; with -v each is on its own line after its name in {}. `data` of --json has
/// the bytes.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Cmd {
    name: Device,
    /// Values of v, in order; then, with -i, the format of the answer [default: a dump of bytes]
    args: Vec<String>,
    /// SCSI command: "12 0 0 0 24 0"
    #[schemars(extend("x-short" = "c"))]
    cdb: Option<String>,
    /// ATA command: "ec 0 0 0 0 0 0 0 0 0 1 0"
    #[schemars(extend("x-short" = "a"))]
    ata: Option<String>,
    /// Number of bytes to receive from the device [default: none]
    #[schemars(extend("x-short" = "i"))]
    receive: Option<Bytes>,
    // camcontrol's -o selects here how answers are shown.
    /// Bytes to send to the device, as fields [default: none]
    send: Option<String>,
    /// Timeout in ms
    #[serde(default = "timeout")]
    #[schemars(extend("x-short" = "t"), range(min = 1, max = PASS_TIMEOUT_MAX_MS))]
    timeout: u32,
    /// Use the retries and error recovery of disk commands
    #[schemars(extend("x-short" = "E"))]
    recover: bool,
    /// Print each value on its own line, after the name of its field
    #[schemars(extend("x-short" = "v"))]
    verbose: bool,
}

fn timeout() -> u32 {
    PASS_TIMEOUT_MS
}

/// The answer of a device.
#[derive(Serialize, JsonSchema)]
pub(super) struct CmdAnswer {
    /// Result for people.
    text: String,
    /// Bytes that were transferred.
    moved: u32,
    /// The received bytes, in hexadecimal.
    data: String,
    /// Fields of the received bytes; absent: no format was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<Field>>,
}

/// A field of the received bytes.
#[derive(Serialize, JsonSchema)]
struct Field {
    /// Name of the field; may be empty.
    name: String,
    /// Value of the field.
    value: FieldValue,
}

impl Verb<CamClass> for Cmd {
    const NAME: &'static str = "cmd";
    const POSITIONAL: &'static [&'static str] = &["name", "args"];
    const EXAMPLE: &'static str = "cmd da0 -c \"12 0 0 0 v:i1 0\" 36 -i 36 \"s8 z8 z16 z4\"";
    type Answer = Deferred<CmdAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.0.clone();
        class.run_on_device(control, (Self::NAME, &on), |talk| {
            Box::pin(async move {
                let (request, format) = self.request()?;
                show(talk.name(), talk.send(request).await?, format, self.verbose)
            })
        })
    }
}

impl Cmd {
    /// The command, and how to show the answer.
    fn request(&self) -> Result<(Request, Option<String>), Error> {
        let refuse = |why: &str| Err(Error::inval(why));
        let mut words: VecDeque<&str> = self.args.iter().map(String::as_str).collect();
        let mut bytes = |what: &str, format: &str| {
            let wrong = |why| Error::inval(format!("{what}: {why}"));
            format::encode(format, &mut words).map_err(wrong)
        };
        let command = match (&self.cdb, &self.ata) {
            (Some(cdb), None) => {
                let cdb = bytes("cdb", cdb)?;
                if cdb.len() > CDB_LEN_MAX || cdb.len() < 6 {
                    return refuse("cdb: commands of 6 to 16 bytes are carried");
                }
                Command::scsi(&cdb)
            }
            (None, Some(ata)) => Command::Ata(registers(&bytes("ata", ata)?)?),
            _ => return refuse("no command is given: use -c for SCSI or -a for ATA"),
        };
        let data = match (self.receive, &self.send) {
            (Some(_), Some(_)) => return refuse("-i and --send exclude each other"),
            (Some(Bytes(len)), None) => match u32::try_from(len) {
                Ok(len) => Data::In(len),
                Err(_) => return refuse("receive: more than any bus carries"),
            },
            (None, Some(text)) => Data::Out(bytes("send", text)?),
            (None, None) => Data::None,
        };
        let show = if matches!(data, Data::In(_)) { words.pop_front() } else { None };
        if let Some(word) = words.front() {
            return refuse(&format!("{word}: no format field uses this argument"));
        }
        if show == Some("-") {
            return refuse("-: raw output is not supported here; use `data` of --json");
        }
        // Wrong words are found before anything is sent; only bytes that are not received later.
        if let (Some(show), Data::In(len)) = (show, &data) {
            let most = usize::try_from(*len).unwrap_or(0).min(RECEIVED_MAX);
            let wrong = |why| Error::inval(format!("format: {why}"));
            format::decode(show, &vec![0; most]).map_err(wrong)?;
        }
        let mut request = Request::new(command, data);
        request.timeout_ms = self.timeout;
        request.recover = self.recover;
        Ok((request, show.map(str::to_owned)))
    }
}

fn registers(bytes: &[u8]) -> Result<Registers, Error> {
    let refuse = |why: &str| Error::inval(format!("ata: {why}"));
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

/// The answer of a device, in the requested form.
fn show(
    name: &str,
    answer: PassResult,
    format: Option<String>,
    verbose: bool,
) -> Result<CmdAnswer, Error> {
    // To a disk's own commands a comparison that fails is no error; here it is the answer.
    let differs = Sense::decode(answer.ended.outcome.sense.bytes())
        .is_ok_and(|sense| sense.code.key == Key::Miscompare)
        .then_some(Errno::Io);
    if let Some(kind) = answer.ended.result.err().or(differs) {
        let why = pass::explain(&answer.ended);
        return Err(Error::new(kind, format!("{name}: {why}")));
    }
    let hex: String = answer.data.iter().map(|byte| format!("{byte:02x}")).collect();
    let moved = answer.ended.outcome.moved;
    let Some(format) = format else {
        return Ok(CmdAnswer { text: dump(&answer.data), moved, data: hex, fields: None });
    };
    let short = |why| Error::new(Errno::Io, format!("{name}: {why}"));
    let values = format::decode(&format, &answer.data).map_err(short)?;
    let text = format::text(&values, verbose);
    let fields = values.into_iter().map(|(name, value)| Field { name, value }).collect();
    Ok(CmdAnswer { text, moved, data: hex, fields: Some(fields) })
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(params: &Value) -> Result<(Request, Option<String>), Error> {
        let mut params = params.clone();
        params["name"] = "da0".into();
        geom::parse_params::<Cmd>("cam cmd", &params)?.request()
    }

    #[test]
    fn typed_commands_are_parsed_or_refused_with_a_reason() {
        let parsed = request(&json!({ "cdb": "12 0 0 0 0x24 0", "receive": 36 })).unwrap().0;
        assert_eq!(parsed.command, Command::scsi(&[0x12, 0, 0, 0, 0x24, 0]));
        assert_eq!(parsed.data, Data::In(36));
        let parsed = request(&json!({ "ata": "25 1 2 3 4 40 5 6 7 8 9 a" })).unwrap().0;
        let Command::Ata(r) = parsed.command else { panic!("ATA") };
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
            (json!({ "cdb": "12 0 0 0 v 0" }), "no value is left"),
            (json!({ "cdb": "12 0 0 0 v 0", "args": ["1", "2"] }), "2: no format field"),
            (json!({ "cdb": "12 0 0 0 1 0", "receive": 1, "args": ["i2"] }), "only 1 bytes"),
            (
                json!({ "cdb": "12 0 0 0 1 0", "receive": 1, "args": ["i1", "i1"] }),
                "no format field",
            ),
            (json!({ "cdb": "12 0 0 0 1 0", "receive": 1, "args": ["-"] }), "--json"),
            (json!({ "cdb": "" }), "hexadecimal"),
            (json!({ "ata": "ec 0" }), "12 registers"),
            (json!({ "ata": "60 0 0 0 0 0 0 0 0 0 0 0" }), "queued"),
            (json!({ "cdb": "0 0 0 0 0 0", "receive": 1, "send": "1" }), "exclude each other"),
            (json!({ "cdb": "0 0 0 0 0 0", "receive": 1u64 << 40 }), "receive"),
        ] {
            let e = request(&params).unwrap_err();
            assert!(e.message.contains(word), "{params}: {}", e.message);
        }
    }

    #[test]
    fn arguments_fill_the_command_first_and_then_the_data() {
        let typed = json!({ "cdb": "12 0 0 0 v 0", "receive": 36, "args": ["36", "s8 z8"] });
        let (parsed, show) = request(&typed).unwrap();
        assert_eq!(parsed.command, Command::scsi(&[0x12, 0, 0, 0, 36, 0]));
        assert_eq!(show.as_deref(), Some("s8 z8"));
        let typed =
            json!({ "cdb": "3b 0 0 0 0 0 0 0 v 0", "send": "v:i2 7", "args": ["3", "258"] });
        let (parsed, show) = request(&typed).unwrap();
        assert_eq!((parsed.data, show), (Data::Out(vec![1, 2, 7]), None));
    }

    #[test]
    fn bytes_are_printed_as_by_hexdump() {
        let text = dump(b"ASHLAR virtual disk");
        let want = "\
00000000  41 53 48 4c 41 52 20 76  69 72 74 75 61 6c 20 64  |ASHLAR virtual d|
00000010  69 73 6b                                          |isk|
";
        assert_eq!(text, want);
    }
}
