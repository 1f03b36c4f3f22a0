"""What the test hub answers: the wire format, one function an endpoint, the table `ROUTES`.

The shapes are those that `huggingface_hub` reads and sends (hf_api.py, _commit_api.py,
file_download.py and _upload_pipeline.py of release 2.4).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from .store import Commit, Json, Refused, blob_id, card_errors, front_matter

if TYPE_CHECKING:
    from .server import Hub

USER = "tester"  # the account behind every token

# ---- On the wire -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A request as the endpoints see it; of the token, only whether there was one."""

    method: str
    path: str  # quoted, without the query
    query: dict[str, list[str]]
    body: bytes
    authorized: bool
    range: str | None
    args: dict[str, str] = field(default_factory=dict)  # the named groups of the route's pattern

    def json(self) -> Json:
        """The body as JSON."""
        return dict(json.loads(self.body or b"{}"))


@dataclass
class Reply:
    """Status, body and headers of an answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: float | None = None  # close the connection after this share of the body

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Reply:
        """An answer in JSON."""
        return cls(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    @classmethod
    def refusal(cls, error: Refused) -> Reply:
        """An error answer, in the form from which the client makes its exceptions."""
        reply = cls.json({"error": str(error)}, error.status)
        reply.headers |= {"X-Error-Message": str(error).encode("ascii", "replace").decode()}
        reply.headers |= {"X-Error-Code": error.code} if error.code else {}
        reply.headers |= error.headers
        return reply


class Request(NamedTuple):
    """One line of `Hub.requests`."""

    route: str  # a name of ROUTES, or "unknown"
    method: str
    path: str
    status: int
    authorized: bool  # an Authorization header came; the header itself is not kept
    file: str | None  # the file in the repository, for "head" and "download"
    range: str | None  # the Range header


# ---- Endpoints -------------------------------------------------------------------------------


def whoami(hub: Hub, call: Call) -> Reply:
    token = {"displayName": "test", "role": "write"}
    auth = {"type": "access_token", "accessToken": token}
    return Reply.json({"type": "user", "id": USER, "name": USER, "orgs": [], "auth": auth})


def create(hub: Hub, call: Call) -> Reply:
    spec = call.json()
    kind, repo_id = _named(spec)
    url = hub.page(kind, repo_id)
    if (kind, repo_id) in hub.repos:
        return Reply.json({"error": "You already created this repo", "url": url}, 409)
    private = spec.get("visibility") == "private" or spec.get("private") is True
    hub.create(repo_id, kind=kind, private=private)
    return Reply.json({"url": url, "name": repo_id})


def delete(hub: Hub, call: Call) -> Reply:
    if hub.repos.pop(_named(call.json()), None) is None:
        raise Refused(404, "Repository not found", "RepoNotFound")
    return Reply()


def _named(spec: Json) -> tuple[str, str]:
    """Kind and id of the repository that a create or delete request names."""
    return f"{spec.get('type') or 'model'}s", f"{spec.get('organization') or USER}/{spec['name']}"


def settings(hub: Hub, call: Call) -> Reply:
    repo, spec = hub.repo(call), call.json()
    repo.private = spec.get("visibility", "private" if repo.private else "public") == "private"
    return Reply.json(spec)


def validate(hub: Hub, call: Call) -> Reply:
    try:
        card = front_matter(call.json()["content"])
        errors = list(card_errors(card))
        warnings = [] if card else ["empty or missing yaml metadata in repo card"]
    except ValueError as error:
        errors, warnings = [str(error)], []
    answer = {"errors": [{"message": text} for text in errors]}
    answer["warnings"] = [{"message": text} for text in warnings]
    return Reply.json(answer, 400 if errors else 200)


def info(hub: Hub, call: Call) -> Reply:
    repo = hub.repo(call)
    commit = repo.at(call.args.get("rev", "main"))
    try:
        card = front_matter(commit.files.get("README.md", b"").decode())
    except ValueError:
        card = {}
    siblings: list[Json] = [{"rfilename": path} for path in sorted(commit.files)]
    if "blobs" in call.query:
        for sibling in siblings:
            content = commit.files[sibling["rfilename"]]
            sibling |= {"size": len(content), "blobId": blob_id(content)}
    answer: Json = {
        "id": repo.id,
        "author": repo.id.split("/")[0],
        "sha": commit.oid,
        "lastModified": commit.date,
        "private": repo.private,
        "gated": False,
        "disabled": False,
        "siblings": siblings,
        "cardData": json.loads(json.dumps(card, default=str)),  # YAML dates as text
        **{key: card[key] for key in ("library_name", "pipeline_tag", "tags") if key in card},
    }
    return Reply.json(answer)


def preupload(hub: Hub, call: Call) -> Reply:
    """Every file is "regular"; from `oid` the client sees what it need not send again."""
    files = hub.repo(call).at(call.args["rev"]).files
    answers = []
    for path in (entry["path"] for entry in call.json()["files"]):
        oid = blob_id(files[path]) if path in files else None
        answers.append({"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid})
    return Reply.json({"files": answers})


def commit(hub: Hub, call: Call) -> Reply:
    """JSON lines: a header, then one line a file. No change still makes an (empty) commit."""
    repo, branch = hub.repo(call), call.args["rev"]
    if "create_pr" in call.query:
        raise Refused(501, "This hub has no pull requests")
    if branch not in repo.branches:
        raise Refused(404, f"Invalid rev id: {branch}", "RevisionNotFound")
    head = repo.at(branch)
    files, header = dict(head.files), {"summary": ""}
    for line in call.body.splitlines():
        key, value = itemgetter("key", "value")(json.loads(line))
        if key == "header":
            header = value
            continue
        path = PurePosixPath(value["path"])
        if path.is_absolute() or {"..", ".git"} & set(path.parts):
            raise Refused(400, f"Invalid path: {path}")
        if key == "file":
            files[str(path)] = base64.b64decode(value["content"], validate=True)
        elif key == "deletedFile" and str(path) in files:
            del files[str(path)]
        elif key == "deletedFolder":
            files = {p: files[p] for p in files if path not in PurePosixPath(p).parents}
        elif key == "deletedFile":
            raise Refused(404, "A file with this name doesn't exist", "EntryNotFound")
        else:
            raise Refused(400, f"This hub takes no '{key}' lines")
    if not head.oid.startswith(header.get("parentCommit", "")):
        raise Refused(412, "A commit has happened since. Please refresh and try again.")
    new = Commit(files, header["summary"], header.get("description", ""), head.oid)
    url = f"{hub.page(repo.kind, repo.id)}/commit/{repo.add(branch, new).oid}"
    return Reply.json({"success": True, "commitOid": new.oid, "commitUrl": url, "hookOutput": ""})


def history(hub: Hub, call: Call) -> Reply:
    fixed = {"authors": [{"user": USER}]}
    chain = hub.repo(call).history(call.args["rev"])
    own = [{"id": c.oid, "title": c.title, "message": c.description, "date": c.date} for c in chain]
    return Reply.json([entry | fixed for entry in own])


def refs(hub: Hub, call: Call) -> Reply:
    repo = hub.repo(call)
    listing: dict[str, list[Json]] = {"converts": [], "pullRequests": []}
    for key, folder, targets in (("branches", "heads", repo.branches), ("tags", "tags", repo.tags)):
        pairs = sorted(targets.items())
        listing[key] = [
            {"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": oid}
            for name, oid in pairs
        ]
    return Reply.json(listing)


def create_tag(hub: Hub, call: Call) -> Reply:
    repo, name = hub.repo(call), call.json()["tag"]
    return _point(repo.tags, name, repo.at(call.args["rev"]))


def create_branch(hub: Hub, call: Call) -> Reply:
    repo = hub.repo(call)
    start = call.json().get("startingPoint", "main")
    return _point(repo.branches, call.args["rev"], repo.at(start))


def _point(targets: dict[str, str], name: str, target: Commit) -> Reply:
    if name in targets:
        raise Refused(409, f"Reference exists already: {name}")
    targets[name] = target.oid
    return Reply.json({})


def delete_tag(hub: Hub, call: Call) -> Reply:
    return _unpoint(hub.repo(call).tags, call.args["rev"])


def delete_branch(hub: Hub, call: Call) -> Reply:
    if call.args["rev"] == "main":
        raise Refused(403, "The branch main is protected")
    return _unpoint(hub.repo(call).branches, call.args["rev"])


def _unpoint(targets: dict[str, str], name: str) -> Reply:
    if targets.pop(name, None) is None:
        raise Refused(404, f"Invalid rev id: {name}", "RevisionNotFound")
    return Reply()


def tree(hub: Hub, call: Call) -> Reply:
    entries = hub.repo(call).at(call.args["rev"]).entries()
    folder = call.args.get("path", "")
    if folder and folder not in entries:
        raise Refused(404, f"{folder} does not exist", "EntryNotFound")
    inside = [e for path, e in entries.items() if not folder or path.startswith(f"{folder}/")]
    if call.query.get("recursive", ["false"])[0].lower() != "true":
        inside = [e for e in inside if "/" not in e["path"][len(folder) :].strip("/")]
    return Reply.json(inside)


def paths_info(hub: Hub, call: Call) -> Reply:
    entries = hub.repo(call).at(call.args["rev"]).entries()
    paths = parse_qs(call.body.decode()).get("paths", [])
    return Reply.json([entries[path] for path in paths if path in entries])


def resolve(hub: Hub, call: Call) -> Reply:
    """A file or the part of it that `Range` asks for."""
    commit = hub.repo(call).at(call.args["rev"])
    content = commit.files.get(call.args["path"])
    if content is None:
        error = Refused(404, "Entry not found", "EntryNotFound")
        error.headers["X-Repo-Commit"] = commit.oid  # lets the client remember that there is none
        raise error
    headers = {
        "ETag": f'"{blob_id(content)}"',
        "X-Repo-Commit": commit.oid,
        "Accept-Ranges": "bytes",
    }
    part = re.fullmatch(r"bytes=(\d+)-(\d*)", call.range or "")
    if not part:
        return Reply(200, content, headers)
    first, last = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
    if first > last:
        return Reply(416, b"", headers | {"Content-Range": f"bytes */{len(content)}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Reply(206, content[first : last + 1], headers)


# ---- Routes ----------------------------------------------------------------------------------


class Route(NamedTuple):
    """An endpoint under the name by which tests and failure switches know it."""

    name: str
    method: str
    pattern: str
    answer: Callable[[Hub, Call], Reply]
    needs_token: bool = False


_API = r"/api/(?P<kind>models|datasets|spaces)/(?P<repo>[^/]+/[^/]+)"
_FILE = r"/(?:(?P<kind>datasets|spaces)/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)"

ROUTES = (
    Route("whoami", "GET", r"/api/whoami-v2", whoami, needs_token=True),
    Route("create", "POST", r"/api/repos/create", create, needs_token=True),
    Route("delete", "DELETE", r"/api/repos/delete", delete, needs_token=True),
    Route("settings", "PUT", rf"{_API}/settings", settings, needs_token=True),
    Route("validate", "POST", r"/api/validate-yaml", validate),
    Route("info", "GET", rf"{_API}(?:/revision/(?P<rev>[^/]+))?", info),
    Route("preupload", "POST", rf"{_API}/preupload/(?P<rev>[^/]+)", preupload, needs_token=True),
    Route("commit", "POST", rf"{_API}/commit/(?P<rev>[^/]+)", commit, needs_token=True),
    Route("history", "GET", rf"{_API}/commits/(?P<rev>[^/]+)", history),
    Route("refs", "GET", rf"{_API}/refs", refs),
    Route("tag", "POST", rf"{_API}/tag/(?P<rev>[^/]+)", create_tag, needs_token=True),
    Route("untag", "DELETE", rf"{_API}/tag/(?P<rev>[^/]+)", delete_tag, needs_token=True),
    Route("branch", "POST", rf"{_API}/branch/(?P<rev>[^/]+)", create_branch, needs_token=True),
    Route("unbranch", "DELETE", rf"{_API}/branch/(?P<rev>[^/]+)", delete_branch, needs_token=True),
    Route("tree", "GET", rf"{_API}/tree/(?P<rev>[^/]+)(?:/(?P<path>.+))?", tree),
    Route("paths", "POST", rf"{_API}/paths-info/(?P<rev>[^/]+)", paths_info),
    Route("head", "HEAD", _FILE, resolve),
    Route("download", "GET", _FILE, resolve),
)
