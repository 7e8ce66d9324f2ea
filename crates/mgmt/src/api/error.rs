//! Errors of the control path, for control flow (`kind`) and for people (`op`, `at`, `source`,
//! advice).
//!
//! Every kind has a number: `ASH-0020` in every message, explained by `ashlar explain ASH-0020`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of everything on the control path.
pub type Result<T> = std::result::Result<T, Error>;

/// How a command ends. The number is its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or nothing to do.
    Done = 0,
    /// Failed; changes were taken back unless the message reports otherwise.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Done, and the examined object is degraded.
    Degraded = 3,
    /// Refused, because data would be destroyed.
    Refused = 4,
    /// No daemon answers.
    Unreachable = 5,
    /// `plan`: there are changes to apply.
    Pending = 6,
}

impl Exit {
    /// All codes with the sentence that help and manual pages print.
    pub const ALL: &'static [(Exit, &'static str)] = &[
        (Exit::Done, "done, or nothing to do"),
        (Exit::Failed, "failed; nothing was changed unless the message says so"),
        (Exit::Usage, "the command line or the configuration is wrong"),
        (Exit::Degraded, "done, but something is degraded or failed"),
        (Exit::Refused, "refused: data would be destroyed and its name was not given"),
        (Exit::Unreachable, "the daemon does not answer"),
        (Exit::Pending, "changes are pending (plan)"),
    ];
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal, $exit:ident, $http:literal,
        $title:literal, $next:literal;)*) => {
        /// Kind of an error. `Copy`, for control flow.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $word)] $name,)* }

        impl Kind {
            /// Every kind, by number.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];
            /// The number behind `ASH-`.
            pub const fn number(self) -> u16 { match self { $(Kind::$name => $number,)* } }
            /// The word in JSON.
            pub const fn word(self) -> &'static str { match self { $(Kind::$name => $word,)* } }
            /// The exit code of a command that fails so.
            pub const fn exit(self) -> Exit { match self { $(Kind::$name => Exit::$exit,)* } }
            /// The HTTP status of an answer that fails so.
            pub const fn http(self) -> u16 { match self { $(Kind::$name => $http,)* } }
            /// One sentence: its meaning.
            pub const fn title(self) -> &'static str {
                match self { $(Kind::$name => $title,)* }
            }
            /// What to do unless the error itself contains it.
            pub const fn next(self) -> &'static str { match self { $(Kind::$name => $next,)* } }
        }
    };
}

