//! The verbs: one file and one line of [`VERBS`] each. From the table come the command line, the
//! HTTP routes, OpenAPI, completions and manual pages.

pub(crate) mod access;
mod alua;
mod apply;
mod attach;
mod audit;
pub(crate) mod completions;
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
mod part_listed;
mod part_show;
pub(crate) mod plan;
pub(crate) mod rates;
mod reservations;
pub(crate) mod schema;
mod serve;
mod serve_signals;
mod sessions;
pub(crate) mod sessions_end;
pub(crate) mod status;
mod token;
pub(crate) mod top;
mod trace;
#[cfg(feature = "otel")]
mod trace_otlp;
mod tray;
pub(crate) mod tree;
mod undo;

pub use entry::{DaemonVerb, Entry, Local, LocalVerb, Run, Verb};

/// Every verb, in the order of help.
pub const VERBS: &[Entry] = &[
    Entry::local::<serve::Serve>(),
    Entry::daemon::<status::Status>(),
    Entry::daemon::<tree::Tree>(),
    Entry::daemon::<graph::Graph>(),
    Entry::daemon::<list::List>(),
    Entry::daemon::<sessions::Sessions>(),
    Entry::daemon::<sessions_end::SessionsEnd>(),
    Entry::daemon::<reservations::Reservations>(),
    Entry::local::<top::Top>(),
    Entry::daemon::<rates::Rates>(),
    Entry::local::<trace::Trace>(),
    Entry::daemon::<journal::Journal>(),
    Entry::daemon::<plan::Plan>(),
    Entry::daemon::<apply::Apply>(),
    Entry::daemon::<undo::Undo>(),
    Entry::daemon::<history::History>(),
    Entry::daemon::<export::Export>(),
    Entry::daemon::<part_show::PartShow>(),
    Entry::daemon::<part_listed::PartStatus>(),
    Entry::daemon::<part_listed::PartList>(),
    Entry::daemon::<part::Create>(),
    Entry::daemon::<part::Add>(),
    Entry::daemon::<part::Delete>(),
    Entry::daemon::<part::Modify>(),
    Entry::daemon::<part::Resize>(),
    Entry::daemon::<part::Recover>(),
    Entry::daemon::<part::Destroy>(),
    Entry::daemon::<part::Set>(),
    Entry::daemon::<part::Unset>(),
    Entry::daemon::<part_bootcode::Bootcode>(),
    Entry::daemon::<part_backup::Backup>(),
    Entry::daemon::<part_backup::Restore>(),
    Entry::daemon::<part::Commit>(),
    Entry::daemon::<part::Undo>(),
    Entry::daemon::<inspect::Inspect>(),
    Entry::daemon::<inspect::Wipe>(),
    Entry::daemon::<access::AccessCheck>(),
    Entry::daemon::<access::AccessWho>(),
    Entry::daemon::<alua::AluaShow>(),
    Entry::daemon::<alua::AluaSet>(),
    Entry::daemon::<tray::TrayEject>(),
    Entry::daemon::<tray::TrayLoad>(),
    Entry::daemon::<attach::Attach>(),
    Entry::daemon::<attach::Detach>(),
    Entry::daemon::<geom::Geom>(),
    Entry::daemon::<token::TokenCreate>(),
    Entry::daemon::<token::TokenList>(),
    Entry::daemon::<token::TokenRevoke>(),
    Entry::daemon::<audit::Audit>(),
    Entry::local::<doctor::Doctor>(),
    Entry::local::<explain::Explain>(),
    Entry::local::<schema::Schema>(),
    Entry::local::<openapi::Openapi>(),
    Entry::local::<completions::Completions>(),
    Entry::local::<man::Man>(),
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
