"""Identities of voters, brokers and administrators, and what each of them may do.

The certificate holds the identity: ``voter-1.quorate`` and ``voter.quorate`` among its DNS names
make its holder voter 1, wherever it runs. Host names and addresses prove nothing and are not looked
at.
"""

import re
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from quorate.common.configuration import ConfigError
from quorate.common.types import BrokerId

_BROKER_NAME: Final = re.compile(r"broker-(\d{1,10})\.quorate")


class SecurityError(ConfigError):
    """Certificates cannot be used; the message names key, file, and what to do."""


class Role(StrEnum):
    """The role of a certificate's holder in the cluster."""

    VOTER = "voter"
    BROKER = "broker"
    ADMIN = "admin"


def role_name(role: Role) -> str:
    """Return the name that every certificate of that role carries: ``voter.quorate``."""
    return f"{role}.quorate"


def node_name(role: Role, node_id: int) -> str:
    """Return the name that one node's certificate carries: ``voter-1.quorate``."""
    return f"{role}-{node_id}.quorate"


class Principal(msgspec.Struct, frozen=True):
    """The holder named by a certificate that the cluster's authority has signed."""

    names: frozenset[str]
    """DNS names of the certificate."""
    common_name: str = ""

    def __str__(self) -> str:
        ours = sorted(name for name in self.names if name.endswith(".quorate"))
        return f"{', '.join(ours) or 'no name of the cluster'} (CN={self.common_name})"

    def has_role(self, role: Role) -> bool:
        return role_name(role) in self.names

    def is_node(self, role: Role, node_id: int) -> bool:
        return self.has_role(role) and node_name(role, node_id) in self.names


@lru_cache(maxsize=1024)
def broker_of(principal: Principal) -> BrokerId | None:
    """Return the broker that a certificate names, or None unless it names exactly one broker."""
    found = [int(match[1]) for name in principal.names if (match := _BROKER_NAME.fullmatch(name))]
    if len(found) != 1 or not principal.is_node(Role.BROKER, found[0]):
        return None
    return BrokerId(found[0])


CLIENT_METHODS: Final = frozenset(
    {
        "OpenSession",
        "CloseSession",
        "KeepAlive",
        "Transact",
        "Read",
        "Watch",
        "QuorumStatus",
    }
)
"""RPCs of the quorum's service that brokers need. They may call no other one, known or to come:
adding and removing voters, moving the leadership.
"""

VOTER_METHODS: Final = frozenset(
    {
        "OpenSession",
        "CloseSession",
        "Read",
        "QuorumStatus",
        "RemoveVoter",
        "TransferLeadership",
    }
)
"""RPCs of the quorum's service that a voter calls: what it passes on to the leader, and status."""


def may_call(principal: Principal, method: str) -> bool:
    """Return whether the holder of that certificate may call that RPC (its bare name)."""
    if principal.has_role(Role.ADMIN):
        return True
    if method in VOTER_METHODS and principal.has_role(Role.VOTER):
        return True
    return method in CLIENT_METHODS and broker_of(principal) is not None


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """The certificates and the private key of one process, and the authority that it trusts.
    ``load_security`` makes it.
    """

    keystore: Path
    truststore: Path
    private_key: bytes
    """The private key in PEM."""
    chain: bytes
    """The process's own certificate, then those that lead from it to the authority, in PEM."""
    authority: bytes
    """The authority's certificates in PEM."""
    principal: Principal
