//! Verbs that the daemon carries out itself: they need more of it than the graph, which is all that
//! a verb of a class reaches. Each is one file here and one line of [`VERBS`].

mod alua_set;
mod cam_attach;
mod local;
mod local_attach;
mod local_detach;
mod lun_clear_reservations;
mod lun_eject;
mod lun_forget_name;
mod lun_load;
mod sessions_end;

pub(crate) use cam_attach::bus_of_attach;

use std::sync::LazyLock;

use cam::{CAM_CLASS, CamClass};
use engine::lun::CLASS as LUN_CLASS;
use geom::{ListedVerb, Place, Verb, VerbSpec};
use mgmt::api::{Error, Kind, Result};
use serde_json::Value;

use crate::control_loop::ControlLoop;
use crate::errors::from_geom;

/// A verb of the daemon reaches everything that the control thread has. The example of a verb
/// begins with its class unless a command of another name calls the verb.
impl Place for ControlLoop {
    type At<'a> = &'a mut ControlLoop;
    type Done<A> = Result<A>;
    type Output = Result<Value>;

    fn execute<V: Verb<ControlLoop>>(
        op: &str,
        verb: std::result::Result<V, geom::Error>,
        at: &mut ControlLoop,
    ) -> Result<Value> {
        let answer = verb.map_err(|e| from_geom(op, "", e))?.run(at)?;
        serde_json::to_value(answer).map_err(|e| Error::new(Kind::Internal, op, e))
    }
}

/// Every verb of the daemon, with the class that is typed before it.
const VERBS: &[(&str, ListedVerb<ControlLoop>)] = &[
    ("alua", ListedVerb::of::<alua_set::AluaSet>()),
    (CAM_CLASS, ListedVerb::of::<cam_attach::CamAttach>()),
    ("local", ListedVerb::of::<local_attach::LocalAttach>()),
    ("local", ListedVerb::of::<local_detach::LocalDetach>()),
    (LUN_CLASS, ListedVerb::of::<lun_clear_reservations::ClearReservations>()),
    (LUN_CLASS, ListedVerb::of::<lun_eject::Eject>()),
    (LUN_CLASS, ListedVerb::of::<lun_forget_name::ForgetName>()),
    (LUN_CLASS, ListedVerb::of::<lun_load::Load>()),
    ("sessions", ListedVerb::of::<sessions_end::SessionsEnd>()),
];

/// The verb of that name.
pub(crate) fn find(class: &str, name: &str) -> Option<&'static ListedVerb<ControlLoop>> {
    of_class(class).find(|verb| verb.name == name)
}

/// The verbs that are typed after a class.
fn of_class(class: &str) -> impl Iterator<Item = &'static ListedVerb<ControlLoop>> {
    VERBS.iter().filter(move |(of, _)| *of == class).map(|(_, verb)| verb)
}

/// The names of the verbs that are typed after a class.
pub(crate) fn names(class: &str) -> Vec<&'static str> {
    of_class(class).map(|verb| verb.name).collect()
}

/// Verbs of the command `cam`: those of the class; a verb of the daemon replaces one with its name.
pub(crate) fn cam_specs() -> &'static [VerbSpec] {
    static ALL: LazyLock<Vec<VerbSpec>> = LazyLock::new(|| {
        let typed = |spec: &VerbSpec| find(CAM_CLASS, spec.name).map_or(*spec, |own| (own.spec)());
        CamClass::specs().iter().map(typed).collect()
    });
    &ALL
}

/// Verbs of the command `lun`: those that no other command calls.
pub(crate) fn lun_specs() -> &'static [VerbSpec] {
    static ALL: LazyLock<Vec<VerbSpec>> = LazyLock::new(|| {
        let all = of_class(LUN_CLASS).map(|verb| (verb.spec)());
        all.filter(|spec| spec.example.split(' ').next() == Some(LUN_CLASS)).collect()
    });
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_help_an_example_and_a_name_of_its_own() {
        for (at, (class, verb)) in VERBS.iter().enumerate() {
            let (called, spec) = (format!("{class} {}", verb.name), (verb.spec)());
            assert!(VERBS[at + 1..].iter().all(|(of, v)| (of, v.name) != (class, verb.name)));
            assert!(!spec.doc.is_empty() && !spec.example.is_empty(), "{called}");
            for arg in spec.args {
                assert!(!arg.doc.is_empty(), "{called}: {} has no text", arg.name);
            }
        }
    }

    #[test]
    fn command_of_a_class_has_its_verbs_in_order_and_those_of_the_daemon() {
        let names = |specs: &[VerbSpec]| specs.iter().map(|spec| spec.name).collect::<Vec<_>>();
        assert_eq!(names(cam_specs()), names(CamClass::specs()));
        let attach = cam_specs().iter().find(|spec| spec.name == "attach");
        let args: Vec<_> = attach.iter().flat_map(|spec| spec.args).map(|arg| arg.name).collect();
        assert_eq!(args, ["name", "params"]);
        assert_eq!(names(lun_specs()), ["forget-name"]);
    }
}
