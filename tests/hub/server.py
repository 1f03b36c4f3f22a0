"""A small model hub for tests: the real `huggingface_hub` client talks to it over loopback.

In tests use the `hub` fixture (fixture.py). By hand:

    python -m tests.hub.server          # prints the line to paste into another shell

Here are the failure switches, the `Hub` with its HTTP handler, and the command line; the endpoints
are in endpoints.py, what they read and write is in store.py.

Simpler than the real hub: every file is "regular" (its bytes come in the commit, its ETag is git's
SHA-1; no LFS, no xet, no redirect to a CDN), listings have one page, any token may do anything, and
there are no pull requests and no gated repositories.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .endpoints import ROUTES, Call, Reply, Request, Route
from .store import Commit, Refused, Repo

TOKEN = "hf_test"  # what fixture and command line suggest; any other does as well
INITIAL_FILES = {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"}
IDLE_SECONDS = 10  # a connection on which nothing comes for so long is closed


@dataclass
class Fault:
    """A failure, and the requests that it strikes."""

    on: str  # glob over route names
    path: str  # glob over the unquoted URL path
    times: int | None  # requests left to strike; None: until `Hub.heal`
    error: Refused | None = None  # answer with this instead of doing anything
    delay: float = 0  # seconds to wait before anything else
    cut: float | None = None  # do the work, then close after this share of the body
    corrupt: bool = False  # flip a bit of the body
    etag: str | None = None  # send this ETag

    def strikes(self, route: str, path: str) -> bool:
        """Whether a request is struck; counts it."""
        if self.times == 0 or not fnmatchcase(route, self.on) or not fnmatchcase(path, self.path):
            return False
        self.times = None if self.times is None else self.times - 1
        return True

    def spoil(self, reply: Reply) -> None:
        """Do to a good answer what this failure does to it."""
        if self.cut is not None:
            reply.cut = self.cut
        if self.corrupt and reply.body:
            middle = len(reply.body) // 2
            flipped = bytes([reply.body[middle] ^ 1])
            reply.body = reply.body[:middle] + flipped + reply.body[middle + 1 :]
        if self.etag is not None and "ETag" in reply.headers:
            reply.headers["ETag"] = f'"{self.etag}"'


class Hub:
    """A hub on a free loopback port: `with Hub() as hub: ... hub.url`.

    Every request is in `requests`. `stop` and `start` may alternate; content, port and log stay.

    Args:
        port: Port to listen on; 0 takes a free one.
        echo: Print a line for each request.
    """

    def __init__(self, port: int = 0, *, echo: bool = False) -> None:
        self.requests: list[Request] = []
        self.repos: dict[tuple[str, str], Repo] = {}  # by kind and id
        self._port = port
        self._echo = echo
        self._faults: list[Fault] = []
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._server: _Server | None = None

    # -- life

    def start(self) -> Hub:
        """Listen, in a thread of its own."""
        if self._server is not None:
            return self
        self._stopping.clear()
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.hub = self
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop listening and wait for the requests under way; delays end at once."""
        if self._server is not None:
            self._stopping.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Hub:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """What HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self._port}"

    def env(self, home: str | Path) -> dict[str, str]:
        """Variables that point a fresh process at this hub, with its cache under `home`."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(Path(home, "hub")),
            "HF_TOKEN_PATH": str(Path(home, "token")),
            "HF_XET_CACHE": str(Path(home, "xet")),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    # -- content, past the client and its checks

    def create(self, repo_id: str, *, kind: str = "models", private: bool = False) -> Repo:
        """Make a repository with the initial commit that the real hub makes."""
        repo = self.repos[kind, repo_id] = Repo(repo_id, kind, private)
        repo.add("main", Commit(INITIAL_FILES, "initial commit"))
        return repo

    def put(self, repo_id: str, files: Mapping[str, bytes], *, branch: str = "main") -> str:
        """Commit files as they are, hostile paths included, and return the commit's id."""
        with self._lock:
            repo = self.repos.get(("models", repo_id)) or self.create(repo_id)
            head = repo.at(branch if branch in repo.branches else "main")
            return repo.add(branch, Commit({**head.files, **files}, "put", parent=head.oid)).oid

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        """The files of a model repository."""
        return dict(self.repos["models", repo_id].at(revision).files)

    def commits(self, repo_id: str, revision: str = "main") -> list[Commit]:
        """The commits of a model repository, newest first, the last being the initial one."""
        return self.repos["models", repo_id].history(revision)

    def page(self, kind: str, repo_id: str) -> str:
        """The address of a repository."""
        return f"{self.url}/{'' if kind == 'models' else f'{kind}/'}{repo_id}"

    def repo(self, call: Call) -> Repo:
        """The repository that a request names, if it may see it."""
        repo = self.repos.get((call.args.get("kind", "models"), call.args["repo"]))
        if repo is None or (repo.private and not call.authorized):
            # Without a token the real hub does not tell "private" from "missing".
            status = 404 if call.authorized else 401
            raise Refused(status, "Repository not found", "RepoNotFound")
        return repo

    # -- the log

    def calls(self, route: str, status: int | None = None) -> list[Request]:
        """The requests to a route (a glob over the names in `ROUTES`), of one status or of any."""
        chosen = [r for r in self.requests if fnmatchcase(r.route, route)]
        return [r for r in chosen if status in (None, r.status)]

    def fetched(self) -> list[str]:
        """The names of the files whose content was sent, sorted, each once."""
        return sorted({r.file for r in self.calls("download") if r.file and r.status in (200, 206)})

    # -- failure switches: `on` is a glob over route names, `path` one over the URL's path; `times`
    #    is how many requests are struck, None for all until `heal`

    def fail(
        self,
        status: int,
        on: str,
        *,
        times: int | None = None,
        path: str = "*",
        message: str = "",
        code: str = "",
        retry_after: int | None = None,
    ) -> None:
        """Refuse with a status: `fail(403, "create")`, `fail(429, "commit", retry_after=0)`."""
        error = Refused(status, message, code)
        if retry_after is not None:
            error.headers["Retry-After"] = str(retry_after)
        self._faults.append(Fault(on, path, times, error=error))

    def cut(
        self, on: str = "download", *, times: int | None = None, path: str = "*", after: float = 0.5
    ) -> None:
        """Close the connection after a share of the body; on "commit", the commit has been made."""
        self._faults.append(Fault(on, path, times, cut=after))

    def slow(
        self, seconds: float, on: str = "*", *, times: int | None = None, path: str = "*"
    ) -> None:
        """Wait before answering."""
        self._faults.append(Fault(on, path, times, delay=seconds))

    def corrupt(self, path: str = "*", *, on: str = "download", times: int | None = None) -> None:
        """Flip one bit of the content; length and ETag stay."""
        self._faults.append(Fault(on, path, times, corrupt=True))

    def wrong_etag(
        self, path: str = "*", *, etag: str = "0" * 40, times: int | None = None
    ) -> None:
        """Send an ETag that is not the content's hash."""
        self._faults.append(Fault("head", path, times, etag=etag))

    def heal(self) -> None:
        """Take back every switch."""
        self._faults.clear()

    # -- one request

    def answer(self, call: Call) -> Reply:
        """Route a request, let the switches act, note it in `requests`."""
        route, call = _routed(call)
        name = route.name if route else "unknown"
        faults = self._struck(name, unquote(call.path))
        for fault in faults:
            self._stopping.wait(fault.delay)
        with self._lock:
            try:
                reply = self._work(route, call, faults)
            except Refused as error:
                reply = Reply.refusal(error)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                reply = Reply.refusal(Refused(400, f"Malformed request: {error!r}"))
            for fault in faults:
                fault.spoil(reply)
            file = call.args.get("path") if name in ("head", "download") else None
            seen = (call.method, call.path, reply.status, call.authorized, file, call.range)
            self.requests.append(Request(name, *seen))
        if self._echo:
            print(f"{reply.status} {call.method} {call.path}", file=sys.stderr)
        return reply

    def _struck(self, name: str, path: str) -> list[Fault]:
        """The switches that strike a request; of several refusals only the first."""
        struck: list[Fault] = []
        with self._lock:
            for fault in self._faults:
                refused = any(earlier.error for earlier in struck)
                if not (fault.error and refused) and fault.strikes(name, path):
                    struck.append(fault)
        return struck

    def _work(self, route: Route | None, call: Call, faults: list[Fault]) -> Reply:
        for fault in faults:
            if fault.error is not None:
                raise fault.error
        if route is None:
            raise Refused(404, "The test hub has no such endpoint")
        if route.needs_token and not call.authorized:
            raise Refused(401, "Invalid username or password.")
        return route.answer(self, call)


