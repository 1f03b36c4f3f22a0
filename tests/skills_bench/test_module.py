"""What a user does: an own skill, an own server, a forecast."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from tests.skills_bench.case import SAMPLES, copy_task
from zoo.agents.skill_tasks import embedded_tasks, read_outcomes, read_task
from zoo.agents.trajectory import read_trajectories
from zoo.datamodules import SkillsBenchDataModule
from zoo.errors import ZooError
from zoo.skills_bench import SkillsBenchRunner, make_report

ANSWER = (SAMPLES / "plate-blanks/solution/solve.py").read_text()
WRONG = (SAMPLES / "plate-blanks/simulation/mean.py").read_text()


class Handler(BaseHTTPRequestHandler):
    """A chat server whose model writes the right program when it has read about medians."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(body)
        said = [m for m in body["messages"] if m["role"] == "assistant"]
        called = [c["function"]["name"] for m in said for c in m.get("tool_calls") or ()]
        text = "\n".join(str(m.get("content")) for m in body["messages"])
        if "blank-rule" in text and "read" not in called:
            name, arguments = "read", {"path": "skills/blank-rule/SKILL.md"}
        elif "write" not in called:
            program = ANSWER if "median" in text else WRONG
            name, arguments = "write", {"path": "s.py", "text": program}
        elif "run" not in called:
            name, arguments = "run", {"command": "python s.py"}
        else:
            name, arguments = "done", {}
        function = {"name": name, "arguments": json.dumps(arguments)}
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"id": "x", "type": "function", "function": function}]
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        data = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    pytest.importorskip("openai", reason='pip install "lightning-zoo[llm]"')
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_own_skill_on_own_tasks_with_an_own_server(server, tmp_path):
    (tmp_path / "blank-rule").mkdir()
    text = (
        "---\nname: blank-rule\ndescription: Blanks of plates.\n---\nUse the median of the last.\n"
    )
    (tmp_path / "blank-rule/SKILL.md").write_text(text)
    copy_task(tmp_path / "tasks", "plate-blanks")
    agent = {"name": "mine", "client": "openai", "model": "m", "api_key_env": None}
    agent["base_url"] = f"http://127.0.0.1:{server.server_port}/v1"
    bench = SkillsBenchRunner([agent], conditions=["none", "curated", "placebo"], n_trials=2)
    out = tmp_path / "report"
    report = bench.compare(tmp_path / "blank-rule", tmp_path / "tasks", output=out)
    assert report.lifts["curated"].value == 100
    assert report.lifts["placebo"].value == 0
    assert "| curated | 1.000 | +100.0 |" in (out / "report.md").read_text()
    assert json.loads((out / "report.json").read_text())["lifts"]["curated"]["before"] == 0
    with Image.open(out / "report.png") as picture:
        assert picture.size[0] > 500
    found = list(read_trajectories(out / "trajectories.jsonl"))
    assert [t.meta["condition"] for t in found] == ["none", "curated", "placebo"] * 2
    assert found[1].cost.prompt_tokens == 40
    assert all("simulation" not in json.dumps(body) for body in server.seen)
    seeds = {body["seed"] for body in server.seen}
    assert seeds == {0, 1}
    for client in bench.bench._clients.values():
        client._transport.close()


def test_evaluate_finds_what_is_planted():
    """On six tasks, two of them with a skill of no use, three trials."""
    names = ("level-histogram", "plate-blanks", "hours-pivot", "accrued-interest", "speed-table")
    items = [item for item in embedded_tasks() if item.name in (*names, "days-between")]
    bench = SkillsBenchRunner(n_trials=3)
    report = bench.evaluate(items)
    assert {"speed-table", "days-between"} <= set(report.fell["curated"].fallen)
    assert report.by_domain["curated"]["lab-records"][0] > 0
    assert abs(report.lifts["placebo"].value) < 10
    assert set(report.forecast) == {"model", "domain", "all"}
    assert report.components
    again = make_report([*bench.bench.run(items)][::-1])  # whatever the order
    assert again.lifts == report.lifts


def test_forecast_of_a_task():
    bench = SkillsBenchRunner()
    found = bench.forecast(read_task(SAMPLES / "speed-table"), 0.3)
    assert 0 < found["without"] < 1
    assert found["lift"] == pytest.approx(100 * (found["curated"] - found["without"]))


def test_predict_says_what_it_does_not_know(tmp_path):
    bench = SkillsBenchRunner()
    with pytest.raises(ZooError, match=r"'steadi'.*mean 'steady'"):
        bench.predict(SAMPLES / "speed-table", agent="steadi")
    with pytest.raises(ZooError, match="'placebo'"):
        bench.predict(SAMPLES / "speed-table", condition="placebo")
    found = bench.predict(SAMPLES / "speed-table", condition="self", agent="expert", seed=2)
    assert found.meta["seed"] == 2
    assert found.skills == ["own-notes"]


def test_splits_of_the_forecast_do_not_share_tasks():
    data = SkillsBenchDataModule()
    data.setup("fit")
    names = [{row["name"] for row in data.datasets[s].rows} for s in ("train", "val")]
    assert not names[0] & names[1]
    assert len(names[0] | names[1]) == 24
    row = data.datasets["train"][0]
    assert row["features"].shape == (15,)
    assert (row["trials"] == 5).all()


def test_agent_rates_are_of_other_tasks(tmp_path):
    from zoo.agents.skill_tasks import Outcome, lift_rows, write_outcomes

    items = {item.name: item for item in embedded_tasks()[:3]}
    a, b, c = items
    rows = [Outcome(a, "x", "none", 4, 4), Outcome(b, "x", "none", 4, 0)]
    rows += [Outcome(c, "x", "none", 4, 2), Outcome(a, "x", "curated", 4, 3)]
    write_outcomes(tmp_path / "o.csv", rows)
    found = lift_rows(items, read_outcomes(tmp_path / "o.csv"))
    rates = [float(row["features"][6]) / 4 + 0.5 for row in found]
    assert rates == pytest.approx([0.25, 0.75, 0.5])
    assert found[0]["successes"].tolist() == [4, 3]
    assert found[1]["trials"].tolist() == [4, 0]


def test_outcomes_that_come_with_the_package_are_of_its_tasks():
    rows = read_outcomes(SAMPLES / "outcomes.csv")
    assert {row.task for row in rows} == {item.name for item in embedded_tasks()}
    assert {row.agent for row in rows} == {"steady", "hasty", "expert"}
    assert {row.trials for row in rows} == {5}


@pytest.mark.slow
def test_tiny_model_does_what_it_was_taught():
    bench = SkillsBenchRunner([{"name": "tiny", "client": "tiny", "temperature": 0.0}])
    for name, expected in (("plate-blanks", True), ("heading-slugs", False)):
        found = bench.predict(SAMPLES / name, condition="none", agent="tiny")
        assert found.success == expected, name
        assert found.cost.completion_tokens > 100
