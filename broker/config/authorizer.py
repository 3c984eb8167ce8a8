"""The keys of the authorizer."""

from typing import Final

from quorate.common.configuration import ConfigKey

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

AUTHORIZER_CLASS_NAME: Final = ConfigKey(
    name="authorizer.class.name",
    type=str,
    default="",
    one_of=("", STANDARD_AUTHORIZER),
    doc="The authorizer. If empty, everything is allowed and access control entries have no "
    "effect. The one authorizer that exists has the rules and the name of Kafka's standard "
    "authorizer.",
)
SUPER_USERS: Final = ConfigKey(
    name="super.users",
    type=str,
    default="",
    doc="The principals that may do everything, separated by semicolons: User:alice;User:bob.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = ConfigKey(
    name="allow.everyone.if.no.acl.found",
    type=bool,
    default=False,
    doc="Whether everybody may use a resource that has no access control entry.",
)
