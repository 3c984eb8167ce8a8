"""What a group is told, and what it wants done. The shell carries effects out in order."""

from typing import Final, NamedTuple

from quorate_proto.v1 import errors_pb2

NO_GENERATION: Final = -1
NOBODY: Final = ""
"""A member id that no member has."""

Token = int
"""A request that waits for its answer; given out by the shell."""


class JoinRequest(NamedTuple):
    """A member, or who wants to be one, asks to take part in the next generation.

    ``protocols``: assignment strategy → the member's subscription, what it likes best first.
    ``new_member_id``: what it is called if it has no id yet. ``needs_known_id``: it understands
    MEMBER_ID_REQUIRED (KIP-394). ``can_skip_assignment``: KIP-814.
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
    """A member asks for its assignment; the leader brings everybody's. None: it does not say."""

    token: Token
    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Leaver(NamedTuple):
    """Who is to leave: by member id, by instance id, or both."""

    member_id: str
    instance_id: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """``members`` for the leader alone."""

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
    """The request of that token is answered."""

    token: Token
    answer: JoinAnswer | SyncAnswer


class Persist(NamedTuple):
    """Write the group as it is now to the log, then report the outcome under ``attempt``."""

    attempt: int


Effect = Reply | Persist

NOTHING: Final[tuple[Effect, ...]] = ()


def joining_failed(token: Token, error_code: int, member_id: str = NOBODY) -> Reply:
    """``error_code``: Kafka's. ``member_id``: what the client is to come back with."""
    return Reply(token, JoinAnswer(error_code, member_id))


def syncing_failed(token: Token, error_code: int) -> Reply:
    """``error_code``: Kafka's."""
    return Reply(token, SyncAnswer(error_code))


OK: Final = errors_pb2.NONE
