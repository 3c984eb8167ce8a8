"""Is imported by every Python process that has this folder in its path, before its program."""

import importlib
import os

if "QUORATE_TEST_CHANGES" in os.environ:
    changes = importlib.import_module("changes")
    changes.make(os.environ["QUORATE_TEST_CHANGES"].split())
