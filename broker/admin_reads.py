"""What any broker answers over gRPC from what it knows itself: method name → what answers it."""

from collections.abc import Mapping

from broker.config_description import ConfigReads
from broker.control.admin_service import Read
from broker.control.ports import Images
from broker.kafka.services import DescribeTokens
from broker.quota.description import describe
from quorate_proto.v1 import admin_pb2


def admin_reads(
    images: Images, configs: ConfigReads, describe_tokens: DescribeTokens
) -> Mapping[str, Read]:
    """The Admin service's reads. One that is not among them is UNIMPLEMENTED."""

    async def client_quotas(
        request: admin_pb2.DescribeClientQuotasRequest,
    ) -> admin_pb2.DescribeClientQuotasResponse:
        return describe(images.image.client_quotas, request)

    return {
        "DescribeConfigs": configs.describe,
        "DescribeClientQuotas": client_quotas,
        "DescribeDelegationTokens": describe_tokens,
    }
