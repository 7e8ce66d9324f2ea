//! TLS handshakes that are cut, changed, made up or never end, and plaintext around them, in a
//! simulated world. In every case a client without keys gets no access, and a client with keys that
//! connects afterwards does.
//!
//! The certificates and the keys' randomness are real: the events of a world are not reproducible,
//! but the requirements always hold.

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use bio::{Pool, PoolConfig};
use engine::Registry;
use reactor::sim::{Ended, NetShape, World};
use reactor::{Address, Reactor, SeededRandom};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use testkit::clock::S;
use wire::nbd::codes::{option, rep};
use wire::nbd::{Form, OptionReply, dial};

use crate::nbd::simulated::{Broken, Client, Wire, plant_with};
use crate::nbd::tls::Papers;
use testkit::Seeds;

/// Connections of one world.
const ROUNDS: u64 = 60;

/// Seconds that a handshake may take.
const HANDSHAKE_TIMEOUT_S: u64 = 2;

fn config(papers: &Papers) -> Arc<ClientConfig> {
    let pem = |name: &str| CertificateDer::from_pem_file(papers.file(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pem("ca.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(papers.file("alice/client-key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![pem("alice/client-cert.pem")], key);
    Arc::new(config.unwrap())
}

fn go() -> Vec<u8> {
    dial::option(option::GO, &dial::info("", &[]))
}

/// The fault in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// Nothing.
    None,
    /// `GO` in the clear, in one piece with STARTTLS.
    Before,
    /// `GO` in the clear where the first record belongs.
    After,
    /// `GO` in the clear between two records.
    Between,
    /// Anything where the first record belongs.
    Noise,
    /// Some of the sent bytes are changed.
    Changed,
    /// It stops in the middle and stays silent.
    Silent,
    /// It stops in the middle and closes.
    Cut,
}

const HARMS: [Harm; 8] = [
    Harm::None,
    Harm::Before,
    Harm::After,
    Harm::Between,
    Harm::Noise,
    Harm::Changed,
    Harm::Silent,
    Harm::Cut,
];

/// Sends the output of TLS, harmed; false when nothing more is to be sent.
async fn send_mutated(
    wire: &Wire,
    tls: &mut ClientConnection,
    random: &mut SeededRandom,
    harm: Harm,
    flight: u32,
) -> Result<bool, Broken> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes).unwrap();
    }
    if bytes.is_empty() {
        return Ok(true);
    }
    let at = random.below(bytes.len() as u64) as usize;
    match harm {
        Harm::Changed if flight == 1 || random.chance(500) => {
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
        }
        Harm::Between if flight == 2 => bytes.splice(0..0, go()).for_each(drop),
        Harm::Silent | Harm::Cut if flight == 2 || random.chance(500) => {
            wire.send(&bytes[..at]).await?;
            return Ok(false);
        }
        _ => {}
    }
    wire.send(&bytes).await?;
    Ok(true)
}

