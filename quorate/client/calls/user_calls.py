"""Describes and alters the credentials of users that log in by SCRAM."""

from collections.abc import Sequence

from quorate.client.call_steps import Steps, ToAnyBroker, ToController
from quorate.client.errors import RequestFailed
from quorate.client.results import ScramDeletion, ScramResult, ScramUpsertion, ScramUser
from quorate_proto.v1 import admin_pb2, errors_pb2


def alter_user_scram_credentials(
    changes: Sequence[ScramUpsertion | ScramDeletion],
) -> Steps[list[ScramResult]]:
    """Set and remove credentials; return one result per user. A user's changes are made
    together."""
    request = admin_pb2.AlterUserScramCredentialsRequest(
        upsertions=[one.to_proto() for one in changes if isinstance(one, ScramUpsertion)],
        deletions=[one.to_proto() for one in changes if isinstance(one, ScramDeletion)],
    )
    answer: admin_pb2.AlterUserScramCredentialsResponse = yield ToController(
        "AlterUserScramCredentials", request, "changing SCRAM credentials"
    )
    return [ScramResult.from_proto(result) for result in answer.results]


def describe_user_scram_credentials(users: Sequence[str] = ()) -> Steps[list[ScramUser]]:
    """Return the named users, or all users, that have credentials; sorted by name."""
    request = admin_pb2.DescribeUserScramCredentialsRequest(users=dict.fromkeys(users))
    answer: admin_pb2.DescribeUserScramCredentialsResponse = yield ToAnyBroker(
        "DescribeUserScramCredentials", request
    )
    if answer.error_code != errors_pb2.NONE:
        raise RequestFailed(answer.error_code, answer.error_message)
    return [
        ScramUser.from_proto(user) for user in answer.users if user.error_code == errors_pb2.NONE
    ]
