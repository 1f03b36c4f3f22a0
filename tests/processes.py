"""Runs a script with one process and with two."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_with_one_and_two(script, folder, *arguments):
    """Runs ``script`` in ``folder`` twice, told the number of devices, the folder and the rest."""
    (folder / "step.py").write_text(script)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    for devices in ("1", "2"):
        command = [sys.executable, "step.py", devices, str(folder), *arguments]
        done = subprocess.run(
            command, cwd=folder, env=env, timeout=280, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
