"""Kills the controller's broker with kill -9, and measures how soon another one takes over."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError
from quorate.testing.running import RunningCluster

POLL_INTERVAL_S: Final = 0.005
TAKEOVER_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ControllerFailover:
    """The takeover by another controller after the kill, and the partitions that the victim led."""

    victim: int
    successor: int
    old_epoch: int
    new_epoch: int
    takeover_ms: float
    partitions_led: tuple[int, ...]


class ControllerKill:
    """Kills the controller's broker once, and watches the other brokers in a thread of its own."""

    def __init__(
        self, cluster: RunningCluster, topic: str, on_takeover: Callable[[ControllerFailover], None]
    ) -> None:
        """``on_takeover`` is called once, in the watching thread."""
        self._cluster = cluster
        self._on_takeover = on_takeover
        self._topic = topic
        self._thread: threading.Thread | None = None
        self._outcome: ControllerFailover | Exception | None = None
        self.killed_at: float | None = None

    def strike(self) -> tuple[int, int]:
        """Kill the broker with kill -9, and return its id and pid.

        The watch for the takeover goes on in the background.
        """
        with self._cluster.admin() as admin:
            status = admin.cluster_status()
            (topic,) = admin.describe_topics([self._topic])
        victim = status.controller_id
        pid = self._cluster.broker_pid(victim)
        assert pid is not None
        led = tuple(
            partition.partition for partition in topic.partitions if partition.leader == victim
        )
        self.killed_at = time.monotonic()
        self._cluster.kill_broker(victim)
        self._thread = threading.Thread(
            target=self._watch,
            args=(victim, status.controller_epoch, led),
            name="takeover-watch",
            daemon=True,
        )
        self._thread.start()
        return victim, pid

    def takeover(self) -> ControllerFailover:
        """Wait for the takeover, and return it.

        Raises:
            TimeoutError: no broker took over.
        """
        assert self._thread is not None
        self._thread.join()
        if isinstance(self._outcome, ControllerFailover):
            return self._outcome
        raise self._outcome or TimeoutError("nobody took over as controller")

    def _watch(self, victim: int, old_epoch: int, led: tuple[int, ...]) -> None:
        assert self.killed_at is not None
        survivors = [
            self._cluster.broker_grpc_address(broker_id)
            for broker_id in self._cluster.broker_ids
            if broker_id != victim
        ]
        deadline = self.killed_at + TAKEOVER_TIMEOUT_S
        with AdminClient(grpc_addresses=survivors, timeout_ms=5_000) as admin:
            while time.monotonic() < deadline:
                try:
                    status = admin.cluster_status()
                except QuorateError as error:
                    self._outcome = error
                    return
                if status.controller_epoch > old_epoch and status.controller_id >= 0:
                    takeover = ControllerFailover(
                        victim=victim,
                        successor=status.controller_id,
                        old_epoch=old_epoch,
                        new_epoch=status.controller_epoch,
                        takeover_ms=(time.monotonic() - self.killed_at) * 1000,
                        partitions_led=led,
                    )
                    self._outcome = takeover
                    self._on_takeover(takeover)
                    return
                time.sleep(POLL_INTERVAL_S)
