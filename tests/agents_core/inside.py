"""Whether commands in a sandbox can run this very Python."""

import functools
import sys

from zoo.agents.sandbox import Sandbox


@functools.cache
def python_runs_inside():
    """Not so for root without namespaces, if the interpreter lies where others may not look."""
    with Sandbox() as box:
        return box.run([sys.executable, "-c", ""]).returncode == 0
