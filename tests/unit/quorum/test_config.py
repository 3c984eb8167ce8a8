"""The configuration of a voter: what is wrong is named."""

from pathlib import Path

import pytest

from quorate.common.configuration import ConfigError
from quorate.common.types import Endpoint
from quorate.quorum.quorum_config import (
    ConfiguredVoter,
    load_quorum_config,
    parse_voters,
    quorum_config,
)

VALUES: dict[str, object] = {
    "node.id": 2,
    "cluster.id": "c",
    "data.dir": "data",
    "quorum.voters": "1@a:7001/7101,2@b:7002/7102",
    "ssl.keystore.location": "voter-2.pem",
    "ssl.truststore.location": "truststore.pem",
}


def test_values_and_defaults() -> None:
    config = quorum_config(VALUES)
    assert config.own == ConfiguredVoter(2, Endpoint("b", 7002), Endpoint("b", 7102))  # type: ignore[arg-type]
    assert (config.raft_options.election_timeout_min_s, config.cluster_id) == (0.3, "c")


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "voter.toml"
    path.write_text(
        '"node.id" = 1\n"cluster.id" = "c"\n"data.dir" = "d"\n'
        '"quorum.voters" = "1@localhost:7001/7101,2@127.0.0.1:7002/7102"\n'
        '"security.protocol" = "PLAINTEXT"\n'
    )
    assert load_quorum_config(path, {"node.id": "2"}).voter_id == 2


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"node.id": 3}, "node.id=3 is not among quorum.voters"),
        ({"cluster.id": ""}, "cluster.id is empty"),
        ({"raft.election.timeout.min.ms": 700}, "must be greater than"),
        ({"quorum.voters": "1@a:7001/7101,1@b:7002/7102"}, "twice"),
        ({"quorum.voters": "1@a:7001/7001"}, "twice"),
        ({"quorum.voters": "a:7001"}, "must be id@host:raftport/grpcport"),
        ({"quorum.voters": "1@a:7001/x"}, "must be host:port"),
        ({"quorum.voters": "1@a:0/7101"}, "must be fixed"),
        ({"log.level": "LOUD"}, "log.level=LOUD"),
        ({"security.protocol": "PLAINTEXT"}, "quorum.voters names a: use SSL"),
        ({"security.protocol": "TLS"}, "must be one of SSL, PLAINTEXT"),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location is missing.*quorate certs"),
        ({"ssl.truststore.location": ""}, "ssl.truststore.location is missing"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        quorum_config({**VALUES, **changed})


def test_voters_come_in_order_of_their_ids() -> None:
    voters = parse_voters("3@c:1/2, 1@a:1/2,2@b:1/2")
    assert [voter.voter_id for voter in voters] == [1, 2, 3]
