"""The test hub, driven by the real client; and what that client makes of each failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import (
    HfApi,
    ModelCard,
    constants,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from .server import TOKEN, Hub

REPO = "org/model"
FILES = {
    "README.md": b"---\nlicense: mit\n---\n# A model\n",
    "config.json": b'{"width": 8}',
    "figures/loss.png": b"not really a picture",
    "model.safetensors": bytes(range(256)) * 40,
}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def api(hub: Hub) -> HfApi:
    return HfApi()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "folder"


@pytest.fixture(params=["xet", "no xet"])
def uploader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`upload_folder` has two implementations; which runs depends on hf_xet."""
    if request.param == "xet":
        pytest.importorskip("hf_xet")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", request.param == "no xet")
    return request.param


# ---- What works ------------------------------------------------------------------------------


def test_a_repository_is_created_once(hub: Hub, api: HfApi):
    first = api.create_repo(REPO)
    assert first.repo_id == REPO
    assert api.create_repo(REPO, exist_ok=True) == first
    with pytest.raises(HfHubHTTPError) as caught:
        api.create_repo(REPO)
    assert caught.value.response.status_code == 409
    assert [r.status for r in hub.calls("create")] == [200, 409, 409]
    assert api.create_repo("mine").repo_id == "tester/mine"
    api.delete_repo(REPO)
    assert not api.repo_exists(REPO)


def test_a_folder_is_one_commit_and_again_is_none(
    hub: Hub, api: HfApi, folder: Path, uploader: str
):
    api.create_repo(REPO)
    first = api.upload_folder(repo_id=REPO, folder_path=folder, commit_message="Publish")
    second = api.upload_folder(repo_id=REPO, folder_path=folder)
    assert second.oid == first.oid == api.model_info(REPO).sha
    assert len(hub.calls("commit")) == 1
    assert [c.title for c in hub.commits(REPO)] == ["Publish", "initial commit"]
    uploaded = hub.files(REPO)
    del uploaded[".gitattributes"]
    assert uploaded == FILES


def test_a_changed_file_is_a_second_commit(hub: Hub, api: HfApi, folder: Path):
    api.create_repo(REPO)
    first = api.upload_folder(repo_id=REPO, folder_path=folder)
    (folder / "config.json").write_bytes(b'{"width": 9}')
    (folder / "figures" / "loss.png").unlink()
    second = api.upload_folder(repo_id=REPO, folder_path=folder, delete_patterns="figures/*")
    assert [c.commit_id for c in api.list_repo_commits(REPO)][:2] == [second.oid, first.oid]
    assert "figures/loss.png" not in hub.files(REPO)
    assert hub.files(REPO, first.oid)["config.json"] == FILES["config.json"]
    with pytest.raises(HfHubHTTPError) as caught:
        api.upload_file(
            repo_id=REPO, path_in_repo="x", path_or_fileobj=b"x", parent_commit=first.oid
        )
    assert caught.value.response.status_code == 412


def test_files_and_folders_are_deleted(hub: Hub, api: HfApi):
    hub.put(REPO, FILES)
    api.delete_file("config.json", REPO)
    api.delete_folder("figures", REPO)
    assert set(hub.files(REPO)) == {".gitattributes", "README.md", "model.safetensors"}
    with pytest.raises(RemoteEntryNotFoundError):
        api.delete_file("config.json", REPO)


