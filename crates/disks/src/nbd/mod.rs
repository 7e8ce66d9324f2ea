//! Export of an NBD server elsewhere, as a disk.
//!
//! ```text
//!   Bio --> layer: commands --> codec: requests and replies --> connections of `remote`
//! ```
//! A disk has a connection for each core where the server reports that its connections share a
//! cache, and one otherwise. Connections, their deadlines and retries, and the loss of the disk are
//! those of [`crate::remote`].

mod child;
mod codec;
mod export;
mod layer;
mod uri;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bio::Errno;
use geom::{Core, Error, Limits, Severity, Trouble};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tls::{ClientFiles, ClientKeys};
use wire::nbd::client::{ClientHandshake, Terms};
use wire::nbd::codes::export_flag;

use self::child::Server;
use self::codec::NbdCommand;
use self::export::Export;
use self::layer::NbdLayer;
use crate::arrivals::Arrivals;
use crate::kind::{IO_BYTES_MAX, Identity, Kind, Open, Opened, Unit};
use crate::lasting::{of_other, with_configured_serial};
use crate::params;
use crate::remote::{
    self, ANSWER_TIMEOUT, Bounds, DialError, DialParams, OpenConnection, Probes, Remote,
    START_TIMEOUT, ServerAddress, ServerPath, ServerTls, Shape, Subject,
};
use crate::watch::Watch;

/// Largest minimum block size of an export, bytes; one with larger blocks is refused.
const SECTOR_MAX: u32 = 4096;
/// Longest TRIM, WRITE ZEROES or BLOCK_STATUS, bytes; longer ones are split.
const RANGE_BYTES_MAX: u64 = 1 << 30;
const CONNECTIONS_MAX: u32 = 64;
/// Port of NBD servers.
const PORT: u16 = 10809;

static PROBES: Probes<Reached> = Probes::new("nbd");

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NbdParams {
    /// Server: `HOST`, `HOST:PORT` or `unix:PATH`. The default port is 10809.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Server and export as a URI instead of `address`: `nbd://HOST/EXPORT`,
    /// `nbd+unix:///EXPORT?socket=PATH`, or the same with `nbds` for TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Program and arguments of a server that the daemon runs on a private socket, instead of
    /// `address`. The server must accept its listening socket by systemd socket activation
    /// (LISTEN_FDS), as nbdkit and qemu-nbd do, and must stay in the foreground. It is started
    /// again when it ends, and ends with the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub command: Option<Vec<String>>,
    /// Name of the export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Number of connections, at most one for each core. Absent: one for each core if the server's
    /// connections share a cache (CAN_MULTI_CONN), else one. More than one is used only with such a
    /// server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub connections: Option<u32>,
    /// File in PEM with the CA certificates that verify the server. With it the connection uses
    /// TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<String>,
    /// File in PEM with the client certificate for the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<String>,
    /// File in PEM with the private key of the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<String>,
    /// Name in the server's certificate; absent: the host of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
    /// Sector size in bytes: 512 or 4096; absent: the server's smallest block, at least 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [512, 4096]))]
    pub sector_size: Option<u32>,
    /// Serial number; absent: a random one that is kept in the state folder for the server and
    /// export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Refuse write access.
    #[serde(default)]
    pub read_only: bool,
    /// Seconds without a connection after which the disk is lost and waiting requests fail. The
    /// disk returns when the server answers.
    #[serde(default = "remote::deadline_default")]
    #[schemars(range(min = 1, max = 3600))]
    pub deadline_s: u32,
    /// Timeout of a sent request, in seconds. After that its connection is closed, and the request
    /// is sent again over a new one.
    #[serde(default = "remote::timeout_default")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_s: u32,
    /// Number of times that a request is sent again after its connection failed.
    #[serde(default = "remote::retries_default")]
    #[schemars(range(min = 0, max = 100))]
    pub retries: u8,
    /// Seconds after which a request fails, including all its retries.
    #[serde(default = "remote::request_deadline_default")]
    #[schemars(range(min = 1, max = 7200))]
    pub request_deadline_s: u32,
}

