//! Login status: class and detail (RFC 7143 section 11.13.5).

/// Outcome of a login PDU. [`LoginStatus::code`] is class (high byte) and detail (low byte).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginStatus {
    /// Login continues.
    #[default]
    Success,
    /// The target has moved temporarily; TargetAddress has the new address.
    TargetMovedTemporarily,
    /// The target has moved permanently; TargetAddress has the new address.
    TargetMovedPermanently,
    InitiatorError,
    /// The initiator could not be authenticated.
    AuthenticationFailure,
    /// The initiator may not use this target.
    AuthorizationFailure,
    /// No such target.
    NotFound,
    TargetRemoved,
    /// No common protocol version.
    UnsupportedVersion,
    /// Too many connections on this session identifier.
    TooManyConnections,
    /// A parameter that must be given is missing.
    MissingParameter,
    /// The target does not support a session over this connection.
    CannotIncludeInSession,
    SessionTypeNotSupported,
    SessionDoesNotExist,
    InvalidDuringLogin,
    /// Hardware or software error of the target.
    TargetError,
    /// The service is not available now.
    ServiceUnavailable,
    OutOfResources,
    /// A code that is not in the RFC.
    Other(u16),
}

/// The table: status, code, plain words.
const TABLE: &[(LoginStatus, u16, &str)] = &[
    (LoginStatus::Success, 0x0000, "login continues"),
    (LoginStatus::TargetMovedTemporarily, 0x0101, "the target has moved for now"),
    (LoginStatus::TargetMovedPermanently, 0x0102, "the target has moved for good"),
    (LoginStatus::InitiatorError, 0x0200, "the initiator broke the login protocol"),
    (LoginStatus::AuthenticationFailure, 0x0201, "the initiator did not prove who it is"),
    (LoginStatus::AuthorizationFailure, 0x0202, "the initiator may not use this target"),
    (LoginStatus::NotFound, 0x0203, "there is no such target"),
    (LoginStatus::TargetRemoved, 0x0204, "the target was removed"),
    (LoginStatus::UnsupportedVersion, 0x0205, "the protocol version is not supported"),
    (LoginStatus::TooManyConnections, 0x0206, "the session has too many connections"),
    (LoginStatus::MissingParameter, 0x0207, "a required parameter is missing"),
    (LoginStatus::CannotIncludeInSession, 0x0208, "the connection cannot join the session"),
    (LoginStatus::SessionTypeNotSupported, 0x0209, "the session type is not supported"),
    (LoginStatus::SessionDoesNotExist, 0x020a, "the session does not exist"),
    (LoginStatus::InvalidDuringLogin, 0x020b, "the request is not valid during login"),
    (LoginStatus::TargetError, 0x0300, "the target failed"),
    (LoginStatus::ServiceUnavailable, 0x0301, "the service is not available now"),
    (LoginStatus::OutOfResources, 0x0302, "the target is out of resources"),
];

impl LoginStatus {
    /// Class in the high byte, detail in the low byte.
    pub fn code(self) -> u16 {
        if let LoginStatus::Other(code) = self {
            return code;
        }
        TABLE.iter().find(|(status, ..)| *status == self).map_or(0x0300, |(_, code, _)| *code)
    }

    /// The status of a code; codes outside the RFC are kept as [`LoginStatus::Other`].
    pub fn from_code(code: u16) -> LoginStatus {
        let found = TABLE.iter().find(|(_, c, _)| *c == code);
        found.map_or(LoginStatus::Other(code), |(status, ..)| *status)
    }

    /// Its meaning in plain words.
    pub fn reason(self) -> &'static str {
        let found = TABLE.iter().find(|(status, ..)| *status == self);
        found.map_or("a status outside the standard", |(.., words)| words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_status_codes_survive_decoding_and_encoding() {
        for (status, code, _) in TABLE {
            assert_eq!(status.code(), *code);
            assert_eq!(LoginStatus::from_code(*code), *status);
        }
        assert_eq!(LoginStatus::from_code(0x0999).code(), 0x0999);
        assert_eq!(LoginStatus::from_code(0x0207), LoginStatus::MissingParameter);
    }
}
