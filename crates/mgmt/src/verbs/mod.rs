//! The verbs: one file and one line of [`VERBS`] each. The table gives the command line, the HTTP
//! routes, OpenAPI, completions and manual pages.

pub(crate) mod access;
mod access_who;
mod alua_set;
mod alua_show;
mod apply;
mod attach;
mod audit;
pub(crate) mod completions;
mod detach;
mod doctor;
mod entry;
mod explain;
mod export;
pub(crate) mod geom;
mod graph;
mod history;
pub(crate) mod index;
mod inspect;
mod journal;
mod list;
pub(crate) mod man;
mod man_overview;
mod man_sections;
mod openapi;
mod part;
mod part_backup;
mod part_bootcode;
mod part_list;
mod part_restore;
mod part_show;
mod part_status;
pub(crate) mod plan;
pub(crate) mod rates;
mod reservations;
pub(crate) mod schema;
mod serve;
mod serve_signals;
mod sessions;
pub(crate) mod sessions_end;
pub(crate) mod status;
mod token_create;
mod token_list;
mod token_revoke;
pub(crate) mod top;
mod trace;
#[cfg(feature = "otel")]
mod trace_otlp;
mod tray_eject;
mod tray_load;
pub(crate) mod tree;
mod undo;
mod wipe;

pub use entry::{CommandVerb, Entry, Local, Run};

use classes::part::request::{self, Edit};
use part::Part;

/// Every verb, in the order of help.
pub const VERBS: &[Entry] = &[
    Entry::local::<serve::ServeParams>(),
    Entry::daemon::<status::StatusParams>(),
    Entry::daemon::<tree::TreeParams>(),
    Entry::daemon::<graph::GraphParams>(),
    Entry::daemon::<list::ListParams>(),
    Entry::daemon::<sessions::SessionsParams>(),
    Entry::daemon::<sessions_end::SessionsEndParams>(),
    Entry::daemon::<reservations::ReservationsParams>(),
    Entry::local::<top::TopParams>(),
    Entry::daemon::<rates::RatesParams>(),
    Entry::local::<trace::TraceParams>(),
    Entry::daemon::<journal::JournalParams>(),
    Entry::daemon::<plan::PlanParams>(),
    Entry::daemon::<apply::ApplyParams>(),
    Entry::daemon::<undo::UndoParams>(),
    Entry::daemon::<history::HistoryParams>(),
    Entry::daemon::<export::ExportParams>(),
    Entry::daemon::<part_show::PartShowParams>(),
    Entry::daemon::<part_status::PartStatusParams>(),
    Entry::daemon::<part_list::PartListParams>(),
    Entry::daemon::<Part<Edit<request::Create>>>(),
    Entry::daemon::<Part<Edit<request::Add>>>(),
    Entry::daemon::<Part<Edit<request::Delete>>>(),
    Entry::daemon::<Part<Edit<request::Modify>>>(),
    Entry::daemon::<Part<Edit<request::Resize>>>(),
    Entry::daemon::<Part<request::Recover>>(),
    Entry::daemon::<Part<Edit<request::Destroy>>>(),
    Entry::daemon::<Part<request::Set>>(),
    Entry::daemon::<Part<request::Unset>>(),
    Entry::daemon::<Part<Edit<request::Bootcode>>>(),
    Entry::daemon::<part_backup::Backup>(),
    Entry::daemon::<Part<Edit<request::Restore>>>(),
    Entry::daemon::<Part<request::Commit>>(),
    Entry::daemon::<Part<request::Undo>>(),
    Entry::daemon::<inspect::InspectParams>(),
    Entry::daemon::<wipe::WipeParams>(),
    Entry::daemon::<access::AccessCheckParams>(),
    Entry::daemon::<access_who::AccessWhoParams>(),
    Entry::daemon::<alua_show::AluaShowParams>(),
    Entry::daemon::<alua_set::AluaSetParams>(),
    Entry::daemon::<tray_eject::TrayEjectParams>(),
    Entry::daemon::<tray_load::TrayLoadParams>(),
    Entry::daemon::<attach::AttachParams>(),
    Entry::daemon::<detach::DetachParams>(),
    Entry::daemon::<geom::GeomParams>(),
    Entry::daemon::<token_create::TokenCreateParams>(),
    Entry::daemon::<token_list::TokenListParams>(),
    Entry::daemon::<token_revoke::TokenRevokeParams>(),
    Entry::daemon::<audit::AuditParams>(),
    Entry::local::<doctor::DoctorParams>(),
    Entry::local::<explain::ExplainParams>(),
    Entry::local::<schema::SchemaParams>(),
    Entry::local::<openapi::OpenapiParams>(),
    Entry::local::<completions::CompletionsParams>(),
    Entry::local::<man::ManParams>(),
];

/// Group descriptions of the verbs that have a dot in their name. A group that is a verb itself, as
/// `sessions`, is not among them.
pub const GROUPS: &[(&str, &str)] = &[
    ("part", "Show and edit partition tables"),
    ("access", "Show the LUNs of an initiator and the initiators of a LUN"),
    ("alua", "Show and set access states of target port groups"),
    ("tray", "Load and eject removable media"),
    ("token", "Create, list and revoke tokens of the API"),
];

/// Whether the verbs of a class are in this table: no commands are made from their own
/// descriptions.
pub fn has_commands_of(class: &str) -> bool {
    VERBS.iter().any(|verb| verb.name.split('.').next() == Some(class))
}

/// The verb of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    VERBS.iter().find(|v| v.name == name)
}
