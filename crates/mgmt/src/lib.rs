//! The control path: requests of people and programs to the daemon, and its answers.
//!
//! * [`api`]: the types of every answer; JSON first.
//! * [`config`]: `ashlar.toml`. [`plan`]: the steps from the running configuration to that file.
//! * [`Plant`]: the daemon, as this crate sees it. [`Control`]: the control side of a running one.
//! * [`verbs`]: everything that can be typed or posted, one file each. Their table gives the
//!   command line ([`run`]), the HTTP routes and OpenAPI ([`http`]), completions and manual pages.
//! * [`Client`]: the way from a command to the daemon.
//!
//! Nothing here touches the data path.

#![forbid(unsafe_code)]

pub mod api;
mod audit;
mod auth;
mod cli;
mod client;
pub mod config;
mod doctor;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fake_files;
mod file_service;
pub mod http;
mod log_form;
mod log_record;
mod logs;
mod object_id;
mod page;
pub mod plan;
mod plant;
mod query_string;
pub mod reference;
mod remote;
mod samples;
mod service;
mod service_manager;
mod stream;
mod text;
mod time_slices;
mod tls_stream;
mod top;
pub mod verbs;
mod webhook;

pub use cli::{App, ClassVerbs, command, parse, run, shell_words};
pub use client::{Client, default_socket};
pub use file_service::{FileComparison, FileReader, FileService};
pub use logs::{flush_log, is_daemon};
pub use plant::{AddParts, Outcome, Plant, Progress, StaleFiles};
pub use remote::{Credentials, Remote};
pub use service::{Archive, Archived, Consent, Control, Plan};
pub use text::shell_word;
pub use time_slices::TimeSlices;
