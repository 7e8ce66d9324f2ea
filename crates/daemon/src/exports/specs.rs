//! Conversion of the configuration to specifications of the registry and the drivers.

use std::collections::{BTreeMap, BTreeSet};

use drivers::TargetSpec;
use engine::alua::{AccessState, PortGroupSpec};
use engine::ids::ConfiguredIds;
use engine::lun::OpenSpec;
use engine::registry::Addressing;
use engine::{Account, ChapAccounts, GroupAuth, GroupSpec, LunSpec, ProtectionSpec};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{
    AccessConfig, AluaConfig, AluaState, Chap, Config, DigestPolicy, DiskConfig, InitiatorChap,
    LunAddressing, LunConfig, LunMode, SOCKET_PATH_MAX, TargetConfig, UnitConfig, UnitHandler,
    UnitProtection, secret,
};
use reactor::Address;
use wire::scsi::{ProtectionType, parse_eui64, parse_naa, parse_uuid};

// The path of a socket that the configuration accepts can be bound.
const _: () = assert!(SOCKET_PATH_MAX == reactor::UNIX_PATH_MAX);

/// Every provider that some LUN needs, and how its unit is shown; of `only` these when given. Names
/// that are configured are shown as they were written, those of a disk too.
pub fn units_of<'c>(
    groups: impl Iterator<Item = &'c AccessConfig>,
    (units, disks): (&[UnitConfig], &[DiskConfig]),
    only: Option<&BTreeSet<&str>>,
) -> BTreeMap<String, OpenSpec> {
    let mut out: BTreeMap<String, OpenSpec> = BTreeMap::new();
    let wanted = |lun: &&LunConfig| only.is_none_or(|o| o.contains(lun.provider.as_str()));
    for lun in groups.flat_map(|g| g.luns.values()).filter(wanted) {
        let spec = out.entry(lun.provider.clone()).or_default();
        if spec.serial.is_none() {
            spec.serial.clone_from(&lun.serial);
        }
    }
    for unit in units {
        let Some(spec) = out.get_mut(&unit.provider) else { continue };
        *spec = OpenSpec {
            serial: unit.serial.clone().or(spec.serial.take()),
            configured_ids: given([&unit.naa, &unit.uuid, &unit.eui64].map(Option::as_deref)),
            read_only: unit.read_only,
            handler: Some(unit.handler.name().into()),
            removable: unit.removable,
            sanitize: unit.sanitize,
            write_same_to_end: unit.write_same_to_end,
            full_percents: unit.thresholds.clone(),
            protection: protection_of(unit.protection),
            write_cache: unit.write_cache,
            vendor: unit.vendor.clone(),
            product: unit.product.clone(),
            revision: unit.revision.clone(),
        };
    }
    for disk in disks {
        let Some(spec) = out.get_mut(&disk.name) else { continue };
        let text = |key: &str| {
            let text = disk.params.get(key).and_then(serde_json::Value::as_str);
            text.filter(|text| !text.is_empty())
        };
        spec.serial = spec.serial.take().or_else(|| text("serial").map(str::to_owned));
        let own = given([text("naa"), text("uuid"), text("eui64")]);
        spec.configured_ids = ConfiguredIds {
            naa: spec.configured_ids.naa.or(own.naa),
            uuid: spec.configured_ids.uuid.or(own.uuid),
            eui64: spec.configured_ids.eui64.or(own.eui64),
        };
    }
    out
}

/// An NAA name, a UUID and an EUI-64 that passed `config::check`.
fn given([naa, uuid, eui64]: [Option<&str>; 3]) -> ConfiguredIds {
    ConfiguredIds {
        naa: naa.and_then(|text| parse_naa(text).ok()),
        uuid: uuid.and_then(|text| parse_uuid(text).ok()),
        eui64: eui64.and_then(|text| parse_eui64(text).ok()),
    }
}

/// Providers that initiators can write by a configuration.
pub fn lent(config: &Config) -> BTreeSet<String> {
    let is_read = |u: &&UnitConfig| u.read_only || u.handler == UnitHandler::Cdrom;
    let read: BTreeSet<&str> =
        config.unit.iter().filter(is_read).map(|u| u.provider.as_str()).collect();
    let names = config.access.iter().flat_map(|a| a.luns.values()).map(|l| l.provider.as_str());
    names.filter(|name| !read.contains(name)).map(str::to_owned).collect()
}

pub(super) fn protection_of(config: UnitProtection) -> ProtectionSpec {
    match config {
        UnitProtection::None => ProtectionSpec::Off,
        UnitProtection::Unformatted => ProtectionSpec::Unformatted,
        UnitProtection::Type1 => ProtectionSpec::Type(ProtectionType::One),
        UnitProtection::Type2 => ProtectionSpec::Type(ProtectionType::Two),
        UnitProtection::Type3 => ProtectionSpec::Type(ProtectionType::Three),
    }
}

pub(super) fn port_group(config: &AluaConfig, state: AluaState) -> PortGroupSpec {
    PortGroupSpec {
        name: config.name.clone(),
        id: config.id,
        state: access_state(state),
        preferred: config.preferred,
        explicit: config.explicit,
    }
}

