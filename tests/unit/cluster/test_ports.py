"""Ports for clusters on one machine: free, held until used, and not those of the cluster beside."""

import itertools
import json
import subprocess
import sys
from contextlib import ExitStack

import pytest

from quorate.cluster.cluster_ports import PortReservation, lease_stretch
from quorate.cluster.local_cluster_errors import LocalClusterError


def test_what_is_held_is_not_given_to_another() -> None:
    with PortReservation() as first, PortReservation() as second:
        port = first.claim_any()
        with pytest.raises(LocalClusterError, match=rf"port {port} .*listener.*another"):
            second.claim(port, "a listener", "choose another")
        assert second.claim_from(port) > port
        first.release()
        assert second.claim(port, "a listener", "choose another") == port


def test_processes_choose_from_ports_of_their_own() -> None:
    program = (
        "from quorate.cluster.cluster_ports import PortReservation\n"
        "with PortReservation() as held:\n"
        "    print([held.claim_any() for _ in range(200)], flush=True)\n"
        "input()"
    )
    with ExitStack() as running:
        others = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            for _ in range(2)
        ]
        chosen = [json.loads(next(iter(other.stdout or ()))) for other in others]
        with PortReservation() as own:
            chosen.append([own.claim_any() for _ in range(200)])
        for other in others:
            other.communicate(b"\n", timeout=30)
    assert len({port for ports in chosen for port in ports}) == 600


def test_a_lease_is_no_one_elses() -> None:
    stretches = [set(itertools.islice(lease_stretch(), 300)) for _ in range(5)]
    assert [len(stretch) for stretch in stretches] == [250] * 5
    assert len(set().union(*stretches)) == 5 * 250


def test_a_port_is_not_chosen_again_at_once() -> None:
    """Whose server was killed may come back to it."""
    chosen = set()
    for _ in range(100):
        with PortReservation() as held:
            chosen.add(held.claim_any())
    assert len(chosen) == 100


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with (
        PortReservation() as reservation,
        pytest.raises(LocalClusterError, match="65535: pick one"),
    ):
        reservation.claim(port, "a listener", "pick one")
