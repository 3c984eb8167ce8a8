"""kio's layouts of Kafka's messages, imported without kio's support for tests.

kio imports hypothesis where it is installed, to register its types. On a developer's machine this
would cost every broker a second of CPU time at its start, and 8 MB.
"""

import sys
from types import ModuleType
from typing import Final, cast

_TESTING: Final = "hypothesis"

_hidden = _TESTING not in sys.modules
if _hidden:
    # With None in place of the module, importing it fails as if it were not installed.
    cast("dict[str, ModuleType | None]", sys.modules)[_TESTING] = None
try:
    from kio.index import load_entity_schema
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType
finally:
    if _hidden:
        del sys.modules[_TESTING]

__all__ = ["EntityType", "api_key_map", "load_entity_schema", "schema_name_map"]
