"""The shop: pages and reward by hand, an expert that buys right, WebShop's files."""

import json

import pytest

from zoo import ZooError
from zoo.agents.envs import Task, check_disjoint
from zoo.agents.envs.shop import (
    Catalogue,
    Product,
    ShopEnv,
    WebShopEnv,
    generated_catalogue,
    purchase_reward,
    shop_expert_action,
    shop_tasks,
)
from zoo.agents.retrieval import words

GOAL = {
    "title": "alder warm jacket",
    "kind": "jacket",
    "category": "clothing",
    "attributes": ["warm", "hooded"],
    "options": {"color": "red"},
    "ceiling": 50,
}


def product(asin="b1", **changes):
    fields = {
        "title": "alder warm jacket",
        "kind": "jacket",
        "category": "clothing",
        "description": "a warm jacket",
        "attributes": frozenset({"warm", "hooded"}),
        "options": {"color": ["red", "blue"]},
        "price": 40.0,
        **changes,
    }
    return Product(asin, **fields)


@pytest.mark.parametrize(
    ("changes", "options", "reward"),
    [
        ({}, {"color": "red"}, 1.0),
        ({}, {}, 3 / 4),
        ({"price": 60.0}, {"color": "red"}, 3 / 4),
        ({"attributes": frozenset({"warm"})}, {"color": "blue"}, 2 / 4),
        ({"kind": "lamp", "category": "home", "title": "elm tall lamp"}, {"color": "red"}, 0.0),
        ({"kind": "coat", "title": "elm soft jacket"}, {"color": "red"}, 1.0),
        (
            {"kind": "lamp", "category": "home", "title": "warm elm lamp", "price": 60.0},
            {"color": "red"},
            3 / 4,
        ),
    ],
)
def test_reward_by_hand(changes, options, reward):
    assert purchase_reward(product(**changes), options, GOAL) == pytest.approx(reward)


def test_reward_of_a_distant_kind():
    far = {**GOAL, "title": "one two three four five six seven eight nine jacket"}
    coat = product(kind="coat", category="travel", title="jacket")
    assert purchase_reward(coat, {"color": "red"}, far) == pytest.approx(0.5)
    far["title"] = "one two three four five six seven eight nine ten jacket"
    assert purchase_reward(coat, {"color": "red"}, far) == pytest.approx(0.1)


def test_pages_by_hand():
    many = [product(f"b{i}", title=f"alder warm jacket {i}") for i in range(12)]
    env = ShopEnv(Catalogue(many))
    obs = env.reset(Task("t", "clothing", "train", 0, {"instruction": "x", "goal": GOAL}))
    assert obs.admissible is None
    assert not env.step("click[b1]").info["valid"]
    assert not env.step("buy it").info["valid"]
    obs = env.step("search[warm jacket]").obs
    assert "page 1, 12 results" in obs.text
    assert len(obs.admissible) == 12  # ten products, the next page, back
    assert not env.step("search[again]").info["valid"]
    assert len(env.step("click[next >]").obs.admissible) == 4
    env.step("click[< prev]")
    obs = env.step("Click[B3]").obs
    assert "alder warm jacket 3" in obs.text
    assert "color: red, blue" in obs.text
    assert "(red)" in env.step("click[red]").obs.text
    assert "(blue)" in env.step("click[blue]").obs.text
    state = env.state_dict()
    env.step("click[< prev]")
    env.load_state_dict(json.loads(json.dumps(state)))
    env.step("click[red]")
    step = env.step("click[buy now]")
    assert step[1:] == (1.0, True, {"success": True, "valid": True})
    with pytest.raises(ZooError, match="begins with reset"):
        env.step("search[x]")


def test_expert_fulfils_every_wish_that_search_finds():
    env, found = ShopEnv(max_steps=40), 0
    tasks = shop_tasks("train", 60)
    for task in tasks:
        env.reset(task)
        done = False
        while not done:
            _, reward, done, info = env.step(shop_expert_action(env))
            assert info["valid"]
        found += info["success"]
        assert env.verify(task, env.state_dict()) == info["success"] == (reward == 1.0)
    assert found >= 0.95 * len(tasks)


def test_catalogue_splits_and_words():
    assert len(generated_catalogue().products) == 500
    check_disjoint({s: shop_tasks(s, 50) for s in ("train", "val", "test")})
    env = ShopEnv()
    known = set(env.vocabulary())
    for task in shop_tasks("val", 10):
        obs = env.reset(task)
        for _ in range(4):
            assert set(words(obs.text)) <= known, set(words(obs.text)) - known
            obs = env.step(shop_expert_action(env)).obs
    with pytest.raises(ZooError, match="no wish"):
        env.reset(Task("x", "y", "train", 0, {}))
    with pytest.raises(ZooError, match="family"):
        shop_tasks("train", 1, ["shoe"])


def webshop(root):
    items = [
        {
            "asin": f"B00{i}",
            "name": f"Nice {colour} towel",
            "query": "bath towel",
            "category": "beauty",
            "full_description": "A towel.",
            "pricing": "$12.99 to $20.00",
            "customization_options": {"Color": [{"value": colour.upper()}, {"value": "Grey"}]},
        }
        for i, colour in enumerate(("red", "blue"))
    ]
    wishes = {
        "B000": [
            {
                "instruction": "find me a soft towel in red.",
                "instruction_attributes": ["soft"],
                "instruction_options": ["red"],
            }
        ],
        "B009": [{"instruction": "gone", "instruction_attributes": ["x"]}],
    }
    (root / "items_shuffle.json").write_text(json.dumps(items))
    (root / "items_ins_v2.json").write_text(json.dumps({"B000": {"attributes": ["soft"]}}))
    (root / "items_human_ins.json").write_text(json.dumps(wishes))


def test_webshop(tmp_path):
    with pytest.raises(ZooError, match="lacks items_shuffle"):
        WebShopEnv(tmp_path)
    webshop(tmp_path)
    env = WebShopEnv(tmp_path)
    (task,) = env.tasks("test")
    assert task.payload["goal"]["options"] == {"color": "red"}
    assert task.payload["goal"]["ceiling"] > 12.99
    assert env.tasks("train") == []
    env.reset(task)
    for action in ("search[red towel]", "click[b000]", "click[red]", "click[buy now]"):
        step = env.step(action)
        assert step.info["valid"], action
    assert step.reward == 1.0
    (tmp_path / "items_shuffle.json").write_text('[{"asin": "x"}]')
    with pytest.raises(ZooError, match="not WebShop's: KeyError"):
        WebShopEnv(tmp_path)
