"""Tools: schemas hold, failed calls change nothing, the state decides, benchmarks are read."""

import json
import time

import pytest

from zoo import ZooError
from zoo.agents.envs import check_disjoint
from zoo.agents.envs.tools import (
    TOOLS,
    BfclEnv,
    Call,
    CallError,
    ToolEnv,
    ToolError,
    bfcl_tasks,
    execute,
    parse_calls,
    state_diff,
    tau2_tasks,
    tool_tasks,
)
from zoo.agents.envs.tools.tasks import initial_state
from zoo.agents.envs.tools.toolbox import GROUPS


@pytest.fixture
def state():
    import random

    return initial_state(random.Random(0))


def test_thirty_tools_with_valid_schemas():
    from jsonschema import Draft202012Validator

    assert len(TOOLS) == 30
    assert len(GROUPS) == 6
    for tool in TOOLS.values():
        Draft202012Validator.check_schema(tool.parameters)
        assert tool.description.endswith(".")
        assert tool.schema()["function"]["name"] == tool.name
    assert TOOLS["transfer"].signature() == (
        "transfer(source: string, target: string, amount: integer)"
    )


@pytest.mark.parametrize("batched", [False, True])
def test_own_calls_solve_every_task(batched):
    env = ToolEnv()
    for task in tool_tasks("train", 120):
        obs = env.reset(task)
        assert not env.verify(task, env.state_dict())
        calls = [Call(c["name"], c["arguments"]) for c in task.payload["calls"]]
        if batched:
            step = env.step(json.dumps([c.to_dict() for c in calls]))
            assert step.info["valid"], step
        else:
            for call in calls:
                assert call.name in obs.text
                step = env.step(call.to_text())
                assert step.info["valid"], step
        assert (step.reward, step.done) == (0.0, False)
        assert env.verify(task, env.state_dict())
        assert env.step("finish()")[1:3] == (1.0, True)


def test_state_decides_not_words(state):
    env = ToolEnv()
    (task,) = tool_tasks("train", 1, ["bank"])
    env.reset(task)
    assert env.step("I have transferred the money. Done!").info == {
        "success": False,
        "valid": False,
    }
    step = env.step("finish()")
    assert step[1:3] == (0.0, True)
    assert not step.info["success"]
    env.reset(task)
    for call in task.payload["calls"]:
        env.step(json.dumps(call))
    env.step('write_file(path="extra.txt", text="x")')
    extra = "write_file" in task.payload["tools"]
    assert env.step("finish()").info["success"] != extra  # more than was asked is wrong too


def test_failed_call_changes_nothing(state):
    cases = [
        ("transfr", {}, "Did you mean 'transfer'"),
        ("get_balance", {}, "'account' is a required property"),
        ("get_balance", {"account": 3}, "not of type 'string'"),
        ("get_balance", {"account": "x", "y": 1}, "Additional properties"),
        ("get_balance", {"account": "x"}, "no account 'x'"),
        ("transfer", {"source": "a", "target": "b", "amount": -5}, "less than the minimum"),
        ("transfer", {"source": "a", "target": "b", "amount": True}, "not of type"),
        ("list_events", {"day": "sunday"}, "not one of"),
        ("choose_seat", {"booking": "b", "seat": "99Z"}, "does not match"),
        ("divide", {"dividend": 1, "divisor": 0}, "division by zero"),
        ("multiply", {"numbers": [1e200, 1e200]}, "too large"),
        ("add", {"numbers": [1]}, "is too short"),
        ("cancel_event", {"event": "event9"}, "no event 'event9'"),
    ]
    before = json.dumps(state)
    for name, arguments, sentence in cases:
        with pytest.raises(ToolError, match=sentence):
            execute(state, Call(name, arguments))
    assert json.dumps(state) == before


