"""Ports for clusters on one machine: free, held until used, and not those of the cluster beside."""

import random

import pytest

from quorate.cluster.errors import LocalClusterError
from quorate.cluster.ports import PortReservation


def test_what_is_held_is_not_given_to_another() -> None:
    with PortReservation() as first, PortReservation() as second:
        port = first.claim_any()
        with pytest.raises(LocalClusterError, match=rf"port {port} .*listener.*another"):
            second.claim(port, "a listener", "choose another")
        assert second.claim_from(port) > port
        first.release()
        assert second.claim(port, "a listener", "choose another") == port


def test_processes_with_the_same_seed_do_not_choose_the_same_ports() -> None:
    chosen = []
    for _ in range(2):
        random.seed(1)
        with PortReservation() as reservation:
            chosen.append([reservation.claim_any() for _ in range(3)])
    assert chosen[0] != chosen[1]


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with (
        PortReservation() as reservation,
        pytest.raises(LocalClusterError, match="65535: pick one"),
    ):
        reservation.claim(port, "a listener", "pick one")
