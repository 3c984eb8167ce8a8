"""The table of areas: the first part of a path, and the function that makes its pages."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.console.pages.acls_page import acls_page
from quorate.broker.console.pages.audit_page import audit_page
from quorate.broker.console.pages.brokers_page import brokers_page
from quorate.broker.console.pages.configs_page import configs_page
from quorate.broker.console.pages.groups_page import groups_page
from quorate.broker.console.pages.metadata_page import metadata_page
from quorate.broker.console.pages.overview_page import overview_page
from quorate.broker.console.pages.page import Page, PageRequest
from quorate.broker.console.pages.quorum_page import quorum_page
from quorate.broker.console.pages.quotas_page import quotas_page
from quorate.broker.console.pages.topics_page import topics_page
from quorate.broker.console.pages.transactions_page import transactions_page
from quorate.broker.console.pages.users_page import users_page

MakePage: TypeAlias = Callable[[ConsoleParts, PageRequest], Awaitable[Page]]

PAGES: Final[Mapping[str, MakePage]] = MappingProxyType(
    {
        "": overview_page,
        "brokers": brokers_page,
        "topics": topics_page,
        "groups": groups_page,
        "transactions": transactions_page,
        "configs": configs_page,
        "quotas": quotas_page,
        "users": users_page,
        "acls": acls_page,
        "quorum": quorum_page,
        "metadata": metadata_page,
        "audit": audit_page,
    }
)
