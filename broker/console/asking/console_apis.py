"""The Kafka APIs that the console uses, each in one version.

The version is one that names topics by name, because that is what people do. ``at`` says which
broker answers. Those that another broker must answer are the only ones that are carried out for
another broker's console.
"""

from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple


class AnsweredBy(Enum):
    """The broker that answers a request."""

    ANY = auto()
    """Any broker. Changes are forwarded to the controller by whoever gets them."""
    OWNER = auto()
    """The broker that has the data: a leader, a coordinator, or each about itself."""


class ConsoleApi(NamedTuple):
    """One API. ``name`` is in kio's spelling."""

    name: str
    key: int
    version: int
    answered_by: AnsweredBy = AnsweredBy.ANY


_OWNER: Final = AnsweredBy.OWNER

PRODUCE: Final = ConsoleApi("produce", 0, 9, _OWNER)
FETCH: Final = ConsoleApi("fetch", 1, 12, _OWNER)
LIST_OFFSETS: Final = ConsoleApi("list_offsets", 2, 7, _OWNER)
OFFSET_COMMIT: Final = ConsoleApi("offset_commit", 8, 8, _OWNER)
OFFSET_FETCH: Final = ConsoleApi("offset_fetch", 9, 8, _OWNER)
DESCRIBE_GROUPS: Final = ConsoleApi("describe_groups", 15, 5, _OWNER)
LIST_GROUPS: Final = ConsoleApi("list_groups", 16, 5, _OWNER)
CREATE_TOPICS: Final = ConsoleApi("create_topics", 19, 7)
DELETE_TOPICS: Final = ConsoleApi("delete_topics", 20, 5)
DESCRIBE_ACLS: Final = ConsoleApi("describe_acls", 29, 3)
CREATE_ACLS: Final = ConsoleApi("create_acls", 30, 3)
DELETE_ACLS: Final = ConsoleApi("delete_acls", 31, 3)
DESCRIBE_CONFIGS: Final = ConsoleApi("describe_configs", 32, 4, _OWNER)
DESCRIBE_LOG_DIRS: Final = ConsoleApi("describe_log_dirs", 35, 4, _OWNER)
CREATE_PARTITIONS: Final = ConsoleApi("create_partitions", 37, 3)
DELETE_GROUPS: Final = ConsoleApi("delete_groups", 42, 2, _OWNER)
ELECT_LEADERS: Final = ConsoleApi("elect_leaders", 43, 2)
INCREMENTAL_ALTER_CONFIGS: Final = ConsoleApi("incremental_alter_configs", 44, 1)
ALTER_PARTITION_REASSIGNMENTS: Final = ConsoleApi("alter_partition_reassignments", 45, 1)
DESCRIBE_CLIENT_QUOTAS: Final = ConsoleApi("describe_client_quotas", 48, 1)
ALTER_CLIENT_QUOTAS: Final = ConsoleApi("alter_client_quotas", 49, 1)
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = ConsoleApi("describe_user_scram_credentials", 50, 0)
ALTER_USER_SCRAM_CREDENTIALS: Final = ConsoleApi("alter_user_scram_credentials", 51, 0)
DESCRIBE_QUORUM: Final = ConsoleApi("describe_quorum", 55, 2)
DESCRIBE_TRANSACTIONS: Final = ConsoleApi("describe_transactions", 65, 0, _OWNER)
LIST_TRANSACTIONS: Final = ConsoleApi("list_transactions", 66, 1, _OWNER)
CONSUMER_GROUP_DESCRIBE: Final = ConsoleApi("consumer_group_describe", 69, 0, _OWNER)

CONSOLE_APIS: Final = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    CREATE_PARTITIONS,
    DELETE_GROUPS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLIENT_QUOTAS,
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_QUORUM,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    CONSUMER_GROUP_DESCRIBE,
)

CARRIED_FOR_OTHERS: Final = MappingProxyType(
    {api.key: api for api in CONSOLE_APIS if api.answered_by is AnsweredBy.OWNER}
)
"""The APIs, by number, that a broker carries out for the console of another."""
