"""Whom a controller reaches: who was asked, who has answered, and what is not known yet."""

from types import SimpleNamespace
from typing import cast

from quorate.broker.controller.broker_probes import (
    ANSWER_HOLDS_MS,
    PAUSE_MS,
    PROBE_INTERVAL_MS,
    PROBE_TIMEOUT_MS,
    ReachedBrokers,
)
from quorate.common.types import BrokerEpoch, BrokerId
from quorate.metadata_log.image import Broker, Image

OWN, TWO = BrokerId(1), BrokerId(2)


def broker(number: int, epoch: int = 7) -> Broker:
    return cast("Broker", SimpleNamespace(broker_id=BrokerId(number), epoch=BrokerEpoch(epoch)))


def image(*brokers: Broker) -> Image:
    return cast("Image", SimpleNamespace(brokers={one.broker_id: one for one in brokers}))


class Asked:
    """Brokers 1, which asks, and 2."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.two = broker(2)
        self.reached = ReachedBrokers()
        self.reached.look(0)
        self.reached.ask(self.two, 0)

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 250):
            self.now_ms += 250
            self.reached.look(self.now_ms)

    @property
    def image(self) -> Image:
        return image(broker(1), self.two)

    @property
    def unreached(self) -> list[BrokerId]:
        return [one.broker_id for one in self.reached.unreached(self.image, self.now_ms)]

    @property
    def undecided(self) -> list[BrokerId]:
        return list(self.reached.undecided(self.image, OWN, self.now_ms))


def test_a_broker_is_undecided_until_it_answers_or_its_time_is_over() -> None:
    asked = Asked()
    asked.pass_time(PROBE_TIMEOUT_MS - 250)
    assert (asked.unreached, asked.undecided) == ([], [TWO])
    asked.pass_time(250)
    assert (asked.unreached, asked.undecided) == ([TWO], [])
    asked.reached.answer(asked.two, asked.now_ms)
    assert (asked.unreached, asked.undecided) == ([], [])


def test_more_probes_without_an_answer_do_not_give_more_time() -> None:
    asked = Asked()
    asked.pass_time(PROBE_INTERVAL_MS)
    asked.reached.ask(asked.two, asked.now_ms)
    asked.pass_time(PROBE_TIMEOUT_MS - PROBE_INTERVAL_MS)
    assert asked.unreached == [TWO]


def test_an_answer_holds_until_the_next_one_is_due() -> None:
    asked = Asked()
    asked.reached.answer(asked.two, 0)
    assert not asked.reached.is_due(asked.two, PROBE_INTERVAL_MS - 1)
    assert asked.reached.is_due(asked.two, PROBE_INTERVAL_MS)
    asked.pass_time(ANSWER_HOLDS_MS)
    assert asked.undecided == []
    asked.pass_time(250)
    assert asked.undecided == [TWO]


def test_what_a_process_missed_while_it_stood_still_is_no_evidence() -> None:
    asked = Asked()
    asked.now_ms += PAUSE_MS + 10 * PROBE_TIMEOUT_MS
    asked.reached.look(asked.now_ms)
    assert asked.unreached == []
    asked.pass_time(PROBE_TIMEOUT_MS)
    assert asked.unreached == [TWO]


def test_b3_another_incarnation_has_the_whole_time() -> None:
    asked = Asked()
    asked.pass_time(PROBE_TIMEOUT_MS)
    asked.two = broker(2, epoch=8)
    assert (asked.unreached, asked.undecided) == ([], [TWO])
