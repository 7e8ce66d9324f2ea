//! Access rules: the reservations and asymmetric access states under which a command runs (SPC-4
//! 5.13.1 and 5.15.2, SBC-3 4.17, SPC-2 5.5), as data, one class a command.

/// The effect of another initiator's persistent reservation on a command (SPC-4 table 67, SBC-3
/// table 13). The holder is never restricted, nor is a registrant under the registrants types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistent {
    /// No reservation stops it.
    Always,
    /// An exclusive-access reservation stops it.
    Read,
    /// Both kinds stop it.
    Write,
    /// START STOP UNIT: with START one and no power condition as [`Persistent::Always`], else as
    /// [`Persistent::Write`].
    StartStop,
    /// PREVENT ALLOW MEDIUM REMOVAL: to allow is [`Persistent::Always`], to prevent is
    /// [`Persistent::Write`].
    Prevent,
    /// RESERVE: in conflict with every registration, unless compatible handling applies.
    Reserve,
    /// RELEASE: likewise.
    Release,
    /// PERSISTENT RESERVE OUT: by its service action and the registration.
    PersistentOut,
}

/// In which asymmetric access states of the port a command runs (SPC-4 5.15.2.4). All run in the
/// active states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alua {
    /// In every state.
    Any,
    /// In standby and unavailable, not in the offline and transition states.
    Unavailable,
    Standby,
    /// In the active states only.
    Active,
}

/// The access rules of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Persistent reservations of others.
    pub persistent: Persistent,
    /// It runs although another nexus holds the unit by RESERVE. The rules of
    /// [`Persistent::StartStop`] and [`Persistent::Prevent`] for their parameters apply here as
    /// well.
    pub despite_reserve: bool,
    /// Port states.
    pub alua: Alua,
}

impl Access {
    /// Commands that identify units and ports: INQUIRY, REPORT LUNS, REQUEST SENSE, port groups.
    pub(super) const FREE: Access =
        Access { persistent: Persistent::Always, despite_reserve: true, alua: Alua::Any };
    /// Facts that a RESERVE does not hide.
    pub(super) const FACTS: Access = Access { alua: Alua::Standby, ..Access::FREE };
    /// Allowed under persistent reservations, not under RESERVE.
    pub(super) const QUERY: Access = Access { despite_reserve: false, ..Access::FACTS };
    /// As the last, in active states only.
    pub(super) const READY: Access = Access { alua: Alua::Active, ..Access::QUERY };
    /// Reads the medium.
    pub(super) const READ: Access =
        Access { persistent: Persistent::Read, despite_reserve: false, alua: Alua::Active };
    /// Reads state of the unit.
    pub(super) const READ_STATE: Access = Access { alua: Alua::Standby, ..Access::READ };
    /// Changes the medium.
    pub(super) const WRITE: Access = Access { persistent: Persistent::Write, ..Access::READ };
    /// Changes state of the unit.
    pub(super) const WRITE_STATE: Access = Access { alua: Alua::Standby, ..Access::WRITE };
    /// SET TARGET PORT GROUPS.
    pub(super) const SET_GROUPS: Access = Access { alua: Alua::Unavailable, ..Access::WRITE };
    pub(super) const READ_BUFFER: Access = Access { alua: Alua::Unavailable, ..Access::READ };
    pub(super) const WRITE_BUFFER: Access = Access { alua: Alua::Unavailable, ..Access::WRITE };
    /// See [`Persistent::StartStop`].
    pub(super) const START_STOP: Access =
        Access { persistent: Persistent::StartStop, despite_reserve: true, alua: Alua::Active };
    /// See [`Persistent::Prevent`].
    pub(super) const PREVENT: Access =
        Access { persistent: Persistent::Prevent, ..Access::START_STOP };
    /// See [`Persistent::Reserve`].
    pub(super) const RESERVE: Access =
        Access { persistent: Persistent::Reserve, despite_reserve: false, alua: Alua::Active };
    /// See [`Persistent::Release`]; a RELEASE of another nexus's reservation has no effect and no
    /// conflict.
    pub(super) const RELEASE: Access =
        Access { persistent: Persistent::Release, despite_reserve: true, alua: Alua::Active };
    /// See [`Persistent::PersistentOut`].
    pub(super) const PERSISTENT_OUT: Access = Access {
        persistent: Persistent::PersistentOut,
        despite_reserve: false,
        alua: Alua::Standby,
    };
}
