"""Rights on delegation tokens, and the response to DescribeDelegationTokens (KIP-48)."""

from collections.abc import Callable

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import ITEMS_IN_A_STEP, Steps, sorted_in_steps
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.authorizer import Authorizer, Rights, caller_of
from quorate.broker.security.principal import ANONYMOUS
from quorate.broker.security.token_secrets import SecretKeys, TokenKeys, secret_of
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.metadata_log.image import DelegationTokenState, Image
from quorate.metadata_log.records import DelegationTokenSet
from quorate_proto.v1 import admin_pb2, errors_pb2

MayDescribe = Callable[[str, DelegationTokenState], bool]
"""Returns whether the client may see another user's token. The client does not see the secret of
that token.
"""


def describing_with(rights: Rights) -> MayDescribe:
    """Return a check that uses the rights on the token or on its owner (KIP-373)."""

    def may(token_id: str, token: DelegationTokenState) -> bool:
        return rights.may(
            AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id, log_denied=False
        ) or rights.may(
            AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, log_denied=False
        )

    return may


def requester_of(context: admin_pb2.RequestContext) -> str:
    """Return the principal that sent the request. Requests about tokens are refused unless the
    client has authenticated, and not by a token.

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


def check_enabled(keys: SecretKeys) -> None:
    """Refuse requests about delegation tokens if there are no keys for them.

    Raises:
        KafkaError: DELEGATION_TOKEN_AUTH_DISABLED.
    """
    if not keys:
        raise KafkaError(
            errors_pb2.DELEGATION_TOKEN_AUTH_DISABLED,
            "there are no delegation tokens: set delegation.token.secret.key or "
            "delegation.token.secret.key.file on all brokers, and see their logs",
        )


def is_owner_or_renewer(token: DelegationTokenState, principal: str) -> bool:
    """Return whether the principal may renew and expire the token, and see its secret."""
    return principal in (token.owner, token.requester) or principal in token.renewers


def describe_tokens(
    image: Image,
    request: admin_pb2.DescribeDelegationTokensRequest,
    keys: SecretKeys,
    may_describe: MayDescribe = lambda token_id, token: True,
) -> Steps[admin_pb2.DescribeDelegationTokensResponse]:
    """Return the tokens of the named owners, or of all owners if none is named, sorted by id, in
    steps. Tokens that the client may not see are left out.

    Kafka shows the secret to every client that may describe a token. Here only the owner, the
    requester and the renewers see it. The secret is computed with the newest key, so that a client
    with a secret of an older key can change to the new one.
    """
    response = admin_pb2.DescribeDelegationTokensResponse()
    try:
        requester = requester_of(request.context)
        check_enabled(keys)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    owners = frozenset(request.owners)
    ordered = yield from sorted_in_steps(image.tokens.items(), key=lambda item: item[0])
    for place, (token_id, token) in enumerate(ordered, start=1):
        if not place % ITEMS_IN_A_STEP:
            yield
        if owners and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            continue
        is_user = is_owner_or_renewer(token, requester)
        if is_user or may_describe(token_id, token):
            secret = secret_of(keys[0], token_id) if is_user else b""
            response.tokens.append(described(token_id, token, secret))
    return response


class TokenDescription:
    """Describes delegation tokens from the newest image and the keys of this broker."""

    def __init__(self, images: MetadataFollower, keys: TokenKeys, authorizer: Authorizer) -> None:
        self._images = images
        self._keys = keys
        self._authorizer = authorizer

    def describe(
        self, request: admin_pb2.DescribeDelegationTokensRequest
    ) -> Steps[admin_pb2.DescribeDelegationTokensResponse]:
        """Return the tokens that the sender of the request may see, in steps."""
        rights = self._authorizer.rights_of(caller_of(request.context))
        return describe_tokens(self._images.image, request, self._keys(), describing_with(rights))


def described(
    token_id: str, token: DelegationTokenState | DelegationTokenSet, secret: bytes = b""
) -> admin_pb2.DelegationToken:
    """Return the description of a token for clients."""
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
