//! Writes the seed corpus of the fuzz targets: `cargo run -p ashlar-wire --example wire_corpus`.
//! The seeds are good messages; the mutations make them bad.

#[path = "seeds/nvme.rs"]
mod nvme;

use std::path::PathBuf;
use wire::aoe::Mac;
use wire::cec::{CecFrame, CecKind};
use wire::iscsi::*;
use wire::nbd;
use wire::scsi::*;

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn pdu(pdu: impl Pdu, rest: &[u8]) -> Vec<u8> {
    let mut out = [0; BHS_LEN];
    pdu.encode(&mut out);
    [&out[..], rest].concat()
}

fn requests() -> Seeds {
    let mut ahs = [0; 64];
    let len = encode_ahs(&[1; 16], Some(512), &mut ahs).expect("room");
    let head = ScsiCommand {
        last: true,
        read: true,
        write: true,
        transfer_len: 4096,
        ..ScsiCommand::default()
    };
    let long = ScsiCommand { ahs_len: len as u16, ..head };
    vec![
        ("command", pdu(head, &[])),
        ("command_long", pdu(long, &ahs[..len])),
        ("data_out", pdu(DataOut { last: true, data_len: 512, ..DataOut::default() }, &[])),
        ("nop_out", pdu(NopOut { immediate: true, ..NopOut::default() }, &[])),
        ("task", pdu(TaskRequest { function: 1, ..TaskRequest::default() }, &[])),
        ("login", pdu(LoginRequest { transit: true, ..LoginRequest::default() }, &[])),
        ("text", pdu(TextRequest { last: true, ..TextRequest::default() }, &[])),
        ("logout", pdu(LogoutRequest::default(), &[])),
        ("snack", pdu(Snack { kind: 1, ..Snack::default() }, &[])),
    ]
}

fn responses() -> Seeds {
    let r2t = R2t { target_tag: 1, desired_len: 512, ..R2t::default() };
    let status = Some((0, Residual::Underflow(5)));
    vec![
        ("nop_in", pdu(NopIn::default(), &[])),
        ("scsi", pdu(ScsiResponse { status: 2, data_len: 5, ..Default::default() }, &[0, 3, 112])),
        ("data_in", pdu(DataIn { last: true, status, ..DataIn::default() }, &[])),
        ("r2t", pdu(r2t, &[])),
        ("login", pdu(LoginResponse::default(), &[])),
        ("text", pdu(TextResponse { last: true, ..TextResponse::default() }, &[])),
        ("task", pdu(TaskResponse::default(), &[])),
        ("logout", pdu(LogoutResponse::default(), &[])),
        ("reject", pdu(Reject::default(), &[])),
        ("async", pdu(AsyncMessage::default(), &[])),
    ]
}

fn frame(options: u8, ahs_len: usize, data: &[u8]) -> Vec<u8> {
    let head = ScsiCommand {
        ahs_len: ahs_len as u16,
        data_len: data.len() as u32,
        ..ScsiCommand::default()
    };
    let mut out = pdu(head, &vec![0; ahs_len]);
    let digest = |from: &[u8]| crc32c(from).to_le_bytes();
    if options & 1 != 0 {
        out.extend(digest(&out));
    }
    let at = out.len();
    out.extend_from_slice(data);
    out.resize(at + data.len().next_multiple_of(4), 0);
    if options & 2 != 0 {
        out.extend(digest(&out[at..]));
    }
    out.insert(0, options);
    out
}

fn framing() -> Seeds {
    vec![
        ("plain", frame(4, 0, &[1; 16])),
        ("header_digest", frame(5, 0, &[1; 3])),
        ("both_digests", frame(15, 8, &[1; 17])),
    ]
}

const OFFER: &str = "HeaderDigest=CRC32C,None DataDigest=None MaxConnections=1 InitialR2T=No \
    ImmediateData=Yes MaxRecvDataSegmentLength=262144 MaxBurstLength=16776192 \
    FirstBurstLength=65536 DefaultTime2Wait=2 DefaultTime2Retain=0 MaxOutstandingR2T=1 \
    DataPDUInOrder=Yes DataSequenceInOrder=Yes ErrorRecoveryLevel=0 IFMarker=No OFMarkInt=1~2 \
    iSCSIProtocolLevel=1 TaskReporting=RFC3720 X-com.example=1";

fn text(pairs: &str) -> Vec<u8> {
    format!("{pairs} ").replace(' ', "\0").into_bytes()
}

