"""kio's layouts of Kafka's messages, without what kio brings along for tests.

kio imports hypothesis where that is installed, to teach it kio's types. On a developer's machine
this would cost every broker a second of CPU time at its start, and 8 MB.
"""

import sys
from types import ModuleType
from typing import Final, cast

_TESTING: Final = "hypothesis"

_hidden = _TESTING not in sys.modules
if _hidden:
    # None makes an import of it fail, as if it were not there.
    cast("dict[str, ModuleType | None]", sys.modules)[_TESTING] = None
try:
    from kio.index import load_entity_schema
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType
finally:
    if _hidden:
        del sys.modules[_TESTING]

__all__ = ["EntityType", "api_key_map", "load_entity_schema", "schema_name_map"]
