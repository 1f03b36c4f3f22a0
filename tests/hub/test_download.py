"""`from_pretrained` and `zoo pull`: fetched, verified, offline, and one sentence when it fails.

With test_publish.py, test_card.py and test_push_callback.py these are the pain points of people
who use the hub; the numbers of the public threads stand beside the tests.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

import zoo
from tests.toy import Shape, Toy
from zoo import DegBins, remote
from zoo.errors import ZooError

from .roundtrip import REPO, same, tiny
from .server import TOKEN, Hub

NEEDED = ["README.md", "config.json", "model.safetensors", "reference.safetensors"]


@pytest.fixture
def content(built: Path) -> dict[str, bytes]:
    files = (p for p in sorted(built.rglob("*")) if p.is_file())
    return {p.relative_to(built).as_posix(): p.read_bytes() for p in files}


@pytest.fixture
def online(hub: Hub, content: dict[str, bytes]) -> Hub:
    hub.put(REPO, content)
    return hub


def fails(match: str, source: str | Path = REPO, **options) -> None:
    with pytest.raises(ZooError, match=match) as caught:
        zoo.from_pretrained(source, **options)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)


# ---- What is loaded --------------------------------------------------------------------------


def test_a_folder_a_repository_and_an_address_load_alike(online: Hub, built: Path):
    """pytorch-image-models#2338, #1016."""
    for source in (built, str(built), REPO, f"{REPO}@main", f"hf://{REPO}", f"hf://{REPO}@main"):
        assert same(zoo.from_pretrained(source), tiny())
        assert same(DegBins.from_pretrained(source), tiny())


def test_a_revision_is_a_branch_a_tag_or_a_commit(online: Hub, content: dict[str, bytes]):
    first = online.commits(REPO)[0].oid
    config = json.loads(content["config.json"])
    online.put(REPO, {"config.json": json.dumps({**config, "tile": 512}).encode()})
    assert zoo.from_pretrained(REPO).tile == 512
    assert zoo.from_pretrained(REPO, revision=first).tile == 1024
    assert zoo.from_pretrained(f"{REPO}@{first}").tile == 1024
    fails("org/model has no revision 'v9'", f"{REPO}@v9")


def test_only_config_one_format_of_weights_reference_and_card_are_fetched(online: Hub):
    """huggingface/diffusers#11182, #11601, #8968."""
    online.put(REPO, {"pytorch_model.bin": b"\x80\x02", "model.onnx": b"x", "big.safetensors": b""})
    zoo.from_pretrained(REPO)
    assert online.fetched() == NEEDED
    online.requests.clear()
    zoo.from_pretrained(REPO)
    assert not online.fetched()  # the second time everything comes from the cache


def test_a_renamed_key_raises_and_is_named(online: Hub, built: Path, tmp_path: Path):
    """torchgeo#4036, terratorch PR#320, lerobot PR#4713, transformers#32067."""
    tensors = load_file(built / "model.safetensors")
    name = next(iter(tensors))
    tensors["foreign.key"] = tensors.pop(name)
    save_file(tensors, tmp_path / "renamed.safetensors")
    online.put(REPO, {"model.safetensors": (tmp_path / "renamed.safetensors").read_bytes()})
    fails("foreign key 'foreign.key'")
    del tensors["foreign.key"]
    save_file(tensors, tmp_path / "short.safetensors")
    online.put(REPO, {"model.safetensors": (tmp_path / "short.safetensors").read_bytes()})
    fails(f"lacks the key '{name}'")


def test_init_arguments_come_back_or_are_refused(tmp_path: Path):
    """huggingface_hub#2096, PR#2079, #2212, facebookresearch/blt PR#99."""
    Toy(width=5, scale=[1.5, None, {"a": True}]).save_pretrained(tmp_path / "hub")
    assert Toy.from_pretrained(tmp_path / "hub").init_args()["scale"] == [1.5, None, {"a": True}]
    with pytest.raises(ZooError, match=r"Toy\(scale=...\) is a function"):
        Toy(scale=torch.nn.functional.relu).save_pretrained(tmp_path / "refused")
    assert not (tmp_path / "refused" / "model.safetensors").exists()


def test_dataclass_arguments_come_back_with_their_type(tmp_path: Path):
    """huggingface_hub#2379."""
    Toy(shape=Shape(width=3, depth=2)).save_pretrained(tmp_path)
    assert Toy.from_pretrained(tmp_path).hparams.shape == Shape(width=3, depth=2)


def test_reloading_fetches_no_initial_weights(tmp_path: Path):
    """segmentation_models.pytorch PR#1360, lightning-flash#984."""
    Toy(pretrained=True).save_pretrained(tmp_path)
    assert not Toy.from_pretrained(tmp_path).fetched


def test_a_private_repository_needs_the_token(online: Hub, monkeypatch: pytest.MonkeyPatch):
    online.repos["models", REPO].private = True
    monkeypatch.delenv("HF_TOKEN")
    fails("No repository org/model, or it is private: give a token")
    assert same(zoo.from_pretrained(REPO, token=TOKEN), tiny())