impl NbdParams {
    fn bounds(&self) -> Bounds {
        let (deadline_s, request_s) = (self.deadline_s, self.request_deadline_s);
        Bounds::new(deadline_s, self.timeout_s, self.retries, request_s)
    }

    /// Keys of its connections; reads their files. `None` without TLS.
    fn keys(&self) -> Result<Option<ClientKeys>, String> {
        let Some(ca) = &self.tls_ca else {
            return match self.tls_certificate.is_some() || self.tls_key.is_some() {
                true => Err("`tls_certificate` and `tls_key` need `tls_ca`".to_owned()),
                false => Ok(None),
            };
        };
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        let (certificate, key) = (text(&self.tls_certificate), text(&self.tls_key));
        if certificate.is_empty() != key.is_empty() {
            return Err("`tls_certificate` and `tls_key` need each other".to_owned());
        }
        let files = ClientFiles { ca, certificate: &certificate, key: &key };
        ClientKeys::read(&files).map(Some)
    }

    /// TLS of its connections to a server at this host; reads files.
    fn tls(&self, host: &str) -> Result<ServerTls, String> {
        let tls = ServerTls { keys: self.keys()?, name: self.tls_name.clone() };
        if tls.keys.is_some() {
            drop(tls.begin(host).map_err(|e| format!("tls_name {e}"))?);
        }
        Ok(tls)
    }

    /// Number of cores with a connection. `shares`: the server's connections share a cache.
    fn connection_cores(&self, shares: bool, cores: usize) -> Result<u32, String> {
        let most = if shares { cores as u32 } else { 1 };
        match self.connections {
            Some(n) if !(1..=CONNECTIONS_MAX).contains(&n) => {
                Err(format!("connections is {n}; it must be 1 to {CONNECTIONS_MAX}"))
            }
            n => Ok(n.unwrap_or(most).min(most)),
        }
    }

    /// Server with keys, and export; reads files and looks up names.
    fn dial_params(&self, server: Option<&Server>) -> Result<(DialParams, String), String> {
        let (address, export, tls) = match (&self.address, &self.uri, server) {
            (Some(address), None, None) => (address.clone(), String::new(), false),
            (None, Some(text), None) => {
                // Without the text: it may have a password.
                let uri = uri::uri(text).map_err(|e| format!("uri: {e}"))?;
                (uri.address, uri.export, uri.tls)
            }
            (None, None, Some(server)) => {
                (server.socket().to_string_lossy().into_owned(), String::new(), false)
            }
            _ => return Err("one of `address`, `uri` and `command` is needed".to_owned()),
        };
        let address = remote::resolve(&address, PORT)?;
        let own = self.tls(&address.host)?;
        if tls && own.keys.is_none() {
            return Err("an nbds URI needs `tls_ca`".to_owned());
        }
        let patience = if server.is_some() { START_TIMEOUT } else { ANSWER_TIMEOUT };
        let to = DialParams { address, tls: own, handshake_timeout: patience };
        Ok((to, self.export.clone().unwrap_or(export)))
    }
}

/// The kind.
pub(crate) struct Nbd;

