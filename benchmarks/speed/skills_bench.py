"""What a trajectory costs beside the model: harness, sandbox and tests.

python -m benchmarks.speed.skills_bench         # 108 trajectories by one, two and four workers
python -m benchmarks.speed.skills_bench whole   # 1080 by two

Simulated agents answer at once.
"""

from __future__ import annotations

import sys
import time

from zoo.agents.skill_tasks import embedded_tasks
from zoo.skills_bench import AgentArgs, Bench, RunArgs
from zoo.skills_bench.agent import DEFAULT_AGENTS

THREE = ("none", "curated", "self")


def timed(workers: int, trials: int, tasks: int | None = None) -> tuple[float, list[bool]]:
    """Seconds of a fresh benchmark, verdicts not known before, and its outcomes."""
    bench = Bench(
        [AgentArgs(**agent) for agent in DEFAULT_AGENTS],
        RunArgs(THREE, n_trials=trials, concurrency=workers),
    )
    began = time.perf_counter()
    found = bench.run(embedded_tasks()[:tasks])
    return time.perf_counter() - began, [t.success for t in found]


def main() -> None:
    """Prints a table."""
    if "whole" in sys.argv[1:]:
        seconds, outcomes = timed(2, 5)
        print(f"{len(outcomes)} trajectories, 2 workers: {seconds:.1f} s")
        print(f"{1000 * seconds * 2 / len(outcomes):.0f} ms of a worker each")
        return
    known: list[bool] | None = None
    for workers in (1, 2, 4):
        seconds, outcomes = timed(workers, 2, 6)
        same = "" if known is None else f", outcomes equal: {known == outcomes}"
        known = known or outcomes
        each = 1000 * seconds / len(outcomes)
        print(f"{workers} workers: {len(outcomes)} in {seconds:.1f} s, {each:.0f} ms each{same}")


if __name__ == "__main__":
    main()