def test_tags_branches_and_commits_are_revisions(hub: Hub, api: HfApi):
    old = hub.put(REPO, {"a.txt": b"old"})
    api.create_tag(REPO, tag="v1")
    api.create_tag(REPO, tag="v1", exist_ok=True)
    api.create_branch(REPO, branch="try/this")
    api.upload_file(
        repo_id=REPO, path_in_repo="a.txt", path_or_fileobj=b"tried", revision="try/this"
    )
    hub.put(REPO, {"a.txt": b"new"})

    found = {
        revision: Path(hf_hub_download(REPO, "a.txt", revision=revision)).read_bytes()
        for revision in ("main", "v1", "try/this", old)
    }
    assert found == {"main": b"new", "v1": b"old", "try/this": b"tried", old: b"old"}
    refs = api.list_repo_refs(REPO)
    assert {ref.name for ref in refs.branches} == {"main", "try/this"}
    assert [(ref.ref, ref.target_commit) for ref in refs.tags] == [("refs/tags/v1", old)]

    with pytest.raises(HfHubHTTPError) as caught:
        api.create_tag(REPO, tag="v1")
    assert caught.value.response.status_code == 409
    api.delete_tag(REPO, tag="v1")
    api.delete_branch(REPO, branch="try/this")
    for gone in ("v1", "try/this"):
        with pytest.raises(RevisionNotFoundError):
            api.model_info(REPO, revision=gone)
    with pytest.raises(RevisionNotFoundError):
        api.upload_file(repo_id=REPO, path_in_repo="b", path_or_fileobj=b"", revision="nowhere")


def test_only_matching_files_are_fetched(hub: Hub):
    hub.put(REPO, FILES)
    patterns = ["*.json", "*.safetensors", "README.md"]
    snapshot = Path(snapshot_download(REPO, allow_patterns=patterns))
    assert hub.fetched() == ["README.md", "config.json", "model.safetensors"]
    assert (snapshot / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    fetched = len(hub.calls("download"))
    assert snapshot_download(REPO, allow_patterns=patterns) == str(snapshot)
    assert len(hub.calls("download")) == fetched


def test_listings(hub: Hub, api: HfApi):
    hub.put(REPO, FILES | {"figures/deep/a.png": b""})
    assert set(api.list_repo_files(REPO)) == {*FILES, "figures/deep/a.png", ".gitattributes"}
    top = {entry.path for entry in api.list_repo_tree(REPO)}
    assert top == {".gitattributes", "README.md", "config.json", "figures", "model.safetensors"}
    inside = {entry.path for entry in api.list_repo_tree(REPO, "figures")}
    assert inside == {"figures/deep", "figures/loss.png"}
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(REPO, "nowhere"))
    (file,) = api.get_paths_info(REPO, ["config.json", "nowhere"])
    assert file.size == len(FILES["config.json"])
    assert api.file_exists(REPO, "config.json")
    assert not api.file_exists(REPO, "nowhere")
    assert api.whoami()["name"] == "tester"


def test_cards_are_checked(hub: Hub, api: HfApi, folder: Path):
    hub.put(REPO, FILES)
    card = ModelCard.load(REPO)
    assert card.data.license == "mit"
    assert api.model_info(REPO).card_data.license == "mit"
    card.validate()
    api.create_repo("org/other")
    for block, complaint in [
        ("license: [", "Invalid YAML"),
        ("datasets: null", '"datasets" must be'),
        ("model-index: {}", '"model-index" must be an array'),
        ("model-index: [{name: a, results: [{}]}]", r"results\[0\].task.type"),
    ]:
        (folder / "README.md").write_text(f"---\n{block}\n---\n")
        with pytest.raises(ValueError, match=complaint):
            api.upload_folder(repo_id="org/other", folder_path=folder)
    assert not hub.calls("commit")
    (folder / "README.md").write_text("no metadata")
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        api.upload_folder(repo_id="org/other", folder_path=folder)


def test_private_repositories_and_writes_need_a_token(hub: Hub, api: HfApi):
    api.create_repo(REPO, private=True)
    hub.put(REPO, FILES)
    assert api.model_info(REPO).private
    with pytest.raises(RepositoryNotFoundError):
        hf_hub_download(REPO, "config.json", token=False)
    with pytest.raises(RepositoryNotFoundError):
        snapshot_download(REPO, token=False)
    api.update_repo_settings(REPO, private=False)
    hf_hub_download(REPO, "config.json", token=False)
    with pytest.raises(HfHubHTTPError) as caught:
        api.create_repo("org/other", token=False)
    assert caught.value.response.status_code == 401
    assert {r.authorized for r in hub.requests} == {True, False}
    assert TOKEN not in repr(hub.requests)


