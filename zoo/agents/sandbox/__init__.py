r"""Runs commands that an agent wrote, without trusting them.

    from zoo.agents.sandbox import Sandbox, run

    run(["python", "solve.py"], {"solve.py": "print(6 * 7)"}).stdout  # "42\n"

A command gets a temporary folder, an environment of PATH, HOME and LANG only, limits on time, CPU,
memory, processes, files and output, and walls, the strongest that the machine offers:

========================  =========================  ==========================  ==================
walls                     network                    files outside the folder    processes
========================  =========================  ==========================  ==================
namespaces and seccomp    none is there              most are not there, the     all end with the
                                                     rest is read-only           namespace
landlock and seccomp      no socket can be opened    unwritable, most            can't leave their
(containers)                                         unreadable                  group; all end
seccomp                   no socket can be opened    the user's permissions      likewise
hook (weak, warns)        Python programs can't      the user's permissions      ended where found
========================  =========================  ==========================  ==================

Under root, commands run as a user of their own in each. ``strict=True`` refuses to run where only
the last two rows are to be had. ``best_walls()`` says which are in use. Not contained: the CPU time
of many processes together (the time-out bounds it), and flaws of the kernel. Without root, in the
last two rows, a program reads what the user may read and signals the user's other processes. Linux
only, on x86_64 or ARM64.
"""

from zoo.agents.sandbox.box import Limits as Limits
from zoo.agents.sandbox.box import Result as Result
from zoo.agents.sandbox.box import Sandbox as Sandbox
from zoo.agents.sandbox.box import SandboxError as SandboxError
from zoo.agents.sandbox.box import run as run
from zoo.agents.sandbox.walls import Walls as Walls
from zoo.agents.sandbox.walls import best_walls as best_walls
