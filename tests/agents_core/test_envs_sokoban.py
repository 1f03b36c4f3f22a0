"""Sokoban: levels can be solved, boards in lock-step are played as one alone, files are read."""

import random

import numpy as np
import pytest

from zoo import ZooError
from zoo.agents.envs import Task, VectorEnv, check_disjoint
from zoo.agents.envs.sokoban import (
    SokobanEnv,
    SokobanVectorEnv,
    boxoban_tasks,
    generate_level,
    sokoban_tasks,
    solve,
)

LEVEL = ["######", "#@ $.#", "#    #", "#    #", "#    #", "######"]


def level(rows):
    return Task("level", "sokoban", "train", 0, {"rows": rows})


def play(env, task, moves):
    env.reset(task)
    return [env.step(move) for move in moves]


@pytest.mark.parametrize(("size", "boxes"), [(6, 1), (7, 2)])
def test_levels_are_solved_by_the_solver_and_by_their_own_solution(size, boxes):
    env = SokobanEnv(max_steps=200)
    for task in sokoban_tasks("train", 25, size, boxes):
        rows, solution = generate_level(task.seed, size, boxes)
        assert rows == task.payload["rows"]
        steps = play(env, task, solution)
        assert steps[-1].info["success"]
        assert env.verify(task, env.state_dict())
        shortest = solve(rows)
        assert 1 <= len(shortest) <= len(solution)
        last = play(env, task, shortest)[-1]
        assert last.done
        assert last.info["success"]


def test_published_size():
    rows, solution = generate_level(3, size=10, boxes=4, pulls=200)
    assert "".join(rows).count("$") == 4
    assert play(SokobanEnv(max_steps=500), level(rows), solution)[-1].info["success"]


def test_rewards_by_hand():
    env = SokobanEnv()
    obs = env.reset(level(LEVEL))
    assert obs.text.split("\n")[1] == "# @ _ $ . #"
    assert obs.admissible == ["down", "right"]
    assert env.step("up")[1:] == (pytest.approx(-0.1), False, {"success": False, "valid": False})
    assert env.step("jump").info["valid"] is False
    assert env.step("right").reward == pytest.approx(-0.1)
    solved = env.step(" Right ")
    assert solved[1:] == (pytest.approx(10.9), True, {"success": True, "valid": True})
    assert solved.obs.text.split("\n")[1] == "# _ _ @ * #"
    with pytest.raises(ZooError, match="begins with reset"):
        env.step("up")
    two = ["######", "#@*  #", "#  $.#", "#    #", "#    #", "######"]
    assert play(SokobanEnv(), level(two), ["right"])[0].reward == pytest.approx(-1.1)


def test_unsolvable_and_too_large():
    corner = ["#####", "#$ @#", "# . #", "#   #", "#####"]
    assert solve(corner) is None
    with pytest.raises(ZooError, match="first 10 states"):
        solve(generate_level(0, 8, 2)[0], max_states=10)


def test_many_boards_are_played_as_one_alone():
    tasks, rng = sokoban_tasks("val", 16), random.Random(0)
    many, alone = SokobanVectorEnv(16, max_steps=12), VectorEnv(lambda: SokobanEnv(12), 16)
    assert many.reset(tasks) == alone.reset(tasks)
    for _ in range(15):
        moves = [rng.choice(["up", "down", "left", "right", "?"]) for _ in tasks]
        active = [rng.random() < 0.8 for _ in tasks]
        one, two = many.step(moves, active), alone.step(moves, active)
        assert one.obs == two.obs
        assert np.array_equal(one.rewards, two.rewards)
        assert np.array_equal(one.dones, two.dones)
        assert one.infos == two.infos
    states = many.state_dicts()
    assert states == alone.state_dicts()
    other = SokobanVectorEnv(16)
    other.reset(tasks)
    other.load_state_dicts(states)
    assert other.state_dicts() == states


def test_admissible_moves_are_those_that_change_the_board():
    env = SokobanEnv(max_steps=1000)
    for task in sokoban_tasks("test", 10, 7, 2):
        obs = env.reset(task)
        for move in ("up", "down", "left", "right") * 5:
            before = env.state_dict()
            if before["done"]:
                break
            following = env.step(move)
            changed = env.state_dict()["player"] != before["player"]
            assert changed == following.info["valid"] == (move in obs.admissible)
            obs = following.obs


def test_splits():
    check_disjoint({s: sokoban_tasks(s, 30) for s in ("train", "val", "test", "probe")})
    assert sokoban_tasks("train", 5) == sokoban_tasks("train", 5)
    with pytest.raises(ZooError, match="no room for 9 boxes"):
        sokoban_tasks("train", 1, 6, 9)


BOXOBAN = """; 0
##########
#   ######
# $ ######
# . ######
# @      #
# $$     #
# ..   $ #
#      . #
#        #
##########

; 1
##########
#@$.     #
# $.     #
# $.     #
# $.     #
#        #
#        #
#        #
#        #
##########
"""


def test_boxoban_files(tmp_path):
    (tmp_path / "001.txt").write_text(BOXOBAN)
    (tmp_path / "000.txt").write_text(BOXOBAN)
    tasks = boxoban_tasks(tmp_path, "train")
    assert [t.task_id for t in tasks] == ["000-0", "000-1", "001-0", "001-1"]
    assert len(tasks[0].payload["rows"]) == 10
    SokobanVectorEnv(4).reset(tasks)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("; 0\n", "", "line 1: a level begins"),
        ("# @ ", "# X ", r"line 1: unknown cells \['X'\]"),
        ("# @ ", "#   ", "one player"),
        ("# $ ##", "#   ##", "3 boxes and 4 goals"),
        ("#   ##", "    ##", "closed by walls"),
        ("#   ##", "#   #", "equally long"),
    ],
)
def test_malformed_boxoban(tmp_path, old, new, sentence):
    path = tmp_path / "000.txt"
    path.write_text(BOXOBAN.replace(old, new, 1))
    with pytest.raises(ZooError, match=sentence):
        boxoban_tasks(path, "train")
    with pytest.raises(ZooError, match="no Boxoban files"):
        boxoban_tasks(tmp_path / "none", "train")


def test_bad_boards():
    with pytest.raises(ZooError, match="one size"):
        SokobanVectorEnv(2).reset([*sokoban_tasks("train", 1), *sokoban_tasks("train", 1, 7)])
    with pytest.raises(ZooError, match="no Sokoban level"):
        SokobanEnv().reset(Task("x", "y", "train", 0, {}))


def test_boards_are_written_by_places_too():
    rows = ["######", "#@$. #", "# #  #", "#    #", "######"]
    task = Task("t", "f", "train", 0, {"rows": rows})
    env = SokobanEnv(written="places")
    assert env.reset(task).text == "player 1 1 box 1 2 goal 1 3 wall 2 2"
    step = env.step("right")
    assert step.obs.text == "player 1 2 box 1 3 goal 1 3 wall 2 2"
    assert step.info["success"]
    assert set(step.obs.text.split()) <= set(env.vocabulary())
    with pytest.raises(ZooError, match="Did you mean 'places'"):
        SokobanEnv(written="place")
