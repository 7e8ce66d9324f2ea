//! Sessions whose next login fails by a change of accounts, digests, encryption or CA: the host
//! works on, and fails at its next reconnection.

use crate::api::SessionState;
use crate::config::{AccessConfig, Chap, DigestPolicy, TargetConfig};
use serde_json::Value;

/// Proof that a login requires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof<'c> {
    /// Nothing.
    None,
    /// That it knows the secret of this CHAP user.
    Chap(&'c str, &'c str),
    /// No login is accepted: others of its group have accounts, and it has none.
    Refused,
}

/// The accounts of a login.
struct Accounts<'c> {
    proof: Proof<'c>,
    /// The account by which the target proves itself to an initiator that requests it.
    mutual: Option<&'c Chap>,
}

impl<'c> Accounts<'c> {
    fn of(target: &'c TargetConfig, group: &'c AccessConfig, initiator: &str) -> Accounts<'c> {
        let own = group.initiator_chap.get(initiator).or(group.chap.as_ref());
        let proof = match (own, &target.chap) {
            (Some(own), _) => Proof::Chap(&own.user, &own.secret),
            (None, _) if !group.initiator_chap.is_empty() => Proof::Refused,
            (None, Some(common)) => Proof::Chap(&common.user, &common.secret),
            (None, None) => Proof::None,
        };
        let mutual = own.and_then(|own| own.mutual.as_ref()).or(target.mutual_chap.as_ref());
        Accounts { proof, mutual }
    }
}

/// Whether the session logged in as its target and group were, and could not as they become.
pub(super) fn is_locked_out(
    session: &SessionState,
    [(was_target, was_group), (target, group)]: [(&TargetConfig, &AccessConfig); 2],
) -> bool {
    let before = Accounts::of(was_target, was_group, &session.initiator);
    let after = Accounts::of(target, group, &session.initiator);
    let proof = after.proof != before.proof && after.proof != Proof::None
        || session.auth == "mutual chap" && after.mutual != before.mutual;
    let must = |policy| policy == DigestPolicy::Require;
    let digest = |was, is, has: bool| must(is) && !must(was) && !has;
    let digests = digest(was_target.header_digest, target.header_digest, session.digests.header)
        || digest(was_target.data_digest, target.data_digest, session.digests.data);
    let requires_tls = |t: &TargetConfig| text(t, "tls") == "require";
    let tls = requires_tls(target) && !requires_tls(was_target) && session.tls.is_none();
    proof || digests || tls || (session.tls.is_some() && has_new_client_ca(was_target, target))
}

/// Whether clients with TLS need a certificate of another CA than before. Which CA signed that of a
/// session is not known: it counts as the former one, or as none.
fn has_new_client_ca(was: &TargetConfig, is: &TargetConfig) -> bool {
    let ca = text(is, "tls_client_ca");
    !ca.is_empty() && ca != text(was, "tls_client_ca")
}

/// A parameter of a target, empty if it has none.
fn text<'t>(target: &'t TargetConfig, key: &str) -> &'t str {
    target.params.get(key).and_then(Value::as_str).unwrap_or_default()
}
