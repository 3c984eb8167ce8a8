"""DescribeAcls: what any broker answers from its image."""

from broker.errors import KafkaError
from broker.security.acl_bindings import check_filter, matching, to_proto
from broker.security.authorizer import Asker, Authorizer
from metadata_log.acls import AclOperation, Acls
from quorate_proto.v1 import admin_pb2, errors_pb2


def describe(
    authorizer: Authorizer, asker: Asker, acls: Acls, wanted: admin_pb2.AclFilter
) -> admin_pb2.DescribeAclsResponse:
    """The entries that ``wanted`` means, sorted by their resource."""
    try:
        authorizer.require_enabled()
        authorizer.rights_of(asker).require_cluster(AclOperation.DESCRIBE)
        check_filter(wanted)
    except KafkaError as error:
        return admin_pb2.DescribeAclsResponse(error_code=error.code, error_message=error.message)
    return admin_pb2.DescribeAclsResponse(
        error_code=errors_pb2.NONE, bindings=[to_proto(*one) for one in matching(acls, wanted)]
    )
