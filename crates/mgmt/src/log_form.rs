//! Form of the daemon's log: text, lines of JSON, or records for journald.

use crate::config::LogFormat;
use crate::log_record::LogRecord;
use crate::logs::{LINE_BYTES_MAX, LogQueue};
use jiff::Timestamp;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Socket of journald for records with fields.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogForm {
    /// Lines for people, on standard error.
    Text,
    /// Lines of JSON, on standard error.
    Json,
    /// Records for journald.
    Journal,
}

impl LogForm {
    /// The form of the log of this process.
    pub(crate) fn of(format: Option<LogFormat>) -> LogForm {
        let stream = std::env::var("JOURNAL_STREAM").ok();
        let stderr = rustix::fs::fstat(io::stderr()).ok().map(|s| (s.st_dev, s.st_ino));
        let is_journal = is_stream(stream.as_deref(), stderr);
        // A container may have the stream but not the socket.
        LogForm::chosen(format, is_journal && Path::new(JOURNAL_SOCKET).exists())
    }

    fn chosen(format: Option<LogFormat>, is_journal: bool) -> LogForm {
        match format {
            Some(LogFormat::Text) => LogForm::Text,
            Some(LogFormat::Json) => LogForm::Json,
            None if is_journal => LogForm::Journal,
            None => LogForm::Text,
        }
    }

    /// Starts the log.
    ///
    /// # Errors
    /// When the system gives no thread or no socket.
    pub(crate) fn start(self) -> io::Result<LogQueue> {
        match self {
            LogForm::Journal => {
                let socket = UnixDatagram::unbound()?;
                LogQueue::start(JournalSocket { socket, path: JOURNAL_SOCKET.to_owned() }, self)
            }
            LogForm::Text | LogForm::Json => LogQueue::start(io::stderr(), self),
        }
    }

    pub(crate) fn bytes(self, record: &LogRecord) -> Vec<u8> {
        match self {
            LogForm::Journal => record.to_journal(LINE_BYTES_MAX),
            LogForm::Text | LogForm::Json => record.to_json(Timestamp::now(), LINE_BYTES_MAX),
        }
    }

    /// A warning of the log itself.
    pub(crate) fn warning(self, text: String) -> Vec<u8> {
        match self {
            LogForm::Text => format!("{text}\n").into_bytes(),
            form => form.bytes(&LogRecord::new(Level::WARN, "ashlar", text)),
        }
    }
}

/// Whether a file is the stream that `JOURNAL_STREAM` names by device and inode (systemd.exec(5)).
fn is_stream(stream: Option<&str>, file: Option<(u64, u64)>) -> bool {
    let named = stream.and_then(|text| {
        let (device, inode) = text.split_once(':')?;
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    named.is_some() && named == file
}

/// Writes each record as one datagram. A journald that was started again has the same path.
struct JournalSocket {
    socket: UnixDatagram,
    path: String,
}

impl Write for JournalSocket {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.socket.send_to(record, &self.path)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs events as records.
pub(crate) struct RecordLayer {
    log: LogQueue,
    form: LogForm,
}

impl RecordLayer {
    pub(crate) fn new(log: LogQueue, form: LogForm) -> RecordLayer {
        RecordLayer { log, form }
    }
}

impl<S: Subscriber> Layer<S> for RecordLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.log.push(self.form.bytes(&LogRecord::of(event)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn journal_is_used_only_when_standard_error_is_its_stream() {
        assert!(is_stream(Some("8:77"), Some((8, 77))));
        for stream in [None, Some(""), Some("8:78"), Some("9:77"), Some("8"), Some("8:77:1")] {
            assert!(!is_stream(stream, Some((8, 77))), "{stream:?}");
        }
        assert!(!is_stream(None, None));
        assert_eq!(LogForm::chosen(None, true), LogForm::Journal);
        assert_eq!(LogForm::chosen(None, false), LogForm::Text);
        assert_eq!(LogForm::chosen(Some(LogFormat::Text), true), LogForm::Text);
        assert_eq!(LogForm::chosen(Some(LogFormat::Json), true), LogForm::Json);
    }

    #[test]
    fn event_arrives_at_journald_as_a_record_with_fields() {
        let path = std::env::temp_dir().join(format!("ashlar-jrnl-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let journald = UnixDatagram::bind(&path).expect("a socket");
        let socket = UnixDatagram::unbound().expect("a socket");
        let sink = JournalSocket { socket, path: path.display().to_string() };
        let log = LogQueue::start(sink, LogForm::Journal).expect("a thread");
        let layer = RecordLayer::new(log.clone(), LogForm::Journal);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "ashlar", object = "disk d0", number = 4, "d0 is gone");
        });
        log.flush();
        let mut buffer = [0; 4096];
        let read = journald.recv(&mut buffer).expect("a record");
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let wanted =
            ["MESSAGE=d0 is gone", "PRIORITY=3", "ASHLAR_OBJECT=disk d0", "ASHLAR_NUMBER=4"];
        for line in wanted {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        std::fs::remove_file(&path).expect("scratch");
    }
}
