"""Guards of partitions whose replicas are in log directories that have failed (KIP-858)."""

from typing import Final

from tests.ledger.code_mutants import CodeMutant

_CHANGE: Final = "quorate.broker.controller.managers.partition_change"
_ELECTIONS: Final = "quorate.broker.controller.managers.election_manager"
_REPORTS: Final = "quorate.broker.controller.broker_trouble_reports:BrokerTroubleReports"
_CHANGES: Final = "quorate.broker.controller.broker_changes:BrokerChanges"
_TESTS: Final = "tests/unit/controller"
_CLUSTER: Final = f"{_TESTS}/test_cluster_offline_replicas.py"

MUTANTS: Final = (
    CodeMutant(
        "offline-is-away",
        f"{_CHANGE}:LiveBrokers.with_offline",
        "self.steady - offline",
        "self.steady",
        f"{_CLUSTER}::test_nobody_leads_where_the_only_replica_is_offline",
    ),
    CodeMutant(
        "offline-after-a-restart",
        f"{_CHANGE}:LiveBrokers.with_offline",
        "self.restarted - offline",
        "self.restarted",
        f"{_TESTS}/test_partition_change.py::test_c2_every_decision_is_valid_and_is_the_last_one",
    ),
    CodeMutant(
        "offline-and-lost",
        f"{_CHANGE}:_without_isr",
        "and replica not in brokers.offline",
        "",
        f"{_TESTS}/test_partition_change.py::"
        "test_an_offline_replica_that_may_be_lost_leaves_the_isr_and_does_not_lead",
    ),
    CodeMutant(
        "offline-preferred",
        f"{_ELECTIONS}:_chooser",
        "candidates - offline",
        "candidates",
        f"{_CLUSTER}::test_an_offline_replica_is_not_elected_while_its_broker_lives",
    ),
    CodeMutant(
        "offline-unclean",
        f"{_ELECTIONS}:_chooser",
        "brokers.with_offline(offline)",
        "brokers",
        f"{_CLUSTER}::test_an_unclean_election_passes_over_an_offline_replica",
    ),
    CodeMutant(
        "offline-balance",
        f"{_ELECTIONS}:imbalanced",
        "candidates - _offline_of(image, tp, offline)",
        "candidates",
        f"{_TESTS}/test_elections.py::"
        "test_leadership_does_not_go_back_to_a_replica_that_is_offline",
    ),
    CodeMutant(
        "offline-reassigned",
        "quorate.broker.controller.managers.reassignment_manager:_leader",
        "without_offline(brokers, candidates.offline, tip)",
        "brokers",
        f"{_CLUSTER}::test_a_reassignment_gives_no_leadership_to_an_offline_replica",
    ),
    CodeMutant(
        "offline-of-an-incarnation",
        f"{_REPORTS}.offline",
        "or broker.epoch != report.broker_epoch",
        "",
        f"{_CLUSTER}::test_it_leads_again_when_its_broker_is_back_with_the_folder",
    ),
    CodeMutant(
        "offline-presumed",
        f"{_CHANGES}.start",
        "self._reported.presume(self._images.image, _now_ms())",
        "False",
        f"{_CLUSTER}::test_a_new_controller_believes_the_image_until_brokers_have_reported",
    ),
    CodeMutant(
        "offline-presumed-for-a-while",
        f"{_REPORTS}.offline",
        "report.is_presumed and now_ms >= report.until_ms",
        "False",
        f"{_CLUSTER}::test_a_new_controller_believes_the_image_until_brokers_have_reported",
    ),
    CodeMutant(
        "offline-no-longer",
        f"{_CHANGES}._take_out",
        "if before - offline:",
        "if False:",
        f"{_CLUSTER}::test_it_leads_again_when_its_broker_says_that_it_is_fine",
    ),
    CodeMutant(
        "offline-one-epoch",
        "quorate.broker.controller.managers.broker_manager:report_changes",
        "settled | reported_offline(request)",
        "settled",
        f"{_CLUSTER}::test_a_replica_that_is_offline_and_unfit_gets_one_epoch_for_both",
    ),
    CodeMutant(
        "offline-unknown",
        "quorate.broker.controller.managers.broker_manager:_kept",
        "0 <= tip.partition <",
        "tip.partition <",
        f"{_CLUSTER}::test_a_report_of_partitions_that_are_not_there_changes_nothing",
    ),
    CodeMutant(
        "offline-handed-over",
        "quorate.broker.controller.managers.broker_manager:_leaving_isrs",
        "_able(candidates, offline, topic, number)",
        "candidates",
        f"{_CLUSTER}::test_a_broker_that_stops_hands_nothing_to_an_offline_replica",
    ),
    CodeMutant(
        "offline-waited-for",
        "quorate.broker.controller.managers.broker_manager:remaining_leaderships",
        "_able(others, offline, topic, number)",
        "others",
        f"{_CLUSTER}::test_a_broker_stops_without_waiting_for_an_offline_replica",
    ),
)
