"""Summaries by rule and by a model, what is refused, and the mark that tells prompts apart."""

import json

import pytest

from zoo.agents.envs.base import Task
from zoo.agents.llm import ScriptedClient
from zoo.agents.rollout import Episode
from zoo.errors import ZooError
from zoo.skill_sd import SkillSummarizer
from zoo.skill_sd.summary import MAX_WORDS, Summary, check_plain, parse_summary

TASK = Task("workflow-lunch-apple", "lunch", "train", 0, {"type": "lunch", "object": "apple"})
GOOD = {"success_analysis": "s", "mistake_analysis": "m", "golden_workflow": "heat, open"}


def episode(actions, success):
    seen = ["prepare apple for lunch.", *["done."] * len(actions)]
    return Episode(TASK, list(actions), seen, [0.0, float(success)], success)


WIN = episode(["heat apple", "open apple"], True)
LOSS = episode(["heat apple", "use apple"], False)


def test_the_rule_takes_what_was_done_without_the_object():
    (found,) = SkillSummarizer()([WIN], [LOSS])
    assert found.golden_workflow == "heat, open"
    assert "turn 2" in found.mistake_analysis
    assert "use apple" in found.mistake_analysis
    (own,) = SkillSummarizer(general=False)([WIN], [None])
    assert own.golden_workflow == "heat apple, open apple"


def test_a_model_sees_trajectory_and_reward_and_no_truth():
    client = ScriptedClient([("", f"Here it is: {json.dumps(GOOD)}.")])
    (found,) = SkillSummarizer(client)([WIN], [LOSS])
    assert found == Summary(**GOOD)
    (request,) = client.requests
    text = request.text()
    assert "> heat apple" in text
    assert "Outcome: success, reward 1.0" in text
    assert "which failed" in text
    assert SkillSummarizer(client)([], []) == []


@pytest.mark.parametrize(
    ("answer", "pattern"),
    [
        ("", "answered ''"),
        ("I can't.", "expected a JSON object"),
        (json.dumps({"golden_workflow": "a"}), "expected a JSON object"),
        (json.dumps({**GOOD, "golden_workflow": " "}), "An empty summary"),
        (json.dumps({**GOOD, "golden_workflow": ["a"]}), "not list"),
    ],
)
def test_an_answer_that_is_no_summary_is_refused(answer, pattern):
    with pytest.raises(ZooError, match=pattern):
        SkillSummarizer(ScriptedClient([("", answer)]))([WIN], [None])


def test_one_bad_answer_among_good_ones_is_left_out():
    client = ScriptedClient([("use apple", "no"), ("", json.dumps(GOOD))])
    found = SkillSummarizer(client)([WIN, WIN], [LOSS, None])
    assert found == [None, Summary(**GOOD)]


def test_long_answers_keep_the_workflow():
    row = {**GOOD, "success_analysis": "word " * 500, "golden_workflow": "step " * 150}
    found = parse_summary(json.dumps(row))
    assert len(found.golden_workflow.split()) == 150
    words = " ".join(found.to_dict().values()).split()
    assert 150 < len(words) <= MAX_WORDS


def test_prompts_with_a_skill_are_told_from_those_without():
    summary = Summary(**GOOD)
    assert check_plain("prepare apple for lunch.", True) == "prepare apple for lunch."
    for block, brief in ((summary.brief(), True), (summary.quoted("lunch"), False)):
        with pytest.raises(ZooError, match="student's prompt holds a skill"):
            check_plain(f"{block}\nprepare apple for lunch.", brief)
    assert "no orders" in summary.quoted("lunch")
    assert "golden workflow: heat, open" in summary.skill("lunch tasks").body
