"""The members of one group, and what they have in common.

A *static* member has an instance id, and keeps its place while its process restarts under another
member id (KIP-345). A *pending* member id was given out and has not been used to join yet.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from quorate.broker.coordinator.groups.state.group_effects import JoinedMember, JoinRequest, Token

NEVER_MS: Final = 1 << 62


class Member:
    """One member. It is mutable, because it changes with every heartbeat."""

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
        is_new: bool = False,
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
        """The time at which a silent member is removed; one that waits for an answer is not
        removed."""
        self.is_new = is_new
        """True until the member has been told that it was accepted; it is not known whether it is
        alive."""
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
            is_new=True,
        )

    def rename(self, member_id: str) -> None:
        """Take the new member id of a static member that came back."""
        self.member_id = member_id

    def update(self, request: JoinRequest) -> None:
        """Take the subscription and the timeouts of another join."""
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.client_id, self.client_host = request.client_id, request.client_host

    def accepted(self) -> None:
        """Record that the member is told that it was accepted."""
        self.is_new = False

    def expire_at(self, deadline_ms: int) -> None:
        """Set the time at which the member is removed if it stays silent."""
        self.deadline_ms = deadline_ms

    def assign(self, assignment: bytes) -> None:
        """Take the assignment of the present generation; empty if there is none."""
        self.assignment = assignment

    def wait_for_join(self, token: Token | None) -> None:
        """Wait for the answer to that join; None: the join was answered or given up."""
        self.joining = token

    def wait_for_sync(self, token: Token | None) -> None:
        """Wait for the answer to that sync; None: the sync was answered or given up."""
        self.syncing = token

    @property
    def is_static(self) -> bool:
        """Return whether the member may come back under its instance id without a rebalance
        (KIP-345)."""
        return self.instance_id is not None

    @property
    def waits(self) -> bool:
        """Return whether a request of the member is unanswered, which shows that it is alive."""
        return self.joining is not None or self.syncing is not None

    @property
    def protocol_names(self) -> frozenset[str]:
        """Return the names of its protocols; a client may send the same one twice."""
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        """Return its subscription for that protocol; empty if it does not support it."""
        return dict(self.protocols).get(protocol_name, b"")

    def prefers(self, candidates: Iterable[str]) -> str:
        """Return the protocol that it prefers among those that all members support."""
        allowed = frozenset(candidates)
        return next(name for name, _ in self.protocols if name in allowed)


class Members:
    """The members of one group, in the order in which they joined."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self.leader_id = ""
        self.pending: dict[str, int] = {}
        """The member ids that were given out → the time until which each may be used."""
        self._joining = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> Member | None:
        """Return the member with that id, or None if the group has no such member."""
        return self._by_id.get(member_id)

    def static(self, instance_id: str | None) -> Member | None:
        """Return the static member with that instance id, or None."""
        return self._by_id.get(self._static_ids.get(instance_id or "", ""))

    @property
    def leader(self) -> Member | None:
        """The group leader, which assigns partitions, or None while there is none."""
        return self._by_id.get(self.leader_id)

    @property
    def all_joining(self) -> bool:
        """Return whether all members have asked to join, and no member id is pending."""
        return self._joining == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the group leader."""
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        self._supporters.update(member.protocol_names)
        if not self.leader_id:
            self.leader_id = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the group leader, another member becomes it."""
        self.stop_joining(member)
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            self._static_ids.pop(member.instance_id, None)
        self._supporters.subtract(member.protocol_names)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member that came back its new member id; it keeps its place."""
        renamed = {
            member_id if known == member.member_id else known: each
            for known, each in self._by_id.items()
        }
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        member.rename(member_id)
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member_id
        self._by_id = renamed

    def update(self, member: Member, request: JoinRequest) -> None:
        """Update a member from a new join, which may have another subscription."""
        self._supporters.subtract(member.protocol_names)
        member.update(request)
        self._supporters.update(member.protocol_names)

    def start_joining(self, member: Member, token: Token) -> None:
        """Record that the member waits for the answer to that join."""
        if member.joining is None:
            self._joining += 1
        member.wait_for_join(token)

    def stop_joining(self, member: Member) -> None:
        """Record that the member's join was answered or given up."""
        if member.joining is not None:
            self._joining -= 1
            member.wait_for_join(None)

    def supports_any(self, names: Iterable[str], *, without: Member | None = None) -> bool:
        """Return whether all members, except ``without``, support one of those protocols."""
        others = len(self._by_id) - (without is not None)
        own = frozenset[str]() if without is None else without.protocol_names
        return others == 0 or any(
            self._supporters[name] - (name in own) == others for name in names
        )

    @property
    def have_one_protocol(self) -> bool:
        """Return whether there is a protocol that all members support."""
        return len(self._by_id) in self._supporters.values()

    def elect_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all support.

        The group leader decides between equal numbers.
        """
        count = len(self._by_id)
        candidates = [name for name, supporters in self._supporters.items() if supporters == count]
        votes = Counter(member.prefers(candidates) for member in self)
        most = max(votes.values())
        leader = self.leader or next(iter(self))
        return leader.prefers(name for name, got in votes.items() if got == most)

    def restore_leader(self, leader_id: str) -> None:
        """Make the group leader the one that the log names; empty if it names none."""
        self.leader_id = leader_id

    def elect_joined_leader(self) -> None:
        """Make a member that has joined the group leader, if the present leader has not joined
        again."""
        leader = self.leader
        if leader is None or leader.joining is None:
            joined = (member.member_id for member in self if member.joining is not None)
            self.leader_id = next(joined, self.leader_id)

    def as_leader_sees(self, protocol_name: str) -> tuple[JoinedMember, ...]:
        """Return all members with their subscriptions for that protocol, as the group leader
        receives them."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self
        )
