"""Records of access control entries, SCRAM credentials and delegation tokens."""

from typing import ClassVar

from quorate.common.types import Int32, Int64
from quorate.metadata_log.records.value import MetadataValue


class AclAdded(MetadataValue, frozen=True, gc=False, kw_only=True, tag=30):
    """/acls: adds one access control entry, unless it exists. The numbers are Kafka's."""

    resource_type: Int32
    pattern_type: Int32  # Literal or prefixed.
    resource_name: str  # "*" means any.
    principal: str  # "User:alice"; "User:*" means anyone.
    host: str  # "*" means any.
    operation: Int32
    permission: Int32


class AclRemoved(MetadataValue, frozen=True, gc=False, kw_only=True, tag=31):
    """Removes the access control entry with exactly these fields, if it exists."""

    resource_type: Int32
    pattern_type: Int32
    resource_name: str
    principal: str
    host: str
    operation: Int32
    permission: Int32


class ScramCredential(MetadataValue, frozen=True, gc=False, kw_only=True):
    """Verifies a password without containing it (RFC 5802).

    Neither the password, nor anything that a client could use in its place, is ever stored.
    """

    SECRETS: ClassVar[frozenset[str]] = frozenset({"salt", "stored_key", "server_key"})

    salt: bytes
    stored_key: bytes  # H(HMAC(salted password, "Client Key")).
    server_key: bytes  # HMAC(salted password, "Server Key").
    iterations: Int32  # Iterations of the hash that made the salted password.


class ScramCredentialSet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=33):
    """/scram/USER/MECHANISM: sets or replaces a user's credential."""

    user: str
    mechanism: Int32  # Kafka's number: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    credential: ScramCredential


class ScramCredentialRemoved(MetadataValue, frozen=True, gc=False, kw_only=True, tag=34):
    """The user can no longer authenticate by that mechanism."""

    user: str  # Must have such a credential.
    mechanism: Int32  # As in ScramCredentialSet.


class ScramDecoyKeySet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=42):
    """Sets the key from which brokers make the credentials of users who do not exist.

    It is written once. With another key a client would see who does not exist.
    """

    SECRETS: ClassVar[frozenset[str]] = frozenset({"key"})

    key: bytes  # Random; whoever has it can tell users who do not exist from real ones.


class DelegationTokenSet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=35):
    """/tokens/ID: a delegation token, new or renewed (KIP-48).

    Its secret is not stored: brokers derive it from the id and a key that only their configuration
    has.
    """

    token_id: str
    owner: str  # The principal that the token stands for: "User:alice".
    requester: str  # The principal that created it.
    renewers: tuple[str, ...]  # Other principals that may renew and end it.
    issue_ms: Int64  # The controller's wall clock, ms since the epoch, as all times here.
    expiry_ms: Int64  # The token ends then, unless it is renewed.
    max_ms: Int64  # The token is never renewed beyond this time.


class DelegationTokenRemoved(MetadataValue, frozen=True, gc=False, kw_only=True, tag=36):
    """Removes a token that has expired or was ended."""

    token_id: str  # A token that is gone makes this a no-op.