def _routed(call: Call) -> tuple[Route | None, Call]:
    """The endpoint of a request, and the request with what its path names."""
    for route in ROUTES:
        if route.method == call.method and (found := re.fullmatch(route.pattern, call.path)):
            args = {key: unquote(text) for key, text in found.groupdict().items() if text}
            return route, replace(call, args=args)
    return None, call


class _Server(ThreadingHTTPServer):
    """One thread a request; `server_close` waits for them."""

    daemon_threads = False
    request_queue_size = 128  # with the default of 5, bursts of connections lose a second
    hub: Hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing when a client went away in the middle, which timeouts make it do."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with one request a connection, so that a stopped hub is gone at once."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: _Server

    def handle_any(self) -> None:
        """Read a request, have the hub answer it, send the answer."""
        url = urlsplit(self.path)
        reply = self.server.hub.answer(
            Call(
                method=self.command,
                path=url.path,
                query=parse_qs(url.query, keep_blank_values=True),
                body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
                authorized="Authorization" in self.headers,
                range=self.headers.get("Range"),
            )
        )
        body = b"" if self.command == "HEAD" else reply.body
        if reply.cut is not None:
            body = body[: int(len(body) * reply.cut)]
        if body or reply.cut is None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the hub keeps its own log."""


def main(arguments: list[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser("python -m tests.hub.server", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--root", type=Path, help="folder of ORG/NAME folders to start with")
    options = parser.parse_args(arguments)
    # A shell starts background jobs with interrupts ignored, and Python leaves it at that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Hub(options.port, echo=True) as hub:
        folders = sorted(options.root.glob("*/*")) if options.root else []
        for folder in filter(Path.is_dir, folders):
            paths = sorted(filter(Path.is_file, folder.rglob("*")))
            files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
            repo_id = folder.relative_to(options.root).as_posix()
            hub.put(repo_id, files)
            print(f"{hub.url}/{repo_id}")
        print(f"{hub.url} (Ctrl-C ends it). In another shell:\n")
        print(f"export HF_ENDPOINT={hub.url} HF_TOKEN={TOKEN} HF_HOME=$(mktemp -d)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
