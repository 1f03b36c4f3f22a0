"""A malicious sample of each kind: what a stranger may put into a folder or a repository."""

import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo
from tests.toy import Toy
from zoo import DegBins
from zoo.budget import AllocationLimit, allocation_limit
from zoo.check import check
from zoo.errors import ZooError
from zoo.hub import read_published
from zoo.publish import build
from zoo.remote import split_source

from .roundtrip import REPO, tiny, write_run
from .server import TOKEN, Hub


class Harm:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "harmed"


def put(hub: Hub, folder: Path, **more: bytes) -> None:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    hub.put(REPO, {p.relative_to(folder).as_posix(): p.read_bytes() for p in files} | more)


def edit(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(folder: Path, match: str) -> None:
    """By everything that loads, in one sentence."""
    for load in (zoo.from_pretrained, DegBins.from_pretrained, read_published, check):
        with pytest.raises(ZooError, match=match) as caught:
            load(folder)
        assert "\n" not in str(caught.value)


# ---- Code ------------------------------------------------------------------------------------


def test_a_pickle_under_the_name_of_the_weights_is_not_run(copy: Path, mark: Path):
    for name in ("model.safetensors", "reference.safetensors"):
        before = (copy / name).read_bytes()
        (copy / name).write_bytes(pickle.dumps(Harm(mark)))
        with pytest.raises(ZooError, match=rf"{name}"):
            check(copy)
        torch.save({"weight": Harm(mark)}, copy / name)
        with pytest.raises(ZooError, match=rf"{name}"):
            check(copy)
        (copy / name).write_bytes(before)
    (copy / "config.json").write_bytes(pickle.dumps(Harm(mark)))
    refused(copy, r"config\.json is no valid JSON")
    assert not mark.exists()


def test_a_pickle_beside_the_weights_is_never_fetched(hub: Hub, copy: Path, mark: Path):
    put(hub, copy)
    hub.put(REPO, {"pytorch_model.bin": pickle.dumps(Harm(mark))})
    zoo.from_pretrained(REPO)
    with pytest.raises(ZooError, match=r"'pytorch_model\.bin'.*may hold a pickle"):
        check(REPO)
    assert "pytorch_model.bin" not in hub.fetched()
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["os.system", "torch.nn.Linear", "ZooModule", "builtins.eval", "list_methods", ""]
)
def test_a_class_outside_the_catalogue_is_not_imported(copy: Path, name: str):
    edit(copy, _class_name=name)
    with pytest.raises(ZooError, match=f"Unknown method '{name}'"):
        zoo.from_pretrained(copy)
    with pytest.raises(ZooError, match="not a DegBins"):
        DegBins.from_pretrained(copy)


def test_a_module_in_the_folder_is_not_imported(copy: Path, mark: Path):
    (copy / "modeling.py").write_text(f"open({str(mark)!r}, 'w')")
    edit(copy, auto_map={"AutoModel": "modeling.DegBins"})
    with pytest.raises(ZooError, match="no argument 'auto_map'"):
        zoo.from_pretrained(copy)
    assert not mark.exists()
    assert "modeling" not in sys.modules


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": "many"},
        {"channels": -1},
        {"head": {"class_path": "os.system", "init_args": {"command": "true"}}},
        {"stages": None},
        {"width": [8]},
        {"self": 1},
        {"__class__": "x", "blocks": 1e300},
    ],
)
def test_values_that_no_constructor_takes_are_one_sentence(copy: Path, changes: dict):
    edit(copy, **changes)
    refused(copy, r"config\.json makes no DegBins|DegBins has no argument|[Uu]nknown|head|channels")


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "[]", '"x"', "\xff", "{}"]
)
def test_a_config_that_is_no_config(copy: Path, text: str):
    (copy / "config.json").write_text(text, encoding="latin-1")
    refused(copy, r"config\.json (is no valid JSON|names no class)")


def test_a_config_of_many_megabytes_is_not_parsed(copy: Path):
    (copy / "config.json").write_text('{"_class_name": "DegBins"}' + " " * 2**20)
    refused(copy, "at most a MiB")


# ---- Files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../evil.png", "figures/../../evil.png", "/tmp/evil.png", "figures/..\\evil.png"]
)
def test_a_path_that_leads_out_is_never_written(hub: Hub, copy: Path, tmp_path: Path, name: str):
    put(hub, copy)
    hub.put(REPO, {name: b"\x89PNG\r\n\x1a\n"})
    zoo.from_pretrained(REPO)
    with pytest.raises(ZooError, match="leads out of its folder"):
        check(REPO)
    assert not list(tmp_path.rglob("*evil*"))
    assert not Path("/tmp/evil.png").exists()


def test_names_of_repositories_are_no_paths():
    for name in ("../../etc", "/etc/passwd", "a/../../b", "https://x/y", "a", "a/b/c", "a\n/b"):
        with pytest.raises(ZooError, match="neither a folder nor"):
            split_source(name)
    assert split_source("hf://org/name@v1") == ("org/name", "v1")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "reference.safetensors"])
def test_a_link_out_of_the_folder_is_not_read(copy: Path, tmp_path: Path, name: str):
    secret = (copy / name).rename(tmp_path / "secret")
    (copy / name).symlink_to(secret)
    with pytest.raises(ZooError, match="a link that leads out"):
        check(copy)
    if name != "reference.safetensors":
        refused(copy, "a link that leads out")
    (copy / name).unlink()
    inside = shutil.copy(secret, copy / f"inside-{name}")
    (copy / name).symlink_to(inside)
    zoo.from_pretrained(copy)


