"""A draft leaves nothing to the cycle collector when its run has been applied."""

import gc

from quorate.common.types import ControllerEpoch, MetadataOffset
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import Image


def test_a_folded_draft_is_part_of_no_cycle() -> None:
    """Thousands of drafts a second would otherwise stop a voter for collections."""
    gc.collect()
    gc.disable()
    try:
        draft = Draft(Image())
        draft.begin_transaction(by_quorum=False)
        draft.put_controller_epoch(ControllerEpoch(7))
        draft.put_administered(MetadataOffset(3))
        image = draft.folded(MetadataOffset(3))
        del draft
        assert gc.collect() == 0, "objects were left that only the collector can free"
    finally:
        gc.enable()
    assert image.controller_epoch == 7
