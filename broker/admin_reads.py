"""What any broker answers over gRPC from what it knows itself: method name → what answers it."""

from collections.abc import Mapping

from broker.control.admin_service import Read
from broker.control.ports import Images
from metadata_log.configuration import Configuration


def admin_reads(_config: Configuration, _images: Images) -> Mapping[str, Read]:
    """The Admin service's reads. One that is not among them is UNIMPLEMENTED."""
    return {}
