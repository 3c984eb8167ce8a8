"""Draws what goes wrong, and when, from the seed; each run has its own mix (swarm testing).

It also keeps the book on who was in good health since when, which is what "needless" means in
"a healthy leader is not unseated needlessly".
"""

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Final

from tests.sim.clients import Client
from tests.sim.host import Host
from tests.sim.journal_damage import JournalDamage
from tests.sim.network import Network
from tests.sim.old_folders import LASTS_S, SETTLES_S, OldFolders
from tests.sim.service import CLIENT, Services
from tests.sim.world import World

SNAPSHOT_KINDS: Final = ("write", "fsync", "name", "sync folder")
RARE_KINDS: Final = (*SNAPSHOT_KINDS, "journal compaction", "journal truncation")
CRASH_KINDS: Final = ("", "send", "journal", *RARE_KINDS)
"""The effects before or after which a process ends; "" stands for any."""


class Health:
    """When each host and each link last suffered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hosts: dict[int, float] = {}
        self._links: dict[frozenset[int], float] = {}
        self.everything = 0.0

    def host_suffers(self, voter_id: int, until: float | None = None) -> None:
        until = self._world.now if until is None else until
        self._hosts[voter_id] = max(self._hosts.get(voter_id, 0.0), until)

    def link_suffers(self, a: int, b: int, until: float | None = None) -> None:
        until = self._world.now if until is None else until
        link = frozenset((a, b))
        self._links[link] = max(self._links.get(link, 0.0), until)

    def host_well_since(self, voter_id: int) -> float:
        return max(self.everything, self._hosts.get(voter_id, 0.0))

    def link_well_since(self, a: int, b: int) -> float:
        return max(self.everything, self._links.get(frozenset((a, b)), 0.0))


class Faults:
    """Does one thing at a time that a machine room may do."""

    def __init__(
        self,
        world: World,
        network: Network,
        services: Services,
        hosts: dict[int, Host],
        clients: list[Client],
    ) -> None:
        self._world = world
        self._network = network
        self._services = services
        self._hosts = hosts
        self._clients = clients
        self.health = Health(world)
        self._healed = False
        self._quiet_until = 0.0
        self._old_folders = OldFolders(world, hosts, self._cut_off, lambda: self._all_write(15))
        self.keeps_folders = False
        """Whether folders are not replaced, nor damaged: somebody else decides who takes part."""
        self.calm_s = 0.0
        """The additional time that is to pass before the next fault."""
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._crash_one, 3.0),
            (self._crash_in_the_middle, 4.0),
            (self._crash_some, 1.5),
            (self._pause, 2.0),
            (self._cut_link, 2.0),
            (self._isolate, 3.0),
            (self._reset, 2.0),
            (self._slow_disk, 1.0),
            (self._stall, 2.0),
            (self._slow_network, 1.0),
            (self._cut_clients, 1.5),
            (self._burst, 3.0),
            (self._leader_is_cut_off_writing, 2.0),
            (self._compete, 1.0),
            (self._long_absence, 0.7),
            (self._strand_a_tail, 4.0),
            (self._disturb_a_bystander, 1.0),
            (self._stop_the_leader, 1.0),
            (self._put_an_old_folder_back, 3.0),
            (self._damage_a_journal, 1.0),
        ]
        # Each run has its own favourites, and does not do some things at all.
        weights = [weight * world.random.choice([0, 0.3, 1, 1, 3]) for _, weight in kinds]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = weights if any(weights) else [1.0] * len(kinds)

    def one(self) -> None:
        """The next fault."""
        (kind,) = self._world.random.choices(self._kinds, self._weights)
        self.calm_s = 0.0
        kind()

    def heal_everything(self) -> None:
        """Nothing goes wrong from now on, and what is down comes up."""
        self._healed = True
        self._services.loss = 0.0
        self._mend()

    def _mend(self) -> None:
        """Let everything that goes wrong now end, and start what is down."""
        self._network.heal_all()
        self._services.cuts.clear()
        for host in self._hosts.values():
            host.spare()
            host.paused_until = min(host.paused_until, self._world.now + 0.5)
            host.disk.latency_s = min(host.disk.latency_s, 0.001)
            self.health.host_suffers(host.voter_id)
            host.boot()

    # -- folders ---------------------------------------------------------------------------------

    def _put_an_old_folder_back(self) -> None:
        """Nothing else goes wrong meanwhile, but for what ``OldFolders`` does."""
        if len(self._hosts) < 3 or self._network.conditions.is_wild or self.keeps_folders:
            return
        self._mend()
        self.calm_s = LASTS_S
        self._quiet_until = self._world.now + self.calm_s
        self.health.everything = self._quiet_until
        self._world.after(SETTLES_S, self._old_folders.put_one_back)

    def _damage_a_journal(self) -> None:
        """The voter is down until its folder is as it was."""
        host = self._any_host()
        if host.disk.meta is not None and host.set_aside is None and not self.keeps_folders:
            host.kill(power_lost=True)
            host.disk.damage = JournalDamage(self._world)
            self._restart_later(host)

    def _cut_off(self, host: Host, seconds: float) -> None:
        for other in self._hosts:
            if other != host.voter_id:
                self._cut_both_ways(other, host.voter_id, seconds)

    # -- crashes ---------------------------------------------------------------------------------

    def _crash_one(self) -> None:
        self._crash(self._any_host())

    def _crash(self, host: Host) -> None:
        host.kill(power_lost=self._world.chance(0.6))
        self._restart_later(host)

    def _crash_in_the_middle(self) -> None:
        """End a host's process after any single write or message of a round."""
        host = self._any_host()
        if host.is_up:
            kind = self._world.random.choice(CRASH_KINDS)
            most = 3 if kind in RARE_KINDS else 40
            host.crash_at(self._world.random.randint(1, most), kind)
            self._world.after(3.0, partial(self._restart_if_down, host))

    def _crash_some(self) -> None:
        count = self._world.random.randint(min(2, len(self._hosts)), len(self._hosts))
        for host in self._world.random.sample(list(self._hosts.values()), count):
            self._crash(host)

    def _restart_later(self, host: Host) -> None:
        after_s = self._world.random.choice([0.02, 0.1, 0.5, 2.0]) * self._world.between(0.5, 2)
        self._world.after(after_s, partial(self._restart_if_down, host))

    def _restart_if_down(self, host: Host) -> None:
        if not host.is_up:
            host.pace = self._world.between(0.97, 1.03)
        self.health.host_suffers(host.voter_id)
        host.boot()

    def went_down(self, host: Host) -> None:
        """However it came: somebody starts it again."""
        self.health.host_suffers(host.voter_id)
        self._restart_later(host)

    def _long_absence(self) -> None:
        """Long enough for the others to have compacted what it lacks."""
        host = self._any_host()
        for other in self._hosts:
            if other != host.voter_id:
                self._cut_for(host.voter_id, other, self._world.between(3.0, 8.0))

    # -- time ------------------------------------------------------------------------------------

    def _pause(self) -> None:
        host = self._any_host()
        seconds = self._world.random.choice([0.05, 0.3, 0.7, 1.5, 4.0]) * self._world.between(
            0.5, 1.5
        )
        middle = self._world.random.randint(1, 6) if self._world.chance(0.5) else 0
        host.note(f"is stopped for {seconds:.3f} s")
        host.pause(seconds, middle)
        self.health.host_suffers(host.voter_id, self._world.now + seconds + 1.0)

    def _stop_the_leader(self) -> None:
        """Stop the leader until its sessions are expired by another one; it wakes up as a leader of
        the past."""
        leader = self._leader()
        if leader is not None:
            seconds = self._world.between(3.0, 6.0)
            leader.note(f"is stopped for {seconds:.3f} s")
            leader.pause(seconds)
            self.health.host_suffers(leader.voter_id, self._world.now + seconds + 1.0)
            self.calm_s = seconds

    def _slow_disk(self) -> None:
        host = self._any_host()
        before, host.disk.latency_s = host.disk.latency_s, self._world.between(0.005, 0.08)
        seconds = self._world.between(0.3, 3.0)
        self.health.host_suffers(host.voter_id, self._world.now + seconds)

        def end() -> None:
            host.disk.latency_s = min(before, 0.002)

        self._world.after(seconds, end)

    def _stall(self) -> None:
        host = self._any_host()
        host.disk.stall_s = self._world.random.choice([0.2, 0.5, 1.0, 2.0])
        host.note(f"next fsync takes {host.disk.stall_s} s")
        self.health.host_suffers(host.voter_id, self._world.now + 3.0)

    # -- links -----------------------------------------------------------------------------------

    def _cut_for(self, sender: int, receiver: int, seconds: float, *, both: bool = True) -> None:
        if self._world.now >= self._quiet_until:
            self._cut_ways(sender, receiver, seconds, both=both)

    def _cut_both_ways(self, a: int, b: int, seconds: float) -> None:
        self._cut_ways(a, b, seconds, both=True)

    def _cut_ways(self, sender: int, receiver: int, seconds: float, *, both: bool) -> None:
        ways = [(sender, receiver), (receiver, sender)] if both else [(sender, receiver)]
        self.health.link_suffers(sender, receiver, self._world.now + seconds + 0.5)
        for a, b in ways:
            self._world.note(f"link {a} -> {b} is cut for {seconds:.3f} s")
            self._network.cut(a, b)
            self._services.cuts.add((a, b))
            self._world.after(seconds, partial(self._heal, a, b))

    def _heal(self, a: int, b: int) -> None:
        self._network.heal(a, b)
        self._services.cuts.discard((a, b))
        self.health.link_suffers(a, b)

    def _cut_link(self) -> None:
        if len(self._hosts) > 1:
            a, b = self._world.random.sample(sorted(self._hosts), 2)
            self._cut_for(a, b, self._seconds(), both=self._world.chance(0.5))

    def _isolate(self) -> None:
        """One voter from all others, both ways or one way."""
        host, seconds = self._any_host().voter_id, self._seconds()
        way = self._world.random.choice(["both", "in", "out"])
        for other in self._hosts:
            if other != host:
                pair = (other, host) if way == "in" else (host, other)
                self._cut_for(*pair, seconds, both=way == "both")

    def _leader_is_cut_off_writing(self) -> None:
        """A deposed leader with entries that nobody else has; clients still reach it."""
        leader = self._leader()
        if leader is None:
            return
        seconds = self._world.between(0.8, 3.0)
        for other in self._hosts:
            if other != leader.voter_id:
                self._cut_for(leader.voter_id, other, seconds)
        self._all_write(self._world.random.choice([1, 10, 40]))

    def _strand_a_tail(self) -> None:
        """A follower has some of the leader's last entries, which does not learn of it."""
        leader = self._leader()
        followers = [v for v in self._hosts if leader is None or v != leader.voter_id]
        if leader is None or not followers:
            return
        own, seconds = leader.voter_id, self._world.between(1.0, 2.5)
        chosen = self._world.random.choice(followers)
        self._cut_for(chosen, own, seconds, both=False)
        for other in followers:
            if other != chosen:
                self._cut_for(own, other, seconds)
        self._all_write(self._world.random.choice([15, 30]))

        def strand() -> None:
            if not self._healed:
                self._cut_for(own, chosen, seconds, both=False)
                self._all_write(self._world.random.choice([5, 30]))
                self._world.after(0.9 * seconds, lose_what_waits)

        def lose_what_waits() -> None:
            """The next leader then begins behind all that it has sent meanwhile."""
            if not self._healed:
                self._break(own, chosen)

        self._world.after(self._world.between(0.02, 0.15), strand)

    def _disturb_a_bystander(self) -> None:
        """All is well for a while, but for one follower: that is no reason for an election."""
        self.calm_s = 5.5
        self._world.after(2.5, self._disturb)

    def _disturb(self) -> None:
        leader = self._leader()
        bystanders = [h for h in self._hosts.values() if h is not leader and h.is_up]
        if leader is None or not bystanders or self._healed or self._world.now < self._quiet_until:
            return
        bystander = self._world.random.choice(bystanders)
        match self._world.random.choice(["deaf", "cut off", "stalled", "restarted"]):
            case "deaf":
                seconds = self._world.between(0.7, 2.5)
                self._cut_for(leader.voter_id, bystander.voter_id, seconds, both=False)
            case "cut off":
                seconds = self._world.between(0.7, 2.5)
                for other in self._hosts:
                    if other != bystander.voter_id:
                        self._cut_for(bystander.voter_id, other, seconds)
            case "stalled":
                bystander.disk.stall_s = 1.0
                self.health.host_suffers(bystander.voter_id, self._world.now + 2.0)
            case "restarted":
                self._crash(bystander)

    def _all_write(self, count: int) -> None:
        for client in self._clients:
            client.burst(count)

    def _compete(self) -> None:
        """Leader after leader is cut off, each with a tail of its own."""
        for number in range(self._world.random.randint(2, 4)):
            self._world.after(number * self._world.between(0.8, 1.4), self._unseat)

    def _unseat(self) -> None:
        leader = self._leader()
        if leader is not None and not self._healed:
            self._all_write(self._world.random.choice([1, 5]))
            for other in self._hosts:
                if other != leader.voter_id:
                    self._cut_for(leader.voter_id, other, self._world.between(0.5, 1.5))

    def _reset(self) -> None:
        """Connections break for no reason."""
        for a, b in permutations(sorted(self._hosts), 2):
            if a < b and self._world.chance(0.5):
                self._break(a, b)

    def _break(self, a: int, b: int) -> None:
        for link in self._network.links_of(a):
            if b in link.ends:
                self._network.reset(link)
        self.health.link_suffers(a, b)

    def _slow_network(self) -> None:
        self._network.delay_factor = self._world.random.choice([3.0, 10.0, 40.0])
        self.health.everything = self._world.now + 2.5

        def end() -> None:
            self._network.delay_factor = 1.0

        self._world.after(self._world.between(0.2, 2.0), end)

    # -- clients ---------------------------------------------------------------------------------

    def _cut_clients(self) -> None:
        """Cut clients off from some voters, so that answers get lost."""
        for voter_id in self._hosts:
            if self._world.chance(0.5):
                self._services.cuts.add((CLIENT, voter_id))
                self._world.after(
                    self._seconds(), partial(self._services.cuts.discard, (CLIENT, voter_id))
                )

    def _burst(self) -> None:
        if self._clients:
            self._world.random.choice(self._clients).burst(self._world.random.choice([5, 20, 60]))

    # -- choice ----------------------------------------------------------------------------------

    def _seconds(self) -> float:
        return self._world.random.choice([0.1, 0.5, 1.0, 2.5, 5.0]) * self._world.between(0.5, 1.5)

    def _leader(self) -> Host | None:
        leaders = [
            host
            for host in self._hosts.values()
            if host.process is not None and host.process.node.is_leader
        ]
        if not leaders:
            return None
        return max(leaders, key=lambda h: h.process.node.term if h.process else 0)

    def _any_host(self) -> Host:
        """More often the leader than chance would have it."""
        leader = self._leader()
        if leader is not None and self._world.chance(0.3):
            return leader
        return self._world.random.choice(list(self._hosts.values()))
