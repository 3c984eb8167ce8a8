"""Keys of the authorizer."""

from typing import Final

from metadata_log.configuration import ConfigKey

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

AUTHORIZER_CLASS_NAME: Final = ConfigKey(
    name="authorizer.class.name",
    type=str,
    default="",
    one_of=("", STANDARD_AUTHORIZER),
    doc="Whether access control entries are obeyed: empty: everything is allowed. The one "
    "authorizer there is has the rules of Kafka's standard one, and its name.",
)
SUPER_USERS: Final = ConfigKey(
    name="super.users",
    type=str,
    default="",
    doc="Who may do everything, with semicolons between: User:alice;User:bob.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = ConfigKey(
    name="allow.everyone.if.no.acl.found",
    type=bool,
    default=False,
    doc="Whether a resource that no access control entry is about is everybody's.",
)
