//! Parameters of a file server in the configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use geom::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tls::{Files, Keys};

use super::clock::TimeOfDay;
use crate::config::{Device, Settings};
use crate::image::{self, format::Layout};
use crate::ninep::LOGIN_NS;
use crate::volume::{BLOCKS, ReadAhead};

/// Default bytes of a block.
const BLOCK: u32 = 16 << 10;
/// Default bytes of the block cache, and the minimum.
const MEMORY: (u64, u64) = (64 << 20, 8 << 20);
/// Default limit of the connections of one peer.
const PEER_CONNECTIONS: u32 = 256;
/// Default time of the daily dump.
const DUMP_AT: &str = "05:00";
/// No dumps by the clock.
const NEVER: &str = "never";

/// A file server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FsParams {
    /// Config string of its devices: `c"ssd"{"near""far"}`, `ce565.0{e565.1e545.1}`. Absent: the
    /// first member is the cache device, and each other member holds a complete copy of the WORM;
    /// with a single member there are files but no dumps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The settings as lines of config mode of the first file servers, for one file system: `filsys
    /// main ...`, `filsys dump o`, `dumpctl no`, `noattach`, `nonone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// Create the file system if its devices are blank. Devices with contents are left unchanged.
    /// If a file server of this name was served before, blank devices are refused, because the
    /// original ones may be missing.
    pub create: bool,
    /// The devices contain an image of cwfs64x of 9front: `c"cache"f"worm"`, or one device for a
    /// file system without a cache, which is read-only.
    pub image: bool,
    /// Layout of the cache device of an image: `rows`, or `columns` for a device that was created
    /// with `newcache`; absent: detected, and `rows` for a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Open an image read-only.
    pub read_only: bool,
    /// Block size in bytes of a new file system: 4096, 8192, 16384 or 65536; absent: 16384.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// Size of the block cache in bytes, at least 8 MiB; absent: 64 MiB. An edit of a running file
    /// server to a smaller size frees memory as soon as its blocks are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8_388_608))]
    pub memory: Option<u64>,
    /// Number of blocks that are prefetched at a time for sequential readers, at most 1000; 0: no
    /// read-ahead; absent: 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub ahead: Option<u32>,
    /// Read-ahead distance in bytes, at most 64 MiB; absent: 2 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 67_108_864))]
    pub ahead_bytes: Option<u64>,
    /// Listen addresses for Linux clients (`mount -t 9p`): `0.0.0.0:564`, or `unix:PATH`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub linux: Vec<String>,
    /// Listen addresses for Plan 9 clients, with 9P2000 as in the Plan 9 manual.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plan9: Vec<String>,
    /// Listen addresses for Plan 9 clients with TLS. A client can attach only as the user that its
    /// certificate names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plan9_tls: Vec<String>,
    /// Listen addresses for Linux clients with TLS, with the rules of `linux`. The user name in the
    /// mount is ignored; the certificate names the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub linux_tls: Vec<String>,
    /// PEM file with the certificate chain of the server, its own certificate first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<String>,
    /// PEM file with the private key of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<String>,
    /// PEM file with the CA certificates that client certificates are verified against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_client_ca: Option<String>,
    /// Console addresses: `unix:PATH`, usable by all users who may open the socket; `ether:eth1`,
    /// the console over Ethernet (CEC), usable by all machines on that network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub console: Vec<String>,
    /// User of all clients of `linux`, regardless of the name that they give; absent: the user of
    /// that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub everybody: Option<String>,
    /// Seconds after which a 9P connection without an attach is closed; absent: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub login_timeout: Option<u32>,
    /// Maximum number of connections of one peer address, or of one user at a Unix socket; more are
    /// refused; absent: 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub connections_per_peer: Option<u32>,
    /// Local time of the daily dump, `05:00`, or `never`; absent: 05:00.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dump_at: Option<String>,
    /// The WORM is as fast as the cache device: blocks read from it are not cached there.
    pub fastworm: bool,
    /// Refuse attaches, except those of the user `none`, until `fs attaches NAME on`: for a standby
    /// before its main server is down.
    pub noattach: bool,
    /// Take no daily dumps until `fs dumpctl NAME on`: for a standby before its main server is
    /// down.
    pub nodump: bool,
    /// Refuse attaches of the user `none`.
    pub nonone: bool,
    /// Files that are disks, by the names of their providers: `vm0 = "/images/vm0"`, or an old
    /// state in a dump: `old = "/dump/2026/1121/images/vm0"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, String>,
    /// Core that the file server runs on; absent: the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub core: Option<u32>,
}

