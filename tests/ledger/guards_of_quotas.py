"""Guards of the quota on controller mutations (Q1 to Q15)."""

from typing import Final

from tests.ledger.code_mutants import CodeMutant

_BUCKETS: Final = "quorate.broker.quota"
_REQUESTS: Final = "quorate.broker.controller.requests.topic_requests:TopicRequests"
_TESTS_OF_BUCKETS: Final = "tests/unit/quota"
_TESTS_OF_CONTROLLER: Final = "tests/unit/controller"
_TESTS_OF_WIRE: Final = "tests/unit/kafka"

MUTANTS: Final = (
    CodeMutant(
        "charge-per-partition",
        "quorate.broker.controller.managers.partition_count_manager:_remove",
        "charge(len(topic.partitions) - first)",
        "charge(1)",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_quotas.py::"
        "test_q1_removed_partitions_are_charged_too",
    ),
    CodeMutant(
        "burst-is-the-most",
        f"{_BUCKETS}.token_bucket:TokenBucket._fill",
        "self._tokens = min(self._tokens + passed_s * self._rate, self._burst)",
        "self._tokens = self._tokens + passed_s * self._rate",
        f"{_TESTS_OF_BUCKETS}/test_token_bucket.py::test_q2_never_more_than_the_burst",
    ),
    CodeMutant(
        "debt-over-rate",
        f"{_BUCKETS}.token_bucket:TokenBucket.throttle_time_ms",
        "-self._tokens / self._rate",
        "-self._tokens * self._rate",
        f"{_TESTS_OF_BUCKETS}/test_token_bucket.py::test_q3_the_throttle_is_the_debt_over_the_rate",
    ),
    CodeMutant(
        "old-clients-are-served",
        "quorate.broker.kafka.admin.topic_apis:create_topics",
        "context.version < FIRST_CREATION_REFUSED_OVER_QUOTA",
        "False",
        f"{_TESTS_OF_WIRE}/test_throttling.py::"
        "test_q4_only_new_versions_may_be_refused_and_all_are_muted",
    ),
    CodeMutant(
        "waited-already",
        f"{_BUCKETS}.controller_mutation_quotas:ControllerMutationQuota.throttle_time_ms",
        " - (now_ms - self._throttled_ms)",
        "",
        f"{_TESTS_OF_BUCKETS}/test_controller_mutations.py::"
        "test_q5_what_a_client_has_waited_for_its_answer_is_taken_off_its_throttle",
    ),
    CodeMutant(
        "validation-is-free",
        f"{_REQUESTS}.create_topics",
        "charge=charge_nothing if request.validate_only else quota.charge",
        "charge=quota.charge",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_quotas.py::test_q6_validation_costs_nothing",
    ),
    CodeMutant(
        "pair-before-user",
        "quorate.metadata_log.client_quotas:quota_in_force",
        "        (pair, pair),\n",
        "",
        "tests/unit/metadata_log/test_client_quotas.py::"
        "test_q7_the_most_particular_quota_is_in_force",
    ),
    CodeMutant(
        "burst-of-all-windows",
        f"{_BUCKETS}.controller_mutation_quotas:ControllerMutationQuotaManager._usage",
        "self._window.span_ms / 1_000",
        "1",
        f"{_TESTS_OF_BUCKETS}/test_controller_mutations.py::"
        "test_q8_the_burst_is_the_quota_times_all_windows",
    ),
    CodeMutant(
        "throttle-of-the-windows",
        f"{_BUCKETS}.windowed_rate:WindowedAverage.value",
        "self._forget(now_ms)",
        "pass",
        f"{_TESTS_OF_BUCKETS}/test_controller_mutations.py::"
        "test_q9_throttle_time_is_the_average_of_the_last_windows",
    ),
    CodeMutant(
        "retries-are-asked-for",
        "quorate.client.calls.topic_calls:_until_admitted",
        "while retry:",
        "while True:",
        "tests/unit/client/test_quota_retries.py::"
        "test_q10_who_opts_out_is_told_at_once_and_when_to_try_again",
    ),
    CodeMutant(
        "longest-throttle",
        "quorate.broker.kafka.connection.requests:RequestThrottle.at_least",
        "max(self.time_ms, time_ms)",
        "time_ms",
        f"{_TESTS_OF_WIRE}/test_throttling.py::test_q11_the_more_constraining_of_two_quotas_counts",
    ),
    CodeMutant(
        "documents-words",
        "quorate.cli.configs.kinds.quota_configs:_title",
        "user-principal",
        "user",
        "tests/unit/cli/test_quotas.py::test_q12_quotas_are_described_in_the_documents_words",
    ),
    CodeMutant(
        "clusters-own-user",
        "quorate.broker.kafka.metadata.topic_auto_creation:_create",
        "context = dataclasses.replace(context, principal=CLUSTER_ADMIN)",
        "pass",
        f"{_TESTS_OF_WIRE}/test_metadata.py::"
        "test_q13_topics_that_come_by_themselves_are_asked_for_by_the_clusters_own_user",
    ),
    CodeMutant(
        "topics-need-the-controller",
        "quorate.metadata_log.apply:_run_operation",
        "if rule.needs_controller:",
        "if False:",
        "tests/unit/metadata_log/test_apply_mutation_quota.py::"
        "test_q14_no_raw_write_creates_expands_or_deletes_topics",
    ),
    CodeMutant(
        "no-second-burst",
        f"{_BUCKETS}.controller_mutation_quotas:ControllerMutationQuotaManager._bucket",
        "self._empty_since_ms is not None",
        "False",
        f"{_TESTS_OF_CONTROLLER}/test_cluster_quotas.py::"
        "test_q15_the_next_controller_gives_no_second_burst",
    ),
)
