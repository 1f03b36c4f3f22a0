"""The agents' common parts in numbers, beside what a user would pick instead.

    python -m benchmarks.speed.agents_core envs      # steps a second of the environments
    python -m benchmarks.speed.agents_core sandbox   # milliseconds of a command
    python -m benchmarks.speed.agents_core engine    # the household, and ALFWorld's engine

Rates are of this process's CPU time, so that a busy machine does not count, but for ``sandbox``,
whose work is done by other processes: wall time, and CPU time of those.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable

from zoo.agents.envs import (
    AlfworldPddlEnv,
    Env,
    HouseholdEnv,
    ShopEnv,
    SokobanEnv,
    SokobanVectorEnv,
    Task,
    ToolEnv,
    household_tasks,
    shop_tasks,
    sokoban_tasks,
    tool_tasks,
)
from zoo.agents.envs.shop import shop_expert_action
from zoo.agents.sandbox import Sandbox, best_walls

ROUNDS = 5


def best_rate(play: Callable[[], int]) -> float:
    """Steps a second of CPU time, the best of some rounds."""
    rates = []
    for _ in range(ROUNDS):
        start = time.process_time()
        steps = play()
        rates.append(steps / (time.process_time() - start))
    return max(rates)


def walk(env: Env, tasks: list[Task], steps: int = 50) -> int:
    """Random walks through admissible actions; gives the steps taken, resets not counted."""
    rng, taken = random.Random(0), 0
    for task in tasks:
        obs, done = env.reset(task), False
        for _ in range(steps):
            actions = obs.admissible or ["look"]
            obs, _, done, _ = env.step(actions[int(rng.random() * len(actions))])
            taken += 1
            if done:
                break
    return taken


def script(env: Env, tasks: list[Task]) -> int:
    """Plays the tools' own calls."""
    taken = 0
    for task in tasks:
        env.reset(task)
        for call in task.payload["calls"]:
            arguments = ", ".join(f"{k}={v!r}" for k, v in call["arguments"].items())
            env.step(f"{call['name']}({arguments})")
        env.step("finish()")
        taken += len(task.payload["calls"]) + 1
    return taken


def shop(env: ShopEnv, tasks: list[Task]) -> int:
    """Plays the expert, whose own search is part of the time."""
    taken = 0
    for task in tasks:
        env.reset(task)
        done = False
        while not done:
            done = env.step(shop_expert_action(env)).done
            taken += 1
    return taken


def boards(n: int, steps: int = 50) -> int:
    """Random moves on n boards in lock-step."""
    rng, env = random.Random(0), SokobanVectorEnv(n, max_steps=steps)
    env.reset((sokoban_tasks("train", 64) * n)[:n])
    moves = ("up", "down", "left", "right")
    taken = 0
    for _ in range(steps):
        taken += n - int(env.dones.sum())
        env.step([moves[int(rng.random() * 4)] for _ in range(n)])
    return taken


def envs() -> None:
    """Steps a second, observations and admissible actions included."""
    household, levels = household_tasks("train", 100), sokoban_tasks("train", 64)
    tools, wishes = tool_tasks("train", 60), shop_tasks("train", 30)
    shop_env, tool_env = ShopEnv(), ToolEnv()
    shop_env.catalogue.search("warm")  # builds the index
    for name, play in {
        "household": lambda: walk(HouseholdEnv(), household),
        "Sokoban 6x6, one board": lambda: walk(SokobanEnv(), levels[:8]),
        "Sokoban 6x6, 64 boards": lambda: boards(64),
        "Sokoban 6x6, 512 boards": lambda: boards(512),
        "tools": lambda: script(tool_env, tools),
        "shop": lambda: shop(shop_env, wishes),
    }.items():
        sys.stdout.write(f"{name:<26}{best_rate(play):>12,.0f} steps/s\n")


def sandbox() -> None:
    """A folder and a command in it, from nothing to nothing."""
    sys.stdout.write(f"walls: {', '.join(best_walls().layers)}\n")
    for name, command in {
        "true": ["/bin/true"],
        "python": ["python", "-c", "print(1)"],
    }.items():
        walls, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(20):
            start = time.perf_counter()
            with Sandbox({"a.txt": "1"}) as box:
                box.run(command)
            walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        wall, cpu = 1e3 * sorted(walls)[10], 1e3 * cpu / 20
        sys.stdout.write(f"{name:<10} median {wall:.0f} ms wall, {cpu:.0f} ms CPU\n")


def engine() -> None:
    """The same random walks in Python and on ALFWorld's engine; needs the extra ``envs``."""
    tasks = household_tasks("train", 2)
    ours, theirs = HouseholdEnv(), AlfworldPddlEnv()
    one = best_rate(lambda: walk(ours, tasks * 20))
    start = time.process_time()
    two = walk(theirs, tasks, 20) / (time.process_time() - start)
    theirs.close()
    sys.stdout.write(
        f"household {one:,.0f} steps/s, ALFWorld's engine {two:,.1f} steps/s with loading: "
        f"{one / two:,.0f} times\n"
    )


def main() -> None:
    """Measures what the argument names, and prints."""
    parts: dict[str, Callable[[], None]] = {"envs": envs, "sandbox": sandbox, "engine": engine}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.agents_core")
    parser.add_argument("what", choices=list(parts))
    parts[parser.parse_args().what]()


if __name__ == "__main__":
    main()
