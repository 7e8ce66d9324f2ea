//! Members of declared geoms: `plan` refuses those that `apply` would refuse.

use mgmt::Consent;
use mgmt::api::{Error, Kind};
use mgmt::plan::Risk;
use serde_json::json;

use crate::by_hand::Site;

fn disk(name: &str, more: &str) -> String {
    format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '1MiB'\n{more}\n")
}

fn disks() -> String {
    ["d0", "d1", "d2", "d3"].map(|name| disk(name, "")).concat()
}

pub(crate) fn geom(class: &str, name: &str, members: [&str; 2]) -> String {
    format!("[[geom]]\nclass = '{class}'\nname = '{name}'\nmembers = {members:?}\n")
}

pub(crate) fn exported(provider: &str) -> String {
    format!(
        "[[target]]\ndriver = 'local'\nname = 'here'\n[[access]]\ntarget = 'here'\ngroup = 'g'\n\
         initiators = ['*']\nluns = {{ 0 = '{provider}' }}\n"
    )
}

/// The refusals that `plan` shows.
fn refusals(site: &Site, text: &str) -> Vec<String> {
    let plan = site.control.plan(&site.read(text)).expect("a plan");
    site.control.refused_steps(&plan).0
}

pub(crate) fn apply(site: &Site, text: &str, destroy: &[&str]) -> Result<(), Error> {
    let destroy = destroy.iter().map(|name| (*name).to_owned()).collect();
    let consent = Consent { destroy, ..Consent::default() };
    site.control.apply(&site.read(text), &consent, &mut |_| {}).map(drop)
}

/// Both refuse, for the same reason, and the answer has the next command.
pub(crate) fn refused(site: &Site, text: &str, (why, next): (&str, &str)) {
    let shown = refusals(site, text);
    assert!(shown.len() == 1 && shown[0].contains(why), "{shown:?}");
    let error = apply(site, text, &["m"]).expect_err("plan refused it");
    assert_eq!(error.kind, Kind::CannotCarryOut, "{error}");
    assert!(error.to_string().contains(next), "{error}");
}

#[test]
fn plan_refuses_a_member_that_stays_exported() {
    for class in ["stripe", "mirror", "multipath"] {
        let site = Site::new(&format!("exported-{class}"), &(disks() + &exported("d0")));
        let created = disks() + &geom(class, "m", ["d0", "d1"]);
        let says = ("group g of here exports d0 as LUN 0", "Remove LUN 0 from group g of here");
        refused(&site, &(created.clone() + &exported("d0")), says);
        // The same edit withdraws the LUN first.
        let moved = created + &exported(&format!("{class}/m"));
        assert_eq!(refusals(&site, &moved), [""; 0], "{class}");
        apply(&site, &moved, &[]).expect("the member is free by then");
    }
}

#[test]
fn plan_refuses_a_member_of_a_geom_that_stays() {
    let site = Site::new("used-member", &disks());
    site.verb("concat", "create", &json!({ "name": "c", "members": ["d0", "d1"] }));
    let created = disks() + &geom("mirror", "m", ["d0", "d2"]);
    refused(&site, &created, ("d0 is in use by concat c", "`ashlar concat stop c`"));
    site.verb("concat", "stop", &json!({ "names": ["c"] }));
    apply(&site, &created, &[]).expect("it is free");
    let other = disks() + &geom("stripe", "s", ["d1", "d3"]);
    assert_eq!(refusals(&site, &other), [""; 0]);
    apply(&site, &other, &[]).expect("the mirror is removed");
    // The same edit removes the geom that has it.
    let taken = disks() + &geom("concat", "k", ["d1", "d3"]);
    assert_eq!(refusals(&site, &taken), [""; 0]);
    apply(&site, &taken, &["k"]).expect("the stripe is removed first");
}

#[test]
fn plan_refuses_a_read_only_member() {
    let both = disk("d0", "read_only = true") + &disk("d1", "");
    let created = both.clone() + &geom("mirror", "m", ["d1", "d0"]);
    let says = ("d0 is read-only", "Make d0 writable");
    let site = Site::new("read-only-member", &both);
    refused(&site, &created, says);
    // The disk is made by the same plan.
    let site = Site::launched("read-only-planned");
    refused(&site, &created, says);
}

#[test]
fn plan_refuses_paths_that_lead_to_different_disks() {
    let both = disk("d0", "serial = 'serial-1'") + &disk("d1", "serial = 'serial-2'");
    let site = Site::new("other-paths", &both);
    let created = both.clone() + &geom("multipath", "m", ["d0", "d1"]);
    refused(&site, &created, ("d1 leads to another disk than d0", "ashlar"));
    let site = Site::launched("other-paths-planned");
    apply(&site, &created, &[]).expect_err("before anything is written");
}

#[test]
fn plan_refuses_the_name_of_a_stopped_mirror_on_other_disks() {
    let site = Site::new("stopped-name", &(disks() + &geom("mirror", "m", ["d0", "d1"])));
    apply(&site, &disks(), &[]).expect("removed, with its records");
    let other = disks() + &geom("mirror", "m", ["d2", "d3"]);
    refused(&site, &other, ("has records on d0, d1", "`ashlar mirror clear d0 d1`"));
    let back = disks() + &geom("mirror", "m", ["d1", "d2"]);
    assert_eq!(refusals(&site, &back), [""; 0], "it names one of them");
    site.verb("mirror", "clear", &json!({ "members": ["d0", "d1"] }));
    apply(&site, &other, &["m"]).expect("the former records are gone");
}

/// The state folder knows the members that the name had.
/// W2 of geom_layouts.rs, W5 of geom_layouts.rs.
#[test]
fn plan_shows_that_a_mirror_of_a_known_name_would_be_empty() {
    let file = |name: &str| {
        format!(
            "[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{name}.img'\nsize = '1MiB'\n\
             create = true\n"
        )
    };
    let mirror = |one: &str, two: &str| file(one) + &file(two) + &geom("mirror", "m", [one, two]);
    let site = Site::new("known-name", &mirror("f0", "f1"));
    apply(&site, "", &[]).expect("all is removed");
    for name in ["f2.img", "f3.img"] {
        let image = std::fs::File::create(site.folder.join(name)).expect("an image");
        image.set_len(1 << 20).expect("its size");
    }
    let plan = site.control.plan(&site.read(&mirror("f2", "f3"))).expect("a plan");
    let step = plan.steps.iter().find(|step| step.action.geom().is_some()).expect("the mirror");
    assert_eq!(step.risk, Risk::Destroys, "{step:?}");
    assert!(step.why.contains("members were f0"), "{step:?}");
    let again = site.control.plan(&site.read(&mirror("f0", "f1"))).expect("a plan");
    assert!(again.steps.iter().all(|step| step.risk == Risk::Safe), "{:?}", again.steps);
}

/// Also when only a deactivated member of the stopped mirror is named.
#[test]
fn declared_mirror_is_found_again_by_a_deactivated_member() {
    let both = disks() + &geom("mirror", "m", ["d0", "d1"]);
    let site = Site::new("found-inactive", &both);
    site.verb("mirror", "deactivate", &json!({ "name": "m", "members": ["d0"] }));
    apply(&site, &disks(), &[]).expect("it is stopped");
    let one = disks() + "[[geom]]\nclass = 'mirror'\nname = 'm'\nmembers = ['d0']\n";
    assert_eq!(refusals(&site, &one), [""; 0]);
    apply(&site, &one, &[]).expect("d0 has a record of it");
}