def test_missing_things_have_their_own_errors(hub: Hub, api: HfApi):
    hub.put(REPO, FILES)
    with pytest.raises(RepositoryNotFoundError):
        hf_hub_download("org/nothing", "config.json")
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download(REPO, "config.json", revision="v9")
    with pytest.raises(RemoteEntryNotFoundError):
        hf_hub_download(REPO, "nothing.json")
    with pytest.raises(HfHubHTTPError, match="no such endpoint"):
        api.get_model_tags()


def test_hostile_paths_can_be_stored(hub: Hub, api: HfApi):
    hub.put("org/hostile", {"../outside": b"1", "/etc/outside": b"2"})
    assert {"../outside", "/etc/outside"} < set(api.list_repo_files("org/hostile"))


def test_a_stopped_hub_leaves_the_cache(hub: Hub):
    hub.put(REPO, FILES)
    cached = hf_hub_download(REPO, "config.json")
    snapshot = snapshot_download(REPO, allow_patterns="*.json")
    hub.stop()
    assert hf_hub_download(REPO, "config.json") == cached
    assert snapshot_download(REPO, allow_patterns="*.json") == snapshot
    with pytest.raises(LocalEntryNotFoundError):
        hf_hub_download(REPO, "config.json", revision="v9", local_files_only=True)
    with pytest.raises(LocalEntryNotFoundError):
        snapshot_download(REPO, revision="v9")
    hub.start()
    assert hf_hub_download(REPO, "README.md").endswith("README.md")


def test_an_uncached_revision_of_a_stopped_hub(hub: Hub, waits: list[float]):
    hub.put(REPO, FILES)
    hf_hub_download(REPO, "config.json")
    hub.stop()
    with pytest.raises(LocalEntryNotFoundError):
        hf_hub_download(REPO, "config.json", revision="v9")
    assert waits == [1, 2, 4, 8, 8]


def test_a_fresh_process_needs_only_the_environment(hub: Hub, folder: Path, tmp_path: Path):
    code = (
        "import sys, huggingface_hub as h; h.create_repo('org/model');"
        "h.upload_folder(repo_id='org/model', folder_path=sys.argv[1]);"
        "h.hf_hub_download('org/model', 'config.json')"
    )
    environment = os.environ | hub.env(tmp_path / "other home")
    subprocess.run([sys.executable, "-c", code, str(folder)], env=environment, check=True)
    assert [len(hub.calls(name)) for name in ("create", "commit", "download")] == [1, 1, 1]
    assert list((tmp_path / "other home" / "hub").glob("models--org--model/blobs/*"))


def test_the_command_line_serves_folders(folder: Path, tmp_path: Path):
    served = tmp_path / "served" / "org"
    served.mkdir(parents=True)
    folder.rename(served / "model")
    command = [sys.executable, "-u", "-m", "tests.hub.server", "--root", str(served.parent)]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        repository, url, _, export = [process.stdout.readline().strip() for _ in range(4)]
        url = url.split()[0]
        path = hf_hub_download(REPO, "config.json", endpoint=url, cache_dir=tmp_path / "cache")
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert repository == f"{url}/org/model"
    assert export.startswith(f"export HF_ENDPOINT={url} ")
    assert "200 GET /org/model/resolve/main/config.json" in log
    assert Path(path).read_bytes() == FILES["config.json"]


