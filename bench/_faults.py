"""The faults of ``bench.availability``: what is done to a cluster, and how it is undone.

The victim is the broker that a fault hits. A cut of links hits it as leader and as follower alike:
the figures tell the partitions that it led from the others.
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.deployment import Deployment
from tests.support.failing_disks import fill_disk, free_disk
from tests.support.six_hosts import VOTER_HOSTS
from tests.support.three_hosts import HOSTS

Act = Callable[[Deployment, int], None]


@dataclass(frozen=True)
class Fault:
    """The ``victim`` is a "broker" other than the controller, or a role.

    ``shows`` is what the victim says in its log: a fault that did not take effect costs nothing.
    """

    name: str
    victim: str
    begin: Act
    end: Act
    observe_s: float = 12.0
    shows: str = ""

    @property
    def hits_broker(self) -> bool:
        """Whether one broker is the victim."""
        return self.victim in (BROKER, CONTROLLER)


def _heal(deployed: Deployment, host: int) -> None:
    deployed.lab.heal()


def _kill(deployed: Deployment, host: int) -> None:
    deployed.hosts.kill("broker", host)


def _stop(deployed: Deployment, host: int) -> None:
    deployed.hosts.stop("broker", host)


def _start(deployed: Deployment, host: int) -> None:
    deployed.hosts.start("broker", host)


def _kill_voter(deployed: Deployment, voter: int) -> None:
    deployed.hosts.kill("quorum", voter)


def _start_voter(deployed: Deployment, voter: int) -> None:
    deployed.hosts.start("quorum", voter)


def _pause(deployed: Deployment, host: int) -> None:
    os.kill(deployed.hosts.processes["broker", host].pid, signal.SIGSTOP)


def _resume(deployed: Deployment, host: int) -> None:
    os.kill(deployed.hosts.processes["broker", host].pid, signal.SIGCONT)


def _fill_disk(deployed: Deployment, host: int) -> None:
    fill_disk(deployed.hosts.processes["broker", host].pid)


def _free_disk(deployed: Deployment, host: int) -> None:
    free_disk(deployed.hosts.processes["broker", host].pid)


def _fail_disk(deployed: Deployment, host: int) -> None:
    deployed.disks.fail(host)


def _replace_disk(deployed: Deployment, host: int) -> None:
    """A broker whose disk fails ends, so it is started again."""
    deployed.disks.heal(host)
    deployed.hosts.kill("broker", host)
    deployed.hosts.start("broker", host)


def _others(host: int) -> list[int]:
    return [other for other in HOSTS if other != host]


def _cut_from_brokers(deployed: Deployment, host: int) -> None:
    for other in _others(host):
        deployed.lab.cut(host, other)


def _mute_to_brokers(deployed: Deployment, host: int) -> None:
    for other in _others(host):
        deployed.lab.cut_one_way(host, other)


def _deaf_to_brokers(deployed: Deployment, host: int) -> None:
    for other in _others(host):
        deployed.lab.cut_one_way(other, host)


def _cut_pair(deployed: Deployment, host: int) -> None:
    deployed.lab.cut(host, _others(host)[0])


def _cut_from_quorum(deployed: Deployment, host: int) -> None:
    for voter in VOTER_HOSTS:
        deployed.lab.cut(host, voter)


def _unplug(deployed: Deployment, host: int) -> None:
    deployed.lab.unplug(host)


def _impaired(*, delay_ms: float = 0, loss: float = 0, between: Sequence[int] = ()) -> Act:
    """All links, also those of the quorum and of clients, or those between some hosts."""

    def begin(deployed: Deployment, host: int) -> None:
        deployed.lab.switch_softly(delay_ms=delay_ms, loss=loss, between=between)

    return begin


BROKER, CONTROLLER, QUORUM_LEADER = "broker", "controller", "quorum's leader"
ALL_LINKS, BROKER_LINKS = "all links", "links of brokers"
FAILING_DISK: Final = "disk fails (EIO)"

FAULTS: Final = (
    Fault("kill -9", BROKER, _kill, _start),
    Fault("kill -9", CONTROLLER, _kill, _start),
    Fault("kill -9", QUORUM_LEADER, _kill_voter, _start_voter),
    Fault("SIGSTOP", BROKER, _pause, _resume),
    Fault("SIGSTOP", CONTROLLER, _pause, _resume),
    Fault("controlled shutdown", BROKER, _stop, _start),
    Fault("controlled shutdown", CONTROLLER, _stop, _start),
    Fault("cut from brokers, both ways", BROKER, _cut_from_brokers, _heal),
    Fault("cut from brokers, both ways", CONTROLLER, _cut_from_brokers, _heal),
    Fault("cut from brokers, outbound", BROKER, _mute_to_brokers, _heal),
    Fault("cut from brokers, outbound", CONTROLLER, _mute_to_brokers, _heal),
    Fault("cut from brokers, inbound", BROKER, _deaf_to_brokers, _heal),
    Fault("cut from brokers, inbound", CONTROLLER, _deaf_to_brokers, _heal),
    Fault("cut from one broker", BROKER, _cut_pair, _heal),
    Fault("cut from one broker", CONTROLLER, _cut_pair, _heal),
    Fault("cut from the quorum", BROKER, _cut_from_quorum, _heal),
    Fault("cut from the quorum", CONTROLLER, _cut_from_quorum, _heal),
    Fault("cut from all", BROKER, _unplug, _heal),
    Fault("cut from all", CONTROLLER, _unplug, _heal),
    Fault("full disk", BROKER, _fill_disk, _free_disk, shows=" is full ("),
    Fault("full disk", CONTROLLER, _fill_disk, _free_disk, shows=" is full ("),
    Fault(FAILING_DISK, BROKER, _fail_disk, _replace_disk, shows="cannot write log directory"),
    Fault(FAILING_DISK, CONTROLLER, _fail_disk, _replace_disk, shows="cannot write log directory"),
    Fault("delay 100 ms", ALL_LINKS, _impaired(delay_ms=100), _heal, 30.0),
    Fault("delay 100 ms", BROKER_LINKS, _impaired(delay_ms=100, between=HOSTS), _heal, 30.0),
    Fault("delay 500 ms", BROKER_LINKS, _impaired(delay_ms=500, between=HOSTS), _heal, 30.0),
    Fault("10 % loss", ALL_LINKS, _impaired(loss=0.1), _heal, 30.0),
    Fault("10 % loss", BROKER_LINKS, _impaired(loss=0.1, between=HOSTS), _heal, 30.0),
)

QUICK: Final = ("kill -9", "cut from brokers, both ways")
