"""Three brokers and three voters, each on a host of its own, so that links between brokers can be
cut while all of them see the quorum.

Voter N is on host N + 3. Everything else is as the guide says (``three_hosts``).
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import guide
from tests.support.deployment import Deployment
from tests.support.failing_disks import FailingDisks
from tests.support.network_console import Console
from tests.support.network_lab import NETWORK, NetworkLab, address_of
from tests.support.quorum_console import open_desk
from tests.support.three_hosts import CLUSTER_PORTS, CONSOLE, HOSTS, ThreeHosts

VOTER_HOSTS: Final = tuple(host + 3 for host in HOSTS)
_VOTER_ADDRESS: Final = re.compile(rf"{re.escape(NETWORK)}\.([123]):(700|710)")


class SixHosts(ThreeHosts):
    """``HOSTS`` have brokers alone, ``VOTER_HOSTS`` the voters."""

    def voter(self, host: int) -> str:
        return f"{address_of(host + 3)}:{CLUSTER_PORTS['quorum']}"

    def start(self, kind: str, host: int) -> None:
        if kind == "broker":
            super().start(kind, host)
            return
        _, *arguments = guide.unit_command(f"quorate-{kind}", host)
        command = [sys.executable, "-P", "-m", "quorate.cli.main"]
        command += [self._placed(argument, host) for argument in arguments]
        with self.log_path(kind, host).open("ab") as output:
            self.processes[kind, host] = self.lab.spawn(
                host + 3, command, output, cwd=self.working(host)
            )

    def _placed(self, text: str, host: int) -> str:
        return _VOTER_ADDRESS.sub(
            lambda found: f"{address_of(int(found[1]) + 3)}:{found[2]}", super()._placed(text, host)
        )


@contextmanager
def six_hosts(folder: Path, *, broker_settings: Sequence[str] = ()) -> Iterator[Deployment]:
    """Installed, configured and started; nothing of it is left afterwards."""
    with NetworkLab([*HOSTS, *VOTER_HOSTS, CONSOLE], FailingDisks(folder)) as lab:
        hosts = SixHosts(lab, folder, broker_settings=broker_settings)
        with hosts, Console(lab.namespace(CONSOLE)) as console:
            hosts.install()
            for host in HOSTS:
                hosts.start("quorum", host)
                hosts.start("broker", host)
            console.call(open_desk, str(hosts.command_config()), hosts.voters)
            deployed = Deployment(hosts, console)
            deployed.wait_until_whole()
            yield deployed
