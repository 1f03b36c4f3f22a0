"""Protocols, the four index formats, what a test sample holds, and bad input."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.datamodules.mmdg import write_tree
from zoo.datamodules import MultimodalFASDataModule
from zoo.datamodules.multimodal_fas.datamodule import BalancedSampler
from zoo.errors import ZooError
from zoo.face_files import CORRUPTIONS, MODALITIES, read_face

SMALL = {"size": 16, "per_domain": [8, 6, 10], "batch_size": 4}
KEYS = {"rgb": "color", "depth": "depth", "ir": "nir"}


def ready(stage="fit", **options):
    data = MultimodalFASDataModule(**{**SMALL, **options})
    data.setup(stage)
    return data


@pytest.mark.parametrize(
    ("protocol", "target", "sources", "conditions"),
    [
        ("complete", "W", "CPS", 1),
        ("missing", "S", "CPW", 4),
        ("limited_source", "PS", "CW", 1),
        ("limited_source", "CW", "PS", 1),
    ],
)
def test_protocols(protocol, target, sources, conditions):
    data = ready(protocol=protocol, target=target)
    data.setup("test")
    assert data.sources == sources
    for split, letters in (("train", sources), ("val", sources), ("test", target)):
        names = {data.datasets[split][i]["name"][0] for i in range(len(data.datasets[split]))}
        assert names == set(letters)
    sample = data.datasets["test"][0]
    assert sample["conditions"].shape == (conditions, 3)
    assert sample["conditions"][0].all()
    assert data.describe()["target"] == target


def test_faces_of_the_splits_are_different():
    data = ready(target="W")
    train = torch.stack([data.datasets["train"].source[i]["rgb"] for i in range(24)])
    val = torch.stack([data.datasets["val"][i]["rgb"] for i in range(18)])
    assert (train[:, None] - val[None]).abs().amax(dim=(2, 3, 4)).min() > 0


def test_flips_take_all_sensors_along():
    dataset = ready().datasets["train"]
    plain = dataset.source[0]
    torch.manual_seed(0)
    found = [dataset[0] for _ in range(16)]
    flipped = [not torch.equal(sample["rgb"], plain["rgb"]) for sample in found]
    assert 0 < sum(flipped) < 16
    for sample, turned in zip(found, flipped, strict=True):
        for m in MODALITIES:
            assert torch.equal(sample[m].flip(-1) if turned else sample[m], plain[m])


def test_corruptions_are_what_they_say():
    dataset = ready("test").datasets["test"]
    sample, other = dataset[9], dataset[0]  # the last one borrows from the first
    bad = {
        name: {m: sample["corrupted"][m][i] for m in MODALITIES}
        for i, name in enumerate(CORRUPTIONS)
    }
    assert torch.equal(bad["inverted_depth"]["depth"], 1 - sample["depth"])
    assert torch.equal(bad["inverted_depth"]["ir"], sample["ir"])
    assert torch.equal(bad["inverted_ir"]["ir"], 1 - sample["ir"])
    assert torch.equal(bad["swapped"]["depth"], other["depth"])
    assert torch.equal(bad["swapped"]["rgb"], sample["rgb"])
    for m in MODALITIES:
        assert torch.equal(bad["frozen"][m][:, :8], sample[m][:, :8])
        assert torch.equal(bad["frozen"][m][:, 8:], other[m][:, 8:])
        assert torch.equal(bad["gain"][m], (3 * sample[m]).clamp(max=1))


@pytest.mark.parametrize("live_label", [0, 1])
def test_all_four_index_formats(tmp_path, live_label):
    root = write_tree(tmp_path / "mmdg")
    data = ready(root=str(root), p_keys=KEYS, target="W", live_label=live_label)
    data.setup("test")
    train = data.datasets["train"]
    assert len(train) == 12
    for index in range(12):
        sample = train[index]
        assert sample["rgb"].shape == (3, 16, 16)
        assert sample["depth"].shape == sample["ir"].shape == (1, 16, 16)
        for m in ("depth", "ir"):
            assert sample[m].min() == 0
            assert sample[m].max() == 1
        assert sample["label"] == int(index % 2 == live_label)
        assert "CPSW"[int(sample["domain"])] == sample["name"][0]
        assert sample["kind"] == (0 if sample["label"] else 5)
    assert data.datasets["test"][0]["name"] == "W-test-00001"
    batch = next(iter(data.train_dataloader()))
    assert batch["rgb"].shape == (4, 3, 16, 16)


def test_balanced_sampling_is_even_and_shared_by_the_ranks():
    groups = torch.tensor([0] * 90 + [1] * 9 + [2] * 1)
    data = list(range(100))
    shares = [BalancedSampler(data, groups, 2, rank, seed=3) for rank in range(2)]
    drawn = [list(sampler) for sampler in shares]
    assert [len(d) for d in drawn] == [50, 50]
    assert drawn == [list(sampler) for sampler in shares]
    many = BalancedSampler(list(range(3000)), torch.tensor([0] * 2900 + [1] * 100), 1, 0, seed=0)
    share = (torch.tensor(list(many)) >= 2900).float().mean()
    assert share == pytest.approx(0.5, abs=0.03)
    many.set_epoch(1)
    assert list(many)[:20] != list(BalancedSampler(many.dataset, torch.zeros(3000), 1, 0, 0))[:20]


def test_balanced_training_uses_it():
    data = ready(balanced=True)
    assert isinstance(data.train_dataloader().sampler, BalancedSampler)
    assert not isinstance(ready().train_dataloader().sampler, BalancedSampler)


def test_inputs_are_grouped_by_name_and_by_folder(tmp_path):
    for name in ("a_rgb.png", "a_ir.png", "b/color/1.png", "b/depth/1.png", "b/ir/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (10, 20, 30)).save(tmp_path / name)
    data = ready("predict", inputs=[str(tmp_path / "*.png"), str(tmp_path / "b/*/*.png")])
    found = {sample["name"]: sample["mask"].tolist() for sample in data.datasets["predict"]}
    assert found == {"a": [True, False, True], "1": [True, True, True]}


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_bit_depth_does_not_matter(kind):
    ramp = np.linspace(0, 1, 64).reshape(8, 8)
    pixels = np.round(ramp * np.iinfo(kind).max).astype(kind)
    found = read_face(pixels, "depth", 8)
    torch.testing.assert_close(found[0].double(), torch.from_numpy(ramp), atol=3e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"protocol": "mising"}, "protocol='mising' is unknown.*Did you mean 'missing'"),
        ({"target": "X"}, "target='X': expected different letters of CPSW"),
        ({"target": "CPSW"}, "sources=''"),
        ({"protocol": "limited_source", "target": "W"}, "tests on 'PS' or 'CW', not on 'W'"),
        ({"size": 8}, "size=8 must be at least 16"),
        ({"live_label": 2}, "live_label=2 must be 0 or 1"),
        ({"p_keys": {"rgb": "a"}}, "p_keys names rgb: expected rgb, depth, ir"),
        ({"per_domain": [3, 1, 3]}, "three numbers of at least 2"),
    ],
)
def test_options_that_do_not_go(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        MultimodalFASDataModule(**{**SMALL, **options})


def broken(root, change):
    """What the training lists of a good tree raise after a change."""
    write_tree(root)
    change(root)
    with pytest.raises(ZooError) as error:
        ready(root=str(root), p_keys=KEYS, target="W")
    return str(error.value)


def test_missing_files_are_counted_and_the_first_five_listed(tmp_path):
    def change(root):
        for path in sorted(root.glob("CASIA-SURF-CROP/**/*.jpg")):
            if "train" in str(path):
                path.unlink()

    text = broken(tmp_path / "a", change)
    assert "S-train.txt names 12 files that do not exist" in text
    assert text.count(".jpg") == 5


def test_validation_with_one_class_has_no_equal_error_rate(tmp_path):
    def change(root):
        for domain in "CPS":
            path = root / f"MMDG-Benchmark/{domain}-val.txt"
            path.write_text("\n".join(path.read_text().splitlines()[1::2]))

    text = broken(tmp_path / "a", change)
    assert "holds live faces only: an equal error rate needs both classes" in text


def test_a_capture_in_training_and_validation_is_refused(tmp_path):
    def change(root):
        lists = root / "MMDG-Benchmark"
        (lists / "C-val.txt").write_text((lists / "C-train.txt").read_text())

    assert "the splits must not share captures" in broken(tmp_path / "a", change)


def test_an_npz_without_an_array_names_those_there_are(tmp_path):
    root = write_tree(tmp_path / "a")
    with pytest.raises(ZooError, match=r"has no array 'rgb' for rgb: it holds color, depth, nir"):
        ready(root=str(root), target="W", sources="P")


def test_an_empty_list_and_a_wrong_field_of_p(tmp_path):
    root = write_tree(tmp_path / "a", {("C", "train"): "\n"})
    with pytest.raises(ZooError, match=r"C-train\.txt has no line"):
        ready(root=str(root), target="W")
    root = write_tree(tmp_path / "b", {("P", "train"): "x.npz 1\n"})
    with pytest.raises(ZooError, match=r"P-train.txt, line 1: expected '<name>.npz<TAB><label>'"):
        ready(root=str(root), target="W")


def test_a_pickled_npz_is_refused(tmp_path):
    root = write_tree(tmp_path / "a")
    for path in (root / "PADISI").glob("train_*.npz"):
        np.savez(path, color=np.array([{}], dtype=object), depth=np.ones(3), nir=np.ones(3))
    with pytest.raises(ZooError, match=r"is no \.npz file of plain arrays"):
        ready(root=str(root), target="W", sources="P", p_keys=KEYS)
