//! Transfer of metadata that a class left at the former end of a provider to its present end.
//!
//! ```text
//!   Verdict::Left --> opened alone, hidden from all others --> written at the end, durable -->
//!        closed --> tasted again: it is at the present end
//! ```
//!
//! The old copy stays: after a power cut it exists alone, or both exist. Geoms that know of no
//! other end believe only the copy at the present end. The old copy is not cleared. Another path to
//! the same disk may already be in use through the new copy, and the old place may contain data.
//!
//! Invariants
//!  C1  Metadata is carried once for each size, and the result is reported: the transfer to a
//!      failing disk is not retried for ever.
//!  C2  The same metadata is not carried over two paths at once. One would write old metadata over
//!      data that the other path, and other users since, have written.
//!  C3  Nothing else is found on the provider before the metadata is at its end, though it may
//!      never be moved there. The exception is other content that is there too: then an operator
//!      has to choose between them.

use std::rc::Rc;

use bio::Errno;

use super::{Access, GeomId, ProviderId, Topology};
use crate::class::{Geom, Local};
use crate::core::Core;
use crate::health::Severity;
use crate::layer::Edge;
use crate::notify::{Notice, message_of};

/// Writes the metadata at the end of a provider, through the edge, and makes it durable. It reads
/// the end first, which may have changed since the tasting.
pub type WriteLabel =
    Box<dyn for<'a> FnOnce(&'a Rc<Core>, Edge) -> Local<'a, Result<(), String>> + Send>;

/// Metadata that a class has found at the former end of a provider.
pub struct FoundLabel {
    /// The size that it had, bytes.
    pub former_bytes: u64,
    /// Its identity: the same over another path to the same disk.
    pub identity: Vec<u8>,
    /// Moves it to the end; or the reason why an operator has to decide that.
    pub write: Result<WriteLabel, String>,
    /// What to type if that fails.
    pub manual_command: String,
}

/// One that is being carried.
pub(super) struct Migration {
    class: usize,
    key: Vec<u8>,
    geom: GeomId,
    /// Other ways to it, to be looked at when it has been.
    other_paths: Vec<ProviderId>,
}

/// The result of a transfer on one provider (C1).
pub(super) struct Attempt {
    class: usize,
    bytes: u64,
    why: String,
}

/// A message to the geom that holds the provider.
enum Message {
    /// Every core has the graph with its consumer.
    GraphPublished,
    /// The label is written, or why not.
    WriteEnded(Result<(), String>),
}

/// Has the provider open meanwhile.
struct Migrator {
    provider: ProviderId,
    class: usize,
    former_bytes: u64,
    /// The size for which it is carried, bytes.
    bytes: u64,
    manual_command: String,
    work: Option<(Edge, WriteLabel)>,
}

impl Geom for Migrator {
    /// A transfer in progress fails by itself.
    fn orphan(&mut self, _: &mut Topology, _: GeomId, _: super::ConsumerId, _: Errno) {}

    fn on_notice(&mut self, t: &mut Topology, me: GeomId, notice: Notice) {
        match (message_of(notice), self.work.take()) {
            (Ok(Message::GraphPublished), Some((edge, carry))) => {
                t.send_migration(me, edge, carry);
            }
            (Ok(Message::WriteEnded(ended)), _) => t.migration_ended(self, me, ended),
            _ => t.migration_ended(self, me, Err("the core has stopped".into())),
        }
    }
}

impl Topology {
    /// Carries the metadata that a class has left on a provider to its end, if possible; returns
    /// the outcome as text.
    pub(super) fn migrate_label(
        &mut self,
        p: ProviderId,
        class: usize,
        why: &str,
        left: FoundLabel,
    ) -> String {
        let carry = match left.write {
            Ok(carry) => carry,
            Err(what) => {
                let remark = format!("{why}, {what}");
                self.report_once(p, class, &remark);
                return remark;
            }
        };
        // C3
        self.set_hidden(p, class, true);
        let left = (left.former_bytes, left.identity, carry, left.manual_command);
        match self.start_migration(p, class, left) {
            Ok(remark) => format!("{why}, {remark}"),
            Err(remark) => format!("{why}, but {remark}"),
        }
    }

