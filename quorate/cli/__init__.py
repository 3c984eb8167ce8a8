"""The ``quorate`` command. Each command lives in its own module and is loaded when it is called."""
