#![forbid(unsafe_code)]
//! The graph: classes, geoms, providers and consumers, and the path of a Bio through them.
//!
//! * [`Topology`] owns the objects and their rules: access counts, events, tasting, spoiling,
//!   orphans, withering. It does no I/O.
//! * [`GraphControl`] drives it on the control thread and is the idle barrier.
//! * [`Core`] walks Bios through a copy of it, one core a thread.
//! * [`Layer`], [`Class`] and [`Geom`] are the traits that a transformation implements; this crate
//!   contains no transformation.

mod class;
mod clean_records;
mod control;
mod copy_meter;
mod core;
mod error;
mod filter;
mod health;
mod layer;
mod measure;
mod notify;
mod origins;
mod progress;
mod runtime;
mod served_client;
mod snapshot;
mod stats;
mod thread_work;
mod topology;
mod trace;
mod typed;
pub mod units;
mod verb;

pub use class::{
    Claim, Class, Create, Geom, Local, MADE_BY_VERB, Redeclare, Settings, TasteOutcome, Taster,
    Transient,
};
pub use clean_records::CLEAN_RECORDS_DEADLINE;
pub use control::{
    Deadlines, GATE_DEADLINE, GraphControl, Inbox, JOB_DEADLINE_NS, ORPHAN_DEADLINE, Running,
    SETTLE_DEADLINE, TASTE_DEADLINE_NS, Waiter, Watch, deadline,
};
pub use copy_meter::CopyMeter;
pub use core::{Call, Core, CoreNotice, Finished, Message, Report, report};
pub use error::Error;
pub use filter::{Filter, FilterAction, Window, class as filter_class};
pub use health::{Listener, Remark, Severity, Trouble};
pub use layer::{Back, Edge, Flow, Layer, Sink};
pub use measure::Measure;
pub use notify::{Notice, Notifier, Task, Unanswered, message_of};
pub use origins::{Entry, ORIGINS_MAX, Originator, Origins};
pub use progress::{CopySpan, Progress, pace};
pub use runtime::{Runtime, RuntimeConfig};
pub use served_client::ServedClient;
pub use snapshot::Limits;
pub use stats::{BUCKETS, Meter, Reading, bucket_of, bucket_top_ns, percentile_ns};
pub use topology::{
    Access, Action, Barrier, ConsumerId, ConsumerRef, ConsumerView, Conversation, DELETES, Deletes,
    EdgeNames, Event, FormerSizes, FoundLabel, GeomId, GeomRef, GeomView, Holder, NewProvider,
    PHYSICAL_SECTOR, ProviderId, ProviderRef, ProviderView, SizeKeeper, TasteClass, TasteJob,
    Tasted, Topology, WriteLabel,
};
pub use trace::{SlowRequest, SlowRequests, TracePart};
pub use typed::{NoClaim, NoParams, Typed, bare_name, named, with};
pub use verb::{
    ArgKind, ArgSpec, At, Bytes, Change, ClassParams, ClassVerb, Consent, Deferred, Given,
    ListedVerb, MessageAnswer, Place, Unfinished, Verb, VerbSpec, arguments, call, describe,
    params_schema_of, parse_params, read, schema_of, specs, to_json,
};

// Derive macros for the parameters of a verb.
pub use schemars::JsonSchema;
pub use serde::Deserialize;
