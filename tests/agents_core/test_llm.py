"""Clients: counting, caching, retrying, and keeping the key to themselves; prompts."""

import json
import logging
import pickle
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import torch

from zoo import ZooError
from zoo.agents.envs.tools import Call
from zoo.agents.llm import (
    AgentProfile,
    OpenAICompatClient,
    Request,
    ScriptedClient,
    SimulatedAgentClient,
    Usage,
    prompt_versions,
    render_prompt,
)
from zoo.agents.llm.base import calls_in, cut_at
from zoo.agents.llm.local import LocalClient
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig

KEY = "sk-very-secret-0123456789"
ASK = [{"role": "user", "content": "Say hi."}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


# ------------------------------------------------------------------------------------- server
class Server(ThreadingHTTPServer):
    """Answers with what the test queued, then with an echo."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.queued, self.seen, self.keys = [], [], []
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.delay = 0.0
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        import time

        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.seen.append(body)
            server.keys.append(self.headers["Authorization"])
            server.running += 1
            server.most = max(server.most, server.running)
            status, answer = server.queued.pop(0) if server.queued else (200, None)
        time.sleep(server.delay)
        if answer is None:
            text = "echo " + body["messages"][-1]["content"]
            choices = [
                {
                    "index": i,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                }
                for i in range(body["n"])
            ]
            used = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
            answer |= {"choices": choices, "usage": used}
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        with server.lock:
            server.running -= 1
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("retry-after-ms", "5")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("openai", reason='pip install "lightning-zoo[llm]"')
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(server):
    client = OpenAICompatClient(server.url, "m", max_retries=3, timeout_s=20)
    yield client
    if client._transport is not None:
        client._transport.close()


def test_server(server, client):
    replies = client.chat(
        [*ASK, {"role": "user", "content": "two", "simulation": {"answer": "hidden"}}],
        temperature=0.5,
        max_tokens=9,
        n=2,
        seed=3,
        stop=["\n"],
    )
    assert [r.text for r in replies] == ["echo two"] * 2
    used = client.usage()
    assert (used.prompt_tokens, used.completion_tokens, used.calls) == (7, 3, 1)
    (body,) = server.seen
    assert body == {
        "model": "m",
        "messages": [*ASK, {"role": "user", "content": "two"}],
        "temperature": 0.5,
        "max_tokens": 9,
        "n": 2,
        "seed": 3,
        "stop": ["\n"],
    }
    assert server.keys == [f"Bearer {KEY}"]


def test_tool_calls(server, client):
    function = {"name": "f", "arguments": '{"a": 1}'}
    broken = {"name": "g", "arguments": "{"}
    calls = [
        {"id": str(i), "type": "function", "function": f} for i, f in enumerate((function, broken))
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    server.queued = [
        (200, {"id": "x", "object": "o", "created": 0, "model": "m", "choices": [choice]})
    ]
    (reply,) = client.chat(ASK, tools=TOOLS)
    assert reply.tool_calls == (Call("f", {"a": 1}), Call("g", {"_invalid": "{"}))
    assert reply.text == ""
    assert server.seen[0]["tools"] == TOOLS


def test_retries_what_may_pass(server, client):
    server.queued = [(500, {"error": "x"}), (429, {"error": "slow down"}), (503, b"no json")]
    assert client.chat(ASK)[0].text == "echo Say hi."
    assert len(server.seen) == 4
    assert client.usage().calls == 1
    server.queued = [(500, {"error": "x"})] * 9
    with pytest.raises(ZooError, match="did not answer for 'm'"):
        client.chat(ASK)
    assert len(server.seen) == 8


def test_gives_up_at_once_on_what_does_not_pass(server, client):
    server.queued = [(401, {"error": {"message": f"bad key {KEY}"}})]
    with pytest.raises(ZooError, match=r"bad key \*\*\*") as caught:
        client.chat(ASK)
    assert KEY not in str(caught.value)
    assert len(server.seen) == 1
    server.queued = [(200, {"choices": None})]
    with pytest.raises(ZooError, match="not in OpenAI's chat protocol"):
        client.chat(ASK)
    server.queued = [(200, {"choices": []})]
    with pytest.raises(ZooError, match="without a reply"):
        client.chat(ASK)


def test_batches_run_side_by_side_in_order(server, client):
    client.max_concurrency = 3
    server.delay = 0.05
    requests = [Request([{"role": "user", "content": str(i)}]) for i in range(9)]
    answers = client.chat_batch(requests)
    assert [a[0].text for a in answers] == [f"echo {i}" for i in range(9)]
    assert 2 <= server.most <= 3
    assert client.usage().calls == 9


def test_cache_holds_what_recurs(server, tmp_path):
    clients = [OpenAICompatClient(server.url, "m", cache_dir=str(tmp_path)) for _ in range(2)]
    first = clients[0].chat(ASK, n=2)
    again = clients[1].chat(ASK, n=2)
    assert [r.text for r in first] == [r.text for r in again]
    assert len(server.seen) == 1
    assert clients[1].usage() == Usage()
    clients[1].chat(ASK, temperature=1.0, seed=1)
    clients[1].chat(ASK, temperature=1.0, seed=1)
    assert len(server.seen) == 2
    clients[1].chat(ASK, temperature=1.0, seed=2)
    for _ in range(2):
        clients[1].chat(ASK, temperature=1.0)  # draws anew each time
    clients[1].chat(ASK, max_tokens=5)
    assert len(server.seen) == 6
    other = OpenAICompatClient(server.url, "other", cache_dir=str(tmp_path))
    other.chat(ASK, n=2)
    assert len(server.seen) == 7
    kept = b"".join(p.read_bytes() for p in tmp_path.rglob("*.json"))
    assert KEY.encode() not in kept
    for client in (*clients, other):
        client._transport.close()


def test_the_key_is_nowhere(server, client, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        client.chat(ASK)
        server.queued = [(400, {"error": f"you sent {KEY}"})]
        with pytest.raises(ZooError) as caught:
            client.chat(ASK)
    printed = "".join(capfd.readouterr())
    for text in (repr(client), caplog.text, printed, str(caught.value), str(vars(client))):
        assert KEY not in text
    assert KEY.encode() not in pickle.dumps(client)
    assert pickle.loads(pickle.dumps(client)).chat(ASK)[0].text == "echo Say hi."


def test_missing_key_and_bad_url(server, client, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ZooError, match="OPENAI_API_KEY holds no key"):
        client.chat(ASK)
    free = OpenAICompatClient(server.url, "m", api_key_env=None)
    assert free.chat(ASK)
    free._transport.close()
    with pytest.raises(ZooError, match="expected http"):
        OpenAICompatClient("localhost", "m")
    with pytest.raises(ZooError, match="password"):
        OpenAICompatClient("http://me:pw@localhost/v1", "m")


# ------------------------------------------------------------------------------------ scripted
def test_scripted():
    client = ScriptedClient(
        [(r"hi\.$", "hello"), (lambda r: len(r.messages) > 1, lambda r: "many")]
    )
    assert [r.text for r in client.chat(ASK, n=2)] == ["hello", "hello"]
    assert client.chat([*ASK, {"role": "user", "content": "?"}])[0].text == "many"
    with pytest.raises(ZooError, match=r"No rule fits the request that ends '\?'"):
        client.chat([{"role": "user", "content": "?"}])
    assert ScriptedClient([], strict=False).chat(ASK)[0].text == ""
    assert client.usage().calls == 2
    assert client.usage().prompt_tokens == 3 + 4
    assert len(client.requests) == 3


@pytest.mark.parametrize(
    ("messages", "options", "sentence"),
    [
        ([], {}, "at least one message"),
        ([{"role": "usr", "content": ""}], {}, "Did you mean 'user'"),
        ([{"role": "user", "content": 3}], {}, "content is text"),
        (ASK, {"n": 0}, "n=0"),
        (ASK, {"temperature": -1}, "temperature=-1"),
    ],
)
def test_bad_requests(messages, options, sentence):
    with pytest.raises(ZooError, match=sentence):
        ScriptedClient([("", "x")]).chat(messages, **options)


# ----------------------------------------------------------------------------------- simulated
def problem(text="Solve it.", hint=None):
    simulation = {"skill": "sums", "answer": "right", "wrong": ["left", "up"], "hint": hint}
    return [{"role": "user", "content": text, "simulation": simulation}]


def rate(client, messages):
    requests = [Request(messages, seed=s) for s in range(1000)]
    return Counter(a[0].text for a in client.chat_batch(requests))["right"] / 1000


def test_simulated_agents_have_their_competence():
    profile = AgentProfile("a", {"sums": 0.3}, uptake=0.5, prompt_price=2, completion_price=10)
    client = SimulatedAgentClient(profile)
    assert rate(client, problem()) == pytest.approx(0.3, abs=0.048)  # 3 standard errors
    assert rate(client, problem("Carry the one.", "Carry")) == pytest.approx(0.65, abs=0.048)
    assert rate(client, problem("Solve.", "Carry")) == pytest.approx(0.3, abs=0.048)
    distracted = SimulatedAgentClient(AgentProfile("b", {"sums": 0.8}, distraction=2.0))
    assert rate(distracted, problem("word " * 500)) == pytest.approx(0.8 / 2.71828, abs=0.048)
    one = SimulatedAgentClient(profile)
    one.chat(problem())
    assert one.usage().cost == pytest.approx((3 * 2 + 1 * 10) / 1e6)


def test_simulated_agents_answer_alike_when_asked_again():
    first, second = (SimulatedAgentClient(AgentProfile("a")) for _ in range(2))
    one = [r.text for r in first.chat(problem(), n=50, seed=1)]
    first.chat(problem("else"))
    assert one == [r.text for r in second.chat(problem(), n=50, seed=1)]
    assert one == [r.text for r in first.chat(problem(), n=50, seed=1)]
    assert one != [r.text for r in first.chat(problem(), n=50, seed=2)]
    other = SimulatedAgentClient(AgentProfile("b"))
    assert one != [r.text for r in other.chat(problem(), n=50, seed=1)]
    with pytest.raises(ZooError, match="needs a message with 'simulation'"):
        first.chat(ASK)
    with pytest.raises(ZooError, match="no probability"):
        AgentProfile("a", {"x": 1.5})


# --------------------------------------------------------------------------------------- local
class FakeTokenizer:
    """Words of a growing list; 0 ends a reply."""

    eos_token_id = 0
    chat_template = None

    def __init__(self):
        self.words = ["<end>"]

    def __call__(self, text, **_):
        for word in text.split():
            if word not in self.words:
                self.words.append(word)
        return {"input_ids": [self.words.index(word) for word in text.split()]}

    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        return " ".join(self.words[i] for i in ids if i)


class ChatTokenizer(FakeTokenizer):
    chat_template = "x"

    def apply_chat_template(self, messages, tools, add_generation_prompt, tokenize):
        assert add_generation_prompt
        assert not tokenize
        tail = [f"tools={len(tools)}"] if tools else []
        return " ".join([f"{m['role']}:{m['content']}" for m in messages] + tail)


class EchoPolicy:
    """Says its prompt backwards, at temperature > 0 with one random word of it."""

    def __init__(self, tokenizer):
        self.tokenizer, self.calls = tokenizer, []

    def generate(self, prompts, max_new_tokens, temperature, top_p, stop_ids, generator):
        self.calls.append((len(prompts), max_new_tokens, temperature, top_p, stop_ids))
        width = max(map(len, prompts)) + 1
        tokens = torch.zeros(len(prompts), width, dtype=torch.int64)
        mask = torch.zeros(len(prompts), width, dtype=torch.bool)
        for i, prompt in enumerate(prompts):
            row = prompt[::-1]
            if temperature:
                row = [prompt[int(torch.randint(len(prompt), (), generator=generator))]]
            row = [*row[: max_new_tokens - 1], 0]
            tokens[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = True
        return SimpleNamespace(tokens=tokens, mask=mask, logprobs=None)


def test_local_client_runs_in_batches():
    policy = EchoPolicy(FakeTokenizer())
    client = LocalClient(policy, batch_size=4)
    requests = [
        Request([{"role": "user", "content": "a b c"}], n=3),
        Request([{"role": "user", "content": "d e"}], max_tokens=2),
        Request([{"role": "user", "content": "f g STOP h"}], stop=["STOP"]),
        Request([{"role": "user", "content": "i"}]),
    ]
    answers = client.chat_batch(requests)
    assert [[r.text for r in a] for a in answers] == [["c b a"] * 3, ["e"], ["h "], ["i"]]
    assert [c[0] for c in policy.calls] == [4, 1, 1]
    assert policy.calls[0][3:] == (1.0, [0])
    assert answers[0][0].usage.prompt_tokens == 3
    assert client.usage().prompt_tokens == 3 + 2 + 4 + 1
    assert client.usage().calls == 4


def test_local_client_is_seeded():
    client = LocalClient(EchoPolicy(FakeTokenizer()))
    ask = [{"role": "user", "content": "a b c d e f g h"}]
    one, two, three = (client.chat(ask, temperature=1.0, n=20, seed=s) for s in (1, 1, 2))
    assert [r.text for r in one] == [r.text for r in two]
    assert [r.text for r in one] != [r.text for r in three]
    assert len({r.text for r in one}) > 1


def test_local_client_uses_the_chat_template():
    client = LocalClient(EchoPolicy(ChatTokenizer()))
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u", "x": 1}]
    assert client.chat(messages, tools=TOOLS)[0].text == "tools=1 user:u system:s"
    with pytest.raises(ZooError, match="no token"):
        LocalClient(EchoPolicy(FakeTokenizer())).chat([{"role": "user", "content": " "}])


def test_calls_in_text():
    text = (
        'Well. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><tool_call>{</tool_call>'
    )
    assert calls_in(text) == (Call("f", {"a": 1}),)
    assert calls_in('{"name": "f"}') == (Call("f"),)
    assert calls_in("no call") == ()
    assert cut_at("a b c", ["c", "b"]) == "a "


# ------------------------------------------------------------------------------------- prompts
def test_prompts_have_versions_and_render():
    assert prompt_versions() == {"act": 1, "judge": 1, "summarise": 1, "write_skill": 1}
    text = render_prompt(
        "act", first="Room.", history=[("look", "{{ 7 * 7 }}")], admissible=["a", "b"], skills=""
    )
    assert "{{ 7 * 7 }}" in text  # what was observed is no template
    assert text.endswith(">")
    assert "Possible actions: a; b" in text
    assert "version" not in text
    with pytest.raises(ZooError, match="Did you mean 'judge'"):
        render_prompt("juge")
    with pytest.raises(ZooError, match="'material' is undefined"):
        render_prompt("judge", question="?")


def test_a_prompt_without_version(tmp_path, monkeypatch):
    (tmp_path / "myprompts").mkdir()
    (tmp_path / "myprompts" / "__init__.py").touch()
    (tmp_path / "myprompts" / "x.jinja").write_text("{{ ''.__class__ }}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZooError, match="does not begin with its version"):
        prompt_versions("myprompts")
    with pytest.raises(ZooError, match="unsafe"):
        render_prompt("x", package="myprompts")


def test_local_client_of_a_policy_and_of_a_model_in_a_folder(tmp_path):
    """A tiny policy has its own form of a conversation; a folder is loaded by transformers."""
    torch.manual_seed(0)
    words = ["open", "the", "door", "yes", "no"]
    policy = CausalPolicy(PolicyArgs(tiny=TinyConfig(vocabulary=words))).eval()
    ask = [
        {"role": "user", "content": "open the door"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "the door"},
    ]
    (reply,) = LocalClient(policy).chat(ask, max_tokens=4, temperature=1.0, seed=0)
    # <bos> open the door <reply> yes <end> the door <reply>
    assert reply.usage.prompt_tokens == 10
    assert set(reply.text.split()) <= set(words)
    with pytest.raises(ZooError, match="'window'"):
        LocalClient(policy).chat([{"role": "user", "content": "open the window"}])
    policy.save_pretrained(str(tmp_path))
    loaded = LocalClient(str(tmp_path))
    (again,) = loaded.chat([{"role": "user", "content": "open the door"}], max_tokens=3)
    assert len(again.text.split()) <= 3
