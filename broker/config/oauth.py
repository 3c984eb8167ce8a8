"""The keys of OAUTHBEARER, by which clients authenticate with tokens of an identity provider
(KIP-255, KIP-768)."""

from typing import Final

from quorate.common.configuration import ConfigKey

SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Final = ConfigKey(
    name="sasl.oauthbearer.jwks.endpoint.url",
    type=str,
    default="",
    pattern=r"((https?|file)://\S+)?",
    form="an https, http or file URL",
    doc="Where the keys are that tokens are signed with: a JSON Web Key Set. OAUTHBEARER needs it. "
    "Use http:// on loopback only: whoever can change the answer can sign tokens.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS: Final = ConfigKey(
    name="sasl.oauthbearer.jwks.endpoint.refresh.ms",
    type=int,
    default=3_600_000,
    at_least=1_000,
    doc="How often the keys are fetched again. A token with an unknown key has them fetched "
    "sooner.",
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Final = ConfigKey(
    name="sasl.oauthbearer.expected.audience",
    type=str,
    default="",
    is_list=True,
    doc="Audiences, with commas between, one of which a token must be for. Empty: any, which is "
    "discouraged.",
)
SASL_OAUTHBEARER_EXPECTED_ISSUER: Final = ConfigKey(
    name="sasl.oauthbearer.expected.issuer",
    type=str,
    default="",
    doc="The issuer that a token must be from. Empty: any, which is discouraged.",
)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME: Final = ConfigKey(
    name="sasl.oauthbearer.scope.claim.name",
    type=str,
    default="scope",
    pattern=r".*\S.*",
    form="a name",
    doc="The claim of a token with its scopes. They are checked to be texts, and give no rights.",
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Final = ConfigKey(
    name="sasl.oauthbearer.sub.claim.name",
    type=str,
    default="sub",
    pattern=r".*\S.*",
    form="a name",
    doc="The claim of a token with the name of the user.",
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Final = ConfigKey(
    name="sasl.oauthbearer.clock.skew.seconds",
    type=int,
    default=30,
    at_least=0,
    at_most=3_600,
    doc="How far the clocks of the broker and of the identity provider may differ.",
)
