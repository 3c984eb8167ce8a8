"""The parts that all share groups of a broker use: limits, topics, turns, share coordinators."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from quorate.broker.config.group_keys import (
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
)
from quorate.broker.config.share_groups import GROUP_SHARE_MAX_SIZE, check_share_groups
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.share.share_group import ShareGroupLimits
from quorate.broker.coordinator.share.share_states import ShareStates
from quorate.broker.quota.work_turns import WorkTurns
from quorate.common.configuration import ConfigKey, Configuration, T


class GroupConfiguration(Protocol):
    """The configuration of the broker and of groups, such as ``LiveConfiguration``."""

    @property
    def file(self) -> Configuration: ...

    def group_value(self, group: str, key: ConfigKey[T]) -> T: ...


class ShareGroupParts(NamedTuple):
    """The parts that all share groups of a broker use."""

    config: GroupConfiguration
    topics: Topics
    turns: WorkTurns
    states: ShareStates

    @classmethod
    def of(
        cls, config: GroupConfiguration, topics: Topics, turns: WorkTurns, states: ShareStates
    ) -> "ShareGroupParts":
        """Return the parts by the configuration.

        Raises:
            ConfigError: keys do not fit together.
        """
        check_share_groups(config.file)
        return cls(config, topics, turns, states)

    def limits_of(self, group_id: str) -> Callable[[], ShareGroupLimits]:
        """Return what returns the limits of a group as they are now."""
        return partial(self._limits, group_id)

    def _limits(self, group_id: str) -> ShareGroupLimits:
        config = self.config
        return ShareGroupLimits(
            config.file[GROUP_SHARE_MAX_SIZE],
            config.group_value(group_id, SHARE_SESSION_TIMEOUT.key),
            config.group_value(group_id, SHARE_HEARTBEAT_INTERVAL.key),
            config.group_value(group_id, SHARE_ASSIGNMENT_INTERVAL.key),
        )
