"""What the controller said about each topic of a request."""

from collections import Counter
from collections.abc import Iterable, Sequence

from quorate_proto.v1 import admin_pb2, errors_pb2


def named_twice(names: Iterable[str]) -> frozenset[str]:
    """Those that a request has more than once: the controller is not asked about them."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def result_per_topic(
    names: Sequence[str], results: Iterable[admin_pb2.TopicResult], error_code: int
) -> list[admin_pb2.TopicResult]:
    """One for each of ``names``, in their order.

    ``results``, ``error_code``: the controller's, about those that are not ``named_twice``, and of
    the request as a whole.
    """
    by_name = {result.name: result for result in results}
    by_name.update({name: _refused(name) for name in named_twice(names)})
    return [by_name.get(name) or unanswered(name, error_code) for name in dict.fromkeys(names)]


def unanswered(name: str, error_code: int) -> admin_pb2.TopicResult:
    """The controller said nothing about this topic: the whole request failed."""
    return admin_pb2.TopicResult(
        name=name, error_code=error_code or errors_pb2.UNKNOWN_SERVER_ERROR
    )


def _refused(name: str) -> admin_pb2.TopicResult:
    return admin_pb2.TopicResult(
        name=name,
        error_code=errors_pb2.INVALID_REQUEST,
        error_message=f"topic {name!r} is named more than once in the request",
    )