def test_a_linked_folder_of_pictures_is_not_read(copy: Path, tmp_path: Path):
    (copy / "figures").rename(tmp_path / "album")
    (copy / "figures").symlink_to(tmp_path / "album")
    sentences = check(copy)  # folders behind links are not entered
    assert "6 files" in sentences[0]


def test_the_checksums_name_no_other_files(copy: Path, tmp_path: Path):
    """A config cannot have a file of this machine read and compared."""
    digests = json.loads((copy / "config.json").read_text())["_sha256"]
    edit(copy, _sha256={**digests, "../secret": "0" * 64, "/etc/passwd": "0" * 64})
    assert len(check(copy)) == 4


def test_a_figure_of_the_run_that_is_a_link_is_published_as_what_it_shows(tmp_path: Path):
    """`zoo push` copies bytes, so that the folder has no links to this machine."""
    ckpt = write_run(tiny(), tmp_path)
    figure = ckpt.parents[1] / "figures" / "test_depth.png"
    figure.rename(tmp_path / "real.png")
    figure.symlink_to(tmp_path / "real.png")
    build(DegBins, ckpt, tmp_path / "hub", repo_id=REPO, license="mit")
    assert not (tmp_path / "hub/figures/test_depth.png").is_symlink()


# ---- Memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [{"width": 20_000}, {"channels": 10**6}, {"blocks": 10**9}, {"width": 10**9}]
)
def test_sizes_that_do_not_fit_the_weights_are_refused_before_allocation(copy: Path, sizes: dict):
    edit(copy, **sizes)
    with pytest.raises(
        ZooError, match=r"config\.json asks for more than 2\d\d MiB|makes no DegBins"
    ):
        zoo.from_pretrained(copy)


def test_the_limit_comes_before_the_memory():
    class Untouched(torch.overrides.TorchFunctionMode):
        """Sees what is really made; the meta device has no memory."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.empty:
                assert str((kwargs or {}).get("device")) == "meta"
            return func(*args, **(kwargs or {}))

    limit = AllocationLimit(2**20, 99, "This config")
    with Untouched(), limit, pytest.raises(ZooError, match="This config asks for more than 1 MiB"):
        torch.nn.Linear(10_000, 10_000)
    for make in (
        lambda: torch.zeros(2**20),
        lambda: torch.randn(1024, 1024, generator=torch.Generator()),
        lambda: torch.arange(10**12),
        lambda: torch.zeros(1).new_zeros(2**20),
        lambda: torch.full((1024, 1024), 1.0),
    ):
        with AllocationLimit(2**20, 99, "It"), pytest.raises(ZooError, match="more than 1 MiB"):
            make()
    with AllocationLimit(2**20, 99, "It"):
        assert torch.zeros(2**10).shape == (2**10,)
    with AllocationLimit(2**20, 99, "It"), pytest.raises(ZooError, match="or 99 tensors"):
        torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(10**9)))


def test_frozen_parts_are_in_no_file_and_count_against_the_machine():
    assert allocation_limit(DegBins, 1000, 7, "").limit == 2**28 + 4000
    assert allocation_limit(DegBins, 1000, 7, "").tensors == 1140
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert allocation_limit(Toy, 1000, 7, "").limit == machine


def test_shapes_are_compared_before_the_weights_are_read(
    copy: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("zoo.hub.load_file", lambda path: pytest.fail("the weights were read"))
    tensors = load_file(copy / "model.safetensors")
    name = next(iter(tensors))
    tensors[name] = torch.zeros(1, 1)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(ZooError, match=rf"'{name}' has shape \(1, 1\), but its config makes"):
        zoo.from_pretrained(copy)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        (2**60).to_bytes(8, "little") + b"{}",
        b'\x50\x00\x00\x00\x00\x00\x00\x00{"a":{"dtype":"F32","shape":[99999999999],'
        b'"data_offsets":[0,399999999996]}}   ',
    ],
)
def test_a_header_that_lies_about_sizes(copy: Path, content: bytes):
    (copy / "model.safetensors").write_bytes(content)
    refused(copy, r"model\.safetensors is no valid safetensors file")


# ---- Tokens ----------------------------------------------------------------------------------


def test_the_token_is_neither_shown_nor_logged(
    hub: Hub,
    copy: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
):
    put(hub, copy)
    hub.fail(400, "info", message=f"Bad token: {TOKEN}")
    hub.fail(403, "create", message=f"Bad token: {TOKEN}")
    with caplog.at_level("INFO"):
        for call in (
            lambda: zoo.from_pretrained(REPO),
            lambda: zoo.from_pretrained(REPO, token=TOKEN),
            lambda: check(REPO),
        ):
            with pytest.raises(ZooError, match=r"Bad token: \*\*\*"):
                call()
        hub.heal()
        zoo.from_pretrained(REPO, token=TOKEN)
    assert TOKEN not in caplog.text + "".join(capfd.readouterr())


def test_the_token_is_in_no_file(hub: Hub, copy: Path, tmp_path: Path):
    put(hub, copy)
    zoo.from_pretrained(REPO, token=TOKEN)
    for path in (p for p in (tmp_path / "hf").rglob("*") if p.is_file()):
        assert TOKEN.encode() not in path.read_bytes()
