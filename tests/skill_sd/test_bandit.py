"""Upper confidence bounds by hand, credits, and what a full bank takes."""

import json
import math

import pytest

from zoo.errors import ZooError
from zoo.skill_sd import SkillBandit
from zoo.skill_sd.summary import Summary


def summary(workflow):
    return Summary("", "", workflow)


def bandit(*workflows, **options):
    found = SkillBandit(**options)
    for turns, workflow in enumerate(workflows, 4):
        assert found.add("t", summary(workflow), turns, "t-1")
    return found


def test_a_task_without_skills_has_none_to_read():
    found = SkillBandit()
    found.visit("t", 0.5)
    assert found.choose("t") is None
    assert found.coverage == 0
    found.add("t", summary("a"), 3, "t-1")
    assert found.coverage == 1


def test_each_skill_is_tried_once_and_then_the_bounds_decide():
    found = bandit("a", "b")
    read = []
    for success in (0.0, 0.5, 0.6, 0.6):
        found.visit("t", success)
        read.append(found.choose("t").golden_workflow)
    # a gains 0.5, b 0.1; a's bound is above, 1.33 to 0.93; it gains nothing more, and b's is.
    assert read == ["a", "b", "a", "b"]
    a, b = found.arms["t"]
    assert (a.uses, b.uses) == (2, 1)
    assert (a.value, b.value) == pytest.approx((0.25, 0.1))
    log = math.log(3)
    assert found.bounds("t") == pytest.approx([0.25 + math.sqrt(log / 2), 0.1 + math.sqrt(log)])


def test_without_exploration_the_mean_decides():
    found = bandit("a", "b", c=0.0)
    for success in (0.0, 0.1, 0.9):
        found.visit("t", success)
        found.choose("t")
    found.visit("t", 0.9)
    assert found.choose("t").golden_workflow == "b"
    assert found.best("t").golden_workflow == "b"


def test_a_credit_is_what_success_has_gained_and_needs_a_reading():
    found = bandit("a")
    found.visit("t", 0.25)
    found.visit("t", 1.0)  # nothing was read in between
    assert found.arms["t"][0].uses == 0
    found.choose("t")
    found.visit("t", 0.0)
    assert found.arms["t"][0].value == -1.0


def test_a_full_bank_takes_a_shorter_success_for_its_worst():
    found = bandit("a", "b", size=2)  # of 4 and 5 turns
    found.arms["t"][0].value, found.arms["t"][0].uses = -0.5, 1
    found.arms["t"][1].uses = 1
    assert not found.wants("t", 5)
    assert not found.add("t", summary("a"), 1, "t")  # known
    assert not found.add("t", summary("c"), 4, "t")  # not shorter than the worst
    found.read["t"] = 0
    assert found.add("t", summary("c"), 3, "t")
    assert [arm.summary.golden_workflow for arm in found.arms["t"]] == ["c", "b"]
    found.visit("t", 0.0)
    found.visit("t", 1.0)
    assert found.arms["t"][0].uses == 0  # not credited for what it replaced


def test_it_goes_through_json_and_goes_on_alike():
    found = bandit("a", "b")
    for success in (0.0, 0.5):
        found.visit("t", success)
        found.choose("t")
    again = SkillBandit()
    again.load_state_dict(json.loads(json.dumps(found.state_dict())))
    for each in (found, again):
        each.visit("t", 0.9)
    assert again.state_dict() == found.state_dict()
    assert again.bounds("t") == found.bounds("t")


def test_bad_sizes_are_one_sentence():
    with pytest.raises(ZooError, match="skills_per_task=0"):
        SkillBandit(size=0)
    with pytest.raises(ZooError, match=r"ucb_c=-1"):
        SkillBandit(c=-1)