    /// Reports a decision that an operator has to make to the journal, once for each size.
    fn report_once(&mut self, p: ProviderId, class: usize, why: &str) {
        let Some(pp) = self.providers.get_mut(p) else { return };
        let (geom, name, bytes) = (pp.geom, pp.name.clone(), pp.limits.media_bytes);
        if pp.attempts.iter().any(|a| (a.class, a.bytes) == (class, bytes)) {
            return;
        }
        pp.attempts.retain(|a| a.class != class);
        pp.attempts.push(Attempt { class, bytes, why: why.to_owned() });
        let remark = format!("{name} may be one of {}: {why}", self.classes[class].name());
        self.remark(geom, Severity::Degraded, &remark);
    }

    /// Begins to carry; otherwise why not.
    fn start_migration(
        &mut self,
        p: ProviderId,
        class: usize,
        (was, key, carry, by_hand): (u64, Vec<u8>, WriteLabel, String),
    ) -> Result<&'static str, String> {
        let (bytes, name) = match self.providers.get(p) {
            Some(pp) => (pp.limits.media_bytes, pp.name.clone()),
            None => return Err("the provider disappeared meanwhile".into()),
        };
        let attempts = self.providers.get(p).map_or(&[][..], |pp| &pp.attempts);
        if let Some(tried) = attempts.iter().find(|a| (a.class, a.bytes) == (class, bytes)) {
            return Err(tried.why.clone());
        }
        let same = |c: &&mut Migration| c.class == class && c.key == key;
        if let Some(carried) = self.migrations.iter_mut().find(same) {
            carried.other_paths.push(p);
            return Ok("the label is moved to the end over another path");
        }
        // E1
        self.add_new_size(p, bytes);
        let why = format!("the label of {name} is at its former end");
        let carrier = Migrator {
            provider: p,
            class,
            former_bytes: was,
            bytes,
            manual_command: by_hand,
            work: None,
        };
        let of = self.classes[class].name();
        let geom = self.new_geom(of, &format!("end of {name}"), &why, Box::new(carrier));
        let geom = geom.map_err(|e| e.to_string())?;
        self.set_verb_access(geom);
        let opened = self.attach_new(geom, p).and_then(|consumer| {
            self.access(consumer, Access::EXCLUSIVE).inspect_err(|_| self.leave(consumer))?;
            Ok(consumer)
        });
        let consumer = opened.map_err(|e| {
            self.wither_geom(geom, Errno::NxIo);
            format!("the provider cannot be opened to move the label: {}", e.text())
        })?;
        let work = (self.edge(consumer), carry);
        self.with(geom, |carrier: &mut Migrator, _| carrier.work = Some(work));
        self.migrations.push(Migration { class, key, geom, other_paths: Vec::new() });
        self.barrier(geom, Box::new(Message::GraphPublished));
        Ok("the label is being moved to the end")
    }

    fn send_migration(&self, geom: GeomId, edge: Edge, carry: WriteLabel) {
        let (board, name) = (self.notifier(), self.geom_name(geom).to_owned());
        let answers = board.clone();
        board.call(
            0,
            Box::new(move |core| {
                let (on, core) = (core, core.clone());
                on.spawn_for("carrying the", &name, async move {
                    let ended = carry(&core, edge).await;
                    answers.post(geom, Box::new(Message::WriteEnded(ended)));
                });
            }),
        );
    }

    fn migration_ended(&mut self, carrier: &Migrator, geom: GeomId, ended: Result<(), String>) {
        let Migrator {
            provider: on,
            class,
            former_bytes: was,
            bytes,
            manual_command: ref by_hand,
            ..
        } = *carrier;
        let (severity, why) = match ended {
            Ok(()) => (Severity::Good, "the label was moved to the end".to_owned()),
            Err(e) => {
                let why = format!(
                    "the label could not be moved to the end: {e}; {by_hand} tries \
                                   again"
                );
                (Severity::Failed, why)
            }
        };
        let remark = format!("label at the former end ({was} bytes): {why}");
        self.remark(geom, severity, &remark);
        if let Some(pp) = self.providers.get_mut(on) {
            pp.attempts.retain(|a| a.class != class);
            pp.attempts.push(Attempt { class, bytes, why });
        }
        // The geom is removed first, so that the next taste of the provider does not take it for a
        // user.
        let consumers = self.consumers_of(geom).to_vec();
        self.wither_geom(geom, Errno::NxIo);
        consumers.into_iter().for_each(|c| self.leave(c));
        let at = self.migrations.iter().position(|c| c.geom == geom);
        let others = at.map(|at| self.migrations.swap_remove(at).other_paths).unwrap_or_default();
        others.into_iter().for_each(|other| self.retaste(other));
    }
}
