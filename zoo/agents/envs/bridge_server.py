"""Serves an environment on this machine's own network, for programs in another Python.

A script of the standard library alone, so that it also runs where this package is not installed::

    python bridge_server.py some_package.some_module:make_env

It prints one line of JSON with its port and a token, which each request has to carry. ``make_env``
takes nothing and gives an object with ``reset(task)``, ``step(action)``, ``close()``,
``vocabulary()``, ``verify(task, state)``, ``state_dict()`` and ``load_state_dict(state)``. A task
has the attributes ``task_id``, ``family``, ``split``, ``seed`` and ``payload``. An observation is
text, or has the attributes ``text`` and ``admissible``.

It ends when its standard input is closed: with the program that started it.
"""

import hmac
import importlib
import json
import os
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

MAX_BYTES = 16 << 20  # of a request


def plain_obs(obs: Any) -> dict[str, Any]:
    """An observation as plain values."""
    if isinstance(obs, str):
        return {"text": obs, "admissible": None}
    return {"text": obs.text, "admissible": obs.admissible}


def answer(env: Any, what: str, body: dict[str, Any]) -> Any:
    """Does what a request asks for."""
    task = SimpleNamespace(**body["task"]) if "task" in body else None
    if what == "reset":
        return plain_obs(env.reset(task))
    if what == "step":
        obs, reward, done, info = env.step(body["action"])
        return [plain_obs(obs), float(reward), bool(done), info]
    if what == "verify":
        return bool(env.verify(task, body["state"]))
    if what == "load_state_dict":
        return env.load_state_dict(body["state"])
    if what in ("state_dict", "vocabulary", "close"):
        return getattr(env, what)()
    raise ValueError(f"unknown request {what!r}")


def make_server(env: Any, token: str) -> HTTPServer:
    """A server of one environment, on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            # A web page could send requests here, but not with this header.
            if not hmac.compare_digest(self.headers.get("X-Token", "").encode(), token.encode()):
                self._send(403, {"error": "wrong token"})
                return
            size = int(self.headers.get("Content-Length", 0))
            if not 0 <= size <= MAX_BYTES:
                self._send(413, {"error": f"a request has at most {MAX_BYTES} bytes"})
                return
            try:
                body = json.loads(self.rfile.read(size) or b"{}")
                self._send(200, {"result": answer(env, self.path.strip("/"), body)})
            except Exception as error:
                self._send(500, {"error": f"{type(error).__name__}: {error}"[:1000]})

        def _send(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return HTTPServer(("127.0.0.1", 0), Handler)


def main() -> None:
    """Makes the environment that the argument names, and serves it."""
    module, _, name = sys.argv[1].partition(":")
    sys.path.insert(0, os.getcwd())
    output = sys.stdout
    sys.stdout = sys.stderr  # what the environment prints is no part of the first line
    env = getattr(importlib.import_module(module), name)()
    token = secrets.token_hex(16)
    server = make_server(env, token)
    output.write(json.dumps({"port": server.server_port, "token": token}) + "\n")
    output.flush()

    def wait() -> None:
        sys.stdin.read()
        server.shutdown()

    threading.Thread(target=wait, daemon=True).start()
    server.serve_forever(poll_interval=0.05)
    env.close()


if __name__ == "__main__":
    main()
