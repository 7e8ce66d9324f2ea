//! `ashlar.toml`: flat tables, references by name.

mod types;

pub use types::{
    AccessConfig, Chap, Config, DaemonConfig, DigestPolicy, DiskConfig, GeomConfig, LunConfig,
    LunMode, Port, TargetConfig,
};
