"""What any broker answers over gRPC from what it knows itself: method name → what answers it."""

from collections.abc import Mapping

from broker.config_description import ConfigReads
from broker.control.admin_service import Read
from broker.control.ports import Images
from broker.errors import KafkaError
from broker.kafka.services import DescribeTokens
from broker.quota import description
from broker.security import described_acls
from broker.security.authorizer import Authorizer, caller_of
from broker.security.scram_users import describe_users
from metadata_log.acls import AclOperation
from quorate_proto.v1 import admin_pb2


def admin_reads(
    images: Images,
    configs: ConfigReads,
    describe_tokens: DescribeTokens,
    authorizer: Authorizer,
) -> Mapping[str, Read]:
    """The Admin service's reads. One that is not among them is UNIMPLEMENTED."""

    async def acls(request: admin_pb2.DescribeAclsRequest) -> admin_pb2.DescribeAclsResponse:
        entries = images.image.acls
        return described_acls.describe(
            authorizer, caller_of(request.context), entries, request.filter
        )

    async def client_quotas(
        request: admin_pb2.DescribeClientQuotasRequest,
    ) -> admin_pb2.DescribeClientQuotasResponse:
        try:
            rights = authorizer.rights_of(caller_of(request.context))
            rights.require_cluster(AclOperation.DESCRIBE_CONFIGS)
        except KafkaError as error:
            return admin_pb2.DescribeClientQuotasResponse(
                error_code=error.code, error_message=error.message
            )
        return description.describe(images.image.client_quotas, request)

    async def describe_scram_users(
        request: admin_pb2.DescribeUserScramCredentialsRequest,
    ) -> admin_pb2.DescribeUserScramCredentialsResponse:
        try:
            rights = authorizer.rights_of(caller_of(request.context))
            rights.require_cluster(AclOperation.DESCRIBE)
        except KafkaError as error:
            return admin_pb2.DescribeUserScramCredentialsResponse(
                error_code=error.code, error_message=error.message
            )
        return describe_users(images.image, request.users)

    return {
        "DescribeAcls": acls,
        "DescribeConfigs": configs.describe,
        "DescribeClientQuotas": client_quotas,
        "DescribeDelegationTokens": describe_tokens,
        "DescribeUserScramCredentials": describe_scram_users,
    }
