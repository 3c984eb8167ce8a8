"""Guards of controller and replication (C1 to C22)."""

from typing import Final

from tests.ledger.code_mutants import CodeMutant

_COMMANDS: Final = "quorate.broker.replication.commands.control_commands:ControlCommands"
_CHANNELS: Final = "quorate.broker.controller.channels"
_CONTROL: Final = "quorate.broker.control.broker_control_service:BrokerControlService"
_REPLICA: Final = "quorate.broker.replication.partition"
_RULES: Final = "quorate.metadata_log.rules"
_SERVING: Final = "quorate.broker.replication.serving.fetch"
_TESTS_OF_CONTROL: Final = "tests/unit/control"
_TESTS_OF_CONTROLLER: Final = "tests/unit/controller"
_TESTS_OF_RECORDS: Final = "tests/unit/metadata_log"
_TESTS_OF_REPLICATION: Final = "tests/unit/replication"

MUTANTS: Final = (
    CodeMutant(
        "isr-version",
        f"{_RULES}.leader_and_isr:isr_change",
        "require_version(tp, before, record.expected_version)",
        "pass",
        f"{_TESTS_OF_RECORDS}/test_apply_leader_and_isr.py::"
        "test_c1_scenario_6_isr_change_at_an_old_version_conflicts",
    ),
    CodeMutant(
        "unclean-consent",
        "quorate.broker.controller.managers.partition_change:_without_isr",
        "if unclean:",
        "if True:",
        f"{_TESTS_OF_CONTROLLER}/test_partition_change.py::test_c2_offline_keeps_the_isr",
    ),
    CodeMutant(
        "one-transaction",
        "quorate.broker.controller.managers.decisions:split",
        "if batch and size + added > max_bytes:",
        "if batch:",
        f"{_TESTS_OF_CONTROLLER}/test_split.py::test_c3_ten_thousand_changes_are_one_entry_or_two",
    ),
    CodeMutant(
        "first-live-leads",
        "quorate.broker.controller.managers.placement:first_leadership",
        "leader = isr[0] if isr else NO_BROKER",
        "leader = replicas[0]",
        f"{_TESTS_OF_CONTROLLER}/test_partition_change.py::"
        "test_c4_the_first_live_replica_leads_and_live_replicas_are_in_sync",
    ),
    CodeMutant(
        "stop-before-removal",
        f"{_CHANNELS}.controller_channel_manager:ControllerChannelManager.stop_leaving",
        "channel.stops.enqueue(stops)",
        "pass",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_topics.py::"
        "test_c5_deletion_stops_all_replicas_then_removes_the_topic",
    ),
    CodeMutant(
        "unfollow-first",
        f"{_COMMANDS}._lead_or_follow",
        "self._fetchers.unfollow(hosted)",
        "pass",
        f"{_TESTS_OF_REPLICATION}/test_commands.py::"
        "test_c6_becoming_leader_stops_fetching_and_becoming_follower_starts_it",
    ),
    CodeMutant(
        "init-is-complete",
        f"{_COMMANDS}.apply_leader_and_isr",
        "if request.is_init:",
        "if False:",
        f"{_TESTS_OF_REPLICATION}/test_commands.py::"
        "test_c7_an_init_sets_aside_what_it_does_not_list",
    ),
    CodeMutant(
        "stop-epoch",
        f"{_COMMANDS}._refusal_to_stop",
        "told.leader_epoch < known",
        "False",
        f"{_TESTS_OF_REPLICATION}/test_commands.py::"
        "test_c8_stop_replica_is_fenced_by_leader_epoch_and_a_deletion_outranks_all",
    ),
    CodeMutant(
        "pending-at-start",
        "quorate.broker.controller.controller:Controller.start",
        "self._events.put(EventPriority.BROKERS, self._take_up_pending)",
        "pass",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_topics.py::"
        "test_c5_c9_a_pending_deletion_is_carried_out_by_the_next_controller",
    ),
    CodeMutant(
        "startup-sets-aside",
        f"{_COMMANDS}.adopt_image",
        "self._set_aside_unlisted(assigned, image.offset)",
        "pass",
        f"{_TESTS_OF_REPLICATION}/test_commands.py::"
        "test_c10_startup_deletes_what_is_no_longer_assigned_after_the_check",
    ),
    CodeMutant(
        "moving-version",
        f"{_RULES}.reassignment:partition_reassignment",
        "_require_end(tp, before, pending, record)",
        "pass",
        f"{_TESTS_OF_RECORDS}/test_apply_reassignment.py::"
        "test_c11_it_ends_where_every_replica_is_in_sync",
    ),
    CodeMutant(
        "least-of-the-isr",
        f"{_REPLICA}.replica_state:ReplicaState._advance",
        "follower.flushed_offset < lowest",
        "False",
        f"{_TESTS_OF_REPLICATION}/test_high_watermark.py::"
        "test_c12_leader_advances_to_the_least_durable_offset_of_the_isr",
    ),
    CodeMutant(
        "lag-by-timer",
        f"{_REPLICA}.follower_progress:FollowerProgress.is_lagging",
        "self.flushed_offset < leader_end and",
        "False and",
        f"{_TESTS_OF_REPLICATION}/test_isr.py::"
        "test_c13_the_timer_alone_shrinks_when_nobody_fetches_or_produces",
    ),
    CodeMutant(
        "pending-removal",
        f"{_RULES}.topics:partitions_removed",
        "pending is None or pending.first_partition != record.first_partition",
        "pending is None",
        f"{_TESTS_OF_RECORDS}/test_apply_partition_count.py::"
        "test_c14_what_is_removed_is_what_is_pending",
    ),
    CodeMutant(
        "deposed-leader",
        f"{_REPLICA}.partition_replica:PartitionReplica.saw_newer_epoch",
        "self.role = ReplicaRole.SUSPENDED",
        "pass",
        f"{_TESTS_OF_REPLICATION}/test_isr.py::"
        "test_c15_after_a_conflict_with_a_newer_epoch_it_steps_down_and_commits_nothing",
    ),
    CodeMutant(
        "committed-reads",
        f"{_SERVING}:end_of_reads",
        "return hosted.replica.high_watermark",
        "return hosted.log.log_end_offset",
        f"{_TESTS_OF_REPLICATION}/test_consume.py::"
        "test_c16_between_watermark_and_log_end_a_consumer_gets_nothing",
    ),
    CodeMutant(
        "newer-epoch",
        f"{_REPLICA}.partition_replica:PartitionReplica.is_newer",
        "> (self.leader_epoch, self.isr.version)",
        ">= (self.leader_epoch, self.isr.version)",
        f"{_TESTS_OF_REPLICATION}/test_isr.py::"
        "test_c17_a_command_is_obeyed_only_if_epoch_and_version_are_newer",
    ),
    CodeMutant(
        "alert-of-silence",
        f"{_CHANNELS}.control_request_queue:ControlRequestQueue._deliver",
        'self._alert(f"got no answer: {error}")',
        "pass",
        f"{_TESTS_OF_CONTROLLER}/test_broker_channel.py::"
        "test_c18_an_unanswered_request_is_an_alert_until_it_is_answered",
    ),
    CodeMutant(
        "latest-not-known",
        f"{_SERVING}:RecordReader.list_offset",
        "if not replica.knows_what_is_committed:",
        "if False:",
        f"{_TESTS_OF_REPLICATION}/test_consume.py::"
        "test_c19_a_new_leader_does_not_know_the_latest_offset_yet",
    ),
    CodeMutant(
        "outcome-per-partition",
        f"{_COMMANDS}.apply_leader_and_isr",
        "_outcome(topic.topic, told.partition, code)",
        "_outcome(topic.topic, told.partition, 0)",
        f"{_TESTS_OF_REPLICATION}/test_commands.py::test_c20_every_partition_has_its_outcome",
    ),
    CodeMutant(
        "init-waits-for-log",
        f"{_CONTROL}._is_behind",
        "if self._images.applied_offset >= offset or self._checked(kind, header):",
        "if True:",
        f"{_TESTS_OF_CONTROL}/test_from_log.py::"
        "test_c7_an_init_waits_until_the_image_is_as_new_as_the_controllers",
    ),
    CodeMutant(
        "failed-elections",
        f"{_CHANNELS}.broker_channel:LeaderAndIsrQueue._faults",
        "self._shared.on_failed_elections(self._broker, unled)",
        "pass",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_reports.py::"
        "test_c21_where_a_leader_cannot_lead_another_is_elected",
    ),
    CodeMutant(
        "offline-is-an-alert",
        "quorate.broker.controller.managers.partition_change:_without_isr",
        "return LeadershipChange(NO_BROKER, kept)",
        "return None",
        "tests/unit/control/test_admin_service.py::"
        "test_c2_status_counts_what_is_offline_and_what_lacks_replicas",
    ),
)