# ---- Failure switches ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_create_is_refused(hub: Hub, api: HfApi, status: int):
    hub.fail(status, "create", message="You may not create this")
    with pytest.raises(HfHubHTTPError, match="You may not create this") as caught:
        api.create_repo(REPO)
    assert caught.value.response.status_code == status
    assert not hub.repos
    hub.put(REPO, FILES)
    api.create_repo(REPO, exist_ok=True)  # the client looks whether it is there
    hub.heal()
    api.create_repo("org/other")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("RepoNotFound", RepositoryNotFoundError),
        ("RevisionNotFound", RevisionNotFoundError),
        ("EntryNotFound", RemoteEntryNotFoundError),
        ("", LocalEntryNotFoundError),  # a 404 of something between: a proxy, say
    ],
)
def test_not_found(hub: Hub, code: str, error: type[Exception]):
    hub.put(REPO, FILES)
    hub.fail(404, "head", code=code, path="*/config.json")
    with pytest.raises(error):
        hf_hub_download(REPO, "config.json")
    hf_hub_download(REPO, "README.md")
    hub.heal()
    hf_hub_download(REPO, "config.json")


def test_too_many_requests_are_waited_for(hub: Hub, api: HfApi, folder: Path, waits: list[float]):
    api.create_repo(REPO)
    hub.fail(429, "preupload", times=2, retry_after=7)
    hub.fail(429, "download", times=1, retry_after=3)
    api.upload_folder(repo_id=REPO, folder_path=folder)
    hf_hub_download(REPO, "config.json")
    assert waits == [8, 8, 4]  # one second more than asked for
    assert [r.status for r in hub.calls("preupload")] == [429, 429, 200]

    hub.fail(429, "create", times=1, retry_after=7)
    with pytest.raises(HfHubHTTPError, match="429 Too Many Requests"):
        api.create_repo("org/other")  # not every call waits
    api.create_repo("org/other")


def test_a_server_error_in_the_middle_of_an_upload(
    hub: Hub, api: HfApi, folder: Path, uploader: str, waits: list[float]
):
    api.create_repo(REPO)
    hub.fail(500, "commit", times=1)
    if uploader == "no xet":  # only the other implementation tries again by itself
        with pytest.raises(HfHubHTTPError, match="500"):
            api.upload_folder(repo_id=REPO, folder_path=folder)
        assert len(hub.commits(REPO)) == 1
    api.upload_folder(repo_id=REPO, folder_path=folder)
    assert [r.status for r in hub.calls("commit")] == [500, 200]
    assert len(hub.commits(REPO)) == 2
    assert waits == ([1] if uploader == "xet" else [])


def test_server_errors_without_end(
    hub: Hub, api: HfApi, folder: Path, uploader: str, waits: list[float]
):
    hub.put(REPO, {"config.json": b"before"})
    hub.fail(503, "commit")
    with pytest.raises(HfHubHTTPError, match="503"):
        api.upload_folder(repo_id=REPO, folder_path=folder)
    assert hub.files(REPO)["config.json"] == b"before"
    hub.heal()
    api.upload_folder(repo_id=REPO, folder_path=folder)
    assert hub.files(REPO)["config.json"] == FILES["config.json"]


def test_a_lost_answer_makes_an_empty_second_commit(
    hub: Hub, api: HfApi, folder: Path, waits: list[float]
):
    pytest.importorskip("hf_xet")
    api.create_repo(REPO)
    hub.cut("commit", times=1)
    api.upload_folder(repo_id=REPO, folder_path=folder)
    second, first, _ = hub.commits(REPO)
    assert second.files == first.files
    hub.cut("commit", times=1)
    with pytest.raises(httpx2.RemoteProtocolError):  # this one does not try again
        api.upload_file(repo_id=REPO, path_in_repo="b.txt", path_or_fileobj=b"b")
    assert hub.files(REPO)["b.txt"] == b"b"


@pytest.mark.parametrize("chunk", [1000, 10**7])
def test_a_cut_download_is_finished(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float], chunk: int
):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", chunk)
    hub.put(REPO, FILES)
    hub.cut(times=1)
    path = Path(hf_hub_download(REPO, "model.safetensors"))
    assert path.read_bytes() == FILES["model.safetensors"]
    # What is less than a chunk is fetched again, whole chunks are kept.
    resumed = "bytes=5000-" if chunk == 1000 else None
    assert [r.range for r in hub.calls("download")] == [None, resumed]


