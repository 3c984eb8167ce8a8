"""Groups whose coordinator moves while a command asks for it."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from quorate.cli.groups.moving_coordinators import answer_of

LOADING = KafkaError.COORDINATOR_LOAD_IN_PROGRESS


class Coordinator:
    """Answers with errors first, by a clock of its own."""

    def __init__(self, *errors: int) -> None:
        self._errors = list(errors)
        self.now_s = 0.0
        self.asked = 0

    def ask(self) -> "Future[str]":
        self.asked += 1
        future: Future[str] = Future()
        if self._errors:
            future.set_exception(KafkaException(KafkaError(self._errors.pop(0))))
        else:
            future.set_result("offsets")
        return future

    def answer(self, timeout_s: float) -> str:
        return answer_of(self.ask, timeout_s, now_s=lambda: self.now_s, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_coordinator_that_is_loading_is_asked_again() -> None:
    coordinator = Coordinator(LOADING, KafkaError.NOT_COORDINATOR, LOADING)
    assert coordinator.answer(5) == "offsets"
    assert coordinator.asked == 4


def test_a_coordinator_that_goes_on_loading_is_an_error_at_the_timeout() -> None:
    coordinator = Coordinator(*[LOADING] * 100)
    with pytest.raises(KafkaException):
        coordinator.answer(5)
    assert 4.5 < coordinator.now_s <= 5


def test_what_the_group_itself_refuses_is_not_asked_again() -> None:
    coordinator = Coordinator(KafkaError.NON_EMPTY_GROUP)
    with pytest.raises(KafkaException):
        coordinator.answer(5)
    assert coordinator.asked == 1
