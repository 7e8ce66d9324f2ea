//! Parts of a started daemon that threads other than the control thread use.

use std::sync::Arc;

use geom::Message;
use reactor::Mailer;

use crate::control_loop::ControlLoop;
use crate::identities::IdentityKeeper;
use crate::mailbox::Mailbox;
use crate::openings::Openings;
use crate::path_watch::PathWatch;

/// See the module.
pub(super) struct Started {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) identities: Arc<IdentityKeeper>,
    pub(super) paths: PathWatch,
    pub(super) openings: Openings,
    pub(super) cores: Vec<Mailer<Message>>,
}

impl Started {
    /// The parts of a control loop, and those that it shares.
    pub(super) fn of(
        control_loop: &ControlLoop,
        mailbox: &Arc<Mailbox>,
        openings: Openings,
    ) -> Started {
        Started {
            mailbox: mailbox.clone(),
            identities: control_loop.exports.identities.clone(),
            paths: control_loop.path_watch.clone(),
            openings,
            cores: control_loop.control.cores().to_vec(),
        }
    }
}
