"""The network between voters: links as TCP's connections, over ways that delay and are cut.

On a way that is cut, in one direction or both, what was sent waits, as it does in a kernel, and
comes late if the cut ends soon; else the link breaks on both sides. A link delivers in
order. In a *wild* network messages are also lost, doubled and overtaken, which our transport never
does to them: the guards do not rely on that.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from tests.sim.world import World

DEAD_AFTER_S: Final = 3.0
DIAL_TIMEOUT_S: Final = 1.0


class Endpoint(Protocol):
    """A host, as the network knows it."""

    voter_id: int

    @property
    def listens(self) -> bool: ...
    def arrived(self, link: "Link", frame: bytes | None) -> None:
        """A frame came; None: the link is at its end."""


class Conditions(NamedTuple):
    """The state of the network on an ordinary day of this run."""

    delay_s: float
    loss: float
    doubled: float
    overtaken: float

    @property
    def is_wild(self) -> bool:
        return self.loss > 0


class Link:
    """A link between two hosts, identified by voter id."""

    def __init__(self, number: int, dialler: int, accepter: int) -> None:
        self.number = number
        self.dialler = dialler
        self.ends = (dialler, accepter)
        self.is_open = {dialler: True, accepter: True}
        self.arrives_after = {dialler: 0.0, accepter: 0.0}
        """The time before which nothing comes, by receiver, so that nothing overtakes."""
        self.waiting: dict[int, list[bytes | None]] = {dialler: [], accepter: []}
        """The messages that were sent while the link was cut, by receiver."""
        self.bytes_under_way = {dialler: 0, accepter: 0}

    def other(self, voter_id: int) -> int:
        return self.ends[0] if voter_id == self.ends[1] else self.ends[1]


class Network:
    """Links and cuts."""

    def __init__(self, world: World, conditions: Conditions) -> None:
        self._world = world
        self.conditions = conditions
        self.endpoints: dict[int, Endpoint] = {}
        self._links: list[Link] = []
        self._numbered = 0
        self._cuts: dict[tuple[int, int], float] = {}
        self.delay_factor = 1.0

    # -- links -----------------------------------------------------------------------------

    def dial(self, dialler: int, accepter: int, failed: Callable[[], None]) -> Link | None:
        """A new link, to be used at once; or None and ``failed`` is called later."""
        reachable = not self.is_cut(dialler, accepter) and not self.is_cut(accepter, dialler)
        if not reachable or not self.endpoints[accepter].listens:
            refused = reachable and self._world.chance(0.5)
            delay_s = 2 * self._delay_s() if refused else DIAL_TIMEOUT_S
            self._world.at(self._world.actor_time + delay_s, failed)
            return None
        self._numbered += 1
        link = Link(self._numbered, dialler, accepter)
        self._links.append(link)
        return link

    def send(self, link: Link, sender: int, frame: bytes | None, *, sure: bool = False) -> None:
        """Send a frame, or the end of the link; what is ``sure`` is never lost."""
        receiver = link.other(sender)
        if not link.is_open[receiver]:
            self._nobody_there(link, sender, receiver)
            return
        link.bytes_under_way[receiver] += len(frame or b"")
        if self.is_cut(sender, receiver):
            link.waiting[receiver].append(frame)
            return
        if frame is not None and not sure and self.conditions.is_wild:
            self._send_wildly(link, receiver, frame)
            return
        arrives = max(link.arrives_after[receiver], self._world.actor_time + self._delay_s())
        link.arrives_after[receiver] = arrives
        self._world.at(arrives, partial(self._deliver, link, receiver, frame))

    def close(self, link: Link, closer: int) -> None:
        """``closer`` reads and writes no more; the other side learns it after what was sent."""
        if link.is_open[closer]:
            link.is_open[closer] = False
            self.send(link, closer, None)

    def vanish(self, voter_id: int) -> None:
        """The host lost power: nobody is told."""
        for link in self._links:
            if voter_id in link.ends:
                link.is_open[voter_id] = False

    def links_of(self, voter_id: int) -> list[Link]:
        return [c for c in self._links if voter_id in c.ends and c.is_open[voter_id]]

    def reset(self, link: Link) -> None:
        """Both sides lose the link and what is under way."""
        for end in link.ends:
            if link.is_open[end]:
                link.is_open[end] = False
                self._world.after(self._delay_s(), partial(self._tell_end, link, end))
        self._forget(link)

    # -- cuts ------------------------------------------------------------------------------------

    def is_cut(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self._cuts

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing passes from ``sender`` to ``receiver`` any more."""
        since = self._world.now
        if (sender, receiver) not in self._cuts:
            self._cuts[sender, receiver] = since
            for link in self._between(sender, receiver):
                self._world.after(
                    DEAD_AFTER_S * self._world.between(0.9, 1.2),
                    partial(self._break_if_still_cut, link, sender, receiver, since),
                )

    def heal(self, sender: int, receiver: int) -> None:
        """The opposite; what waited comes when it is sent again."""
        if self._cuts.pop((sender, receiver), None) is None:
            return
        again_s = self._world.between(0.001, 0.4)
        for link in self._between(sender, receiver):
            waiting, link.waiting[receiver] = link.waiting[receiver], []
            arrives = max(link.arrives_after[receiver], self._world.now + again_s)
            link.arrives_after[receiver] = arrives
            for frame in waiting:
                self._world.at(arrives, partial(self._deliver, link, receiver, frame))

    def heal_all(self) -> None:
        for sender, receiver in list(self._cuts):
            self.heal(sender, receiver)
        self.delay_factor = 1.0
        self.conditions = self.conditions._replace(loss=0.0, doubled=0.0, overtaken=0.0)

    # -- inside ----------------------------------------------------------------------------------

    def _delay_s(self) -> float:
        typical = self.conditions.delay_s * self.delay_factor
        return typical * (0.5 + self._world.random.expovariate(1.5))

    def _send_wildly(self, link: Link, receiver: int, frame: bytes) -> None:
        world, usual = self._world, self._delay_s()
        link.bytes_under_way[receiver] -= len(frame)
        if world.chance(self.conditions.loss):
            return
        delays = [usual]
        if world.chance(self.conditions.overtaken):
            delays = [usual + world.between(0, 0.3)]
        if world.chance(self.conditions.doubled):
            later = world.random.choice([0.0005, 0.02, 1.0])
            delays.append(usual + world.random.expovariate(1 / later))
        for delay_s in delays:
            link.bytes_under_way[receiver] += len(frame)
            world.at(world.actor_time + delay_s, partial(self._deliver, link, receiver, frame))

    def _deliver(self, link: Link, receiver: int, frame: bytes | None) -> None:
        link.bytes_under_way[receiver] -= len(frame or b"")
        if not link.is_open[receiver]:
            return
        if frame is None:
            link.is_open[receiver] = False
            self._forget(link)
        self.endpoints[receiver].arrived(link, frame)

    def _tell_end(self, link: Link, end: int) -> None:
        self.endpoints[end].arrived(link, None)

    def _nobody_there(self, link: Link, sender: int, receiver: int) -> None:
        """A living host answers with a reset; a dead one not at all."""
        if not link.is_open[sender]:
            return
        answers = self.endpoints[receiver].listens and not self.is_cut(sender, receiver)
        delay_s = 2 * self._delay_s() if answers else DEAD_AFTER_S

        def end() -> None:
            if link.is_open[sender]:
                link.is_open[sender] = False
                self._forget(link)
                self._tell_end(link, sender)

        self._world.at(self._world.actor_time + delay_s, end)

    def _break_if_still_cut(self, link: Link, sender: int, receiver: int, since: float) -> None:
        if self._cuts.get((sender, receiver)) == since:
            self.reset(link)

    def _between(self, a: int, b: int) -> list[Link]:
        return [c for c in self._links if {a, b} == set(c.ends)]

    def _forget(self, link: Link) -> None:
        if link in self._links and not any(link.is_open.values()):
            self._links.remove(link)
