//! The types of the daemon's API: its reports and its requests.
//!
//! JSON is the primary form; tables are a rendering. Numbers are bytes and nanoseconds with the
//! unit in the name. Fields are only ever added within one [`SCHEMA_VERSION`].

mod error;
mod event;
mod event_kinds;
mod files;
mod geom_list;
mod listener;
mod rates;
mod state;
mod stats;
mod target;
mod trace;
mod webhook;

pub use classes::part::request::{EntryView as PartEntry, PartAnswer, TableView as PartTable};
pub use error::{Error, Exit, Kind, Result};
pub use event::{Event, Level, ProgressLine, ProgressUnit};
pub use event_kinds::{EVENT_GROUPS, EventGroup, EventKind};
pub use files::{CertificateState, ChangedFilesState};
pub use geom_list::{
    GeomListParams, GeomListing, GeomStatusParams, ListedConsumer, ListedGeom, ListedLines,
    ListedProvider,
};
pub use listener::{ListenerState, ListenerWarning};
pub use rates::{ObjectRates, OpSample, RateSample};
pub use state::{
    BusState, ConsumerState, CoreState, Daemon, DeviceErrorState, DeviceState, DiskMode, DiskState,
    FormerNameState, GeomState, Health, Memory, ProviderState, RebuildState, SCHEMA_VERSION,
    SandboxFolder, ServedClientState, SpaceState, StoppedState, SystemState, TasteRejection,
    TransientState, TroubleState,
};
pub use stats::{Bucket, Histogram, OpStats, Percentiles, Stats};
pub use target::{
    AttachedState, ConnectionsState, Denied, Digests, GroupState, LUN_COUNTERS_MAX, LunCounters,
    LunState, PendingLunState, PortGroupState, RegistrantState, ReservationState, RivalsState,
    SessionEnd, SessionState, TargetHealth, TargetState,
};
pub use trace::{SlowRequest, TraceQuery, TraceState, TracedLayer};
pub use webhook::WebhookState;
