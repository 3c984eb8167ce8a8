"""The three hosts of the deployment guide, running, and a console from which a test works."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.failing_disks import FailingDisks
from tests.support.network_console import Console
from tests.support.network_lab import NetworkLab
from tests.support.quorum_console import Seen, linearizable_read, open_desk, quorum_status
from tests.support.three_hosts import CONSOLE, HOSTS, ThreeHosts
from tests.support.waiting import wait_until

PATIENCE_S: Final = 30.0

SESSION_TIMEOUT_MS: Final = 1_500
"""A broker's session timeout. It is shorter than in production, so that tests need not wait."""


class Deployment:
    """The three hosts, and a console from which clients and administrators work."""

    def __init__(self, hosts: ThreeHosts, console: Console) -> None:
        self.hosts = hosts
        self.console = console
        self.lab = hosts.lab

    @property
    def disks(self) -> FailingDisks:
        """Return the brokers' disks, of a lab that was given some."""
        assert self.lab.disks is not None
        return self.lab.disks

    def seen(self, host: int) -> Seen | None:
        """The state of the quorum as the host's voter sees it."""
        return self.console.call(quorum_status, self.hosts.voter(host))

    def leader(self, *among: int) -> int:
        """Host of the voter that says it leads, of ``among`` or all."""
        found: list[int] = []

        def found_one() -> bool:
            for host in among or HOSTS:
                seen = self.seen(host)
                if seen is not None and seen.leader_id == host:
                    found.append(host)
                    return True
            return False

        self.wait_until(found_one, f"a leader among {among or HOSTS}")
        return found[0]

    def term(self) -> int:
        seen = self.seen(self.leader())
        assert seen is not None
        return seen.term

    def term_among(self, hosts: Iterable[int]) -> int:
        """The highest term that a voter knows of."""
        return max(seen.term for host in hosts if (seen := self.seen(host)) is not None)

    def wait_until_whole(self) -> int:
        """Wait until all voters follow one leader and hear from it; return that leader."""
        leaders: set[int] = set()

        def agree() -> bool:
            seen = [self.seen(host) for host in HOSTS]
            leaders.clear()
            leaders.update(0 if each is None else each.leader_id for each in seen)
            return len(leaders) == 1 and 0 not in leaders

        self.wait_until(agree, "all voters to follow one leader")
        return leaders.pop()

    def serves_reads(self, host: int) -> bool:
        """Whether the voter answers a linearizable read."""
        return self.console.call(linearizable_read, self.hosts.voter(host), 1.5) is not None

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, lambda: f"{what}\n{self.hosts.logs()}", timeout_s=PATIENCE_S)


@contextmanager
def deployment(
    folder: Path,
    *,
    brokers: bool,
    broker_settings: Sequence[str] = (),
    more_hosts: Sequence[int] = (),
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
) -> Iterator[Deployment]:
    """Installed, configured and started as the guide says; nothing of it is left afterwards.

    ``broker_settings``: lines of configuration besides. ``more_hosts``: empty ones besides.
    """
    with NetworkLab([*HOSTS, CONSOLE, *more_hosts]) as lab:
        session = f'"broker.session.timeout.ms" = {session_timeout_ms}'
        hosts = ThreeHosts(lab, folder, broker_settings=(session, *broker_settings))
        with hosts, Console(lab.namespace(CONSOLE)) as console:
            hosts.install()
            for host in HOSTS:
                hosts.start("quorum", host)
                if brokers:
                    hosts.start("broker", host)
            console.call(open_desk, str(hosts.command_config()), hosts.voters)
            deployed = Deployment(hosts, console)
            deployed.wait_until_whole()
            yield deployed
