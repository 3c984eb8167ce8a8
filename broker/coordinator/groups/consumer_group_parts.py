"""What all consumer groups of a broker share: limits, assignors, topics and turns."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.broker.config.consumer_groups import (
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    check_consumer_groups,
)
from quorate.broker.coordinator.groups.consumer.group_epochs import ConsumerGroupLimits
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.consumer.range_assignor import RANGE, assign_ranges
from quorate.broker.coordinator.groups.consumer.target_assignment import Assignor
from quorate.broker.coordinator.groups.consumer.uniform_assignor import UNIFORM, assign_uniformly
from quorate.broker.coordinator.groups.migration import MigrationPolicy
from quorate.broker.quota.work_turns import WorkTurns
from quorate.common.configuration import Values, list_items

_ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}


class ConsumerGroupParts(NamedTuple):
    """What all consumer groups of a broker share.

    ``assignors`` has the assignors that members may ask for, the default first.
    """

    limits: ConsumerGroupLimits
    topics: Topics
    turns: WorkTurns
    assignors: Mapping[str, Assignor]
    regex_refresh_interval_ms: int
    migration_policy: MigrationPolicy

    @classmethod
    def of(cls, config: Values, topics: Topics, turns: WorkTurns) -> "ConsumerGroupParts":
        """Return the parts by the configuration.

        Raises:
            ConfigError: keys do not fit together.
        """
        check_consumer_groups(config)
        return cls(
            ConsumerGroupLimits(
                config[GROUP_CONSUMER_MAX_SIZE],
                config[GROUP_CONSUMER_SESSION_TIMEOUT_MS],
                config[GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
                config[GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS],
            ),
            topics,
            turns,
            {name: _ASSIGNORS[name] for name in list_items(config[GROUP_CONSUMER_ASSIGNORS])},
            config[GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS],
            MigrationPolicy(config[GROUP_CONSUMER_MIGRATION_POLICY]),
        )

    @property
    def default_assignor(self) -> str:
        """The name of the assignor that is used where members ask for none."""
        return next(iter(self.assignors))
