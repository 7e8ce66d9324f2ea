//! Asynchronous events: unsolicited changes of devices, with CAM's codes.

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Event {
    /// Commands are not answered for long, or answered again. No event of CAM.
    Silence = 0x002,
    /// The bus was reset.
    BusReset = 0x001,
    /// A reset was sent to the device.
    SentBdr = 0x010,
    /// A device was found.
    FoundDevice = 0x080,
    /// The device was removed.
    LostDevice = 0x100,
    /// The device is another one now, or reports other facts.
    InquiryChanged = 0x400,
    /// A known property of the device changed: its capacity, its medium.
    DeviceChanged = 0x800,
    /// There may be other logical units than before.
    Contract = 0x1000,
    /// A name or place changed.
    AdvInfoChanged = 0x2000,
    /// The device reported a unit attention.
    UnitAttention = 0x4000,
    /// Another medium may answer than before: it is to be probed. No event of CAM.
    Doubted = 0x8000,
}
