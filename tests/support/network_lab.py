"""Hosts of their own on one machine: network namespaces on a switch, with links that can be cut.

with NetworkLab([1, 2, 3]) as lab:
    process = lab.spawn(1, ["sleep", "9"], output)
    lab.cut_one_way(1, 2)       # 1 hears 2, 2 hears nothing from 1
    lab.heal()

Everything lives in namespaces of this run, the switch too: deleting them removes every trace. A cut
loses packets without a word, as a broken cable or a firewall that drops does: a sender whose
neighbour entry names nobody's hardware address sends into the void. That needs neither netfilter
nor a queueing discipline in the kernel.
"""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Final, Self

from tests.support.failing_disks import FailingDisks

NETWORK: Final = "10.20.0"
_DEVICE: Final = "eth0"
_NOBODY: Final = "02:00:00:00:00:ff"


@functools.cache
def why_not() -> str:
    """Why namespaces cannot be made here; empty: they can."""
    if shutil.which("ip") is None:
        return "there is no `ip` command (iproute2)"
    lab = NetworkLab([1, 2])
    try:
        with lab:
            return ""
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().splitlines() or [f"exit code {error.returncode}"]
        return f"network namespaces are not permitted here ({said[-1]})"


def address_of(host: int) -> str:
    return f"{NETWORK}.{host}"


class NetworkLab:
    """Hosts by number; host N has the address 10.20.0.N."""

    def __init__(self, hosts: Iterable[int], disks: FailingDisks | None = None) -> None:
        """``disks``: those of the processes that are started."""
        self.hosts = tuple(hosts)
        self.disks = disks
        self._run = f"quorate-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._cuts: set[tuple[int, int]] = set()
        self._unplugged: set[int] = set()
        self._impaired: set[int] = set()
        self._soft_switch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def _build(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        for host in self.hosts:
            name = self.namespace(host)
            _ip("netns", "add", name)
            _ip("-n", name, "link", "add", _DEVICE, "type", "veth", "peer", "name", f"port{host}")
            _ip("-n", name, "link", "set", f"port{host}", "netns", self._switch)
            _ip("-n", self._switch, "link", "set", f"port{host}", "master", "br0", "up")
            _ip("-n", name, "address", "add", f"{address_of(host)}/24", "dev", _DEVICE)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", _DEVICE, "up")

    def destroy(self) -> None:
        """Remove the namespaces, and with them every link. Processes in them must have ended."""
        self._end_soft_switch()
        for name in (*map(self.namespace, self.hosts), self._switch):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    @property
    def _switch(self) -> str:
        return f"{self._run}-switch"

    def namespace(self, host: int) -> str:
        return f"{self._run}-{host}"

    # -- processes -------------------------------------------------------------------------------

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """``command`` as it is run on ``host``; its process id is the command's own."""
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def spawn(
        self, host: int, command: Sequence[str], output: IO[bytes], cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        more = {} if self.disks is None else self.disks.environment(host)
        return subprocess.Popen(
            self.command(host, command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **more},
        )

    # -- links -----------------------------------------------------------------------------------

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """Nothing from ``sender`` reaches ``receiver`` any more; the other way still works."""
        self._cuts.add((sender, receiver))
        self._neighbour(sender, receiver, "replace", "lladdr", _NOBODY, "nud", "permanent")

    def cut(self, one: int, other: int) -> None:
        """Nothing gets through between the two."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def unplug(self, host: int) -> None:
        """Pull the cable of ``host`` out of the switch."""
        self._unplugged.add(host)
        _ip("-n", self._switch, "link", "set", f"port{host}", "down")

    def impair(self, *netem: str) -> str:
        """Treat what every host sends as ``tc … netem`` says; why that cannot be, or empty."""
        for host in self.hosts:
            try:
                self._queue(host, "replace", "netem", *netem)
            except subprocess.CalledProcessError as error:
                return f"this kernel has no netem ({str(error.stderr).strip()})"
            self._impaired.add(host)
        return ""

    def switch_softly(
        self, *, delay_ms: float = 0, loss: float = 0, between: Iterable[int] = ()
    ) -> None:
        """Delay what hosts send, and lose a part of it, without help from the kernel.

        ``between``: only what one of these hosts sends to another.
        """
        for host in self.hosts:
            self._run_soft_switch(self.namespace(host), "--no-offloads", _DEVICE).wait(timeout=30)
            _ip("-n", self._switch, "link", "set", f"port{host}", "nomaster")
        ports = [f"port{host}" for host in self.hosts]
        chosen = [f"port{host}" for host in between or self.hosts]
        options = (f"--delay-ms={delay_ms}", f"--loss={loss}", "--between", *chosen)
        self._soft_switch = self._run_soft_switch(self._switch, *ports, *options)

    def _run_soft_switch(self, namespace: str, *arguments: str) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("soft_switch.py")
        command = ["ip", "netns", "exec", namespace, sys.executable, str(script), *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def _end_soft_switch(self) -> None:
        if self._soft_switch is not None:
            self._soft_switch.kill()
            self._soft_switch.wait()
            self._soft_switch = None

    def heal(self) -> None:
        """All links work again."""
        if self._soft_switch is not None:
            self._end_soft_switch()
            for host in self.hosts:
                _ip("-n", self._switch, "link", "set", f"port{host}", "master", "br0")
        for host in self._impaired:
            self._queue(host, "delete")
        self._impaired.clear()
        for host in self._unplugged:
            _ip("-n", self._switch, "link", "set", f"port{host}", "up")
        self._unplugged.clear()
        for sender, receiver in self._cuts:
            self._neighbour(sender, receiver, "delete")
        self._cuts.clear()

    def _queue(self, host: int, verb: str, *more: str) -> None:
        command = ["tc", "-n", self.namespace(host), "qdisc", verb, "dev", _DEVICE, "root", *more]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)

    def _neighbour(self, host: int, other: int, verb: str, *more: str) -> None:
        name, target = self.namespace(host), address_of(other)
        _ip("-n", name, "neighbour", verb, target, "dev", _DEVICE, *more)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)
