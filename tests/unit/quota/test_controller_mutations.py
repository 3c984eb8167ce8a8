import pytest

from quorate.broker.admin.metric_encoding import encode_metrics
from quorate.broker.quota import controller_mutation_quotas as controller_mutations
from quorate.broker.quota.controller_mutation_quotas import (
    ControllerMutationQuota,
    ControllerMutationQuotaManager,
)
from quorate.broker.quota.quota_errors import MutationQuotaExceeded
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate_proto.v1 import errors_pb2

ALICE = {ClientQuotaEntity(user="alice"): {"controller_mutation_rate": 10.0}}


class Clients:
    """Requests of clients to one controller, at a time that tests set."""

    def __init__(
        self, quotas: dict[ClientQuotaEntity, dict[str, float]], samples: int = 10
    ) -> None:
        self.window = QuotaWindow(samples, 1)
        self.manager = ControllerMutationQuotaManager(self.window)
        self.quotas = quotas
        self.now_ms = 0.0

    def change_controller(self) -> None:
        self.manager = ControllerMutationQuotaManager(self.window, empty_since_ms=self.now_ms)

    def ask(
        self, mutations: int, *, user: str = "alice", client_id: str = "a", strict: bool = True
    ) -> ControllerMutationQuota:
        quota = self.manager.quota_for(
            self.quotas, user, client_id, strict=strict, now_ms=self.now_ms
        )
        quota.record(mutations, self.now_ms)
        return quota

    def refused(self, mutations: int, *, user: str = "alice", client_id: str = "a") -> int:
        with pytest.raises(MutationQuotaExceeded) as raised:
            self.ask(mutations, user=user, client_id=client_id)
        assert raised.value.code == errors_pb2.THROTTLING_QUOTA_EXCEEDED
        return raised.value.throttle_time_ms

    def throttled(self, mutations: int) -> int:
        return self.ask(mutations, strict=False).throttle_time_ms(self.now_ms)

    def metric(self, name: str, user: str = "alice", client_id: str = "") -> float:
        (value,) = (
            metric.value
            for sample in self.manager.metrics(self.now_ms)
            for metric in encode_metrics(sample)
            if (metric.group, metric.name) == ("ControllerMutation", name)
            and dict(metric.tags) == {"user": user, "client-id": client_id}
        )
        return value


def test_s2_strict_refuses_what_comes_while_there_is_a_debt() -> None:
    clients = Clients(ALICE)

    assert clients.ask(90).throttle_time_ms(0) == 0
    assert clients.ask(90).throttle_time_ms(0) == 0
    assert clients.refused(90) == 8_000
    clients.now_ms = 5_000
    assert clients.refused(90) == 3_000
    clients.now_ms = 8_000
    clients.ask(90)


def test_s3_permissive_refuses_nothing_and_tells_how_long_to_mute() -> None:
    clients = Clients(ALICE)

    assert clients.throttled(90) == 0
    assert clients.throttled(90) == 8_000
    assert clients.throttled(90) == 17_000


def test_q2_what_is_refused_is_not_charged() -> None:
    clients = Clients(ALICE)
    clients.ask(180)

    assert clients.refused(90) == clients.refused(90) == 8_000


def test_q3_the_refusal_says_the_quota_and_when_to_try_again() -> None:
    clients = Clients(ALICE)
    clients.ask(180)

    with pytest.raises(MutationQuotaExceeded, match=r"quota of 10 .* again in 8000 ms"):
        clients.ask(1)


def test_q5_what_a_client_has_waited_for_its_answer_is_taken_off_its_throttle() -> None:
    clients = Clients(ALICE)
    quota = clients.ask(180, strict=False)

    assert quota.throttle_time_ms(3_000) == 5_000
    assert quota.throttle_time_ms(9_000) == 0


def test_q7_without_a_quota_nothing_is_counted() -> None:
    clients = Clients({ClientQuotaEntity(user="bob"): {"controller_mutation_rate": 1.0}})

    for _ in range(100):
        assert clients.ask(1_000).throttle_time_ms(0) == 0
    assert list(clients.manager.metrics(0)) == []


