"""The table of actions: every form of the console that changes something."""

from typing import Final

from quorate.broker.console.actions.acl_actions import create_acl, delete_acl
from quorate.broker.console.actions.action import Action
from quorate.broker.console.actions.config_actions import alter_config
from quorate.broker.console.actions.group_actions import delete_group, reset_offsets
from quorate.broker.console.actions.quota_actions import remove_quota, set_quota
from quorate.broker.console.actions.record_actions import produce
from quorate.broker.console.actions.replica_actions import cancel_moves, move_replicas
from quorate.broker.console.actions.topic_actions import (
    add_partitions,
    create_topic,
    delete_topic,
    elect_leaders,
)
from quorate.broker.console.actions.user_actions import (
    change_password,
    create_user,
    delete_user,
)

ACTIONS: Final = (
    Action("create-topic", "Create a topic", create_topic),
    Action("delete-topic", "Delete a topic", delete_topic),
    Action("add-partitions", "Add partitions", add_partitions),
    Action("elect-leaders", "Elect leaders", elect_leaders),
    Action("move-replicas", "Move replicas", move_replicas),
    Action("cancel-moves", "Cancel moves", cancel_moves),
    Action("alter-config", "Change a configuration", alter_config),
    Action("create-acl", "Add an access control entry", create_acl),
    Action("delete-acl", "Remove an access control entry", delete_acl),
    Action("set-quota", "Set a quota", set_quota),
    Action("remove-quota", "Remove a quota", remove_quota),
    Action("create-user", "Add a user", create_user),
    Action("change-password", "Change a password", change_password),
    Action("delete-user", "Delete a user", delete_user),
    Action("produce", "Write a test record", produce, is_audited_here=True),
    Action("reset-offsets", "Reset offsets", reset_offsets, is_audited_here=True),
    Action("delete-group", "Delete a group", delete_group, is_audited_here=True),
)
