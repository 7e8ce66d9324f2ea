//! Log functions of target drivers: a line with the fields of the peer that it is about.

/// A [`transport::LogFn`] of a level and a target of `tracing`.
macro_rules! log_fn {
    ($level:ident, $target:literal) => {
        |of, what| {
            tracing::$level!(
                target: $target,
                kind = of.kind,
                peer = of.peer,
                initiator = of.initiator,
                "{what}"
            )
        }
    };
}

pub(crate) use log_fn;
