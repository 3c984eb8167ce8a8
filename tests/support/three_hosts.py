"""The deployment of ``docs/DEPLOY.md`` on a ``NetworkLab``: three hosts, each a voter and a broker.

Every host has its own ``/etc/quorate`` and ``/var/lib/quorate`` under a temporary folder; commands,
configuration and the way a process is started are the guide's and those of ``deploy/``.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.support import guide
from tests.support.network_lab import NetworkLab, address_of

HOSTS: Final = (1, 2, 3)
CONSOLE: Final = 9
"""A host besides, for administrators and clients."""

CLUSTER_PORTS: Final = {"raft": 7001, "quorum": 7101, "kafka": 9092, "broker": 9192, "peers": 9193}
_COMMAND_TIMEOUT_S: Final = 60


class ThreeHosts:
    """``…_settings``: further lines of configuration, which a test wants and the guide does not."""

    def __init__(
        self,
        lab: NetworkLab,
        folder: Path,
        *,
        voter_settings: Sequence[str] = (),
        broker_settings: Sequence[str] = (),
    ) -> None:
        self.lab = lab
        self.folder = folder
        self._settings = {"quorum": voter_settings, "broker": broker_settings}
        self.processes: dict[tuple[str, int], subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    # -- addresses -------------------------------------------------------------------------------

    @property
    def voters(self) -> list[str]:
        """gRPC addresses of the quorum."""
        return [self.voter(host) for host in HOSTS]

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for Kafka clients."""
        return ",".join(f"{address_of(host)}:{CLUSTER_PORTS['kafka']}" for host in HOSTS)

    def voter(self, host: int) -> str:
        return f"{address_of(host)}:{CLUSTER_PORTS['quorum']}"

    # -- following the guide ---------------------------------------------------------------------

    def install(self) -> None:
        """Certificates and configuration, as the guide makes them."""
        self.run_step("certificates", CONSOLE)
        for host in (*HOSTS, CONSOLE):
            certificates = self.root(host) / "etc/quorate/certs"
            certificates.mkdir(parents=True)
            for name in ("admin.pem", "truststore.pem"):
                shutil.copy(self.working(CONSOLE) / "certs" / name, certificates)
        for host in HOSTS:
            (self.root(host) / "var/lib/quorate").mkdir(parents=True)
            for name in (f"voter-{host}.pem", f"broker-{host}.pem"):
                shutil.copy(
                    self.working(CONSOLE) / "certs" / name, self.root(host) / "etc/quorate/certs"
                )
        for host in (*HOSTS, CONSOLE):
            self.run_step("configuration", host)
            for path in (self.root(host) / "etc/quorate").glob("*.toml"):
                kind = path.name.partition("-")[0]
                more = "".join(f"\n{line}" for line in self._settings.get(kind, ()))
                path.write_text(self._placed(path.read_text(), host) + more)

    def run_step(self, name: str, host: int) -> str:
        """Run a step of the guide on ``host``; what it prints."""
        return self.run_script(guide.step(name), host)

    def run_script(self, script: str, host: int) -> str:
        """Run shell commands in the guide's words on ``host``; what they print."""
        return self.run(host, ["sh", "-eu", "-c", self._placed(script, host)])

    def run(self, host: int, command: Sequence[str], *, code: int = 0) -> str:
        """Standard output of a command on ``host`` that is expected to end with ``code``."""
        done = subprocess.run(
            self.lab.command(host, command),
            cwd=self.working(host),
            env=self._environment(host),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, f"{command}: {done.stderr}{done.stdout}"
        return done.stdout

    def start(self, kind: str, host: int) -> None:
        """Start a process as ``systemctl start quorate-KIND@HOST`` does."""
        program, *arguments = guide.unit_command(f"quorate-{kind}", host)
        assert program == "/opt/quorate/bin/quorate"
        command = [sys.executable, "-P", "-m", "quorate.cli.main"]
        command += [self._placed(argument, host) for argument in arguments]
        with self.log_path(kind, host).open("ab") as output:
            self.processes[kind, host] = self.lab.spawn(
                host, command, output, cwd=self.working(host)
            )

    def stop(self, kind: str, host: int) -> int:
        """SIGTERM, as systemd sends it; the exit code."""
        process = self.processes.pop((kind, host))
        process.terminate()
        try:
            return process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def wait_for_end(self, kind: str, host: int) -> int:
        """Exit code of a process that is expected to end by itself."""
        return self.processes.pop((kind, host)).wait(timeout=30)

    def kill(self, kind: str, host: int) -> None:
        process = self.processes.pop((kind, host))
        process.kill()
        process.wait()

    # -- places ----------------------------------------------------------------------------------

    def root(self, host: int) -> Path:
        """Return the folder that stands for ``/`` on the host, as far as the guide goes."""
        return self.folder / f"host-{host}"

    def working(self, host: int) -> Path:
        """Return the folder in which an administrator works, with the project's ``deploy`` folder
        at hand."""
        path = self.root(host) / "work"
        if not path.exists():
            path.mkdir(parents=True)
            (path / "deploy").symlink_to(guide.DEPLOY)
        return path

    def data_dir(self, kind: str, host: int) -> Path:
        return self.root(host) / f"var/lib/quorate/{kind}-{host}"

    def command_config(self, host: int = CONSOLE) -> Path:
        return self.root(host) / "etc/quorate/admin.toml"

    def log_path(self, kind: str, host: int) -> Path:
        return self.root(host) / f"{kind}.log"

    def logs(self) -> str:
        """The end of what every process has said, for a failing test."""
        parts = []
        for kind in ("quorum", "broker"):
            for host in HOSTS:
                path = self.log_path(kind, host)
                if path.exists():
                    lines = path.read_text(errors="replace").splitlines()[-40:]
                    parts.append("\n".join([f"--- {kind} {host}", *lines]))
        return "\n".join(parts)

    def _placed(self, text: str, host: int) -> str:
        """The guide's absolute folders, in this host's own place."""
        for path in ("/etc/quorate", "/var/lib/quorate"):
            text = text.replace(path, f"{self.root(host)}{path}")
        return text

    def _environment(self, host: int) -> dict[str, str]:
        tools = self.folder / "bin"
        if not tools.exists():
            tools.mkdir()
            script = tools / "quorate"
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m quorate.cli.main "$@"\n')
            script.chmod(0o755)
        voters = ",".join(self.voters)
        return {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "ID": str(host),
            "VOTERS": voters,
        }
