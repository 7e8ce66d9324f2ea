//! `ashlar.toml`: flat tables, references by name, unknown keys refused with line and suggestion.
//!
//! * [`types`](self): the document as values ([`Config`] and its sections).
//! * [`Catalog`]: its possible content: the kinds of buses and disks, classes and drivers of the
//!   registries with their schemas.
//! * [`read`]: text to [`Config`], through the schemas; [`check`]: checks beyond the schemas.
//! * [`units`]: sizes and durations; [`secret`].

mod api;
mod catalog;
mod check;
mod check_daemon;
mod daemon;
mod editor;
mod exposed;
pub(crate) mod listeners;
mod mask;
mod paths;
mod read;
pub mod schema;
pub mod secret;
mod suggest;
mod tree;
mod types;
pub(crate) mod webhook;
mod write;

pub use geom::units;

pub use api::{ApiClientConfig, ApiConfig, ApiSections};
pub use catalog::{
    Catalog, CheckStart, CheckTarget, ClassFacts, DiskFacts, DriverFacts, Entry, FactsOf,
    SettingsOf,
};
pub(crate) use check::interface;
pub use check::{LUN_MAX, SOCKET_PATH_MAX, check};
pub use daemon::{DaemonConfig, LogFormat, Port, SystemCalls};
pub use editor::for_editors;
pub use exposed::{Exposure, exposures};
pub use paths::{TLS_FILE_KEYS, readable_folders, writable_folders};
pub use read::{CONFIG_BYTES_MAX, read, read_arguments, read_text};
pub use suggest::suggest;
pub use tree::is_value;
pub(crate) use types::SectionKey;
pub use types::{
    AccessConfig, AluaConfig, AluaState, BusConfig, Chap, Config, DigestPolicy, DiskConfig,
    GeomConfig, InitiatorChap, LunAddressing, LunConfig, LunMode, TargetConfig, UnitConfig,
    UnitHandler, UnitProtection,
};
pub use webhook::WebhookConfig;
pub(crate) use webhook::WebhookFiles;
pub use write::write;