impl Kind for Nbd {
    fn name(&self) -> &'static str {
        "nbd"
    }

    fn has_sectors_of_medium(&self) -> bool {
        true
    }

    fn doc(&self) -> &'static str {
        "An export of an NBD server, by TCP or a Unix socket, with TLS if wanted."
    }

    fn schema(&self) -> Value {
        params::schema::<NbdParams>()
    }

    fn live_keys(&self) -> &'static [&'static str] {
        &[
            "connections",
            "deadline_s",
            "request_deadline_s",
            "retries",
            "timeout_s",
            "tls_ca",
            "tls_certificate",
            "tls_key",
            "tls_name",
        ]
    }

    fn example(&self) -> &'static str {
        "[[disk]]\nname = \"remote1\"\nkind = \"nbd\"\naddress = \"nbd.example:10809\"\n\
         export = \"vol1\"\n"
    }

    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        let p: NbdParams = params::read("nbd", name, params)?;
        let refuse = |why| params::refuse("nbd", name, Errno::Inval, why);
        if let Some(Err(e)) = p.uri.as_deref().map(uri::uri) {
            return Err(refuse(format!("uri: {e}")));
        }
        p.keys().map(drop).map_err(refuse)
    }

    fn is_reachable(&self, name: &str, params: &Value, arrivals: &Arc<Arrivals>) -> Option<bool> {
        Some(PROBES.is_reachable(Subject { name, params }, arrivals, probe))
    }

    fn reach(&self, name: &str, params: &Value, most: Duration) -> Result<(), Error> {
        PROBES.wait(Subject { name, params }, most, probe)
    }

    fn location(&self, params: &Value) -> Option<String> {
        let text = |key: &str| params.get(key).and_then(Value::as_str);
        if let Some(Value::Array(words)) = params.get("command") {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            return Some(format!("NBD server `{}`", words.join(" ").escape_debug()));
        }
        let server = text("address").or(text("uri")).unwrap_or_default();
        Some(match text("export") {
            Some(export) => format!("NBD server {server}, export \"{export}\""),
            None => format!("NBD server {server}"),
        })
    }

    fn open(&self, request: &Open<'_>) -> Result<Opened, Error> {
        let name = request.name;
        let p: NbdParams = params::read("nbd", name, request.params)?;
        let reached = match PROBES.take(request.params) {
            Some(reached) => reached,
            None => reach(name, &p)?,
        };
        let Reached { mut way, first } = reached;
        // The server may have been reached some time ago.
        way.to.tls.keys = p.keys().map_err(|e| params::refuse("nbd", name, Errno::Inval, e))?;
        let terms = first.terms;
        opened(request, &p, way, terms, Some(first))
    }
}

struct ExportPath {
    to: DialParams,
    export: String,
    server: Option<Server>,
}

/// A server that was reached.
struct Reached {
    way: ExportPath,
    first: OpenConnection<Terms>,
}

/// [`reach`] for the parameters as they were written.
fn probe(name: &str, params: &Value) -> Result<Reached, Error> {
    reach(name, &params::read::<NbdParams>("nbd", name, params)?)
}

/// Starts the server, if it is one of ours, connects to it, and requests the export. Blocks for
/// some seconds at the most.
fn reach(name: &str, p: &NbdParams) -> Result<Reached, Error> {
    let refuse = |e: String| params::refuse("nbd", name, Errno::Inval, e);
    if p.command.is_some() && (p.address.is_some() || p.uri.is_some()) {
        return Err(refuse("`command` works only without `address` and `uri`".to_owned()));
    }
    let server = p.command.as_ref().map(|words| Server::start(name, words)).transpose();
    let server = server.map_err(|e| params::refuse("nbd", name, Errno::Io, e))?;
    let (to, export) = p.dial_params(server.as_ref()).map_err(refuse)?;
    let way = ExportPath { to, export, server };
    let handshake = ClientHandshake::new(&way.export, way.to.tls.keys.is_some());
    match remote::connect_and_handshake(&way.to, handshake) {
        Ok(first) => Ok(Reached { way, first }),
        Err(why) => Err(unreachable((name, p), &way, &why)),
    }
}

fn unreachable(
    (name, p): (&str, &NbdParams),
    ExportPath { to, export, server }: &ExportPath,
    DialError { why, is_away }: &DialError,
) -> Error {
    // A server of our own is there, or its command is wrong.
    let errno = if *is_away && server.is_none() { Errno::NxIo } else { Errno::Io };
    let what = match (server, &p.command) {
        (Some(server), Some(words)) => {
            let (words, output) = (words.join(" "), server.final_messages());
            let output = if output.is_empty() { "nothing".to_owned() } else { output };
            format!(
                "server `{}`, export \"{export}\": {why}; its output: {output}; next: run the \
                 command by hand",
                words.escape_debug()
            )
        }
        _ => format!(
            "server {}, export \"{export}\": {why}; next: list its exports with `nbdinfo --list`",
            to.address.text
        ),
    };
    params::refuse("nbd", name, errno, what)
}

