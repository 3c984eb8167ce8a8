"""The gRPC services that clients reach, as a broker serves them at ``grpc.listener``."""

from typing import Final

from quorate_proto.v1 import admin_pb2, groups_pb2, replication_pb2

CLIENT_SERVICES: Final = (
    admin_pb2.DESCRIPTOR.services_by_name["Admin"],
    admin_pb2.DESCRIPTOR.services_by_name["MetadataView"],
    groups_pb2.DESCRIPTOR.services_by_name["GroupOffsets"],
    replication_pb2.DESCRIPTOR.services_by_name["RangeRead"],
    replication_pb2.DESCRIPTOR.services_by_name["RangeWrite"],
)