def test_q7_a_users_clients_share_its_quota_and_those_of_a_pair_do_not() -> None:
    clients = Clients(ALICE)
    clients.ask(180, client_id="a")
    assert clients.refused(1, client_id="b")

    clients = Clients({ClientQuotaEntity("alice", ""): {"controller_mutation_rate": 10.0}})
    clients.ask(180, client_id="a")
    clients.ask(180, client_id="b")
    assert clients.refused(1, client_id="b")


def test_q7_a_new_client_id_does_not_evade_a_users_quota_and_evades_one_of_client_ids() -> None:
    """The second is so in Kafka, too: each client id has the default quota for itself."""
    clients = Clients(ALICE)
    clients.ask(200, client_id="first")
    for number in range(50):
        assert clients.refused(1, client_id=f"made up {number}") == 10_000
    clients = Clients({ClientQuotaEntity(client_id=""): {"controller_mutation_rate": 10.0}})
    clients.ask(200, client_id="first")
    clients.refused(1, client_id="first")
    clients.ask(1, client_id="another")


def test_q7_a_changed_quota_holds_from_the_next_request_on_and_keeps_the_debt() -> None:
    clients = Clients(ALICE)
    clients.ask(180)

    clients.quotas = {ClientQuotaEntity(user="alice"): {"controller_mutation_rate": 20.0}}

    assert clients.refused(1) == 4_000
    clients.quotas = {}
    clients.ask(1)


def test_q8_the_burst_is_the_quota_times_all_windows() -> None:
    clients = Clients(ALICE, samples=11)
    clients.ask(110)
    clients.ask(1)

    assert clients.refused(1) == 100


def test_q9_metrics_tell_rate_tokens_and_average_throttle_time() -> None:
    clients = Clients(ALICE)
    clients.ask(90)
    clients.ask(90)
    clients.refused(90)
    clients.now_ms = 5_000
    clients.refused(90)

    assert clients.metric("tokens") == -30
    assert clients.metric("rate") == 180 / 9
    assert clients.metric("throttle-time") == (8_000 + 3_000) / 2


def test_q9_throttle_time_is_the_average_of_the_last_windows() -> None:
    clients = Clients(ALICE)
    clients.ask(180)
    assert clients.refused(90) == 8_000
    clients.now_ms = 7_000
    assert clients.refused(90) == 1_000
    assert clients.metric("throttle-time") == 4_500
    clients.now_ms = 10_000
    assert clients.metric("throttle-time") == 1_000
    clients.now_ms = 17_000
    assert clients.metric("throttle-time") == 0


def test_q15_a_change_of_the_controller_gives_no_second_burst() -> None:
    clients = Clients(ALICE)
    clients.ask(100)
    clients.now_ms = 1_000
    clients.change_controller()
    clients.ask(1)
    assert clients.refused(90) == 100, "as if the bucket had been empty"
    clients.now_ms = 5_000
    clients.ask(90)
    assert clients.metric("tokens") == 4 * 10 - 1 - 90


def test_q15_who_comes_later_has_what_was_added_since_the_change() -> None:
    clients = Clients(ALICE)
    clients.now_ms = 1_000
    clients.change_controller()
    clients.now_ms = 5_000
    clients.ask(1)
    assert clients.metric("tokens") == 4 * 10 - 1
    clients.change_controller()
    clients.now_ms = 100_000
    clients.ask(1)
    assert clients.metric("tokens") == 100 - 1, "never more than the burst"


def test_q9_clients_that_make_up_ids_do_not_fill_the_memory_nor_get_others_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_mutations, "CACHED_BUCKETS_MAX", 10)
    clients = Clients({ClientQuotaEntity(client_id=""): {"controller_mutation_rate": 10.0}})
    clients.ask(110_000, client_id="in debt")
    for number in range(100):
        clients.now_ms += 1_000
        clients.ask(1, client_id=f"made up {number}")

    assert len({metric.labels for metric in clients.manager.metrics(clients.now_ms)}) <= 11
    assert clients.refused(1, client_id="in debt") > 0
