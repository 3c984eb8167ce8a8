"""Records of who may do what, and of what proves who one is."""

from typing import ClassVar

from metadata_log.records.value import Value
from metadata_log.types import (
    Int32,
    Int64,
)


class AclAdded(Value, frozen=True, gc=False, kw_only=True, tag=30):
    """/acls: one access control entry; one that is there already stays. Kafka's numbers."""

    resource_type: Int32
    pattern_type: Int32  # Literal or prefixed.
    resource_name: str  # "*": any.
    principal: str  # "User:alice"; "User:*": anyone.
    host: str  # "*": any.
    operation: Int32
    permission: Int32


class AclRemoved(Value, frozen=True, gc=False, kw_only=True, tag=31):
    """Removes the access control entry that is the same in everything, if there is one."""

    resource_type: Int32
    pattern_type: Int32
    resource_name: str
    principal: str
    host: str
    operation: Int32
    permission: Int32


class ScramCredential(Value, frozen=True, gc=False, kw_only=True):
    """What proves a password without being it (RFC 5802): neither the password nor what could take
    its place in a client is ever stored.
    """

    SECRETS: ClassVar[frozenset[str]] = frozenset({"salt", "stored_key", "server_key"})

    salt: bytes
    stored_key: bytes  # H(HMAC(salted password, "Client Key")).
    server_key: bytes  # HMAC(salted password, "Server Key").
    iterations: Int32  # Of the hash that made the salted password.


class ScramCredentialSet(Value, frozen=True, gc=False, kw_only=True, tag=33):
    """/scram/USER/MECHANISM: sets or replaces a user's credential."""

    user: str
    mechanism: Int32  # Kafka's number: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    credential: ScramCredential


class ScramCredentialRemoved(Value, frozen=True, gc=False, kw_only=True, tag=34):
    """The user can no longer authenticate by that mechanism."""

    user: str  # Must have such a credential.
    mechanism: Int32  # As in ScramCredentialSet.


class DelegationTokenSet(Value, frozen=True, gc=False, kw_only=True, tag=35):
    """/tokens/ID: a delegation token, new or renewed (KIP-48).

    Its secret is not here: brokers make it of the id and a key that their configuration alone has.
    """

    token_id: str
    owner: str  # "User:alice": whom it stands for.
    requester: str  # Who made it.
    renewers: tuple[str, ...]  # Who else may renew it and let it end.
    issue_ms: Int64  # Wall clock of the controller, ms since the epoch, as the others.
    expiry_ms: Int64  # It ends then, unless it is renewed.
    max_ms: Int64  # It is never renewed beyond.


class DelegationTokenRemoved(Value, frozen=True, gc=False, kw_only=True, tag=36):
    """The token is no more: it has ended, or was made to."""

    token_id: str  # One that is gone already makes this a no-op.
