"""What any broker answers over gRPC from what it knows itself: method name → what answers it."""

from collections.abc import Callable, Mapping

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
from metadata_log.record_codec import encode_pipeline
from quorate_proto.v1 import admin_pb2


def admin_reads(
    images: Images,
    configs: ConfigReads,
    describe_tokens: DescribeTokens,
    authorizer: Authorizer,
    wall_clock_ms: Callable[[], int],
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

    async def pipelines(
        request: admin_pb2.DescribePipelinesRequest,
    ) -> admin_pb2.DescribePipelinesResponse:
        """Of all: those are left out that one may not see; one that is named is refused."""
        rights = authorizer.rights_of(caller_of(request.context))
        known = images.image.pipelines
        try:
            for name in request.names:
                rights.require_group(AclOperation.DESCRIBE, name)
        except KafkaError as error:
            return admin_pb2.DescribePipelinesResponse(
                error_code=error.code, error_message=error.message
            )
        names = dict.fromkeys(request.names) or {
            name for name in known if rights.may_group(AclOperation.DESCRIBE, name)
        }
        return admin_pb2.DescribePipelinesResponse(
            pipelines=[
                admin_pb2.DescribedPipeline(
                    pipeline=encode_pipeline(name, known[name]),
                    alive=known[name].run.lease_until_ms > wall_clock_ms(),
                )
                for name in sorted(names)
                if name in known
            ]
        )

    return {
        "DescribePipelines": pipelines,
        "DescribeAcls": acls,
        "DescribeConfigs": configs.describe,
        "DescribeClientQuotas": client_quotas,
        "DescribeDelegationTokens": describe_tokens,
        "DescribeUserScramCredentials": describe_scram_users,
    }