pub(super) fn access_state(state: AluaState) -> AccessState {
    match state {
        AluaState::Optimized => AccessState::Optimized,
        AluaState::NonOptimized => AccessState::NonOptimized,
        AluaState::Standby => AccessState::Standby,
        AluaState::Unavailable => AccessState::Unavailable,
        AluaState::Offline => AccessState::Offline,
    }
}

pub(super) fn addressing(config: LunAddressing) -> Addressing {
    match config {
        LunAddressing::Peripheral => Addressing::Peripheral,
        LunAddressing::Flat => Addressing::Flat,
        LunAddressing::Extended => Addressing::Extended,
    }
}

/// Whether the secrets of a group can be read.
///
/// # Errors
/// Those of [`secret::resolve`].
pub fn judge_group(access: &AccessConfig) -> Result<()> {
    proofs(access).map(drop)
}

pub(super) fn group_spec(access: &AccessConfig) -> Result<GroupSpec> {
    Ok(GroupSpec {
        name: access.group.clone(),
        initiators: access.initiators.clone(),
        portals: access.portals.clone(),
        addressing: addressing(access.addressing),
        auth: proofs(access)?,
        luns: access.luns.iter().map(|(number, lun)| lun_spec(*number, lun)).collect(),
        read_only_reserves: access.read_only_reserves,
        cold_resets_target: access.cold_resets_target,
        awaited: Vec::new(),
    })
}

/// The accounts of a group, with their secrets.
fn proofs(access: &AccessConfig) -> Result<GroupAuth> {
    let mut out = GroupAuth::default();
    for (initiator, chap) in access.accounts() {
        let proof = proof(chap).map_err(|e| {
            let at = format!("{}/{}: {}", access.target, access.group, e.at);
            e.at(at)
        })?;
        match initiator {
            None => out.group = Some(proof),
            // `config::read` has folded the name.
            Some(name) => drop(out.initiators.insert(name.to_owned(), proof)),
        }
    }
    Ok(out)
}

fn proof(chap: &InitiatorChap) -> Result<ChapAccounts> {
    let secret = secret::resolve(&chap.secret)?;
    let mutual = account(&chap.mutual)?;
    for bytes in [Some(&secret), mutual.as_ref().map(|m| &m.secret)].into_iter().flatten() {
        if bytes.len() < secret::CHAP_BYTES_MIN {
            let (has, least) = (bytes.len(), secret::CHAP_BYTES_MIN);
            let why = format!("a secret has {has} bytes: it needs at least {least}");
            let error = Error::new(Kind::Secret, "read secret", why).at(&chap.user);
            return Err(error.next("head -c 18 /dev/urandom | base64 > FILE && chmod 600 FILE"));
        }
    }
    if mutual.as_ref().is_some_and(|m| m.secret == secret) {
        let why = "the initiator and the target have the same secret (RFC 7143 9.2.1 forbids it)";
        let error = Error::new(Kind::Secret, "read secret", why).at(&chap.user);
        return Err(error.next("Give `mutual` another secret."));
    }
    Ok(ChapAccounts { account: Account { user: chap.user.clone(), secret }, mutual })
}

pub(super) fn lun_spec(number: u64, lun: &LunConfig) -> LunSpec {
    LunSpec { lun: number, device: lun.provider.clone(), read_only: lun.mode == LunMode::Ro }
}

pub(super) fn target_spec(config: &TargetConfig) -> Result<TargetSpec> {
    let mut listen = Vec::new();
    for text in &config.listen {
        let bad = |why: String| {
            let error = Error::new(Kind::ConfigValue, "create target", why).at(&config.name);
            error.next("Write `listen = [\"ADDRESS:PORT\"]`, for instance \"0.0.0.0:3260\".")
        };
        if let Some(other) = Address::parse_unix(text).or_else(|| Address::parse_ether(text)) {
            listen.push(other);
            continue;
        }
        let found = bio::socket_addresses(text);
        let found = found.map_err(|e| bad(format!("listen {text:?}: {e}")))?;
        if found.is_empty() {
            return Err(bad(format!("listen {text:?}: no such address")));
        }
        listen.extend(found.into_iter().take(1).map(Address::Inet));
    }
    let policy = |p: DigestPolicy| match p {
        DigestPolicy::Off => drivers::DigestPolicy::Off,
        DigestPolicy::Allow => drivers::DigestPolicy::Allow,
        DigestPolicy::Require => drivers::DigestPolicy::Require,
    };
    Ok(TargetSpec {
        name: config.name.clone(),
        listen,
        chap: account(&config.chap)?,
        mutual_chap: account(&config.mutual_chap)?,
        discovery_chap: account(&config.discovery_chap)?,
        header_digest: policy(config.header_digest),
        data_digest: policy(config.data_digest),
        params: serde_json::Value::Object(config.params.clone()),
    })
}

pub(super) fn account(chap: &Option<Chap>) -> Result<Option<Account>> {
    let Some(chap) = chap else { return Ok(None) };
    let secret = secret::resolve(&chap.secret)?;
    Ok(Some(Account { user: chap.user.clone(), secret }))
}
