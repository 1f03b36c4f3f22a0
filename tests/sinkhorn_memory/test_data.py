"""Libraries of measures: splits, damage, real layouts and their errors; and the baselines."""

import numpy as np
import pytest
import torch

from tests.sinkhorn_memory.case import write_folder
from zoo import ZooError
from zoo.datamodules import (
    DigitMeasuresDataModule,
    ModelNetCloudsDataModule,
    PointCloudPairsDataModule,
)
from zoo.datamodules.measures.clouds import Damage
from zoo.datamodules.measures.modelnet import farthest_points
from zoo.measures import Measure, pad_samples
from zoo.sinkhorn_memory import euclidean_hopfield, moments_hopfield
from zoo.sinkhorn_memory.baselines import moments
from zoo.sinkhorn_memory.evaluation import exact_w2


def ready(data):
    data.setup("fit")
    data.setup("test")
    return data


def test_seeds_fix_everything_and_splits_differ():
    one, two = (ready(PointCloudPairsDataModule(patterns=5, seed=3)) for _ in range(2))
    other = ready(PointCloudPairsDataModule(patterns=5, seed=4))
    for split in ("train", "val", "test"):
        a, b = one.datasets[split][2]["points"], two.datasets[split][2]["points"]
        assert torch.equal(a, b)
        assert not torch.equal(a, other.datasets[split][2]["points"])
    val, test = one.datasets["val"][2], one.datasets["test"][2]
    assert not torch.equal(val["points"], test["points"])
    assert torch.equal(val["target_points"], one.datasets["train"][2]["points"])
    assert len(val["points"]) == 12  # a quarter of 16 is lost


def test_no_cloud_is_left_out_of_training():
    data = ready(PointCloudPairsDataModule(patterns=7, batch_size=3))
    batches = list(data.train_dataloader())
    assert sorted(i for batch in batches for i in batch["index"]) == list(range(7))


def test_damage_drops_shifts_and_keeps_labels():
    rng = np.random.default_rng(0)
    cloud = Measure.checked(rng.normal(size=(40, 2)), None, "x", "x")
    plain = Damage(0.0, 0.0, 0.25, reweigh=False)(cloud, rng)
    assert len(plain.points) == 30
    distances = np.abs(plain.points[:, None] - cloud.points[None]).sum(-1)
    assert (distances.min(axis=1) == 0).all()
    assert plain.label == "x"
    shifted = Damage(0.0, 2.0, 0.0, reweigh=True)(cloud, rng)
    move = shifted.points.mean(axis=0) - cloud.points.mean(axis=0)
    assert np.abs(move).max() > 0.5
    assert shifted.weights.std() > 0.1 / 40


def test_digits_are_ink_at_pixels():
    data = ready(DigitMeasuresDataModule(patterns=6))
    sample = data.datasets["train"][0]
    assert sample["points"].min() >= 0
    assert sample["points"].max() <= 1
    assert float(sample["weights"].sum()) == pytest.approx(1, abs=1e-6)
    assert 15 < len(sample["points"]) < 64
    assert sample["label"].endswith(")")
    hidden = [len(data.datasets["test"][k]["points"]) for k in range(6)]
    whole = [len(data.datasets["train"][k]["points"]) for k in range(6)]
    assert all(h < w for h, w in zip(hidden, whole, strict=True))
    for bad, pattern in (({"root": "x"}, "no root"), ({"patterns": 0}, "1 to 1797")):
        with pytest.raises(ZooError, match=pattern):
            DigitMeasuresDataModule(**bad)


def test_a_folder_of_ones_own(tmp_path):
    data = ready(PointCloudPairsDataModule(root=str(write_folder(tmp_path / "own"))))
    assert [len(data.datasets[s]) for s in ("train", "val", "test")] == [3, 1, 3]
    assert data.datasets["test"][0]["label"] == "c1"
    assert len(data.datasets["test"][0]["target_points"]) == 7
    batch = next(iter(data.test_dataloader()))
    assert batch["points"].shape == (3, 5, 3)