def test_every_tool_by_hand(state):
    """A small day in the life of the state; its diff is what was done."""
    state["files"] = {"a": "1"}
    state["accounts"] = {"x": 100, "y": 0}
    state["flights"] = {
        "F1": {"origin": "rome", "destination": "oslo", "day": "monday", "price": 9, "seats": 1}
    }
    state["events"] = {"event1": {"title": "t", "day": "monday", "start": 540, "end": 600}}
    first = json.loads(json.dumps(state))

    def do(name, **arguments):
        nonlocal state
        state, result = execute(state, Call(name, arguments))
        return result

    do("append_file", path="a", text="2")
    assert do("read_file", path="a") == "1\n2"
    do("move_file", source="a", target="b")
    do("write_file", path="c", text="x")
    do("delete_file", path="c")
    assert do("list_files") == ["b"]
    assert do("find_free_slot", day="monday", minutes=30) == 600
    assert do("add_event", title="u", day="monday", start=600, end=630) == "event4"
    with pytest.raises(ToolError, match="overlaps"):
        do("move_event", event="event4", day="monday", start=590)
    do("move_event", event="event4", day="friday", start=0)
    assert list(do("list_events", day="friday")) == ["event4"]
    do("cancel_event", event="event1")
    do("transfer", source="x", target="y", amount=60)
    do("pay_bill", account="y", payee="rent", amount=10)
    assert (do("get_balance", account="x"), do("get_balance", account="y")) == (40, 50)
    assert len(do("list_transactions", account="y")) == 2
    assert do("list_accounts") == ["x", "y"]
    with pytest.raises(ToolError, match="holds only 40"):
        do("transfer", source="x", target="y", amount=41)
    assert do("search_flights", origin="rome", destination="oslo", day="monday")
    assert do("book_flight", flight="F1", passenger="anna") == "booking1"
    with pytest.raises(ToolError, match="full"):
        do("book_flight", flight="F1", passenger="ben")
    do("choose_seat", booking="booking1", seat="12A")
    assert do("list_bookings", passenger="anna")["booking1"]["seat"] == "12A"
    do("cancel_booking", booking="booking1")
    assert do("send_email", to="anna", subject="s", text="t") == "mail4"
    assert list(do("list_emails", folder="sent")) == ["mail4"]
    do("move_email", message="mail4", folder="trash")
    assert do("read_email", message="mail4")["folder"] == "trash"
    do("delete_email", message="mail4")
    assert do("add", numbers=[1, 2.5]) == 3.5
    assert do("multiply", numbers=[2, 3]) == 6
    assert do("divide", dividend=1, divisor=4) == 0.25
    assert do("round_number", number=2.345, digits=1) == 2.3
    diff = state_diff(first, state)
    assert diff["/files/a"] is None
    assert diff["/files/b"] == "1\n2"
    assert diff["/accounts/x"] == 40
    assert not any(key.startswith(("/flights", "/bookings/")) for key in diff)


def test_calls_are_parsed_and_never_evaluated(tmp_path):
    assert parse_calls("f(a=1, b=[-2, 'x'])") == [Call("f", {"a": 1, "b": [-2, "x"]})]
    assert parse_calls("[f(), m.g(x=None)]") == [Call("f"), Call("m.g", {"x": None})]
    assert parse_calls('{"name": "f", "arguments": "{\\"a\\": 1}"}') == [Call("f", {"a": 1})]
    assert parse_calls('[{"name": "f"}]') == [Call("f")]
    hostile = [
        "f(a=open('x', 'w'))",
        "__import__('os').system('touch x')",
        "(lambda: 1)()",
        "f(a=[1 for _ in range(10)])",
        "f(a={1})",
        "f(**{})",
        "f(1)",
        "f(a=" + "(" * 5000 + ")" * 5000 + ")",
        "[" * 15_000,
        "x" * 30_000,
        "f(a=10**10**10)",
        "f(a=float('nan'))",
        "",
        "do it",
        "3",
        '{"name": 3}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "{"}',
        "[]",
    ]
    for text in hostile:
        with pytest.raises(CallError):
            parse_calls(text)
    assert not list(tmp_path.iterdir())


def test_splits_replay_and_vocabulary():
    check_disjoint({s: tool_tasks(s, 40) for s in ("train", "val", "test")})
    env, other = ToolEnv(), ToolEnv()
    task = tool_tasks("val", 5)[4]
    env.reset(task)
    other.reset(task)
    env.step(json.dumps(task.payload["calls"][0]))
    other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    assert other.state_dict() == env.state_dict()
    words = set(env.vocabulary())
    assert {"transfer", "anna", "berlin", "Book", "finish"} <= words
    with pytest.raises(ZooError, match="no tool task"):
        env.reset(type(task)("x", "files", "train", 0, {}))


def test_a_thousand_steps_a_second():
    env, (task,) = ToolEnv(max_steps=10_000), tool_tasks("train", 1, ["bank"])
    env.reset(task)
    start = time.process_time()
    for _ in range(300):
        env.step("list_accounts()")
    assert time.process_time() - start < 0.3


