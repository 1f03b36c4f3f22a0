"""`zoo check`: it passes on what `zoo push` made, and on nothing that was changed after."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.toy import Toy
from zoo import DegBins
from zoo.check import check, check_folder
from zoo.errors import ZooError
from zoo.hub import flatten, reference_output
from zoo.publish import publish
from zoo.remote import sha256

from .roundtrip import REPO, tiny, write_run
from .server import Hub


def fails(folder: Path, match: str) -> None:
    with pytest.raises(ZooError, match=match) as caught:
        check(folder)
    assert "\n" not in str(caught.value)


def edit(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rehash(folder: Path, *names: str) -> None:
    """What a careful forger does."""
    digests = json.loads((folder / "config.json").read_text())["_sha256"]
    edit(folder, _sha256=digests | {name: sha256(folder / name) for name in names})


def rewrite(path: Path, change: Callable[[dict], None]) -> None:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=metadata)


def test_what_was_pushed_passes_as_folder_and_as_repository(hub: Hub, tmp_path: Path):
    ckpt = write_run(tiny(), tmp_path)
    published = publish(DegBins, ckpt, REPO, license="mit")
    for source in (REPO, f"{REPO}@{published.tag}", f"hf://{REPO}"):
        sentences = check(source)
        assert "7 files" in sentences[0]  # here the pictures and metrics are fetched as well
        assert "to the last bit" in sentences[2]
        assert "metrics of the run" in sentences[3]


def test_a_pull_passes_without_the_files_that_it_leaves_out(hub: Hub, tmp_path: Path):
    publish(DegBins, write_run(tiny(), tmp_path), REPO, license="mit")
    from zoo.remote import locate

    assert "4 files" in check(locate(REPO))[0]


def test_repository_files_of_others_are_no_reason_to_fail(copy: Path):
    (copy / ".gitattributes").write_text("*.safetensors filter=lfs")
    (copy / "LICENSE").write_text("MIT")
    assert len(check(copy)) == 4


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "reference.safetensors", "metrics.json", "training.yaml"],
)
@pytest.mark.parametrize("where", [0.5, 1])
def test_a_changed_byte(copy: Path, name: str, where: float):
    content = bytearray((copy / name).read_bytes())
    content[int(where * (len(content) - 1))] ^= 1
    (copy / name).write_bytes(content)
    fails(copy, rf"{name} was changed or damaged")


def test_a_changed_picture(copy: Path):
    (copy / "figures/test_depth.png").write_bytes(b"another")
    fails(copy, r"test_depth\.png was changed or damaged")
    rehash(copy, "figures/test_depth.png")
    fails(copy, r"test_depth\.png is no PNG")


def test_a_renamed_key(copy: Path):
    rewrite(copy / "model.safetensors", lambda t: t.update(other=t.pop(next(iter(t)))))
    fails(copy, "foreign key 'other'")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "figures/x.pkl", "optimizer.pt"])
def test_an_added_pickle(copy: Path, name: str):
    (copy / name).write_bytes(b"\x80\x02.")
    fails(copy, rf"holds '{name}': such a file may hold a pickle, which runs code")


@pytest.mark.parametrize("name", ["modeling.py", "figures/deep/x.png", "model.onnx", "setup"])
def test_an_added_file(copy: Path, name: str):
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_bytes(b"x")
    fails(copy, f"holds '{name}', which is no file of a published model")


def test_an_added_picture(copy: Path):
    shutil.copy(copy / "figures/test_depth.png", copy / "figures/better.png")
    fails(copy, r"better\.png was added later")


def test_a_swapped_class(copy: Path):
    edit(copy, _class_name="Toy")
    fails(copy, "Unknown method 'Toy'")
    with pytest.raises(ZooError, match="holds a Toy, not a DegBins"):
        check_folder(copy, expected=DegBins)


def test_a_swapped_class_of_the_same_parameters(tmp_path: Path):
    class Twin(Toy):
        """Another method with Toy's names and shapes."""

    Toy().save_pretrained(tmp_path / "hub", license="mit")
    edit(tmp_path / "hub", _class_name="Twin")
    with pytest.raises(ZooError, match="came from another config"):
        check_folder(tmp_path / "hub", expected=Twin)


def test_a_changed_argument_that_changes_no_shape(copy: Path):
    edit(copy, deg_weight=0.2)
    fails(copy, r"config\.json was changed")


def test_missing_checksums(copy: Path):
    edit(copy, _sha256=None)
    fails(copy, "has no checksums")


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "reference.safetensors", "README.md"]
)
def test_a_missing_file(copy: Path, name: str):
    (copy / name).unlink()
    fails(copy, f"has no {name}")


def test_other_weights_under_a_new_checksum_do_not_give_the_reference_output(copy: Path):
    rewrite(copy / "model.safetensors", lambda t: [v.mul_(1.1) for v in t.values()])
    rehash(copy, "model.safetensors")
    fails(copy, "output differs by")


def test_the_reference_output_may_differ_in_the_last_digits_on_another_machine(copy: Path):
    path = copy / "reference.safetensors"
    rewrite(path, lambda t: t["output.depth"].mul_(1 + 1e-5))
    rehash(copy, path.name)
    assert "to 1.0e-05" in check(copy)[2].replace("9.9e-06", "1.0e-05")
    with pytest.raises(ZooError, match="output differs"):
        check_folder(copy, exact=True)


def test_a_reference_without_output(copy: Path):
    path = copy / "reference.safetensors"
    rewrite(path, lambda t: [t.pop(k) for k in list(t) if k.startswith("output.")])
    rehash(copy, path.name)
    fails(copy, "has outputs")
    rewrite(path, lambda t: t.update({"input.depth": t.pop("input.lr_depth")}))
    rehash(copy, path.name)
    fails(copy, "its input is none for DegBins")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("license: mit", "license: unknown", "no licence that the hub knows, but 'unknown'"),
        ("license: mit\n", "", "no licence"),
        ("library_name: lightning-zoo", "library_name: timm", "library_name: lightning-zoo"),
        ("value: 0.0345678", "value: 0.01", r"claims other metrics than metrics\.json"),
        ("---\n", "", "does not say"),
        ("license: mit", "license: [", "front matter is invalid"),
        ("model-index:", "model-index: 3\nx:", "front matter is invalid|other metrics"),
    ],
)
def test_a_changed_card(copy: Path, old: str, new: str, match: str):
    path = copy / "README.md"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    fails(copy, match)


def test_prose_of_the_card_may_be_edited(copy: Path):
    path = copy / "README.md"
    path.write_text(path.read_text() + "\nThanks to everybody.\n")
    assert len(check(copy)) == 4


def test_the_reference_is_what_the_model_gives(copy: Path):
    stored = load_file(copy / "reference.safetensors")
    model = tiny()
    for name, value in flatten(reference_output(model, model.example_inputs())):
        assert stored[f"output.{name}"].equal(value)
