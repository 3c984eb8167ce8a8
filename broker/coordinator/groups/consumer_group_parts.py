"""What all consumer groups of a broker share: limits, assignors, topics and turns."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.config.consumer_groups import (
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
    check_consumer_groups,
)
from quorate.broker.config.group_keys import (
    CONSUMER_ASSIGNMENT_INTERVAL,
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    GroupKey,
)
from quorate.broker.coordinator.groups.consumer.group_epochs import ConsumerGroupLimits
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.consumer.range_assignor import RANGE, assign_ranges
from quorate.broker.coordinator.groups.consumer.target_assignment import Assignor
from quorate.broker.coordinator.groups.consumer.uniform_assignor import UNIFORM, assign_uniformly
from quorate.broker.coordinator.groups.migration import MigrationPolicy
from quorate.broker.quota.work_turns import WorkTurns
from quorate.common.configuration import Values, list_items

ValueOfGroup: TypeAlias = Callable[[str, GroupKey], int]

_ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}


class ConsumerGroupParts(NamedTuple):
    """What all consumer groups of a broker share.

    ``assignors`` has the assignors that members may ask for, the default first. ``limits_of``
    returns the limits of a group as they are configured now.
    """

    limits_of: Callable[[str], ConsumerGroupLimits]
    topics: Topics
    turns: WorkTurns
    assignors: Mapping[str, Assignor]
    regex_refresh_interval_ms: int
    migration_policy: MigrationPolicy

    @classmethod
    def of(
        cls, config: Values, topics: Topics, turns: WorkTurns, of_group: ValueOfGroup
    ) -> "ConsumerGroupParts":
        """Return the parts by the configuration. ``of_group`` returns the value of a key for a
        group.

        Raises:
            ConfigError: keys do not fit together.
        """
        check_consumer_groups(config)
        max_size = config[GROUP_CONSUMER_MAX_SIZE]

        def limits_of(group_id: str) -> ConsumerGroupLimits:
            return ConsumerGroupLimits(
                max_size,
                of_group(group_id, CONSUMER_SESSION_TIMEOUT),
                of_group(group_id, CONSUMER_HEARTBEAT_INTERVAL),
                of_group(group_id, CONSUMER_ASSIGNMENT_INTERVAL),
            )

        return cls(
            limits_of,
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
