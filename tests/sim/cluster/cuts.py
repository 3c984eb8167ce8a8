"""Cuts of the network: pairs, whole brokers, links between brokers alone, and links that flap.

Clients and the quorum may see a broker that no other broker sees, in both directions or in one.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.sim.cluster.clients import CLIENT_HOST
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.network import Network
from tests.sim.world import World

WAYS: Final = ((True, False), (False, True), (True, True), (True, True))
"""(from the broker, to the broker): the directions that a cut of its links takes."""


class Cuts:
    """Cuts links, and heals each after its time."""

    def __init__(
        self,
        world: World,
        network: Network,
        quorum: SimulatedQuorum,
        machines: dict[int, Machine],
        seconds: Callable[[], float],
    ) -> None:
        self._world = world
        self._network = network
        self._quorum = quorum
        self._machines = machines
        self._seconds = seconds

    def cut(self, sender: int, receiver: int, seconds: float) -> None:
        """Nothing passes from ``sender`` to ``receiver`` for so long."""
        self._network.cut(sender, receiver)
        self._world.after(seconds, partial(self._network.heal, sender, receiver))

    def cut_broker(self, broker_id: int, ways: tuple[bool, bool], seconds: float) -> None:
        """Cut its links to all other brokers; clients and the quorum see it as before."""
        arrow = {(True, False): "from", (False, True): "to", (True, True): "off"}[ways]
        self._world.note(f"cut {arrow} {broker_id}, between brokers, for {seconds:.1f} s")
        outwards, inwards = ways
        for other in self._machines:
            if other != broker_id and outwards:
                self.cut(broker_id, other, seconds)
            if other != broker_id and inwards:
                self.cut(other, broker_id, seconds)

    def pair(self) -> None:
        hosts = [*sorted(self._machines), CLIENT_HOST]
        if len(hosts) < 2:
            return
        a, b = self._world.random.sample(hosts, 2)
        both, seconds = self._world.chance(0.5), self._seconds()
        self._world.note(f"cut {a} {'-' if both else '>'} {b} for {seconds:.1f} s")
        self.cut(a, b, seconds)
        if both:
            self.cut(b, a, seconds)

    def isolate(self) -> None:
        """One broker is cut off from the others, perhaps from the quorum as well."""
        broker_id, seconds = self._any(), self._seconds()
        self.cut_broker(broker_id, (True, True), seconds)
        if self._world.chance(0.4):
            self._from_quorum(broker_id, seconds)

    def between_brokers(self) -> None:
        """The quorum and clients see all brokers, and brokers do not see one of them."""
        self.cut_broker(self._any(), self._world.random.choice(WAYS), self._seconds())

    def from_quorum(self) -> None:
        self._from_quorum(self._any(), self._seconds())

    def flap(self) -> None:
        """The links of a broker break and come back, so that it leaves ISRs and joins them."""
        broker_id, times = self._any(), self._world.random.choice([3, 6])
        for _ in range(times):
            lasts_s = self._world.random.choice([0.2, 0.6, 1.5])
            self.cut_broker(broker_id, self._world.random.choice(WAYS), lasts_s)
            self._world.run_until(self._world.now + lasts_s + self._world.between(0.1, 0.8))

    def _any(self) -> int:
        return self._world.random.choice(sorted(self._machines))

    def _from_quorum(self, broker_id: int, seconds: float) -> None:
        self._world.note(f"cut {broker_id} from the quorum for {seconds:.1f} s")
        ways = self._world.random.choice([(True,), (False,), (True, False), (True, False)])
        for towards in ways:
            self._quorum.cuts.add((broker_id, towards))
            self._world.after(seconds, partial(self._quorum.cuts.discard, (broker_id, towards)))