def write_modelnet(root, n=7, points=20, **arrays):
    h5py = pytest.importorskip("h5py")
    root.mkdir(parents=True, exist_ok=True)
    (root / "shape_names.txt").write_text("airplane\nchair\n")
    rng = np.random.default_rng(0)
    for k, part in enumerate(("train0", "train1", "test0")):
        with h5py.File(root / f"ply_data_{part}.h5", "w") as file:
            given = {
                "data": rng.normal(size=(n, points, 3)).astype(np.float32),
                "label": np.full((n, 1), k % 2, dtype=np.uint8),
            }
            for key, value in {**given, **arrays}.items():
                if value is not None:
                    file[key] = value
    return root


def test_modelnet_as_it_is_published(tmp_path):
    root = write_modelnet(tmp_path / "modelnet40_ply_hdf5_2048")
    data = ready(ModelNetCloudsDataModule(str(root), points=8, batch_size=4))
    assert len(data.datasets["train"]) == 14
    sample = data.datasets["train"][13]
    assert sample["points"].shape == (8, 3)
    assert sample["points"].norm(dim=1).max() <= 1 + 1e-5
    assert sample["label"] == "13 (chair)"
    assert len(data.datasets["test"][0]["points"]) == 6
    few = ready(ModelNetCloudsDataModule(str(root), part="test", patterns=3, points=8))
    assert len(few.datasets["train"]) == 3


@pytest.mark.parametrize(
    ("arrays", "pattern"),
    [
        ({"data": None}, "no array 'data'"),
        ({"data": np.zeros((7, 20, 2), np.float32)}, r"\(7, 20, 2\)"),
        ({"label": np.full((7, 1), 9, np.uint8)}, "label 9"),
    ],
)
def test_broken_modelnet_is_one_sentence(tmp_path, arrays, pattern):
    root = write_modelnet(tmp_path / "broken", **arrays)
    with pytest.raises(ZooError, match=pattern):
        ModelNetCloudsDataModule(str(root)).setup("fit")


def test_modelnet_needs_a_root(tmp_path):
    with pytest.raises(ZooError, match=r"needs --data\.root"):
        ModelNetCloudsDataModule().setup("fit")
    with pytest.raises(ZooError, match="not the HDF5 release"):
        ModelNetCloudsDataModule(str(tmp_path)).setup("fit")


def test_farthest_points_of_a_line():
    line = np.stack([np.arange(11.0), np.zeros(11)], axis=1)
    assert farthest_points(line, 3).tolist() == [0, 10, 5]


# -- baselines ----------------------------------------------------------------------------------


def padded(*clouds):
    batch = pad_samples([Measure.checked(c, None, "x", "x").sample() for c in clouds])
    return batch["points"], batch["weights"]


def test_euclidean_hopfield_returns_a_pattern_but_minds_the_order():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 2)), rng.normal(size=(6, 2)) + 3
    y, w = padded(a, b)
    points, weights, prob = euclidean_hopfield(y + 0.01, w, y, w, 50.0)
    torch.testing.assert_close(points, y, atol=1e-4, rtol=0)
    torch.testing.assert_close(weights, w)
    assert prob.argmax(-1).tolist() == [0, 1]
    mixed, _, _ = euclidean_hopfield(y.flip(1), w, y, w, 50.0)
    assert mixed.shape == y.shape
    x, v = padded(a[:4])
    points, _, _ = euclidean_hopfield(x, v, y, w, 50.0)
    assert points.shape == (1, 6, 2)


def test_moments_hopfield_knows_no_order_and_takes_mean_and_covariance():
    rng = np.random.default_rng(0)
    y, w = padded(rng.normal(size=(6, 2)), rng.normal(size=(6, 2)) @ np.diag([3, 0.5]) + 3)
    x, a = y.flip(1) + 0.2, w.flip(1)
    points, weights, prob = moments_hopfield(x, a, y, w, 50.0)
    assert prob.argmax(-1).tolist() == [0, 1]
    for found, expected in zip(moments(points, weights), moments(y, w), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-2, rtol=1e-2)


def test_exact_w2_of_two_diracs_and_of_padding():
    x, a = padded(np.zeros((1, 2)), np.zeros((2, 2)))
    y, b = padded(np.array([[3.0, 4.0]]), np.array([[3.0, 4.0], [0.0, 0.0]]))
    found = exact_w2(x, a, y, b)
    assert found.tolist() == pytest.approx([5.0, 12.5**0.5], rel=1e-5)
