"""What is refused costs no more than it takes to say so."""

import time

import immutables

from broker.control.changes import DELETE_TOPICS
from broker.control.guards import GUARDS
from broker.security.authorizer import Authorizer, AuthorizerSettings, Rights
from broker.security.principal import KafkaPrincipal
from metadata_log.image import Image
from quorate_proto.v1 import admin_pb2, errors_pb2

TOPICS = 10_000


def test_f5_who_may_do_nothing_cannot_keep_the_controller_busy() -> None:
    authorizer = Authorizer(immutables.Map, AuthorizerSettings(enabled=True))
    mallory = Rights(authorizer, KafkaPrincipal("mallory"), "10.0.0.9")
    request = admin_pb2.DeleteTopicsRequest(names=[f"{n:0200}" for n in range(TOPICS)])
    began = time.process_time()
    verdict = GUARDS[DELETE_TOPICS.rpc](DELETE_TOPICS, request, mallory, Image())
    answer = verdict.told(DELETE_TOPICS.answer())
    took_s = time.process_time() - began
    assert verdict.allowed is None
    assert {one.error_code for one in answer.topics} == {errors_pb2.TOPIC_AUTHORIZATION_FAILED}
    assert len(answer.topics) == TOPICS
    assert took_s < 3, "not the square of their number"