impl FsParams {
    /// Reads and checks the parameters of the configuration.
    pub fn read(value: &serde_json::Value) -> Result<FsParams, Error> {
        let mut params: FsParams = match value {
            serde_json::Value::Null => FsParams::default(),
            v => FsParams::deserialize(v).map_err(|e| Error::inval(format!("fs: {e}")))?,
        };
        params.settle()?;
        let FsParams { block, memory, ahead, ahead_bytes, .. } = &params;
        if block.is_some_and(|b| !BLOCKS.contains(&b)) {
            return Err(Error::inval("block is 4096, 8192, 16384 or 65536"));
        }
        if memory.is_some_and(|m| m < MEMORY.1) {
            return Err(Error::inval("memory is at least 8 MiB"));
        }
        if ahead.is_some_and(|n| n > ReadAhead::WORKERS_MAX) {
            return Err(Error::inval("ahead is at most 1000"));
        }
        if ahead_bytes.is_some_and(|n| n > ReadAhead::BYTES_MAX) {
            return Err(Error::inval("ahead_bytes is at most 64 MiB"));
        }
        for (key, value, most) in [
            ("login_timeout", params.login_timeout, 3600),
            ("connections_per_peer", params.connections_per_peer, 65_536),
        ] {
            if let Some(value) = value.filter(|v| !(1..=most).contains(v)) {
                return Err(Error::inval(format!("{key} = {value}: it must be 1 to {most}")));
            }
        }
        params.dump_at()?;
        params.device()?;
        params.image().map_err(Error::inval)?;
        let proven = params.linux_tls.iter().chain(&params.plan9_tls);
        let believed = params.linux.iter().chain(&params.plan9);
        for at in believed.chain(proven) {
            super::listen::parse(at)?;
        }
        for at in &params.console {
            super::listen::parse_console(at)?;
        }
        params.key_files()?;
        Ok(params)
    }

    /// The settings that change while it serves, by their keys; null: the section needs no such
    /// key.
    pub fn settings(&self) -> geom::Settings {
        let ReadAhead { workers, bytes } = self.ahead();
        let all = serde_json::json!({
            "ahead": workers,
            "ahead_bytes": bytes,
            "connections_per_peer": self.connections_per_peer(),
            "console": self.console,
            "create": self.create,
            "disks": self.disks,
            "dump_at": self.dump_at.as_deref().unwrap_or(DUMP_AT),
            "everybody": self.everybody,
            "fastworm": self.fastworm,
            "linux": self.linux,
            "linux_tls": self.linux_tls,
            "login_timeout": self.login_ns() / 1_000_000_000,
            "memory": self.memory(),
            "noattach": self.noattach,
            "nodump": self.nodump,
            "nonone": self.nonone,
            "plan9": self.plan9,
            "plan9_tls": self.plan9_tls,
            "tls_certificate": self.tls_certificate,
            "tls_client_ca": self.tls_client_ca,
            "tls_key": self.tls_key,
        });
        match all {
            serde_json::Value::Object(all) => all,
            _ => geom::Settings::new(),
        }
    }

    /// The files of the keys that its TLS listeners need; `None` without such listeners.
    fn key_files(&self) -> Result<Option<[String; 3]>, Error> {
        if self.linux_tls.is_empty() && self.plan9_tls.is_empty() {
            return Ok(None);
        }
        let file = |name: &str, path: &Option<String>| {
            let missing = || Error::inval(format!("{name} is missing: clients of TLS need it"));
            path.clone().filter(|path| !path.is_empty()).ok_or_else(missing)
        };
        let certificate = file("tls_certificate", &self.tls_certificate)?;
        let key = file("tls_key", &self.tls_key)?;
        let client_ca = file("tls_client_ca", &self.tls_client_ca)?;
        Ok(Some([certificate, key, client_ca]))
    }

