"""One voter's machine: its disk and clock, and when its process runs, stops and crashes.

Two actors run the process, as two threads do in production: the raft thread (the driver's rounds)
and the event loop (the service). A slow disk holds up the one and not the other; a pause holds up
both; a crash ends both, perhaps in the middle of a round, after any single write or message.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from quorate.common.types import ID_BYTES
from quorate.quorum.quorum_config import QuorumConfig
from quorate.quorum.raft.leaving import LeavesQuorum
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.raft_options import RaftOptions
from quorate.quorum.raft.storage.journal import JournalCorrupt
from quorate.quorum.raft.storage.promises import Promise
from tests.sim.disk import SimulatedDisk
from tests.sim.network import Link, Network
from tests.sim.process import BackgroundWork, HostObserver, Process
from tests.sim.world import SimulatedCrash, Violation, World

MOST_PER_ROUND_S: Final = 0.0002


class Host:
    """A machine: its disk and its clock stay when the process goes."""

    def __init__(
        self,
        world: World,
        network: Network,
        config: QuorumConfig,
        options: RaftOptions,
        observer: HostObserver,
    ) -> None:
        self.world = world
        self.network = network
        self.voter_id = int(config.voter_id)
        self.observer = observer
        self.disk = SimulatedDisk(world, self.effect)
        self.inbox: deque[tuple[Link, bytes | None]] = deque()
        self.process: Process | None = None
        self.boots = 0
        self.snapshot_index = 0
        """The index of the snapshot that the running process found or has put in its place
        since."""
        self.directory_id = f"directory {self.voter_id}".encode().ljust(ID_BYTES, b".")
        self.set_aside: SimulatedDisk | None = None
        """The disk as it was before an old copy was put in its place."""
        self.promised: dict[int, Promise] = {}
        """The promises that this voter has made, by the voter that remembers them while an old copy
        is in place."""
        self.stays_down_until = 0.0
        self.first_voters: Mapping[int, bytes] = {}
        """The directory ids of the first voters, which it remembers as long as its disk is kept."""
        self.peers: object = None
        self.pace = 1.0
        self.batch_bytes = 8 << 20
        self.paused_until = 0.0
        self._effects_to_crash: int | None = None
        self._crash_kind = ""
        self._effects_to_pause: tuple[int, float] | None = None
        self._clock_offset_s = 1_000.0 * self.voter_id
        self.config = config
        self._options = options
        self._busy_until = 0.0
        self._raft_wakes_at: float | None = None
        self._loop_wakes_at: float | None = None
        self.on_down: Callable[[], None] = lambda: None
        self.on_leaves: Callable[[LeavesQuorum], None] = self._must_not_leave
        network.endpoints[self.voter_id] = self

    def note(self, line: str) -> None:
        self.world.note(f"v{self.voter_id} {line}")

    def is_process_of(self, transport: object) -> bool:
        """Whether that transport is the running process's."""
        return self.process is not None and self.process.transport is transport

    def has_written(self, index: int, term: int) -> bool:
        """Whether the entry is on its disk, or was before an old copy took its place."""
        before = self.set_aside
        return self.disk.holds(index, term) or (before is not None and before.holds(index, term))

    # -- up and down -----------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def listens(self) -> bool:
        return self.process is not None

    def boot(self) -> None:
        """Start the process on what the disk has."""
        if self.process is not None or self.world.now < self.stays_down_until:
            return
        self.boots += 1
        self.note(f"boots, time {self.boots}")
        self.inbox.clear()
        self._effects_to_crash = None
        self._effects_to_pause = None
        self._busy_until = self.paused_until = self.world.now
        self._raft_wakes_at = self._loop_wakes_at = None
        self._act()
        try:
            self.process = Process(self, self._options, self.config)
        except LeavesQuorum as leaving:
            self.on_leaves(leaving)
            return
        except JournalCorrupt as error:
            if self.disk.damage is None:
                raise Violation(f"voter {self.voter_id} cannot start again: {error!r}") from error
            self.note(f"refuses its journal ({self.disk.damage.kind}): {error}")
            self.disk.damage = None
            self.world.after(0.5, self.boot)  # With the folder as it was.
            return
        except Exception as error:
            raise Violation(f"voter {self.voter_id} cannot start again: {error!r}") from error
        damage = self.disk.damage
        if damage is not None and damage.passes_for_whole:
            raise Violation(f"voter {self.voter_id} goes on with a damaged journal: {damage.kind}")
        self.observer.booted(self)
        self.wake_raft(self.process)
        self.wake_loop(self.process)

    def kill(self, *, power_lost: bool) -> None:
        """The process ends now. A killed one's files and connections are closed by its kernel."""
        if self.process is None:
            return
        self.note("loses power" if power_lost else "is killed")
        process, self.process = self.process, None
        process.loop.abandon()
        self.inbox.clear()
        self.paused_until = 0.0
        if power_lost:
            self.disk.crash()
            self.network.vanish(self.voter_id)
        else:
            for link in self.network.links_of(self.voter_id):
                self.network.close(link, self.voter_id)
        self.on_down()

    def pause(self, seconds: float, after_effects: int = 0) -> None:
        """Pause as SIGSTOP does: nothing runs, the kernel goes on. It may be in the middle of a
        round."""
        if after_effects:
            self._effects_to_pause = (after_effects, seconds)
        else:
            self.paused_until = max(self.paused_until, self.world.now + seconds)

    def remember_first_voters(self, directories: Mapping[int, bytes]) -> None:
        """A small file, written and synced."""
        self.effect("first voters")
        self.first_voters = dict(directories)
        self.effect("first voters written")

    def remember_stale(self, detail: str) -> None:
        """A small file as well; the disk is replaced when the process has left."""
        self.effect("stale")

    def crash_at(self, effects: int, kind: str = "") -> None:
        """End the process after so many more effects, counting those of one kind alone."""
        self._effects_to_crash = effects
        self._crash_kind = kind

    def spare(self) -> None:
        """No crash is under way any more."""
        self._effects_to_crash = None

    def effect(self, kind: str) -> None:
        """Something is about to leave the process: here it may be stopped or ended."""
        if self._effects_to_pause is not None:
            left, seconds = self._effects_to_pause
            self._effects_to_pause = (left - 1, seconds)
            if left <= 1:
                self._effects_to_pause = None
                self.world.actor_time += seconds
                self.paused_until = max(self.paused_until, self.world.actor_time)
        if self._effects_to_crash is None or not kind.startswith(self._crash_kind):
            return
        self._effects_to_crash -= 1
        if self._effects_to_crash <= 0:
            self.note(f"crashes at: {kind}")
            raise SimulatedCrash

    def _must_not_leave(self, leaving: LeavesQuorum) -> None:
        raise Violation(f"voter {self.voter_id} leaves: {leaving}")

    # -- clock -----------------------------------------------------------------------------------

    def clock_s(self) -> float:
        """This host's monotonic clock, as the running actor sees it."""
        return self._clock_offset_s + self.world.actor_time * self.pace

    def _act(self) -> None:
        """Make this host's clock the one that is read from now on."""
        self.world.read_clock = self.clock_s

    def true_time(self, local_s: float) -> float:
        """Return the simulation's time at which this host's clock shows ``local_s``."""
        return (local_s - self._clock_offset_s) / self.pace

    # -- the network tells -----------------------------------------------------------------------

    def arrived(self, link: Link, frame: bytes | None) -> None:
        if self.process is not None:
            self.inbox.append((link, frame))
            self.wake_raft(self.process)

    def receives(self, peer: int, message: Message) -> None:
        self.note(f"< {peer} {brief(message)}")
        self.observer.receives(self, peer, message)

    # -- the raft thread -------------------------------------------------------------------------

    def wake_raft(self, process: Process, at: float = 0.0) -> None:
        if process is not self.process:
            return
        at = max(at, self.world.now, self._busy_until, self.paused_until)
        if self._raft_wakes_at is None or at < self._raft_wakes_at:
            self._raft_wakes_at = at
            self.world.at(at, partial(self._read, process, at))

    def _read(self, process: Process, at: float) -> None:
        if process is not self.process or self._raft_wakes_at != at:
            return
        if self.world.now < max(self._busy_until, self.paused_until):
            self._raft_wakes_at = None
            self.wake_raft(process)
            return
        self._busy_until = float("inf")  # Until the round is over, nobody wakes it.
        if self._runs(process, process.driver.read):
            # Not at once: during a slow fsync others go on, and their messages arrive.
            self._decide_at(process, self.world.actor_time)

    def _decide_at(self, process: Process, at: float) -> None:
        self.world.at(max(at, self.paused_until), partial(self._decide, process))

    def _decide(self, process: Process) -> None:
        if process is not self.process:
            return
        if self.world.now < self.paused_until:
            self._decide_at(process, self.paused_until)
            return
        self.world.actor_time += self.world.random.random() * MOST_PER_ROUND_S
        if not self._runs(process, process.driver.decide):
            return
        self._busy_until = self.world.actor_time
        self._raft_wakes_at = None
        self.observer.round_ended(self)
        wait_s = 0.0
        if not self.inbox and not process.driver.has_work:
            wait_s = process.node.wait_s() / self.pace
        self.wake_raft(process, self._busy_until + wait_s)

    def _runs(self, process: Process, half: Callable[[], None]) -> bool:
        self._act()
        try:
            half()
        except SimulatedCrash:
            self.kill(power_lost=True)
            return False
        except Violation:
            raise
        except LeavesQuorum as leaving:
            self.kill(power_lost=False)
            self.on_leaves(leaving)
            return False
        except Exception as error:
            raise Violation(f"voter {self.voter_id} stopped by itself: {error!r}") from error
        return process is self.process

    # -- the event loop --------------------------------------------------------------------------

    def wake_loop(self, process: Process, at: float = 0.0) -> None:
        if process is not self.process:
            return
        at = max(at, self.world.actor_time, self.paused_until)
        if self._loop_wakes_at is None or at < self._loop_wakes_at:
            self._loop_wakes_at = at
            self.world.at(at, partial(self._run_loop, process, at))

    def _run_loop(self, process: Process, at: float) -> None:
        if process is not self.process or self._loop_wakes_at != at:
            return
        self._loop_wakes_at = None
        if self.world.now < self.paused_until:
            self.wake_loop(process)
            return
        self._act()
        process.loop.run_what_is_due()
        if process.loop.failures:
            raise Violation(f"voter {self.voter_id}'s service: {process.loop.failures[0]}")
        timer = process.loop.next_timer()
        if timer is not None:
            self.wake_loop(process, self.true_time(timer) + 1e-6)

    # -- the snapshot writer ---------------------------------------------------------------------

    def in_background(self, process: Process, work: Callable[[], None]) -> BackgroundWork:
        writer = BackgroundWork(work)
        self.world.at(
            self.world.actor_time + self.world.between(0.002, 0.2),
            partial(self._run_writer, process, writer),
        )
        return writer

    def _run_writer(self, process: Process, writer: BackgroundWork) -> None:
        if process is not self.process:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until, partial(self._run_writer, process, writer))
            return
        self._runs(process, writer.join)


def brief(message: Message) -> str:
    """A message in the trace."""
    parts = [message["type"], f"term={message['term']}"]
    if "prevLogIdx" in message:
        entries = message["entries"]
        parts.append(f"after={message['prevLogIdx']}/{message['prevLogTerm']} n={len(entries)}")
    elif message.get("serialized"):
        _, first, last = message["serialized"]
        parts.append(f"snapshot{' first' if first else ''}{' last' if last else ''}")
    told = ("commit_index", "next_node_idx", "reset", "success", "last_log_index")
    parts += [f"{key}={message[key]}" for key in told if key in message]
    return " ".join(parts)
