"""Topic keys of Kafka's that are accepted with Kafka's values and defaults, but have no effect.

Tools and clients name such keys beside others, and one unknown key refuses all of them. What would
be missed is refused still: tiered storage cannot be switched on, and of the keys of flushing only
the defaults are accepted, because any other value would promise durability that ``log.flush=os``
has not.
"""

from typing import Any, Final

from msgspec import structs

from quorate.common.configuration import ConfigKey, T


def _accepted(key: ConfigKey[T], why: str) -> ConfigKey[T]:
    """Return the key with documentation that says why it has no effect."""
    return structs.replace(key, doc=f"{key.doc} in Kafka. It has no effect here: {why}")


_NEVER: Final = 2**63 - 1
_ONLY_NEVER: Final = f"{_NEVER}, because log.flush of the broker says when records are flushed"
_FLUSHED_BY_BROKER: Final = "log.flush of the broker says when records are flushed."
_USUAL_LEVEL: Final = "a leader that compresses batches again uses the codec's usual level."
_NO_TIERS: Final = "there is no tiered storage."

KEYS_WITHOUT_EFFECT: Final[tuple[ConfigKey[Any], ...]] = (
    _accepted(
        ConfigKey(
            name="flush.messages",
            type=int,
            default=_NEVER,
            pattern=str(_NEVER),
            form=_ONLY_NEVER,
            doc="After how many records a log is flushed",
        ),
        _FLUSHED_BY_BROKER,
    ),
    _accepted(
        ConfigKey(
            name="flush.ms",
            type=int,
            default=_NEVER,
            pattern=str(_NEVER),
            form=_ONLY_NEVER,
            doc="After what time a log is flushed",
        ),
        _FLUSHED_BY_BROKER,
    ),
    _accepted(
        ConfigKey(
            name="compression.gzip.level",
            type=int,
            default=-1,
            at_most=9,
            pattern="-1|[1-9]",
            form="-1, or from 1 to 9",
            doc="The level of compression.type gzip",
        ),
        _USUAL_LEVEL,
    ),
    _accepted(
        ConfigKey(
            name="compression.lz4.level",
            type=int,
            default=9,
            at_least=1,
            at_most=17,
            doc="The level of compression.type lz4",
        ),
        _USUAL_LEVEL,
    ),
    _accepted(
        ConfigKey(
            name="compression.zstd.level",
            type=int,
            default=3,
            at_least=-131_072,
            at_most=22,
            doc="The level of compression.type zstd",
        ),
        _USUAL_LEVEL,
    ),
    ConfigKey(
        name="remote.storage.enable",
        type=bool,
        default=False,
        pattern="False",
        form="false, because there is no tiered storage",
        doc=f"Whether old records move to tiered storage. It is always false here: {_NO_TIERS}",
    ),
    _accepted(
        ConfigKey(
            name="remote.log.copy.disable",
            type=bool,
            default=False,
            doc="Whether tiered storage is only read",
        ),
        _NO_TIERS,
    ),
    _accepted(
        ConfigKey(
            name="remote.log.delete.on.disable",
            type=bool,
            default=False,
            doc="Whether records of tiered storage are deleted when it is switched off",
        ),
        _NO_TIERS,
    ),
    _accepted(
        ConfigKey(
            name="local.retention.ms",
            type=int,
            default=-2,
            at_least=-2,
            at_most=2**63 - 1,
            doc="How long records stay on the broker once they are in tiered storage",
        ),
        _NO_TIERS,
    ),
    _accepted(
        ConfigKey(
            name="local.retention.bytes",
            type=int,
            default=-2,
            at_least=-2,
            at_most=2**63 - 1,
            doc="How many bytes stay on the broker once they are in tiered storage",
        ),
        _NO_TIERS,
    ),
)
