"""Who may do what with delegation tokens, and what any broker tells about them (KIP-48)."""

from collections.abc import Callable

from broker.errors import KafkaError
from broker.security.authorizer import Rights
from broker.security.principal import ANONYMOUS
from broker.security.token_keys import Keys
from broker.security.token_secrets import secret_of
from metadata_log.acls import AclOperation, ResourceType
from metadata_log.image import DelegationToken, Image
from metadata_log.records import DelegationTokenSet
from quorate_proto.v1 import admin_pb2, errors_pb2

MayDescribe = Callable[[str, DelegationToken], bool]
"""Whether the asker may see a token of somebody else's, by its id; its secret never."""


def describing_with(rights: Rights) -> MayDescribe:
    """By rights on the token, or on the user whose it is (KIP-373)."""

    def may(token_id: str, token: DelegationToken) -> bool:
        return rights.may(
            AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id, log_denied=False
        ) or rights.may(
            AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, log_denied=False
        )

    return may


def requester_of(context: admin_pb2.RequestContext) -> str:
    """Who asks; tokens are for those who have shown who they are, and not by a token.

    Raises:
        KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    if context.token_authenticated:
        raise KafkaError(
            errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "who comes with a delegation token can neither make, change nor see any: authenticate "
            "as the user itself",
        )
    if context.principal_name in ("", str(ANONYMOUS)):
        raise KafkaError(
            errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens are for authenticated clients: use a listener with SASL, or with "
            "SSL and client certificates",
        )
    return context.principal_name


def check_enabled(keys: Keys) -> None:
    """
    Raises:
        KafkaError: DELEGATION_TOKEN_AUTH_DISABLED.
    """
    if not keys:
        raise KafkaError(
            errors_pb2.DELEGATION_TOKEN_AUTH_DISABLED,
            "there are no delegation tokens: set delegation.token.secret.key or "
            "delegation.token.secret.key.file on all brokers, and see their logs",
        )


def is_theirs(token: DelegationToken, principal: str) -> bool:
    """Whether it is the principal's to renew, to end, and to know the secret of."""
    return principal in (token.owner, token.requester) or principal in token.renewers


def describe_tokens(
    image: Image,
    request: admin_pb2.DescribeDelegationTokensRequest,
    keys: Keys,
    may_describe: MayDescribe = lambda token_id, token: True,
) -> admin_pb2.DescribeDelegationTokensResponse:
    """The tokens that concern any of the owners that are named, none: all; as far as the asker may
    see them. By id.

    Kafka tells secrets to whoever may describe a token. Here they are told to those whose token it
    is, made with the newest key, so that holders of an older one can change over.
    """
    answer = admin_pb2.DescribeDelegationTokensResponse()
    try:
        asker = requester_of(request.context)
        check_enabled(keys)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    owners = frozenset(request.owners)
    for token_id, token in sorted(image.tokens.items()):
        if owners and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            continue
        theirs = is_theirs(token, asker)
        if theirs or may_describe(token_id, token):
            secret = secret_of(keys[0], token_id) if theirs else b""
            answer.tokens.append(described(token_id, token, secret))
    return answer


def described(
    token_id: str, token: DelegationToken | DelegationTokenSet, secret: bytes = b""
) -> admin_pb2.DelegationToken:
    """As it is told to clients."""
    return admin_pb2.DelegationToken(
        token_id=token_id,
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_ms=token.issue_ms,
        expiry_ms=token.expiry_ms,
        max_ms=token.max_ms,
        hmac=secret,
    )