def bfcl(tmp_path, answers=True, **changes):
    entry = {
        "id": "simple_0",
        "question": [[{"role": "user", "content": "Area of a triangle, base 10, height 5?"}]],
        "function": [
            {
                "name": "triangle.area",
                "description": "Area of a triangle.",
                "parameters": {
                    "type": "dict",
                    "properties": {
                        "base": {"type": "float"},
                        "height": {"type": "integer"},
                        "unit": {"type": "string"},
                    },
                    "required": ["base", "height"],
                },
            }
        ],
        **changes,
    }
    path = tmp_path / "BFCL_v4_simple_python.json"
    path.write_text(json.dumps(entry) + "\n")
    if answers:
        truth = [{"triangle.area": {"base": [10, 10.0], "height": [5], "unit": ["cm 2", ""]}}]
        (tmp_path / "possible_answer").mkdir()
        line = json.dumps({"id": "simple_0", "ground_truth": truth})
        (tmp_path / "possible_answer" / path.name).write_text(line + "\n")
    return path


def test_bfcl(tmp_path):
    (task,) = bfcl_tasks(bfcl(tmp_path))
    assert task.family == "simple_python"
    parameters = task.payload["functions"][0]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["properties"]["base"]["type"] == "number"
    env = BfclEnv()
    for action, reward in {
        "[triangle.area(base=10, height=5)]": 1,
        'triangle.area(base=10.0, height=5, unit="CM-2")': 1,
        "triangle.area(base=10, height=6)": 0,
        "triangle.area(base=10)": 0,
        "triangle.area(base=10, height=5, colour='red')": 0,
        "triangle.area(base=10, height=5), triangle.area(base=10, height=5)": 0,
        "area(base=10, height=5)": 0,
        "[]": 0,
        "It is 25.": 0,
    }.items():
        assert "triangle" in env.reset(task).text
        assert env.step(action)[1:3] == (reward, True), action
    irrelevant = type(task)("x", "irrelevance", "test", 0, {**task.payload, "answer": []})
    env.reset(irrelevant)
    assert env.step("I can't help with that.").reward == 1


def test_malformed_bfcl(tmp_path):
    with pytest.raises(ZooError, match=r"answers of .* are missing"):
        bfcl_tasks(bfcl(tmp_path, answers=False))
    with pytest.raises(ZooError, match="takes several turns"):
        bfcl_tasks(bfcl(tmp_path, initial_config={}))
    path = tmp_path / "BFCL_v4_simple_python.json"
    path.write_text(json.dumps({"id": "other", "question": [[]], "function": []}))
    with pytest.raises(ZooError, match="entry 1 lacks 'other'"):
        bfcl_tasks(path)
    path.write_text("{}\n{")
    with pytest.raises(ZooError, match="line 2 is no JSON"):
        bfcl_tasks(path)
    with pytest.raises(ZooError, match="no BFCL file"):
        bfcl_tasks(tmp_path / "x.json")


def test_tau2(tmp_path):
    folder = tmp_path / "data" / "tau2" / "domains" / "shop"
    folder.mkdir(parents=True)
    with pytest.raises(ZooError, match="lacks tasks"):
        tau2_tasks(tmp_path, "shop")
    (folder / "policy.md").write_text("Be kind.")
    (folder / "db.json").write_text('{"orders": {}}')
    entry = {
        "id": "7",
        "user_scenario": {"instructions": "Return it."},
        "evaluation_criteria": {
            "actions": [{"action_id": "a", "name": "return_order", "arguments": {"id": "1"}}]
        },
    }
    (folder / "tasks.json").write_text(json.dumps([entry, {**entry, "evaluation_criteria": None}]))
    for root in (tmp_path, tmp_path / "data"):
        tasks, database = tau2_tasks(root, "shop")
        assert database == {"orders": {}}
        assert tasks[0].payload["actions"] == [{"name": "return_order", "arguments": {"id": "1"}}]
        assert tasks[0].payload["policy"] == "Be kind."
        assert tasks[1].payload["actions"] == []
    with pytest.raises(ZooError, match=r"no domain 'air' in .*: shop"):
        tau2_tasks(tmp_path, "air")
    with pytest.raises(ZooError, match="no tau2-bench"):
        tau2_tasks(tmp_path / "none", "shop")
    (folder / "tasks.json").write_text("[{}]")
    with pytest.raises(ZooError, match="no tau2-bench domain"):
        tau2_tasks(tmp_path, "shop")
