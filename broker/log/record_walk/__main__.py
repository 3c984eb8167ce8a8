"""``python -m quorate.broker.log.record_walk`` compiles the walk into the module ``code``."""

from pathlib import Path

from quorate.broker.log.record_walk.compiler import compiled, module_text

if __name__ == "__main__":
    Path(__file__).with_name("code.py").write_text(module_text(compiled()))
