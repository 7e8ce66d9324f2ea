//! Places where verbs run: the objects that a verb reaches there, and the form of its result.

use schemars::JsonSchema;
use serde_json::Value;

use super::{Verb, params_schema_of, to_json};
use crate::class::Class;
use crate::control::GraphControl;
use crate::error::Error;

/// A place where verbs run: a class of the graph, a file server, the control thread, the API or
/// the command.
pub trait Place: Sized + 'static {
    /// The objects that a verb reaches.
    type At<'a>;
    /// Result of a verb with the answer `A`: a `Result`, or a task with one where verbs wait.
    type Done<A>;
    /// The same in the form that callers of all verbs receive.
    type Output;

    /// Runs a verb, which errors call `of`, unless its parameters are refused.
    fn execute<V: Verb<Self>>(of: &str, verb: Result<V, Error>, at: At<'_, Self>) -> Self::Output;

    /// Schema of the parameters `V` as callers give them: the place may take some of them itself.
    fn params_schema<V: JsonSchema>() -> Value {
        params_schema_of::<V>()
    }
}

/// The objects that a verb of the place `P` reaches.
pub type At<'a, P> = <P as Place>::At<'a>;

/// A verb of a class reaches the class and the graph.
impl<C: Class> Place for C {
    type At<'a> = (&'a C, &'a mut GraphControl);
    type Done<A> = Result<A, Error>;
    type Output = Result<Value, Error>;

    fn execute<V: Verb<C>>(of: &str, verb: Result<V, Error>, at: At<'_, C>) -> Self::Output {
        to_json(of, &verb?.run(at)?)
    }
}