def test_a_download_that_is_always_cut(hub: Hub, waits: list[float], tmp_path: Path):
    hub.put(REPO, {"config.json": b"before"})
    old = hf_hub_download(REPO, "config.json")
    commit = hub.put(REPO, FILES)
    hub.cut()
    with pytest.raises(httpx2.RemoteProtocolError):
        hf_hub_download(REPO, "config.json", revision=commit)
    assert len(hub.calls("download")) == 1 + 6
    assert Path(old).read_bytes() == b"before"
    assert not list(tmp_path.rglob("*.incomplete"))
    hub.heal()
    new = hf_hub_download(REPO, "config.json")
    assert Path(new).read_bytes() == FILES["config.json"]


def test_slow_answers(hub: Hub, api: HfApi, monkeypatch: pytest.MonkeyPatch, waits: list[float]):
    hub.put(REPO, FILES)
    hub.slow(30, "head", times=1)
    cached = hf_hub_download(REPO, "config.json", etag_timeout=0.1)  # asks a second time
    assert len(hub.calls("head", 200)) == 1  # the first is still under way
    hub.slow(30, "head")
    assert hf_hub_download(REPO, "config.json", etag_timeout=0.1) == cached
    hub.heal()

    hub.slow(30, "download")
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
        with pytest.raises(httpx2.ReadTimeout):
            hf_hub_download(REPO, "README.md")
    hub.heal()
    hf_hub_download(REPO, "README.md")
    hub.slow(0.3, "info", times=1)
    assert api.model_info(REPO).sha  # no timeout unless asked for
    hub.slow(30, "info", times=1)
    with pytest.raises(httpx2.ReadTimeout):
        api.model_info(REPO, timeout=0.1)


def test_a_corrupt_file_passes_the_client(hub: Hub, api: HfApi):
    hub.put(REPO, FILES)
    hub.corrupt("*/model.safetensors", times=1)
    path = Path(hf_hub_download(REPO, "model.safetensors"))
    assert path.read_bytes() != FILES["model.safetensors"]
    assert path.stat().st_size == len(FILES["model.safetensors"])
    (mismatch,) = api.verify_repo_checksums(REPO).mismatches
    assert mismatch["path"] == "model.safetensors"
    hf_hub_download(REPO, "model.safetensors", force_download=True)
    assert not api.verify_repo_checksums(REPO).mismatches


def test_a_wrong_etag_passes_the_client(hub: Hub, api: HfApi):
    hub.put(REPO, FILES)
    hub.wrong_etag()
    hf_hub_download(REPO, "config.json")
    path = Path(hf_hub_download(REPO, "README.md"))
    assert path.read_bytes() == FILES["config.json"]  # one ETag is one file
    (mismatch,) = api.verify_repo_checksums(REPO).mismatches
    assert mismatch["path"] == "README.md"
    hub.heal()
    again = hf_hub_download(REPO, "README.md", force_download=True)
    assert Path(again).read_bytes() == FILES["config.json"]  # the link in the cache stays wrong
    path.unlink()
    assert Path(hf_hub_download(REPO, "README.md")).read_bytes() == FILES["README.md"]


def test_switches_add_up(hub: Hub, api: HfApi):
    hub.put(REPO, FILES)
    hub.fail(500, "info", times=1)
    hub.fail(502, "info", times=1)
    for status in ("500", "502"):
        with pytest.raises(HfHubHTTPError, match=status):
            api.model_info(REPO)
    assert api.model_info(REPO).sha


def test_many_clients_at_once(hub: Hub, api: HfApi):
    def work(number: int) -> None:
        api.create_repo(REPO, exist_ok=True)
        api.upload_file(repo_id=REPO, path_in_repo=f"{number}", path_or_fileobj=b"%d" % number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(hub.calls("create", 200)) == 1
    assert len(hub.commits(REPO)) == 1 + 8
    assert set(hub.files(REPO)) == {".gitattributes", *map(str, range(8))}