def test_a_damaged_copy_of_a_folder_is_not_loaded(built: Path, tmp_path: Path):
    """A bit that changes no output of the reference, maybe, but the weights all the same."""
    copy = Path(shutil.copytree(built, tmp_path / "copy"))
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    fails(r"model\.safetensors was changed or damaged", copy)


# ---- Without the hub -------------------------------------------------------------------------


def test_a_stopped_hub_is_answered_from_the_cache(online: Hub, waits: list[float]):
    """huggingface_hub#4487."""
    commit = online.commits(REPO)[0].oid
    zoo.from_pretrained(REPO)
    online.stop()
    for options in ({}, {"revision": commit}, {"force_download": True}):
        assert same(zoo.from_pretrained(REPO, **options), tiny())
    fails("org/model@v9 is not in the cache, and the hub cannot be reached", f"{REPO}@v9")
    fails("org/other is not in the cache, and the hub cannot be reached", "org/other")
    fails("is not in the cache, and the hub cannot be reached", revision="0" * 40)
    assert not waits  # each answer comes at once
    online.start()
    assert same(zoo.from_pretrained(REPO), tiny())


def test_offline_mode_loads_what_is_cached(online: Hub, monkeypatch: pytest.MonkeyPatch):
    zoo.from_pretrained(REPO)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    online.requests.clear()
    assert same(zoo.from_pretrained(REPO), tiny())
    fails("org/model@v9 is not in the cache, and HF_HUB_OFFLINE forbids", f"{REPO}@v9")
    assert not online.requests


def test_local_files_only_never_asks(online: Hub):
    fails("org/model is not whole in the cache, and it was not to be", local_files_only=True)
    assert not online.requests
    zoo.from_pretrained(REPO)
    online.requests.clear()
    assert same(zoo.from_pretrained(REPO, local_files_only=True), tiny())
    assert not online.requests


def test_a_half_fetched_model_is_not_taken_for_a_whole_one(online: Hub, waits: list[float]):
    online.cut(path="*/model.safetensors")
    fails("org/model: the connection to the hub failed")
    online.stop()
    fails("org/model is not in the cache, and the hub cannot be reached")
    online.start()
    online.heal()
    assert same(zoo.from_pretrained(REPO), tiny())


# ---- What can fail: one sentence, the cache intact, and trying again works ---------------------


def test_there_is_no_such_thing(online: Hub, tmp_path: Path):
    fails("No repository org/other", "org/other")
    fails("neither a folder nor 'org/name'", tmp_path / "nowhere")
    online.put("org/text", {"README.md": b"a data set"})
    fails("is no hub folder: it has no config.json", "org/text")


def test_too_many_requests(online: Hub, waits: list[float]):
    online.fail(429, "info", retry_after=7)
    fails(r"not in the cache, and the hub answered 429.*try again in 7 s")
    online.heal()
    online.fail(429, "download", times=2, retry_after=3)
    assert same(zoo.from_pretrained(REPO), tiny())
    assert waits == [4, 4]


def test_server_errors_fall_back_on_the_cache(online: Hub, waits: list[float]):
    online.fail(503, "info")
    fails(r"not in the cache, and the hub answered 503")
    online.heal()
    zoo.from_pretrained(REPO)
    online.fail(503, "*")
    assert same(zoo.from_pretrained(REPO), tiny())
    assert not waits


def test_a_download_that_is_cut(online: Hub, content: dict[str, bytes], waits: list[float]):
    old = zoo.from_pretrained(REPO)
    new = {**json.loads(content["config.json"]), "tile": 512}
    online.put(REPO, {"config.json": json.dumps(new).encode()})
    online.cut(path="*/config.json")
    fails("org/model: the connection to the hub failed .*try again")
    online.stop()
    online.start()
    assert same(zoo.from_pretrained(REPO, revision=online.commits(REPO)[1].oid), old)
    online.heal()
    online.cut(path="*/config.json", times=1)
    assert zoo.from_pretrained(REPO).tile == 512  # the client asks again by itself


def test_a_hub_that_says_nothing(online: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float]):
    def silent(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(remote, "TIMEOUT", 0.1)  # too short for a busy machine's real answer
        online.slow(30, "info")

    with monkeypatch.context() as patch:
        silent(patch)
        fails("not in the cache, and the hub cannot be reached")
    online.heal()
    zoo.from_pretrained(REPO)
    with monkeypatch.context() as patch:
        silent(patch)
        assert same(zoo.from_pretrained(REPO), tiny())


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_file_is_noticed_and_fetched_again(online: Hub, name: str, tmp_path: Path):
    """The client compares sizes only."""
    online.corrupt(f"*/{name}", times=1)
    fails(rf"org/model: {name} arrived damaged.*try again")
    assert same(zoo.from_pretrained(REPO), tiny())
    (file,) = tmp_path.rglob(f"snapshots/*/{name}")
    whole = file.read_bytes()
    file.resolve().write_bytes(whole[:-1] + b"?")  # damaged on this disk, later
    fails(f"{name} arrived damaged")
    zoo.from_pretrained(REPO)
    assert file.read_bytes() == whole


def test_a_wrong_etag_is_noticed(online: Hub):
    """All files have one, so that the client takes each for the first."""
    online.wrong_etag()
    fails("arrived damaged")
    online.heal()
    assert same(zoo.from_pretrained(REPO), tiny())