    /// Reads the keys that its TLS listeners need; `None` without such listeners.
    pub fn keys(&self) -> Result<Option<Keys>, Error> {
        let files = self.key_files()?;
        let Some([certificate, key, client_ca]) = &files else { return Ok(None) };
        Keys::read(&Files { certificate, key, client_ca }).map(Some).map_err(Error::inval)
    }

    /// The Inet addresses of its listeners.
    pub fn inet_addresses(&self) -> Vec<SocketAddr> {
        let all = [&self.linux, &self.plan9, &self.linux_tls, &self.plan9_tls, &self.console];
        let parsed = all.into_iter().flatten().filter_map(|at| super::listen::parse(at).ok());
        parsed.filter_map(|at| at.inet()).collect()
    }

    /// Translates the lines of config mode into parameters.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(text) = self.settings.take() else { return Ok(()) };
        let refuse = |what: String| Err(Error::inval(format!("settings: {what}")));
        let s = Settings::parse(&text).map_err(|why| Error::inval(format!("settings: {why}")))?;
        if self.device.is_some() {
            return refuse("`device` names its members already".into());
        }
        // Where a line `recover` was, the cache device has a volume.
        let recover = s.recover.first().map(|name| format!("recover {name} --force"));
        let ream = || s.ream.first().map(|name| format!("ream {name}"));
        if let Some(command) = recover.or_else(ream) {
            return refuse(format!(
                "`ream` and `recover` are commands, not settings: `ashlar fs {command}`"
            ));
        }
        if s.recoversb.is_some() || s.allow {
            let name = s.filsys.first().map_or("main", |f| f.name.as_str());
            return refuse(format!(
                "`recoversb` and `allow` are commands, not settings: `ashlar fs recover {name} \
                 --force --dump YEAR/MMDD` and `ashlar fs allow {name}`"
            ));
        }
        for line in &s.foreign {
            let why = match line.split_whitespace().next() {
                Some("copydev" | "copyworm") => "copies of disks are layers (`ashlar mirror`)",
                Some("queryjuke") => "jukeboxes are not supported; any provider can be the WORM",
                Some("resetparams") => "block sizes are read from the devices",
                Some("newcache") if self.image => {
                    self.layout.get_or_insert_with(|| "columns".into());
                    continue;
                }
                Some("newcache") => "rows and columns are those of an image (`image = true`)",
                // The machine's own network and memory.
                _ => continue,
            };
            return refuse(format!("`{line}`: {why}"));
        }
        if s.readonly {
            return refuse("readonly: a standby is kept from clients by `noattach`".into());
        }
        let mut own = s.filsys.iter().filter(|f| f.device != Device::Dumps);
        let (Some(main), None) = (own.next(), own.next()) else {
            return refuse("one file system (`filsys main ...`) makes a section".into());
        };
        self.device = Some(main.device.to_string());
        self.noattach |= s.noattach;
        self.nonone |= s.nonone;
        self.nodump |= s.nodump;
        Ok(())
    }

    /// The device of the config string, if there is one.
    pub fn device(&self) -> Result<Option<Device>, Error> {
        let Some(text) = &self.device else { return Ok(None) };
        let device: Device =
            text.parse().map_err(|wrong| Error::inval(format!("device `{text}`: {wrong}")))?;
        match device.refusal(self.image) {
            Some(why) => Err(Error::inval(format!("device: {why}"))),
            None => Ok(Some(device)),
        }
    }

    /// How an image is to be opened, if it is one.
    pub fn image(&self) -> Result<Option<image::Setup>, String> {
        let layout = match self.layout.as_deref() {
            None => None,
            Some("rows") => Some(Layout::Rows),
            Some("columns") => Some(Layout::Columns),
            Some(other) => return Err(format!("layout `{other}` is neither `rows` nor `columns`")),
        };
        if self.image {
            if self.block.is_some() {
                return Err("block: blocks of an image have 16384 bytes".into());
            }
            return Ok(Some(image::Setup { layout, read_only: self.read_only, once: false }));
        }
        match (layout, self.read_only) {
            (None, false) => Ok(None),
            _ => Err("layout and read_only are only for an image (`image = true`)".into()),
        }
    }

    /// When a dump is taken; none: never.
    pub fn dump_at(&self) -> Result<Option<TimeOfDay>, Error> {
        match self.dump_at.as_deref().unwrap_or(DUMP_AT) {
            NEVER => Ok(None),
            text => TimeOfDay::parse(text).map(Some).ok_or_else(|| {
                Error::inval(format!(
                    "dump_at `{text}` is neither a time of day (05:00) nor `never`"
                ))
            }),
        }
    }

    /// Bytes of a block of a new one.
    pub fn block(&self) -> u32 {
        self.block.unwrap_or(BLOCK)
    }

    /// How much is read ahead.
    pub fn ahead(&self) -> ReadAhead {
        let usual = ReadAhead::default();
        ReadAhead {
            workers: self.ahead.unwrap_or(usual.workers),
            bytes: self.ahead_bytes.unwrap_or(usual.bytes),
        }
    }

    /// How long a client may take to attach, ns.
    pub fn login_ns(&self) -> u64 {
        self.login_timeout.map_or(LOGIN_NS, |s| u64::from(s) * 1_000_000_000)
    }

    /// Connections of one peer.
    pub fn connections_per_peer(&self) -> usize {
        let most = self.connections_per_peer.unwrap_or(PEER_CONNECTIONS);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Bytes of the block cache.
    pub fn memory(&self) -> usize {
        usize::try_from(self.memory.unwrap_or(MEMORY.0)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<FsParams, String> {
        FsParams::read(&json!({ "settings": text })).map_err(|e| e.message)
    }

    #[test]
    fn config_mode_lines_set_parameters_or_are_refused() {
        let p = read(
            "service emelie\nfilsys main ce565.0{e565.1e545.1}\nfilsys dump o\ndumpctl no\n\
             noattach\nip 10.0.0.1\nend\n",
        );
        let p = p.unwrap();
        assert_eq!(p.device.as_deref(), Some("ce565.0{e565.1e545.1}"));
        assert_eq!((p.nodump, p.noattach, p.nonone), (true, true, false));
        assert!(p.dump_at().unwrap().is_some(), "`dumpctl on` uses the time of dumps");
        for (text, why) in [
            ("service x", "one file system"),
            ("filsys main w0\nfilsys other w1", "one file system"),
            ("filsys main ce1.0e1.1\nream main", "not settings: `ashlar fs ream main`"),
            ("filsys main ce1.0e1.1\nrecover main", "settings: `ashlar fs recover main --force`"),
            ("filsys main ce1.0e1.1\nrecoversb 5", "recover main --force --dump YEAR/MMDD"),
            ("filsys main ce1.0e1.1\nallow", "ashlar fs allow main"),
            ("filsys main ce1.0e1.1\ncopydev w0 w1", "copies of disks are layers"),
            ("filsys main ce1.0e1.1\nqueryjuke w0", "jukeboxes are not supported"),
            ("filsys main ce1.0e1.1\nnewcache", "those of an image"),
            ("filsys main ce1.0fe1.1", "`image = true`"),
            ("filsys main cp(w0)0.50e1.1", "write the name of a provider"),
            ("filsys main ce1.0e1.1\nrecoversb x", "line 2"),
            ("filsys main ce1.0e1.1\nfrob", "line 2"),
            ("filsys main c", "line 1"),
        ] {
            assert!(read(text).is_err_and(|e| e.contains(why)), "{text}: {:?}", read(text));
        }
        let both = json!({ "settings": "filsys main w0", "device": "w1" });
        assert!(FsParams::read(&both).is_err());
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for wrong in [
            json!({ "block": 5000 }),
            json!({ "image": true, "block": 16384 }),
            json!({ "image": true, "layout": "diagonal" }),
            json!({ "layout": "rows" }),
            json!({ "read_only": true }),
            json!({ "memory": 1 }),
            json!({ "ahead": 1001 }),
            json!({ "ahead_bytes": 67_108_865 }),
            json!({ "dump_at": "5" }),
            json!({ "login_timeout": 0 }),
            json!({ "connections_per_peer": 0 }),
            json!({ "linux": ["nowhere"] }),
            json!({ "linux": ["ether:eth0"] }),
            json!({ "console": ["ether:"] }),
            json!({ "devise": "x" }),
        ] {
            assert!(FsParams::read(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn setting_and_its_default_are_one_form() {
        let settings = |params: serde_json::Value| FsParams::read(&params).unwrap().settings();
        let absent = settings(json!({}));
        let usual = ReadAhead::default();
        let written = settings(json!({
            "ahead": usual.workers, "ahead_bytes": usual.bytes, "connections_per_peer": 256,
            "dump_at": "05:00", "login_timeout": 30, "linux": [], "nodump": false,
        }));
        assert_eq!(absent, written);
        let edited = settings(json!({ "dump_at": "never", "linux": ["unix:/run/9p"] }));
        let differ = edited.iter().filter(|(key, value)| absent.get(*key) != Some(*value));
        assert_eq!(differ.map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["dump_at", "linux"]);
    }

    #[test]
    fn settings_are_those_of_a_section_whose_certificates_are_gone() {
        let params = json!({
            "plan9_tls": ["127.0.0.1:565"], "tls_certificate": "/none/ashlar/cert",
            "tls_key": "/none/ashlar/key", "tls_client_ca": "/none/ashlar/ca",
        });
        let params = FsParams::read(&params).unwrap();
        assert_eq!(params.settings()["tls_key"], "/none/ashlar/key");
        assert!(params.keys().is_err_and(|e| e.message.contains("/none/ashlar")));
        let missing = json!({ "plan9_tls": ["127.0.0.1:565"], "tls_key": "/none/ashlar/key" });
        assert!(FsParams::read(&missing).is_err_and(|e| e.message.contains("tls_certificate")));
    }

    #[test]
    fn unsupported_config_string_is_refused_when_it_is_configured() {
        let read = |device: &str, image: bool| {
            FsParams::read(&json!({ "device": device, "image": image })).map_err(|e| e.message)
        };
        for (device, image) in [
            ("e565.1", false),
            ("ce565.0{e565.1e545.1}", false),
            ("cp(e565.0)0.3276800{e565.1e545.1}", false),
            ("cpe220.0\"fscache\"{e220.1}", false),
            ("c[e1.0e1.1](\"near\"/dev/sdb)", false),
            ("c(\"a\"\"b\"){[e1.<0-3>]p(\"far\")25.50}", false),
            ("c\"fscache\"f\"fsworm\"", true),
            ("c\"fscache\"f{\"near\"\"far\"}", true),
            ("c\"fscache\"\"fsworm\"", true),
            ("\"other\"", true),
        ] {
            assert!(read(device, image).is_ok(), "{device}: {:?}", read(device, image));
        }
        for (device, image, why) in [
            ("c", false, "at character 2: a device is missing"),
            ("o", false, "attach them as `dump`"),
            ("o", true, "attach them as `dump`"),
            ("n", false, "an empty device cannot be served"),
            ("w0", false, "w0: write the name of a provider"),
            ("c\"a\"h1.0", false, "h1.0: write the name of a provider"),
            ("c\"a\"{\"b\"m<0-1>}", false, "m0: write the name of a provider"),
            ("ca0.1\"b\"", false, "a0.1: write the name of a provider"),
            ("c\"a\"f\"b\"", false, "`image = true`"),
            ("cf\"a\"f\"b\"", true, "only be the whole WORM"),
            ("c\"a\"{f\"b\"f\"c\"}", true, "only be the whole WORM"),
            ("cx\"a\"\"b\"", true, "x\"a\": big-endian images"),
            ("c\"a\"j(w0w<1-4>)(r<0-7>)", false, "jukeboxes are not supported"),
            ("c\"a\"(r<0-7>)", false, "r0: jukeboxes are not supported"),
            ("c\"a\"l0", false, "l0: jukeboxes are not supported"),
            ("c\"a\"{e1.<0-8>}", false, "at most 8 devices"),
        ] {
            let refusal = read(device, image);
            assert!(refusal.as_ref().is_err_and(|e| e.contains(why)), "{device}: {refusal:?}");
        }
        let rows = json!({ "settings": "filsys main c\"a\"f\"b\"\nnewcache\n", "image": true });
        assert_eq!(FsParams::read(&rows).unwrap().layout.as_deref(), Some("columns"));
    }
}
