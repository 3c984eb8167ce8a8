"""Guards of election (E), control requests (B), forwarding (F), and the card (D)."""

from typing import Final

from tests.ledger.code_mutants import CodeMutant

_CHANNELS: Final = "quorate.broker.controller.channels"
_ELECTOR: Final = "quorate.broker.controller.election:ControllerElector"
_FENCE: Final = "quorate.broker.control.broker_control_service:ControlFence"
_FORWARDER: Final = "quorate.broker.control.controller_forwarder:ControllerForwarder"
_MEMBERSHIP: Final = "quorate.metadata_log.rules.membership"
_TESTS_OF_BROKERS: Final = "tests/unit/control"
_TESTS_OF_CONTROLLER: Final = "tests/unit/controller"
_TESTS_OF_RECORDS: Final = "tests/unit/metadata_log"

MUTANTS: Final = (
    CodeMutant(
        "first-claim",
        f"{_MEMBERSHIP}:controller_claim",
        "draft.controller is not None and draft.controller.broker_id >= 0",
        "False",
        f"{_TESTS_OF_RECORDS}/test_apply_brokers.py::"
        "test_e1_first_claim_wins_and_the_others_are_told_who_it_was",
    ),
    CodeMutant(
        "next-epoch",
        f"{_MEMBERSHIP}:controller_claim",
        "record.controller_epoch != draft.controller_epoch + 1",
        "False",
        f"{_TESTS_OF_RECORDS}/test_apply_brokers.py::"
        "test_e2_epochs_begin_at_one_grow_by_one_and_outlive_the_controller",
    ),
    CodeMutant(
        "lower-controller-epoch",
        f"{_FENCE}.check",
        "header.controller_epoch < self.controller_epoch",
        "False",
        f"{_TESTS_OF_BROKERS}/test_fencing.py::"
        "test_e3_a_lower_controller_epoch_is_refused_and_a_higher_one_adopted",
    ),
    CodeMutant(
        "silent-at-once",
        f"{_ELECTOR}._leave",
        "self.active.stop_publishing()",
        "pass",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_office.py::"
        "test_e4_a_controller_that_leaves_says_nothing_more_while_its_end_is_waited_for",
    ),
    CodeMutant(
        "office-goes-with-the-session",
        f"{_MEMBERSHIP}:session_closed",
        "draft.put_controller(None)",
        "pass",
        f"{_TESTS_OF_RECORDS}/test_apply_brokers.py::"
        "test_e5_controllers_session_takes_the_office_along",
    ),
    CodeMutant(
        "all-are-told",
        f"{_CHANNELS}.controller_channel_manager:ControllerChannelManager._tell_metadata",
        "channel.metadata.enqueue(topics)",
        "pass",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_metadata_from_log.py::"
        "test_e6_isr_changes_of_leaders_are_told_to_all",
    ),
    CodeMutant(
        "own-partitions-alone",
        f"{_CHANNELS}.control_requests:hosted_by",
        "if broker_id in partition.replicas",
        "if True",
        f"{_TESTS_OF_CONTROLLER}/test_control_requests.py::"
        "test_b1_a_receiver_is_named_its_own_partitions_alone",
    ),
    CodeMutant(
        "newer-broker-epoch",
        f"{_FENCE}.check",
        "meant_for < own_epoch",
        "meant_for != own_epoch",
        f"{_TESTS_OF_BROKERS}/test_fencing.py::"
        "test_b2_meant_for_an_earlier_incarnation_is_stale_and_a_newer_epoch_is_not",
    ),
    CodeMutant(
        "channel-per-incarnation",
        f"{_CHANNELS}.controller_channel_manager:ControllerChannelManager._open_channels",
        "broker is None or broker.epoch != channel.broker.epoch",
        "broker is None",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_brokers.py::"
        "test_b3_a_bounced_broker_is_noticed_between_two_looks",
    ),
    CodeMutant(
        "lowering-loses-nothing",
        "quorate.metadata_log.features:_what_would_be_lost",
        "if not lost:",
        "if True:",
        f"{_TESTS_OF_RECORDS}/test_features.py::"
        "test_b4_lowering_is_refused_where_it_would_lose_something",
    ),
    CodeMutant(
        "unreadable-beside-readable",
        "quorate.metadata_log.apply:_require_known",
        "since > READ_BY_RELEASE_0_1 and since > level",
        "False",
        f"{_TESTS_OF_RECORDS}/test_features.py::"
        "test_b6_what_stands_beside_a_record_that_older_voters_cannot_read_is_never_obeyed",
    ),
    CodeMutant(
        "controllers-versions",
        f"{_FORWARDER}.forward",
        "executor is None and api_version in change.controller_only",
        "False",
        f"{_TESTS_OF_BROKERS}/test_forwarding.py::"
        "test_f2_a_version_of_the_controller_alone_is_declined_elsewhere_at_once",
    ),
    CodeMutant(
        "one-hop",
        f"{_FORWARDER}._forwarded",
        "forwarded.context.forwarded_by = self._broker_id",
        "pass",
        f"{_TESTS_OF_BROKERS}/test_forwarding.py::"
        "test_f2_one_hop_that_says_so_and_keeps_the_principal",
    ),
    CodeMutant(
        "controller-writes-quotas",
        "quorate.metadata_log.apply:_require_authority",
        "    for condition in operation.conditions:",
        "    return\n    for condition in operation.conditions:",
        f"{_TESTS_OF_RECORDS}/test_apply_client_quotas.py::"
        "test_f3_nobody_but_the_controller_writes_quotas",
    ),
    CodeMutant(
        "internal-topics",
        "quorate.broker.kafka.groups.coordinator_topics:CoordinatorTopics.create_if_missing",
        "if kind.topic in services.metadata.topics:",
        "if True:",
        "tests/unit/kafka/test_internal_topics.py::"
        "test_f4_the_first_group_has_its_topic_created_by_the_controller",
    ),
    CodeMutant(
        "requesters-rights",
        "quorate.broker.controller.command_pipeline:CommandPipeline.run",
        "permitted = authorize(change, request, rights, self._images.image)",
        "from quorate.broker.changes.authorization import Permission\n"
        "    permitted = Permission(request, lambda answer: answer)",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_acls.py::"
        "test_f5_the_original_principals_rights_count_not_the_forwarders",
    ),
    CodeMutant(
        "level-decides",
        f"{_FORWARDER}.forward",
        "change.bridged and brokers_may_write(self._images.image)",
        "False",
        f"{_TESTS_OF_BROKERS}/test_forwarding.py::test_f6_the_level_decides_who_writes",
    ),
    CodeMutant(
        "entries-on-disk",
        "quorate.quorum.raft.storage.lmdb_journal:LmdbStore._append",
        "if not cursor.put(_KEY.pack(run[0][1]), encode_run(run), append=True):",
        "if False:",
        "tests/unit/quorum/test_journal.py::test_d1_entries_survive_a_crash_once_synced",
    ),
    CodeMutant(
        "range-is-complete",
        "quorate.spark.reading.range_reader:RangeReader._finish",
        "if last.high_watermark < self._end:",
        "if False:",
        "tests/unit/spark/test_range_reader.py::test_d2_a_stream_that_ends_early_is_not_the_end",
    ),
    CodeMutant(
        "batch-epoch",
        "quorate.broker.log.segments.batch_verification:_epoch_problem",
        "found == leader_epoch",
        "True",
        "tests/unit/log/test_segment_damage.py::test_a_leader_epoch_is_compared_at_every_read",
    ),
    CodeMutant(
        "pinned-library",
        "quorate.quorum.raft.guards:check_library",
        "if digest != LIBRARY_SHA256:",
        "if False:",
        "tests/unit/quorum/test_guards.py::test_d4_changed_source_is_refused_with_advice",
    ),
)
