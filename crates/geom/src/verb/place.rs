//! Places where verbs run, with the objects that a verb reaches there and its type of errors.

use crate::class::Class;
use crate::control::GraphControl;
use crate::error::Error;

/// A place where verbs run: a class of the graph, the control thread, the API or the command.
pub trait Place: 'static {
    /// The objects that a verb reaches.
    type At<'a>;
    /// Error of a verb.
    type Error;
}

/// The objects that a verb of the place `P` reaches.
pub type At<'a, P> = <P as Place>::At<'a>;

/// A verb of a class reaches the class and the graph.
impl<C: Class> Place for C {
    type At<'a> = (&'a C, &'a mut GraphControl);
    type Error = Error;
}
