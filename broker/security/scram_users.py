"""The response to DescribeUserScramCredentials. It never contains the credentials themselves."""

from collections import Counter
from collections.abc import Sequence

from quorate.metadata_log.image import Image, ScramKey
from quorate_proto.v1 import admin_pb2, errors_pb2


def describe_users(
    image: Image, users: Sequence[str]
) -> admin_pb2.DescribeUserScramCredentialsResponse:
    """Return the mechanisms and iterations of these users, or of all users if none are named. They
    are sorted by user.
    """
    wanted = frozenset(users)
    known: dict[str, list[admin_pb2.ScramCredentialInfo]] = {}
    for user, mechanism in sorted(image.scram):
        if not wanted or user in wanted:
            stored = image.scram[ScramKey(user, mechanism)]
            known.setdefault(user, []).append(
                admin_pb2.ScramCredentialInfo(mechanism=mechanism, iterations=stored.iterations)
            )
    times = Counter(users or list(known))
    return admin_pb2.DescribeUserScramCredentialsResponse(
        users=[_described(user, times[user], known.get(user)) for user in sorted(times)]
    )


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
