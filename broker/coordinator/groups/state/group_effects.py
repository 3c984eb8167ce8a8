"""The requests and the effects of a group. The shell carries out effects in order."""

from typing import Final, NamedTuple

from quorate_proto.v1 import errors_pb2

NO_GENERATION: Final = -1
NOBODY: Final = ""
"""A member id that no member has."""

Token = int
"""Identifies a request that waits for its answer; the shell assigns it."""


class JoinRequest(NamedTuple):
    """A member, or a client that wants to become one, asks to take part in the next generation.

    ``protocols`` has each assignment strategy with the member's subscription, the preferred one
    first. ``new_member_id`` becomes the member id if the client has none yet. ``needs_known_id``
    says that the client understands MEMBER_ID_REQUIRED (KIP-394). ``can_skip_assignment`` is
    KIP-814.
    """

    token: Token
    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_id: bool = True
    can_skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A member asks for its assignment; the group leader sends the assignments of all members.

    The protocol type and name are None if the client does not send them.
    """

    token: Token
    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Leaver(NamedTuple):
    """A member that is to leave: it is named by member id, by instance id, or by both."""

    member_id: str
    instance_id: str | None = None


class JoinedMember(NamedTuple):
    """A member in the form in which the group leader receives it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The answer to a join; only the group leader receives ``members``."""

    error_code: int
    member_id: str = NOBODY
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NOBODY
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Reply(NamedTuple):
    """Answer the request with that token."""

    token: Token
    answer: JoinAnswer | SyncAnswer


class Persist(NamedTuple):
    """Write the present state of the group to the log, then report the outcome under
    ``attempt``."""

    attempt: int


GroupEffect = Reply | Persist

NOTHING: Final[tuple[GroupEffect, ...]] = ()


def joining_failed(token: Token, error_code: int, member_id: str = NOBODY) -> Reply:
    """Return the reply to a refused join. ``member_id`` is the id with which the client should
    retry."""
    return Reply(token, JoinAnswer(error_code, member_id))


def syncing_failed(token: Token, error_code: int) -> Reply:
    """Return the reply to a refused sync."""
    return Reply(token, SyncAnswer(error_code))


OK: Final = errors_pb2.NONE
