"""Writing a test record."""

from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.actions.form import BadForm, Form, Outcome
from quorate.broker.console.asking.console_apis import PRODUCE
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.log.batches.own_records import encoded_record
from quorate.broker.log.batches.record_batch import own_batch
from quorate.common.types import TopicPartition

TIMEOUT_MS: Final = 5_000
RECORD_BYTES_MAX: Final = 512 << 10
_ALL: Final = -1


async def produce(parts: ConsoleParts, person: Person, form: Form) -> list[Outcome]:
    tp = TopicPartition(form.text("topic"), form.number("partition"))
    headers = [(name.encode(), text.encode()) for name, text in form.pairs("headers").items()]
    record = encoded_record(
        0, form.raw("key").encode() or None, form.raw("value").encode(), headers
    )
    if len(record) > RECORD_BYTES_MAX:
        raise BadForm(f"a test record of {len(record)} bytes: at most {RECORD_BYTES_MAX}")
    batch = own_batch(record, 1, parts.wall_clock_ms())
    partition = {"index": tp.partition, "records": batch}
    body = {
        "transactional_id": None,
        "acks": _ALL,
        "timeout": TIMEOUT_MS,
        "topic_data": [{"name": tp.topic, "partition_data": [partition]}],
    }
    answer = await parts.requests.ask(person, PRODUCE, body, parts.requests.leader_of(tp))
    one = answer["responses"][0]["partition_responses"][0]
    if one["error_code"]:
        reason = one["error_message"]
        error = error_name(one["error_code"]) + (f": {reason}" if reason else "")
        return [Outcome(str(tp), "", error)]
    return [Outcome(str(tp), f"written at offset {one['base_offset']}")]
