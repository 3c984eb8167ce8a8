"""The members of one group, and what they have in common.

A *static* member has an instance id, and keeps its place while its process restarts under another
member id (KIP-345). A *pending* member id was given out and has not been used to join yet.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from broker.coordinator.groups.effects import JoinedMember, JoinRequest, Token

NEVER_MS: Final = 1 << 62


class Member:
    """Mutable, because it changes with every heartbeat."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[tuple[str, bytes], ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.deadline_ms = NEVER_MS
        """Silent until then, it is taken for dead; a member that waits for an answer is not."""
        self.is_new = False
        """It has not been told yet that it was let in: nobody knows whether it is still there."""
        self.joining: Token | None = None
        self.syncing: Token | None = None

    @classmethod
    def of(cls, request: JoinRequest, member_id: str) -> "Member":
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
        )

    @property
    def is_static(self) -> bool:
        """Whether it may come back under its instance id without a rebalance (KIP-345)."""
        return self.instance_id is not None

    @property
    def waits(self) -> bool:
        """Whether a request of it is unanswered: so it is alive."""
        return self.joining is not None or self.syncing is not None

    @property
    def protocol_names(self) -> frozenset[str]:
        """What it supports; nobody keeps a client from saying one of them twice."""
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        """Its subscription under that protocol; empty if it does not support it."""
        return dict(self.protocols).get(protocol_name, b"")

    def prefers(self, candidates: Iterable[str]) -> str:
        """What it likes best of what all members support."""
        allowed = frozenset(candidates)
        return next(name for name, _ in self.protocols if name in allowed)


class Members:
    """Those of one group, in the order in which they came."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self.leader_id = ""
        self.pending: dict[str, int] = {}
        """Member id given out → until when it may be used."""
        self._joining = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> Member | None:
        """None: that member id is not, or no longer, one of the group."""
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> Member | None:
        """The member of that instance id."""
        return self._by_id.get(self._static_ids.get(instance_id or "", ""))

    @property
    def leader(self) -> Member | None:
        """Who assigns partitions; None: nobody yet."""
        return self._by_id.get(self.leader_id)

    @property
    def all_joining(self) -> bool:
        """Whether everybody, those with a pending id included, has asked to join."""
        return self._joining == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks the others to wait for it."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member) -> None:
        """The first one leads."""
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        self._supporters.update(member.protocol_names)
        if not self.leader_id:
            self.leader_id = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        """If it led, another leads."""
        self.stop_joining(member)
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            self._static_ids.pop(member.instance_id, None)
        self._supporters.subtract(member.protocol_names)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """A static member has come back under another id, and keeps its place."""
        renamed = {
            member_id if known == member.member_id else known: each
            for known, each in self._by_id.items()
        }
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        member.member_id = member_id
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member_id
        self._by_id = renamed

    def update(self, member: Member, request: JoinRequest) -> None:
        """It asks to join again, perhaps with another subscription."""
        self._supporters.subtract(member.protocol_names)
        member.protocols = request.protocols
        self._supporters.update(member.protocol_names)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host

    def start_joining(self, member: Member, token: Token) -> None:
        """From now on it waits for the answer to that request."""
        if member.joining is None:
            self._joining += 1
        member.joining = token

    def stop_joining(self, member: Member) -> None:
        """The request is answered, or given up."""
        if member.joining is not None:
            self._joining -= 1
            member.joining = None

    def supports_any(self, names: Iterable[str], *, without: Member | None = None) -> bool:
        """Whether everybody (``without`` one of them) supports one of those protocols."""
        others = len(self._by_id) - (without is not None)
        own = frozenset[str]() if without is None else without.protocol_names
        return others == 0 or any(
            self._supporters[name] - (name in own) == others for name in names
        )

    def elect_protocol(self) -> str:
        """What most members like best of what all of them support; the leader breaks ties."""
        count = len(self._by_id)
        candidates = [name for name, supporters in self._supporters.items() if supporters == count]
        votes = Counter(member.prefers(candidates) for member in self)
        most = max(votes.values())
        leader = self.leader or next(iter(self))
        return leader.prefers(name for name, got in votes.items() if got == most)

    def elect_joined_leader(self) -> None:
        """A leader that has not joined again gives way to a member that has."""
        leader = self.leader
        if leader is None or leader.joining is None:
            joined = (member.member_id for member in self if member.joining is not None)
            self.leader_id = next(joined, self.leader_id)

    def as_leader_sees(self, protocol_name: str) -> tuple[JoinedMember, ...]:
        """All of them, with what each said under that protocol."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self
        )
