"""Skills that the data do not name: clusters that are those of the data, and tags."""

import numpy as np
import pytest
import torch
from scipy.special import comb

from tests.scpo.case import SKILLS, VOCABULARY
from zoo.agents.llm import ClientArgs, ScriptedClient
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig
from zoo.datamodules import VerifiableReasoningDataModule
from zoo.errors import ZooError
from zoo.scpo.skills import ClusterSkills, SkillTagger


def adjusted_rand_index(a, b):
    """Agreement of two partitions beyond chance (Hubert and Arabie, 1985)."""
    table = np.zeros((max(a) + 1, max(b) + 1))
    np.add.at(table, (np.asarray(a), np.asarray(b)), 1)
    pairs = comb(table, 2).sum()
    rows, columns = comb(table.sum(1), 2).sum(), comb(table.sum(0), 2).sum()
    chance = rows * columns / comb(len(a), 2)
    return (pairs - chance) / ((rows + columns) / 2 - chance)


def test_adjusted_rand_index_by_hand():
    assert adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0]) == 1
    assert adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)


@pytest.fixture(scope="module")
def problems():
    data = VerifiableReasoningDataModule()
    data.setup("fit")
    return data.datasets["train"].problems


def make_policy(seed=0):
    torch.manual_seed(seed)
    return CausalPolicy(PolicyArgs(tiny=TinyConfig(vocabulary=VOCABULARY, context=32)))


@pytest.mark.parametrize("n_skills", [8, 16])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clusters_recover_the_labels(problems, n_skills, seed):
    policy = make_policy(seed)
    clusters = ClusterSkills(policy, n_skills)
    questions = [p.question for p in problems]
    clusters.fit(policy, questions)
    weights = clusters(questions)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(len(questions)))
    found = weights.argmax(dim=1).tolist()
    assert adjusted_rand_index([p.skill for p in problems], found) >= 0.6


def test_a_plain_mean_would_not(problems, monkeypatch):
    """Digits are as far apart as skills are, and there are more of them."""
    monkeypatch.setattr("zoo.scpo.skills.RARE", 1e9)
    policy = make_policy()
    clusters = ClusterSkills(policy, 8)
    questions = [p.question for p in problems]
    clusters.fit(policy, questions)
    found = clusters(questions).argmax(dim=1).tolist()
    assert adjusted_rand_index([p.skill for p in problems], found) < 0.3


def test_clusters_stay_when_the_policy_moves(problems):
    policy = make_policy()
    clusters = ClusterSkills(policy, 8)
    questions = [p.question for p in problems[:64]]
    assert not clusters.fitted
    clusters.fit(policy, questions)
    before = clusters(questions)
    with torch.no_grad():
        policy.base.get_input_embeddings().weight.normal_()
    assert torch.equal(clusters(questions), before)
    assert clusters.fitted
    again = ClusterSkills(policy, 8)
    again.load_state_dict(clusters.state_dict())
    assert torch.equal(again(questions), before)


def test_fewer_questions_than_clusters_are_refused():
    policy = make_policy()
    with pytest.raises(ZooError, match="2 training questions"):
        ClusterSkills(policy, 8).fit(policy, ["sort 1 2", "max 1 2"])


def first_word(request):
    """Of the question, as a model may write it."""
    return f" {request.text().rpartition(chr(10))[2].split()[0].title()}."


def test_each_question_is_tagged_once():
    client = ScriptedClient([("Which one skill", first_word)])
    tagger = SkillTagger(ClientArgs(model="m"), SKILLS, client)
    assert tagger(["sort 1 2", "max 3 4", "sort 1 2"]).tolist() == [4, 1, 4]
    assert tagger(["max 3 4", "last 1"]).tolist() == [1, 0]
    assert len(client.requests) == 3


def test_a_tag_that_is_no_skill_is_an_error():
    tagger = SkillTagger(ClientArgs(model="m"), SKILLS, ScriptedClient([("", "sorting")]))
    with pytest.raises(ZooError, match=r"'sorting'.*Did you mean 'sort'"):
        tagger(["sort 1 2"])
    with pytest.raises(ZooError, match=r"tagger\.model"):
        ClientArgs.of(None, "tagger")