kinds! {
    /// Bad arguments.
    Usage = 1, "usage", Usage, 400,
        "An argument is missing, unknown or out of range.",
        "Run the same command with --help.";
    /// Unknown verb.
    UnknownVerb = 2, "unknown_verb", Usage, 404,
        "The daemon has no such verb; it may be older than this command.",
        "Run `ashlar doctor` to compare the versions.";
    /// A route of the control socket with another HTTP method.
    WrongMethod = 3, "wrong_method", Usage, 405,
        "A route of the control socket does not have that HTTP method.",
        "Use the method that the `Allow` field of the answer names.";
    /// The file is not TOML.
    ConfigSyntax = 10, "config_syntax", Usage, 400,
        "The configuration is not well-formed TOML.",
        "Correct the line shown; nothing was changed.";
    /// An unknown or missing key.
    ConfigKey = 11, "config_key", Usage, 400,
        "A key of the configuration is unknown or missing.",
        "`ashlar schema` shows the sections and kinds with their keys; nothing was changed.";
    /// A value of the wrong type or out of range.
    ConfigValue = 12, "config_value", Usage, 400,
        "A value of the configuration has the wrong type or is out of range.",
        "`ashlar schema` shows the values of each key; nothing was changed.";
    /// A name without an object, or a duplicate name.
    ConfigName = 13, "config_name", Usage, 400,
        "A name in the configuration refers to no object, or is used twice.",
        "Correct the name; nothing was changed.";
    /// Two access groups match one initiator.
    AccessOverlap = 14, "access_overlap", Usage, 400,
        "Two access groups of one target match the same initiator, so its LUNs are not defined.",
        "Make the patterns disjoint, or merge the groups; nothing was changed.";
    /// An unreadable secret, or a secret that other users can read.
    Secret = 15, "secret", Failed, 400,
        "A secret cannot be read, is too short, or its file is readable by others.",
        "Use `file:PATH` with mode 0600, or `credential:NAME` under systemd.";
    /// Unknown object.
    NotFound = 20, "not_found", Failed, 404,
        "There is no disk, geom, provider, target or session of that name.",
        "Run `ashlar list` to see the names.";
    /// An object with the same name exists.
    Exists = 21, "exists", Failed, 409,
        "An object of that name already exists.",
        "Choose another name, or remove the existing object.";
    /// The object is open.
    Busy = 22, "busy", Failed, 409,
        "The object is in use by another object above it.",
        "`ashlar tree --up` with its name shows the user.";
    /// The object does not support the operation.
    Unsupported = 23, "unsupported", Failed, 400,
        "This kind of object cannot do that.",
        "`ashlar schema` lists the kinds of objects with their parameters.";
    /// Data would be lost.
    WouldDestroy = 30, "would_destroy", Refused, 409,
        "Data would be lost, and its name was not given as consent.",
        "Repeat the command with --yes-destroy NAME once you are sure.";
    /// The configuration changed after the plan was made.
    Stale = 31, "stale", Failed, 409,
        "The running configuration has changed since the plan was made.",
        "Run `ashlar plan` again.";
    /// The dry run failed.
    CannotCarryOut = 32, "cannot_carry_out", Failed, 409,
        "The configuration cannot be carried out; nothing was changed.",
        "Correct what the message names and run `ashlar plan` again.";
    /// A step failed and all steps before it were reverted.
    RolledBack = 33, "rolled_back", Failed, 500,
        "A step failed; the steps before it were undone, so nothing has changed.",
        "Correct what the message names and apply again.";
    /// A step failed, and so did the reversal of an earlier step.
    HalfDone = 34, "half_done", Failed, 500,
        "A step failed and undoing an earlier one failed too: the configuration is applied in \
         part.",
        "Run `ashlar plan` to see what is left, then `ashlar apply` again.";
    /// No archived configuration.
    NoHistory = 35, "no_history", Failed, 404,
        "There is no archived configuration of that number.",
        "Run `ashlar history` to see those that are kept.";
    /// No daemon answers.
    Unreachable = 40, "unreachable", Unreachable, 503,
        "No daemon answers on the socket.",
        "Start it with `ashlar serve`, or name its socket with --socket.";
    /// Another daemon uses the socket.
    AlreadyRunning = 41, "already_running", Failed, 409,
        "Another daemon serves this socket.",
        "Stop it first, or give this one another socket.";
    /// The user is not permitted.
    Forbidden = 42, "forbidden", Failed, 403,
        "The daemon obeys only root, its own user, and network clients whose role suffices.",
        "Run the command as that user, or with a token of that role.";
    /// The data received on the socket is invalid.
    Protocol = 43, "protocol", Failed, 502,
        "The answer on the socket is not one of an Ashlar daemon, or was cut short.",
        "Run `ashlar doctor` to compare the versions.";
    /// The daemon is stopping.
    Stopping = 44, "stopping", Unreachable, 503,
        "The daemon is about to stop and takes no more commands.",
        "Start it again with `ashlar serve`.";
    /// A daemon accepts connections, but does not answer.
    Silent = 45, "silent", Unreachable, 504,
        "A process listens on the socket, but does not answer in time.",
        "Run the command again; if that fails too, restart the daemon.";
    /// No valid token or client certificate.
    Unauthenticated = 46, "unauthenticated", Failed, 401,
        "The API over the network needs a valid token or a known client certificate.",
        "Name a token with --token-file (`ashlar token create` on the server makes one), or a \
         client certificate with --certificate.";
    /// The system refused a file, a socket or a terminal.
    System = 50, "system", Failed, 500,
        "The operating system refused an operation.",
        "See the reason given.";
    /// A disk or a geom failed.
    Device = 51, "device", Failed, 500,
        "A disk or a geom answered with an error.",
        "Run `ashlar status` to see which one, and why.";
    /// A limit was reached.
    Limit = 52, "limit", Failed, 429,
        "A limit was reached.",
        "See the limit named in the message.";
    /// The operation timed out.
    Timeout = 53, "timeout", Failed, 504,
        "The command exceeded its time limit.",
        "Run `ashlar status`; a hung disk is the usual reason.";
    /// The command was interrupted (Ctrl-C).
    Interrupted = 54, "interrupted", Failed, 499,
        "The command was interrupted while it waited for the daemon.",
        "The daemon finishes the work all the same; run `ashlar status` to see it.";
    /// A defect in Ashlar.
    Internal = 90, "internal", Failed, 500,
        "Internal inconsistency: a defect in Ashlar.",
        "Report it with the whole message.";
}

