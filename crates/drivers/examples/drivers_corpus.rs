//! Writes the seeds of the fuzz targets of whole connections and of frames:
//! `cargo run -p ashlar-drivers --example drivers_corpus`. `tests/suite/fuzz/harness.rs` defines
//! the first byte.

use std::path::Path;

use wire::aoe::{Ata, Config, Mac, Masks, Reserve, directive, mask, reserve};
use wire::ata::{command as ata_op, trim_blocks};
use wire::iscsi::{
    DataOut, LogoutRequest, NopOut, Pdu, ScsiCommand, TAG_NONE, TaskRequest, TextRequest,
};
use wire::nbd::codes::{kind, option};
use wire::nbd::{Form, Request, dial};
use wire::nvme::codes::{self, admin, io as op};
use wire::nvme::{self, Sgl};

type Seed = (&'static str, Vec<u8>);

/// Past the login, large segments.
const ENTERED: u8 = 1 << 2 | 3;

fn pdu(out: &mut Vec<u8>, pdu: &impl Pdu, data: &[u8]) {
    let mut bhs = [0; 48];
    pdu.encode(&mut bhs);
    out.extend(bhs);
    out.extend(data);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn command(cmd_sn: u32, cdb: &[u8], read: u32, write: u32, data: u32) -> ScsiCommand {
    let mut all = [0; 16];
    all[..cdb.len()].copy_from_slice(cdb);
    ScsiCommand {
        last: true,
        read: read > 0,
        write: write > 0,
        task_tag: cmd_sn,
        transfer_len: read.max(write),
        cmd_sn,
        cdb: all,
        data_len: data,
        ..ScsiCommand::default()
    }
}

fn iscsi() -> Vec<Seed> {
    let read10 = [0x28, 0, 0, 0, 0, 0, 0, 0, 4, 0];
    let write10 = [0x2a, 0, 0, 0, 0, 1, 0, 0, 4, 0];
    let mut commands = vec![ENTERED];
    pdu(&mut commands, &command(1, &[0; 6], 0, 0, 0), &[]);
    pdu(&mut commands, &command(2, &[0x12, 0, 0, 0, 96, 0], 96, 0, 0), &[]);
    pdu(&mut commands, &command(3, &read10, 2048, 0, 0), &[]);
    let mut writes = vec![ENTERED];
    pdu(&mut writes, &command(1, &[0; 6], 0, 0, 0), &[]);
    pdu(&mut writes, &command(2, &write10, 0, 2048, 2048), &[0x5a; 2048]);
    pdu(&mut writes, &command(3, &write10, 0, 2048, 0), &[]);
    let out = DataOut { last: true, task_tag: 3, data_len: 2048, ..DataOut::default() };
    pdu(&mut writes, &out, &[0xa5; 2048]);
    let mut short = vec![ENTERED];
    let nop = NopOut { immediate: true, task_tag: 5, target_tag: TAG_NONE, ..NopOut::default() };
    pdu(&mut short, &NopOut { cmd_sn: 1, data_len: 4, ..nop }, b"ping");
    let text = b"SendTargets=All\0";
    let ask = TextRequest {
        last: true,
        task_tag: 6,
        target_tag: TAG_NONE,
        cmd_sn: 1,
        data_len: text.len() as u32,
        ..TextRequest::default()
    };
    pdu(&mut short, &ask, text);
    let reset = TaskRequest {
        immediate: true,
        function: 5,
        task_tag: 7,
        cmd_sn: 2,
        ..TaskRequest::default()
    };
    pdu(&mut short, &reset, &[]);
    pdu(&mut short, &LogoutRequest { task_tag: 8, cmd_sn: 2, ..LogoutRequest::default() }, &[]);
    vec![("commands", commands), ("writes", writes), ("short", short), ("silent", vec![3])]
}

fn requests(how: u8, form: Form) -> Vec<u8> {
    let mut out = vec![how << 2 | 3];
    for (kind, len) in [
        (kind::READ, 4096),
        (kind::WRITE, 4096),
        (kind::WRITE_ZEROES, 1024),
        (kind::BLOCK_STATUS, 8192),
        (kind::FLUSH, 0),
        (kind::DISC, 0),
    ] {
        let write = kind == kind::WRITE;
        let flags = if write && form == Form::Extended { 1 << 5 } else { 0 };
        Request { flags, kind, cookie: u64::from(kind), offset: 0, len }.encode(form, &mut out);
        if write {
            out.resize(out.len() + 4096, 0x5a);
        }
    }
    out
}

fn nbd() -> Vec<Seed> {
    let mut options = vec![1 << 2 | 3];
    options.extend(dial::option(option::LIST, &[]));
    options.extend(dial::option(option::STRUCTURED_REPLY, &[]));
    options.extend(dial::option(option::STARTTLS, &[]));
    options.extend(dial::option(option::GO, &dial::info("", &[3])));
    vec![
        ("silent", vec![3]),
        ("options", options),
        ("simple", requests(2, Form::Simple)),
        ("structured", requests(3, Form::Structured)),
        ("extended", requests(4, Form::Extended)),
    ]
}

/// A frame behind the header that the harness gives it; the first byte is the command too.
fn frame(out: &mut Vec<u8>, body: &[u8]) {
    out.extend(u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(body);
}

fn ata(command: u8, sectors: u8, write: bool) -> Vec<u8> {
    let feature = u8::from(command == ata_op::DATA_SET_MANAGEMENT);
    let ata = Ata { extended: true, write, feature, command, sectors, ..Ata::default() };
    ata.encode().to_vec()
}

fn aoe() -> Vec<Seed> {
    let mut commands = vec![2];
    for (command, sectors) in [(ata_op::IDENTIFY, 1), (ata_op::READ_EXT, 2), (ata_op::FLUSH_EXT, 0)]
    {
        // The flags of a command of 48 bits are a multiple of five with the bit for D.
        let mut bytes = ata(command, sectors, false);
        bytes[0] = 0x50;
        frame(&mut commands, &bytes);
    }
    let mut writes = vec![2];
    for (command, data) in [
        (ata_op::WRITE_EXT, vec![0x5a; 1024]),
        (ata_op::DATA_SET_MANAGEMENT, trim_blocks(&[(1, 2), (8, 8)], 1).0),
    ] {
        let mut bytes = ata(command, (data.len() / 512) as u8, true);
        bytes[0] = 0x55;
        bytes.extend(data);
        frame(&mut writes, &bytes);
    }
    let me = Mac([2, 0, 0, 0, 0, 2]);
    // Whole AoE headers behind the one of Ethernet: query, set, masks, reserve.
    let mut rules = vec![1];
    let config = |how, string: &[u8]| [&Config::request(how, string).encode()[..], string].concat();
    for (command, body) in [
        (1, config(directive::READ, b"")),
        (1, config(directive::SET, b"lock")),
        (1, config(directive::PREFIX, b"lo")),
        (2, Masks::encode(mask::EDIT, 0, &[(mask::ADD, me)])),
        (3, Reserve::encode(reserve::SET, &[me])),
        (0xF0, Vec::new()),
    ] {
        let head = [0x10, 0, 0xFF, 0xFF, 0xFF, command, 0, 0, 0, 9];
        frame(&mut rules, &[&head[..], &body].concat());
    }
    vec![("commands", commands), ("writes", writes), ("rules", rules), ("silent", vec![0])]
}

fn capsule(out: &mut Vec<u8>, opcode: u8, nsid: u32, dwords: [u32; 6], sgl: Sgl, data: &[u8]) {
    let command = nvme::Command { opcode, flags: 0x40, id: out.len() as u16, nsid, sgl, dwords };
    out.extend(nvme::command_capsule(&command, 0, data.len() as u32));
    out.extend(data);
}

fn nvme() -> Vec<Seed> {
    let data = |len| Sgl { address: 0, len, kind: Sgl::TRANSPORT };
    let inside = |len| Sgl { address: 0, len, kind: Sgl::IN_CAPSULE };
    // An enabled admin queue, and an I/O queue, on large segments.
    let (mut admins, mut blocks, mut writes) =
        (vec![3 << 2 | 3], vec![4 << 2 | 3], vec![4 << 2 | 3]);
    for what in [0, 1, 2, 3, 5, 6, 7, 8, 0x1c] {
        capsule(&mut admins, admin::IDENTIFY, 1, [what, 0, 0, 0, 0, 0], data(4096), &[]);
    }
    for page in 0..6 {
        let first = page | 127 << 16;
        capsule(&mut admins, admin::GET_LOG_PAGE, 0, [first, 0, 0, 0, 0, 0], data(512), &[]);
    }
    for (opcode, first) in [
        (admin::SET_FEATURES, 7),
        (admin::GET_FEATURES, 0x0b),
        (admin::ASYNC_EVENT, 0),
        (admin::ABORT, 1),
        (admin::KEEP_ALIVE, 0),
    ] {
        capsule(&mut admins, opcode, 0, [first, 3, 0, 0, 0, 0], data(0), &[]);
    }
    let extent = nvme::Extent { lba: 1, blocks: 4, fua: true, deallocate: true }.dwords();
    let range = nvme::Range { lba: 3, blocks: 4 }.encode();
    for opcode in [op::READ, op::VERIFY, op::WRITE_ZEROES, op::FLUSH] {
        let len = if opcode == op::READ { 2048 } else { 0 };
        capsule(&mut blocks, opcode, 1, extent, data(len), &[]);
    }
    capsule(&mut blocks, op::DATASET_MANAGEMENT, 1, [0, 4, 0, 0, 0, 0], inside(16), &range);
    capsule(&mut writes, op::WRITE, 1, extent, inside(2048), &[0x5a; 2048]);
    capsule(&mut writes, op::COMPARE, 1, extent, inside(2048), &[0x5a; 2048]);
    let id = writes.len() as u16;
    capsule(&mut writes, op::WRITE, 1, extent, data(2048), &[]);
    let kind = codes::pdu::HOST_DATA;
    let (flags, header_len, data_at, len) = (codes::pdu_flag::LAST, 24, 24, 24 + 2048);
    let common = nvme::Common { kind, flags, header_len, data_at, len };
    // The first place of its queue is free again, or not.
    for tag in 0..3 {
        let part = nvme::Data { command: id, tag, at: 0, len: 2048 };
        writes.extend(part.encode(&common));
        writes.extend([0xa5; 2048]);
    }
    let mut begin = vec![3];
    begin.extend(nvme::Initialize::default().encode());
    vec![("admin", admins), ("blocks", blocks), ("writes", writes), ("begin", begin)]
}

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let all = [
        ("iscsi_connection", iscsi()),
        ("nbd_connection", nbd()),
        ("nvme_connection", nvme()),
        ("aoe_frames", aoe()),
    ];
    for (name, seeds) in all {
        let folder = corpus.join(name);
        std::fs::create_dir_all(&folder)?;
        for (seed, bytes) in seeds {
            std::fs::write(folder.join(seed), bytes)?;
        }
    }
    Ok(())
}
