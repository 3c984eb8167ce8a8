"""``quorate metadata``: what is refused before anybody is asked."""

import pytest

from quorate.cli.main import run

NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/brokers/topics/orders", "quorate topics"),
        ("/admin/delete_topics/orders", "quorate topics delete"),
        ("/features/inter_broker_protocol", "quorate features"),
        ("/config/topic/orders", "quorate configs"),
        ("/quotas/users/anna", "quorate configs --entity-type users"),
        ("/acls/topic/literal/orders", "quorate acls"),
        ("/scram/anna", "quorate users"),
        ("/tokens/t1", "quorate tokens"),
        ("/quorum/voters", "quorate quorum add-voter"),
        ("/controller_epoch", "only ever grows"),
        ("/elsewhere", "only /controller is"),
    ],
)
def test_e5_q14_nothing_but_the_controller_is_written_by_hand(
    path: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metadata", "rm", path, *NOWHERE]) == 2
    assert instead in capsys.readouterr().err
    assert run(["metadata", "set", path, "1", *NOWHERE]) == 2
    assert f"{path} is not set by hand" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["nobody", "-1", "true", "{}", '{"brokerid": "2"}', "1.5"])
def test_e1_what_names_no_broker_is_no_controller(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metadata", "set", *NOWHERE, "/controller", "--", value]) == 2
    assert "names no broker" in capsys.readouterr().err


def test_one_address_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metadata", "ls", *NOWHERE, "--data", "d"]) == 2
    assert "not two of them" in capsys.readouterr().err
