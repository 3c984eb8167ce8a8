"""Share groups begin once all brokers understand them. Nothing of a group is there before."""

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.services import KafkaServices
from quorate.metadata_log.features import SHARE_GROUPS
from quorate_proto.v1 import errors_pb2


def require_level(services: KafkaServices) -> None:
    """Refuse share groups while a broker of an earlier release may become coordinator.

    Raises:
        KafkaError: UNSUPPORTED_VERSION.
    """
    level = services.images.image.inter_broker_protocol
    if level < SHARE_GROUPS:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_VERSION,
            f"share groups need inter_broker_protocol {SHARE_GROUPS}, which is {level} now: "
            "`quorate features upgrade`",
        )