/// A disk whose server is known already: a simulated one, which the control thread cannot reach.
pub(crate) fn adopted(request: &Open<'_>, terms: &Terms) -> Result<Opened, Error> {
    let p: NbdParams = params::read("nbd", request.name, request.params)?;
    let (to, export) =
        p.dial_params(None).map_err(|e| params::refuse("nbd", request.name, Errno::Inval, e))?;
    opened(request, &p, ExportPath { to, export, server: None }, *terms, None)
}

/// The sector size of an export, bytes.
fn sector(p: &NbdParams, terms: &Terms) -> Result<u32, String> {
    let minimum = terms.blocks.map_or(1, |b| b.minimum);
    if minimum > SECTOR_MAX {
        return Err(format!(
            "the smallest block is too large ({minimum} bytes, at most {SECTOR_MAX}); next: serve \
             it through `nbdkit --filter=blocksize`"
        ));
    }
    match p.sector_size {
        Some(size) if size < minimum => {
            Err(format!("sector_size is {size}, and the server's smallest block {minimum} bytes"))
        }
        Some(size) => Ok(size),
        None => Ok(minimum.max(params::sector_default())),
    }
}

fn opened(
    request: &Open<'_>,
    p: &NbdParams,
    way: ExportPath,
    terms: Terms,
    first: Option<OpenConnection<Terms>>,
) -> Result<Opened, Error> {
    let name = request.name;
    let refuse = |errno, what: String| Err(params::refuse("nbd", name, errno, what));
    let sector = match sector(p, &terms) {
        Ok(sector) => sector,
        Err(what) => return refuse(Errno::Inval, what),
    };
    let cores = request.site.cores.max(1);
    let shares = terms.has(export_flag::CAN_MULTI_CONN);
    let connection_cores = match p.connection_cores(shares, cores) {
        Ok(count) => count,
        Err(what) => return refuse(Errno::Inval, what),
    };
    let read_only = p.read_only || terms.has(export_flag::READ_ONLY);
    let at = p.command.as_ref().map(|words| words.join(" "));
    let at = at.unwrap_or_else(|| way.to.address.text.clone());
    let key = format!("{at}/{}", way.export);
    let watch = Watch::new(request.site.inbox.clone());
    let bounds = p.bounds();
    let shape = Shape { bytes: terms.size, sector, connection_cores, cores, bounds };
    let is_shared = connection_cores > 1;
    let export = Export::new(way.export, way.server, &terms, sector, read_only, is_shared);
    let path = ServerPath { to: way.to, first };
    let disk = Remote::new(export, path, shape, request.notifier.clone(), watch.clone());
    if disk.size() == 0 {
        return refuse(Errno::NxIo, format!("the export has {} bytes: no sector", terms.size));
    }
    let can_delete = !read_only && disk.protocol.has(export_flag::SEND_TRIM);
    let io_max = terms.blocks.map_or(u32::MAX, |b| b.maximum).min(IO_BYTES_MAX) / sector * sector;
    let preferred = terms.blocks.map_or(0, |b| b.preferred);
    Ok(Opened {
        layer: Arc::new(NbdLayer { disk: disk.clone() }),
        limits: Limits {
            media_bytes: disk.size(),
            sector_bytes: sector,
            io_max_bytes: io_max.max(sector),
            delete_max_bytes: RANGE_BYTES_MAX,
        },
        stripe_bytes: if preferred > sector { u64::from(preferred) } else { 0 },
        identity: Identity {
            lasting: with_configured_serial(
                p.serial.as_deref(),
                of_other(request, "nbd", &key, None),
            ),
            descr: "NBD export".into(),
            physpath: String::new(),
            rotation_rate: u16::from(!terms.has(export_flag::ROTATIONAL)),
            can_delete,
            delete_reads_zero: false,
            any_memory: true,
            atomic_bytes: u64::from(sector),
            delete_granule: (0, 0),
            can_anchor: false,
        },
        read_only,
        watch: Some(watch),
        unit: Box::new(NbdUnit { disk }),
    })
}

