"""The check before a release: ``make release-check``, or ``python -m tests.release_check``.

It builds the wheel and the source archive, installs each in an empty environment of every Python
that Quorate supports and that can be had here, and runs the quick start there.

- ``versions`` holds that pyproject.toml, uv.lock, the changelog and the tags agree.
- ``environments`` finds Pythons and installs archives, with uv.
- ``quick_start`` runs the commands of the README's quick start, as a user has them.
- ``report`` puts the results into a table, and says how the release is tagged.
"""