/// Connects by TLS and requests the export; true when it was let in.
async fn try_enter(
    client: &mut Client,
    config: &Arc<ClientConfig>,
    random: &mut SeededRandom,
    harm: Harm,
) -> Result<bool, Broken> {
    let mut wire = client.dial().await?;
    let mut first = dial::option(option::STARTTLS, &[]);
    if harm == Harm::Before {
        first.extend(go());
    }
    wire.send(&first).await?;
    let reply = wire.take(OptionReply::HEADER_LEN).await?;
    assert_eq!(OptionReply::decode(&reply).unwrap().0.kind, rep::ACK);
    match harm {
        Harm::After => wire.send(&go()).await?,
        Harm::Noise => {
            let noise: Vec<u8> =
                (0..1 + random.below(600)).map(|_| random.next_u64() as u8).collect();
            wire.send(&noise).await?;
        }
        _ => {}
    }
    let name = "localhost".try_into().unwrap();
    let mut tls = ClientConnection::new(config.clone(), name).unwrap();
    tls.writer().write_all(&go()).unwrap();
    let (mut flight, mut clear) = (0, Vec::new());
    loop {
        flight += u32::from(tls.wants_write());
        if !send_mutated(&wire, &mut tls, random, harm, flight).await? {
            if harm == Harm::Silent {
                // Until the server has had enough.
                while wire.some().await.is_ok() {}
            }
            wire.stream.close();
            return Ok(false);
        }
        let bytes = wire.some().await?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if tls.read_tls(&mut rest).is_err() || tls.process_new_packets().is_err() {
                wire.stream.close();
                return Ok(false);
            }
            // An error is that nothing is there yet.
            let _ = tls.reader().read_to_end(&mut clear);
        }
        // Replies follow one another; the last one accepts or refuses.
        let mut at = 0;
        while let Some(head) = clear.get(at..at + OptionReply::HEADER_LEN) {
            let len = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize;
            let Some(whole) = clear.get(at..at + head.len() + len) else { break };
            let (reply, _) = OptionReply::decode(whole).unwrap();
            if reply.kind == rep::ACK || reply.is_error() {
                wire.stream.close();
                return Ok(reply.kind == rep::ACK);
            }
            at += whole.len();
        }
    }
}

async fn attack(
    mut client: Client,
    config: Arc<ClientConfig>,
    registry: Arc<Registry>,
    mut random: SeededRandom,
    done: Rc<Cell<bool>>,
) {
    let mut entered = [0; HARMS.len()];
    for round in 0..ROUNDS {
        let harm = HARMS[round as usize % HARMS.len()];
        let begun = client.reactor.now();
        let inside = try_enter(&mut client, &config, &mut random, harm).await.unwrap_or(false);
        let took = client.reactor.now() - begun;
        assert!(took <= (HANDSHAKE_TIMEOUT_S + 3) * S, "{harm:?} took {took} ns");
        entered[round as usize % HARMS.len()] += u32::from(inside);
        assert!(!inside || harm == Harm::None || harm == Harm::Changed, "{harm:?} was let in");
        // Its session ends with it, if there was one; and one that is there has a name.
        for session in registry.sessions() {
            assert_eq!(session.initiator, "tls:alice", "{harm:?}");
        }
        client.reactor.sleep(S).await;
        assert!(registry.sessions().is_empty(), "{harm:?} left a session");
    }
    assert_eq!(
        u64::from(entered[0]),
        ROUNDS.div_ceil(HARMS.len() as u64),
        "good ones: {entered:?}"
    );
    done.set(true);
    std::future::pending::<()>().await;
}

fn play(seed: u64, papers: &Papers) {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0x715);
    let segment_max = [3, 100, 1460, 16 * 1024][random.below(4) as usize];
    world.set_net(NetShape { segment_max, ..NetShape::default() });
    let portals: [Address; 1] = ["10.0.0.1:10809".parse().unwrap()];
    let mut params = papers.params("require", true);
    params["handshake_timeout"] = HANDSHAKE_TIMEOUT_S.into();
    let plant = plant_with(&world, &portals, params);
    let outside = Reactor::simulated(&world, "attacker");
    let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
    let client = Client::new(0, seed, &outside, &pool, &portals[0], Form::Simple);
    let done = Rc::new(Cell::new(false));
    let attack = attack(client, config(papers), plant.registry.clone(), random, done.clone());
    drop(outside.spawn("attack", attack));
    let ended = plant.run(&world, &outside, &mut || done.get());
    assert_eq!(ended, Ended::Stopped, "seed {seed}: nobody is served any more");
    let denied = plant.registry.denied();
    assert!(denied.iter().any(|d| d.text.contains("TLS")), "{denied:?}");
    plant.end(&outside);
}

#[test]
fn client_without_keys_gets_no_access() {
    let papers = Papers::new();
    Seeds::of(6).each(|seed| play(seed, &papers));
}