struct NbdUnit {
    disk: Arc<Remote<Export>>,
}

impl Drop for NbdUnit {
    fn drop(&mut self) {
        self.disk.close();
    }
}

impl Unit for NbdUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        Ok(self.disk.update_size())
    }

    fn must_be_flushed(&self) -> bool {
        true
    }

    fn make_durable(&mut self) -> bool {
        let export = &self.disk.protocol;
        // A server that cannot be probed is not waited for.
        if !self.disk.is_connected() {
            return true;
        }
        if export.needs_flush() && export.claim_own_flush() {
            let disk = self.disk.clone();
            let flush = move |core: &Rc<Core>| {
                let began = disk.protocol.own_flush_begins();
                disk.send_own(NbdCommand::FLUSH, began, core);
            };
            self.disk.notifier.call(0, Box::new(flush));
            return false;
        }
        !export.is_flushing()
    }

    fn update_params(&mut self, params: &Value) -> Result<(), Error> {
        // The name of the disk is that of the error's caller.
        let p: NbdParams = params::read("nbd", "", params)?;
        let disk = &self.disk;
        let shares = disk.protocol.shares_cache();
        let count = p.connection_cores(shares, disk.cores).map_err(Error::inval)?;
        let tls = p.tls(&disk.to.address.host).map_err(Error::inval)?;
        *disk.tls.lock() = tls;
        // Before further connections, which must share the cache.
        if count > 1 {
            disk.protocol.set_shared();
        }
        disk.set_connection_cores(count);
        disk.set_bounds(p.bounds());
        Ok(())
    }

    fn troubles(&self) -> Vec<Trouble> {
        let troubles = self.disk.troubles.lock();
        let Some(why) = troubles.values().next() else { return Vec::new() };
        let (at, export) = (&self.disk.to.address.text, &self.disk.protocol);
        let output =
            export.server.as_ref().map(Server::messages).filter(|output| !output.is_empty());
        let output =
            output.map(|output| format!("; output of its server: {output}")).unwrap_or_default();
        let name = &export.name;
        let why = format!("no connection to {at}, export \"{name}\": {why}{output}");
        let deadline_s = self.disk.bounds().deadline_ns / 1_000_000_000;
        let action = format!(
            "The connection is retried automatically; the disk is lost after {deadline_s} s. List \
             the server's exports with `nbdinfo --list`."
        );
        vec![Trouble { severity: Severity::Degraded, why, action }]
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        let ServerAddress { text: address, .. } = &self.disk.to.address;
        let export = &self.disk.protocol;
        let counts = &self.disk.counts;
        let load = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed).to_string();
        let own = export.server.as_ref().map(Server::show);
        let why = if export.shares_cache() { "" } else { " (the server has no CAN_MULTI_CONN)" };
        let words = own.as_ref().map(|[(_, words), _]| words.clone());
        let mut lines = vec![
            ("path", words.unwrap_or_else(|| address.clone())),
            ("server", address.clone()),
            ("export", export.name.clone()),
            ("tls", if self.disk.tls.lock().keys.is_some() { "yes" } else { "no" }.into()),
            ("connections", format!("{}{why}", self.disk.connection_cores())),
            ("connections made", load(&counts.connections)),
            ("connections lost", load(&counts.lost)),
            ("requests sent again", load(&counts.replayed)),
        ];
        lines.extend(own.into_iter().flatten());
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn absent_server_differs_from_one_that_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let params = json!({ "address": listener.local_addr().unwrap().to_string() });
        let kind = || Nbd.reach("d", &params, Duration::from_secs(60)).unwrap_err().kind;
        std::thread::scope(|scope| {
            scope.spawn(|| drop(listener.accept()));
            assert_eq!(kind(), Errno::Io, "it closes the connection");
        });
        drop(listener);
        assert_eq!(kind(), Errno::NxIo);
    }
}