fn texts() -> Seeds {
    vec![
        ("offer", text(OFFER)),
        ("values", text("A=0xffff B=0bAAAA C=1~0x10 N=iqn.2001-04.com.example:x E=")),
        ("names", text("InitiatorName=eui.02004567a425678d TargetName=naa.52004567ba64678d")),
    ]
}

fn negotiations() -> Seeds {
    let with = |options: u8, pairs: &str| [vec![options], text(pairs)].concat();
    vec![
        ("target", with(1, OFFER)),
        ("initiator_answers", with(8, "MaxBurstLength=4096 MaxOutstandingR2T=2")),
        ("discovery", with(3, OFFER)),
        ("full_feature", with(5, "MaxRecvDataSegmentLength=512 MaxBurstLength=512")),
    ]
}

fn script(options: u8, records: &[(u8, &str)]) -> Vec<u8> {
    let mut out = vec![options];
    for (flags, pairs) in records {
        let text = if pairs.is_empty() { Vec::new() } else { text(pairs) };
        out.push(*flags);
        out.extend((text.len() as u16).to_be_bytes());
        out.extend(text);
    }
    out
}

fn logins() -> Seeds {
    let who = "InitiatorName=iqn.a TargetName=iqn.b";
    let secret = b"twelve bytes";
    let proof = chap_response(Algorithm::Sha256, 1, secret, &[7; CHALLENGE_LEN]);
    let answer = format!("CHAP_N=a CHAP_R={}", encode_hex(proof.bytes()));
    let method = format!("{who} AuthMethod=CHAP,None");
    vec![
        ("direct", script(0, &[(0x87, &format!("{who} {OFFER}"))])),
        ("discovery", script(0, &[(0x87, "InitiatorName=iqn.a SessionType=Discovery")])),
        ("continued", script(0, &[(0x44, who), (0x87, OFFER)])),
        ("chap", script(1, &[(0, &method), (0, "CHAP_A=7,5"), (0x81, &answer), (0x87, OFFER)])),
    ]
}

fn client_logins() -> Seeds {
    let challenge = format!("CHAP_A=7 CHAP_I=1 CHAP_C=0x{}", "07".repeat(32));
    let proof = format!("CHAP_N=target CHAP_R=0x{}", "00".repeat(32));
    vec![
        ("direct", script(0, &[(0x87, "TargetPortalGroupTag=1 MaxRecvDataSegmentLength=8192")])),
        ("proposals", script(0, &[(0x04, "MaxBurstLength=4096"), (0x87, "")])),
        ("chap", script(1, &[(0, "AuthMethod=CHAP"), (0, &challenge), (0x81, &proof)])),
    ]
}

fn cdbs() -> Seeds {
    COMMANDS
        .iter()
        .map(|info| {
            let mut cdb = info.usage.to_vec();
            cdb.iter_mut().skip(2).step_by(3).for_each(|b| *b = 0);
            (info.name, cdb)
        })
        .collect()
}

fn senses() -> Seeds {
    let bytes = |sense: Sense, descriptor| {
        let mut out = [0; SENSE_LEN_MAX];
        let len = sense.encode(descriptor, &mut out);
        out[..len].to_vec()
    };
    let full = Sense::cdb_field(2, Some(7)).with_information(1 << 40);
    let deferred = Sense { deferred: true, ..Sense::new(asc::WRITE_ERROR) };
    vec![
        ("descriptor", bytes(full, true)),
        ("fixed", bytes(full.with_information(9), false)),
        ("deferred", bytes(deferred, false)),
    ]
}

fn mode_selects() -> Seeds {
    let mode =
        ModeBlock { has_thresholds: true, blocks: 2048, block_len: 512, ..ModeBlock::default() };
    let list = |ten, page| {
        let which = (page, if page == 0x1c { 2 } else { 0 });
        let data = mode_sense(ten, ten, false, PageControl::Current, which, &mode);
        let mut data = data.expect("a known page");
        data.insert(0, 0xfe | u8::from(ten));
        data
    };
    vec![
        ("caching", list(false, 8)),
        ("control", list(true, 0x0a)),
        ("thresholds", list(true, 0x1c)),
        ("all", list(true, 0x3f)),
    ]
}

