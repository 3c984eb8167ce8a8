"""Delegation tokens (KIP-48)."""

import base64
from dataclasses import dataclass, field

from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token. Times are milliseconds since the epoch.

    ``hmac`` is its secret, empty for somebody else's token. ``password`` is the secret in the form
    with which clients authenticate: SCRAM with the user name ``token_id`` and the extension
    ``tokenauth=true``.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(default=b"", repr=False)

    @classmethod
    def from_proto(cls, token: admin_pb2.DelegationToken, hmac: bytes) -> "DelegationToken":
        return cls(
            token_id=token.token_id,
            owner=token.owner,
            requester=token.requester,
            renewers=tuple(token.renewers),
            issue_ms=token.issue_ms,
            expiry_ms=token.expiry_ms,
            max_ms=token.max_ms,
            hmac=hmac,
        )

    @property
    def password(self) -> str:
        return base64.b64encode(self.hmac).decode()
