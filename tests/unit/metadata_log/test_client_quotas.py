import pytest

from quorate.metadata_log.client_quotas import (
    ClientQuotaEntity,
    QuotaInForce,
    quota_in_force,
    stored_name,
)

KEY = "controller_mutation_rate"

PRECEDENCE = (
    (ClientQuotaEntity("u", "c"), ClientQuotaEntity("u", "c")),
    (ClientQuotaEntity("u", ""), ClientQuotaEntity("u", "c")),
    (ClientQuotaEntity("u", None), ClientQuotaEntity("u", None)),
    (ClientQuotaEntity("", "c"), ClientQuotaEntity("u", "c")),
    (ClientQuotaEntity("", ""), ClientQuotaEntity("u", "c")),
    (ClientQuotaEntity("", None), ClientQuotaEntity("u", None)),
    (ClientQuotaEntity(None, "c"), ClientQuotaEntity(None, "c")),
    (ClientQuotaEntity(None, ""), ClientQuotaEntity(None, "c")),
)
"""Kafka's order, with whom each is shared."""


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_q7_the_most_particular_quota_is_in_force(first: int) -> None:
    entities = [entity for entity, _ in PRECEDENCE[first:]]
    quotas = {entity: {KEY: float(place)} for place, entity in enumerate(entities, first)}

    assert quota_in_force(quotas, "u", "c", KEY) == QuotaInForce(first, PRECEDENCE[first][1])


def test_q7_a_place_without_the_key_is_passed_over() -> None:
    quotas = {
        ClientQuotaEntity("u", "c"): {"producer_byte_rate": 1.0},
        ClientQuotaEntity(client_id=""): {KEY: 2.0},
    }

    assert quota_in_force(quotas, "u", "c", KEY) == QuotaInForce(
        2.0, ClientQuotaEntity(client_id="c")
    )


def test_q7_quotas_of_others_do_not_bind() -> None:
    quotas = {entity: {KEY: 1.0} for entity, _ in PRECEDENCE if "" not in entity}

    assert quota_in_force(quotas, "v", "d", KEY) is None


def test_q7_both_spellings_are_stored_under_one_name() -> None:
    assert stored_name("controller_mutations_rate") == KEY
    assert stored_name(KEY) == KEY
    assert stored_name("producer_byte_rate") == "producer_byte_rate"