impl Kind {
    /// `ASH-0020`.
    pub fn code(self) -> String {
        format!("ASH-{:04}", self.number())
    }

    /// The kind with that code; `ASH-0020`, `ash-20` and `20` are all understood.
    pub fn by_code(code: &str) -> Option<Kind> {
        let code = code.trim();
        let digits = match code.get(..4) {
            Some(prefix) if prefix.eq_ignore_ascii_case("ASH-") => code.get(4..)?,
            _ => code,
        };
        let number: u16 = digits.parse().ok()?;
        Kind::ALL.iter().copied().find(|k| k.number() == number)
    }
}

/// An error: its kind, the operation, the object, the reason and the next command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Error {
    /// Kind of the error, for control flow.
    pub kind: Kind,
    /// The failed operation: "part add", "apply: create disk \"d0\"".
    pub op: String,
    /// The object: a name in the graph, a file with line and column, or a socket. May be empty.
    #[serde(default)]
    pub at: String,
    /// The reason, in one sentence; several lines if it shows a place in a file.
    pub source: String,
    /// The next command to type; absent: the advice of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Error {
    /// An error without a place and with the kind's own advice.
    pub fn new(kind: Kind, op: impl Into<String>, source: impl fmt::Display) -> Error {
        Error { kind, op: op.into(), at: String::new(), source: source.to_string(), next: None }
    }

    /// The same, at a place.
    pub fn at(mut self, at: impl Into<String>) -> Error {
        self.at = at.into();
        self
    }

    /// The same, with better advice.
    pub fn next(mut self, next: impl Into<String>) -> Error {
        self.next = Some(next.into());
        self
    }

    /// The reason has a command or an option in it: general advice beside it would mislead.
    fn names_command(&self) -> bool {
        ["`ashlar ", "give --force"].iter().any(|words| self.source.contains(words))
    }

    /// The advice that is printed, unless the reason contains a command.
    pub fn advice(&self) -> &str {
        self.next.as_deref().unwrap_or(self.kind.next())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}: ", self.kind.code(), self.op)?;
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        writeln!(f, "{}", self.source.trim_end())?;
        if self.next.is_some() || !self.names_command() {
            writeln!(f, "  next: {}", self.advice())?;
        }
        write!(f, "  more: ashlar explain {}", self.kind.code())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn error_codes_are_unique_and_looked_up_by_number() {
        let numbers: BTreeSet<_> = Kind::ALL.iter().map(|k| k.number()).collect();
        let words: BTreeSet<_> = Kind::ALL.iter().map(|k| k.word()).collect();
        assert_eq!(numbers.len(), Kind::ALL.len());
        assert_eq!(words.len(), Kind::ALL.len());
        for &kind in Kind::ALL {
            assert_eq!(Kind::by_code(&kind.code()), Some(kind));
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.word());
            assert!(kind.title().ends_with('.'), "{kind:?}");
        }
        assert_eq!(Kind::by_code("ash-20"), Some(Kind::NotFound));
        assert_eq!(Kind::by_code("ASH-9999"), None);
        assert_eq!(Kind::by_code("é"), None);
    }

    #[test]
    fn text_has_operation_object_problem_and_next_command() {
        let error = Error::new(Kind::NotFound, "part add", "no such geom").at("ada9");
        assert_eq!(
            error.to_string(),
            "error[ASH-0020]: part add: ada9: no such geom\n  \
             next: Run `ashlar list` to see the names.\n  more: ashlar explain ASH-0020"
        );
        let error =
            Error::new(Kind::Exists, "mirror label", "d1 holds something; `ashlar inspect d1`");
        assert!(!error.to_string().contains("next:"), "{error}");
        assert!(error.next("Look.").to_string().contains("next: Look."));
    }
}