/// A list with two units and one segment of each kind; the first byte picks the form.
fn copies() -> Seeds {
    let cscd = Cscd {
        null: false,
        peripheral: 0,
        code_set: 1,
        association: 0,
        kind: 3,
        designator: &[0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        block_len: 512,
    };
    let cscds = [cscd.encode(), Cscd { null: true, ..cscd }.encode()].concat();
    let mut blocks = vec![0x02, 0, 0, 0x18, 0, 0, 0, 1, 0, 0, 0, 8];
    blocks.extend([0; 16]);
    let mut bytes = vec![0x0a, 0, 0, 0x1c, 0, 1, 0xff, 0xff, 0, 0, 2, 0];
    bytes.extend([0; 20]);
    let verify = vec![0x07, 0, 0, 8, 0, 1, 0, 0, 1, 0, 0, 0];
    let segments = [blocks, bytes, verify].concat();
    let len = segments.len() as u8;
    let mut one = vec![0, 7, 0x10, 0, 64, 0, 0, 0, 0, 0, 0, 0, len, 0, 0, 0, 2];
    one.extend([cscds.clone(), segments.clone(), vec![1, 2]].concat());
    let mut four = vec![1, 1, 0, 0, 0x20];
    four.extend([0; 11]);
    four.extend([1, 0xff, 0, 0, 0, 0, 0, 0, 9]);
    four.extend([0; 18]);
    four.extend([0, 64, 0, len, 0, 0]);
    four.extend([cscds, segments].concat());
    vec![("none", vec![0]), ("lid1", one), ("lid4", four)]
}

fn tokens() -> Seeds {
    let ranges = vec![BlockRange { lba: 8, blocks: 16 }, BlockRange { lba: 64, blocks: 1 }];
    let populate = PopulateToken { immed: true, timeout_s: 30, ranges: ranges.clone() };
    let token = RodToken::zero();
    let write = WriteToken { immed: false, delete: true, offset: 4, token, ranges };
    let one = PopulateToken { ranges: vec![BlockRange::default()], ..populate.clone() };
    vec![
        ("populate", [vec![0], encode_populate(&populate)].concat()),
        ("populate_one", [vec![0], encode_populate(&one)].concat()),
        ("write", [vec![1], encode_write_token(&write)].concat()),
    ]
}

fn unmaps() -> Seeds {
    let run = UnmapDescriptor { lba: 8, blocks: 16 };
    vec![
        ("none", UnmapList::encode(&[])),
        ("one", UnmapList::encode(&[run])),
        ("many", UnmapList::encode(&[run; 5])),
    ]
}

fn parameters() -> Seeds {
    let capacity = Capacity { blocks: 2048, block_len: 512, thin: true, ..Capacity::default() };
    let luns = [0, 256, 16384].into_iter().filter_map(Lun::new);
    vec![
        ("inquiry", inquiry_data(&Identity { vendor: "ASHLAR".to_owned(), ..Default::default() })),
        ("capacity16", read_capacity16(&capacity).to_vec()),
        ("luns", report_luns(luns)),
    ]
}

fn alua() -> Seeds {
    let group = |group, state, ports: &[u16]| PortGroup {
        group,
        state,
        ports: ports.to_vec(),
        preferred: group == 1,
        cause: StateCause::Implicit,
    };
    let groups =
        [group(1, AccessState::Optimized, &[1, 2]), group(2, AccessState::Standby, &[0xffff])];
    let set = [(1, AccessState::NonOptimized), (2, AccessState::Optimized)];
    vec![
        ("report", report_target_port_groups(&groups, None)),
        ("extended", report_target_port_groups(&groups, Some(60))),
        ("set", set_target_port_groups(&set)),
    ]
}

fn reserves() -> Seeds {
    let port = |n| TransportId::iscsi_port("iqn.2024-01.example:host", [0, 2, 0x3d, 0, 0, n]);
    let ports: Vec<TransportId> = [port(1), port(2)].into_iter().flatten().collect();
    let list = |action: PrOutAction, list: PrOutList| [vec![action as u8], list.encode()].concat();
    let plain = PrOutList { key: 1, action_key: 2, aptpl: true, ..PrOutList::default() };
    let to = ports.first().map(|port| PrMove { unregister: true, target: 1, port: port.clone() });
    let all: Vec<PrStatus> = ports
        .iter()
        .map(|port| PrStatus {
            key: 5,
            holds: Some(PrType::WriteExclusiveAll),
            target: 1,
            port: port.clone(),
        })
        .collect();
    let device = TransportId::iscsi_device("iqn.2024-01.example:host");
    let device = device.map(|d| d.bytes().to_vec()).unwrap_or_default();
    vec![
        ("plain", list(PrOutAction::Preempt, plain.clone())),
        (
            "ports",
            list(PrOutAction::Register, PrOutList { has_ports: true, ports, ..plain.clone() }),
        ),
        ("move", list(PrOutAction::RegisterAndMove, PrOutList { to, ..plain })),
        ("device", [vec![0], device].concat()),
        ("full_status", [vec![1], pr_full_status(7, all.iter())].concat()),
        ("keys", [vec![1], pr_keys(7, [1, 2].into_iter())].concat()),
        ("held", [vec![1], pr_reservation(7, Some((1, PrType::ExclusiveAccess)))].concat()),
    ]
}

fn nbd_handshakes() -> Seeds {
    use nbd::codes::{info, option};
    let talk = |options: u8, parts: &[Vec<u8>]| {
        [&[options][..], &nbd::dial::flags(), &parts.concat()].concat()
    };
    let go =
        nbd::dial::option(option::GO, &nbd::dial::info("abc", &[info::NAME, info::BLOCK_SIZE]));
    let structured = nbd::dial::option(option::STRUCTURED_REPLY, &[]);
    let contexts = nbd::dial::contexts("abc", &["base:allocation"]);
    let set = nbd::dial::option(option::SET_META_CONTEXT, &contexts);
    let tls = nbd::dial::option(option::STARTTLS, &[]);
    let list = nbd::dial::option(option::LIST, &[]);
    let extended = nbd::dial::option(option::EXTENDED_HEADERS, &[]);
    let name = nbd::dial::option(option::EXPORT_NAME, b"abc");
    vec![
        ("go", talk(0, &[list.clone(), structured.clone(), set, go.clone()])),
        ("export_name", talk(9, &[extended, name])),
        ("starttls", talk(1 + 3 * 15, &[structured, tls.clone(), go.clone()])),
        ("required", talk(2, &[list, go, tls])),
    ]
}

fn nbd_clients() -> Seeds {
    use nbd::codes::{self, info, option, rep};
    let greeting = [
        &codes::MAGIC.to_be_bytes()[..],
        &codes::OPTION_MAGIC.to_be_bytes()[..],
        &3u16.to_be_bytes()[..],
    ]
    .concat();
    let reply = |option: u32, kind: u32, payload: &[u8]| {
        let mut out = codes::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        let words = [option, kind, payload.len() as u32];
        words.iter().for_each(|word| out.extend(word.to_be_bytes()));
        [out, payload.to_vec()].concat()
    };
    let context = [&1u32.to_be_bytes()[..], b"base:allocation"].concat();
    let export =
        [&info::EXPORT.to_be_bytes()[..], &(1u64 << 30).to_be_bytes()[..], &[0, 5][..]].concat();
    let sizes = [512u32, 4096, 1 << 25].map(u32::to_be_bytes).concat();
    let sizes = [&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat();
    let talk =
        |options: u8, parts: &[Vec<u8>]| [&[options][..], &greeting, &parts.concat()].concat();
    let ack = |option: u32| reply(option, rep::ACK, &[]);
    let go = [
        reply(option::GO, rep::INFO, &export),
        reply(option::GO, rep::INFO, &sizes),
        ack(option::GO),
    ];
    let set = [
        reply(option::SET_META_CONTEXT, rep::META_CONTEXT, &context),
        ack(option::SET_META_CONTEXT),
    ];
    let structured =
        [reply(option::EXTENDED_HEADERS, rep::ERR_UNSUP, &[]), ack(option::STRUCTURED_REPLY)];
    vec![
        ("extended", talk(0, &[&[ack(option::EXTENDED_HEADERS)], &set[..], &go[..]].concat())),
        ("structured", talk(14, &[&structured[..], &set[..], &go[..]].concat())),
        ("starttls", talk(1, &[ack(option::STARTTLS)])),
    ]
}

fn certificates() -> Seeds {
    let long = "x".repeat(200);
    vec![
        ("both", wire::x509::sample("client one", &["a.example", "b.example"])),
        ("none", wire::x509::sample("", &[])),
        ("long", wire::x509::sample(&long, &[&long])),
    ]
}

fn nbd_transmission() -> Seeds {
    use nbd::Form;
    let request = nbd::Request { flags: 1, kind: 1, cookie: 2, offset: 4096, len: 512 };
    let mut out = Vec::new();
    for (name, options, form) in
        [("request", 0u8, Form::Simple), ("request_extended", 2, Form::Extended)]
    {
        let mut bytes = vec![options];
        request.encode(form, &mut bytes);
        out.push((name, bytes));
    }
    let chunk = nbd::Head::Chunk { flags: 1, kind: 5, cookie: 2, offset: 0, len: 20 };
    for (name, head, form) in [
        ("simple", nbd::Head::Simple { error: 5, cookie: 1 }, Form::Simple),
        ("structured", chunk, Form::Structured),
        ("extended", chunk, Form::Extended),
    ] {
        let mut bytes = [0; nbd::HEAD_MAX];
        let used = head.encode(form, &mut bytes);
        out.push((name, [&[1], &bytes[..used]].concat()));
    }
    let extents =
        [nbd::chunk::Extent { len: 4096, flags: 3 }, nbd::chunk::Extent { len: 8192, flags: 0 }];
    let mut bytes = vec![0];
    nbd::chunk::block_status_ext(1, &extents, &mut bytes);
    out.push(("block_status", bytes));
    let run =
        |lba: u64, state: u8| [&lba.to_be_bytes()[..], &[0, 0, 0, 8, state, 0, 0, 0]].concat();
    out.push(("lba_status", [&[0; 9][..], &run(0, 0), &run(8, 1), &run(16, 0)].concat()));
    out
}

/// Requests of the kernel for a file system.
fn fuse() -> Seeds {
    use wire::fuse::Header;
    use wire::fuse::codes::opcode as op;
    let message = |opcode: u32, body: &[u8]| {
        let mut out = Vec::new();
        let len = u32::try_from(40 + body.len()).expect("a short message");
        Header { len, opcode, unique: 2, node: 2, ..Header::default() }.encode(&mut out);
        out.extend(body);
        out
    };
    let io = |offset: u64, size: u32, data: usize| {
        let mut body = 0u64.to_ne_bytes().to_vec();
        body.extend(offset.to_ne_bytes());
        body.extend(size.to_ne_bytes());
        body.resize(40 + data, 0);
        body
    };
    let words = |all: &[u32]| all.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
    vec![
        ("init", message(op::INIT, &words(&[7, 41, 1 << 17, 0x73ff_fffb]))),
        ("lookup", message(op::LOOKUP, b"disk\0")),
        ("getattr", message(op::GETATTR, &[0; 16])),
        ("open", message(op::OPEN, &words(&[2, 0]))),
        ("read", message(op::READ, &io(1 << 20, 4096, 0))),
        ("write", message(op::WRITE, &io(1 << 20, 512, 512))),
        ("readdir", message(op::READDIR, &io(0, 4096, 0))),
        ("fallocate", message(op::FALLOCATE, &words(&[0, 0, 0, 0, 4096, 0, 3, 0]))),
        ("lseek", message(op::LSEEK, &words(&[0, 0, 512, 0, 3, 0]))),
        ("interrupt", message(op::INTERRUPT, &words(&[2, 0]))),
        ("forget", message(op::BATCH_FORGET, &words(&[1, 0, 2, 0, 1, 0]))),
        ("fsync", message(op::FSYNC, &[0; 16])),
    ]
}

fn console_frames() -> Seeds {
    let frame = |kind, data: &[u8]| {
        let (to, from) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        CecFrame { to, from, kind, conn: 7, seq: 3, data }.encode()
    };
    vec![
        ("begin", frame(CecKind::InitA, b"")),
        ("line", frame(CecKind::Data, b"who\r")),
        ("offer", frame(CecKind::Offer, b"-1 main")),
    ]
}

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, seeds) in [
        ("wire_request", requests()),
        ("wire_response", responses()),
        ("wire_framing", framing()),
        ("wire_text", texts()),
        ("wire_negotiate", negotiations()),
        ("wire_login", logins()),
        ("wire_client_login", client_logins()),
        ("wire_nbd_handshake", nbd_handshakes()),
        ("wire_nbd_client", nbd_clients()),
        ("wire_nbd_transmission", nbd_transmission()),
        ("wire_x509", certificates()),
        ("wire_fuse", fuse()),
        ("wire_cdb", cdbs()),
        ("wire_sense", senses()),
        ("wire_mode_select", mode_selects()),
        ("wire_unmap", unmaps()),
        ("wire_copy", copies()),
        ("wire_token", tokens()),
        ("wire_parameters", parameters()),
        ("wire_alua", alua()),
        ("wire_reserve", reserves()),
        ("wire_cec", console_frames()),
        ("wire_nvme", nvme::pdus()),
        ("wire_nvme_data", nvme::data()),
    ] {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds {
            let name: String = name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
                .collect();
            std::fs::write(folder.join(name.trim_end_matches('_')), bytes)?;
        }
    }
    Ok(())
}
