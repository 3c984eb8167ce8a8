"""The response to DescribeUserScramCredentials. It never contains the credentials themselves."""

from collections import Counter
from collections.abc import Sequence

from quorate.broker.common.steps import ITEMS_IN_A_STEP, Steps, sorted_in_steps
from quorate.metadata_log.image import Image, ScramKey
from quorate_proto.v1 import admin_pb2, errors_pb2


def describe_users(
    image: Image, users: Sequence[str]
) -> Steps[admin_pb2.DescribeUserScramCredentialsResponse]:
    """Return the mechanisms and iterations of these users, or of all users if none are named. They
    are sorted by user. This is done in steps.
    """
    wanted = frozenset(users)
    known: dict[str, list[admin_pb2.ScramCredentialInfo]] = {}
    ordered = yield from sorted_in_steps(image.scram, key=lambda one: one)
    for place, (user, mechanism) in enumerate(ordered, start=1):
        if not wanted or user in wanted:
            stored = image.scram[ScramKey(user, mechanism)]
            known.setdefault(user, []).append(
                admin_pb2.ScramCredentialInfo(mechanism=mechanism, iterations=stored.iterations)
            )
        if not place % ITEMS_IN_A_STEP:
            yield
    response = admin_pb2.DescribeUserScramCredentialsResponse()
    times = Counter(users) or dict.fromkeys(known, 1)
    named = sorted(times) if users else times
    for place, user in enumerate(named, start=1):
        response.users.append(_described(user, times[user], known.get(user)))
        if not place % ITEMS_IN_A_STEP:
            yield
    return response


def _described(
    user: str, times: int, known: list[admin_pb2.ScramCredentialInfo] | None
) -> admin_pb2.DescribedScramUser:
    if times > 1:
        return admin_pb2.DescribedScramUser(
            user=user,
            error_code=errors_pb2.DUPLICATE_RESOURCE,
            error_message=f"user {user!r} is named {times} times",
        )
    if known is None:
        return admin_pb2.DescribedScramUser(
            user=user,
            error_code=errors_pb2.RESOURCE_NOT_FOUND,
            error_message=f"user {user!r} has no SCRAM credential",
        )
    return admin_pb2.DescribedScramUser(user=user, credentials=known)
