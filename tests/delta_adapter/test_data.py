"""Edit pairs: exact truth, splits that do not leak, and the layouts of published data sets."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.datamodules import EditPairsDataModule
from zoo.datamodules.edit_pairs import photos, shapes
from zoo.datamodules.edit_pairs.datamodule import ATTRIBUTES, Transfers
from zoo.datamodules.edit_pairs.layouts import open_layout
from zoo.errors import ZooError
from zoo.reproducible import generator

PARTS = {"shapes_world": shapes, "photo_edits": photos}


def scenes(names, count=40):
    """Scenes that all get the named edits."""
    numbers = [shapes.TASKS.index(name) for name in names]
    edits = torch.tensor([[*numbers, -1][:2]] * count)
    return shapes.ShapesWorld(edits, generator(0))


def data(part="shapes_world", **changes):
    options = {"dataset": part, "pairs": 56, "items": 6, "batch_size": 4, "eval_batch_size": 3}
    return EditPairsDataModule(**{**options, **changes})


# -- shapes_world -------------------------------------------------------------------------------


def test_every_edit_shows_and_changes_its_own_attribute_only():
    names = list(shapes.ATTRIBUTES)
    for edit in shapes.EDITS:
        world, where = scenes([edit.name]), torch.arange(40)
        (before, old), (after, new) = world.before(where), world.after(where)
        assert ((before - after).abs().amax(dim=(1, 2, 3)) > 0.04).all(), edit.name
        changed = {
            name for name, moved in zip(names, (old != new).any(dim=0), strict=True) if moved
        }
        expected = {"removed": {"kind", "colour", "hat", "texture"}}.get(edit.field, {edit.field})
        assert changed == expected, edit.name


def test_local_edits_leave_the_rest_alone():
    world, where = scenes(["recolour_red"]), torch.arange(40)
    before, after = world.before(where)[0], world.after(where)[0]
    plain = (world.scenes["blur"] == 0).nonzero()[:, 0]
    moved = ((before - after).abs().amax(dim=1) > 1e-6)[plain]
    assert 0.02 < float(moved.float().mean()) < 0.3
    corner = moved[:, :4, :4]
    assert not corner.any()


def test_two_edits_are_both_there_and_the_vocabulary_has_no_contradiction():
    world, where = scenes(["recolour_red", "border"]), torch.arange(40)
    attributes = world.after(where)[1]
    names = list(shapes.ATTRIBUTES)
    assert (attributes[:, names.index("colour")] == 0).all()
    assert (attributes[:, names.index("border")] == 1).all()
    for first, second in shapes.combinations():
        fields = {shapes.EDITS[first].field, shapes.EDITS[second].field}
        assert len(fields) == 2
        assert not ("removed" in fields and fields & {"kind", "colour", "hat"})
        assert not {shapes.TASKS[first], shapes.TASKS[second]} & set(shapes.HELD_OUT)


# -- photo_edits --------------------------------------------------------------------------------


def test_photo_edits_are_what_their_names_say():
    x = torch.rand(3, 3, 32, 32)
    edits = {name: edit(x) for name, edit in photos.EDITS.items()}
    assert all(float(y.min()) >= 0 and float(y.max()) <= 1 for y in edits.values())
    assert torch.equal(edits["hue_turn"][:, 1], x[:, 0])
    assert torch.equal(edits["mirror"].flip(-1), x)
    assert set(edits["posterise"].unique().tolist()) <= {0.0, 0.5, 1.0}
    assert torch.equal(edits["pixelate"][..., 0], edits["pixelate"][..., 3])
    assert float(edits["edge_sketch"].sub(1).abs()[..., 0, 0].min()) >= 0
    assert torch.equal(photos.edge_sketch(torch.full((1, 3, 8, 8), 0.3)), torch.ones(1, 3, 8, 8))
    assert float(edits["night"].mean()) < 0.5 * float(x.mean())
    assert float(edits["warm"][:, 2].mean()) < float(x[:, 2].mean())
    corner, centre = (
        (edits["vignette"] / x.clamp_min(1e-3))[..., 0, 0],
        edits["vignette"][..., 16, 16],
    )
    assert (corner < 0.2).all()
    assert torch.allclose(centre, x[..., 16, 16])


def test_photographs_of_the_splits_differ_and_are_all_there():
    names = [set(names) for names in photos.PHOTOS.values()]
    assert sum(map(len, names)) == len(set.union(*names))
    stems = [{n.split("_")[0] for n in part} for part in names]
    assert not stems[0] & stems[1] | stems[0] & stems[2] | stems[1] & stems[2]
    for split in photos.PHOTOS:
        world = photos.PhotoEdits(split, torch.full((8, 2), -1), generator(0))
        image, _ = world.before(torch.arange(8))
        assert image.shape == (8, 3, 32, 32)
        assert float(image.min()) >= 0
        assert float(image.max()) <= 1
        assert image.std() > 0.02


# -- both parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS)
def test_held_out_edits_are_in_no_training_pair(part):
    module, embedded = data(part), PARTS[part]
    module.setup("fit")
    tasks = {embedded.TASKS[module.datasets["train"][i]["task"]] for i in range(56)}
    assert tasks == set(embedded.TASKS) - set(embedded.HELD_OUT)
    module.setup("test")
    test = module.datasets["test"]
    groups = {0: set(), 1: set(), 2: set()}
    for sample in (test[i] for i in range(len(test))):
        groups[sample["group"]].add(sample["name"])
    assert groups[0] <= tasks
    assert groups[1] <= set(embedded.HELD_OUT)
    assert all(" + " in name and set(name.split(" + ")) <= tasks for name in groups[2])


@pytest.mark.parametrize("part", PARTS)
def test_samples_are_as_documented_and_repeat(part):
    first, second = data(part, others=True), data(part, others=True)
    for module in (first, second):
        module.setup("fit")
    torch.manual_seed(0)
    sample = first.datasets["train"][9]
    torch.manual_seed(0)
    again = second.datasets["train"][9]
    for key in ("source", "target", "before", "after"):
        assert sample[key].shape == (3, 32, 32)
        assert torch.equal(sample[key], again[key])
    assert not torch.equal(sample["source"], sample["before"])
    assert sample["target_attributes"].shape == (len(ATTRIBUTES),)
    assert (sample["target_attributes"] < torch.tensor(ATTRIBUTES)).all()
    transfer = first.datasets["val"][2]
    assert transfer["group"] == 0
    assert not torch.equal(transfer["before"], transfer["query"])
    assert {"after", "truth", "attributes", "task", "name", "index"} <= set(transfer)


def test_the_other_pair_shows_the_same_edit_on_another_scene():
    module = data(others=True)
    module.setup("fit")
    dataset = module.datasets["train"]
    world = dataset.world
    known = world.before(torch.arange(56))[0]
    for sample in dataset.__getitems__(list(range(20))):
        (where,) = (known == sample["before"]).flatten(1).all(dim=1).nonzero().flatten().tolist()
        assert where != sample["index"]
        assert world.edits[where, 0] == sample["task"]


def test_another_seed_is_another_world_and_no_split_repeats_one():
    one, two = (Transfers("shapes_world", "test", 2, seed) for seed in (0, 1))
    val = Transfers("shapes_world", "val", 2, 0)
    assert not torch.equal(one[0]["query"], two[0]["query"])
    assert not torch.equal(one[0]["query"], val[0]["query"])


# -- published data sets ------------------------------------------------------------------------


def save(path, seed=0, size=(24, 20), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    channels = {"RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    pixels = rng.integers(0, 256, (size[1], size[0], channels), dtype=np.uint8)
    picture = Image.fromarray(pixels[..., :3]) if mode == "CMYK" else Image.fromarray(pixels)
    picture.convert(mode).save(path)
    return path


def encoded(seed, size=(24, 20)):
    file = io.BytesIO()
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def jsonl(root, lines):
    for number, line in enumerate(lines):
        for key in ("source", "target"):
            if not (root / line[key]).exists():
                save(root / line[key], number)
    (root / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def lines(tasks="ab", split="train", count=3):
    return [
        {"source": f"{t}{i}.png", "target": f"{t}{i}_.png", "task": t, "split": split}
        for t in tasks
        for i in range(count)
    ]


def test_pairs_jsonl(tmp_path):
    jsonl(tmp_path, [*lines(), *lines(split="test"), *lines("c", "unseen"), *lines(split="val")])
    module = data("pairs", root=str(tmp_path), size=16, others=True)
    module.setup("fit")
    module.setup("test")
    sample = module.datasets["train"][0]
    assert sample["source"].shape == sample["before"].shape == (3, 16, 16)
    test = module.datasets["test"]
    assert [test[i]["group"] for i in range(len(test))] == [0] * 6 + [1] * 3
    assert {test[i]["name"] for i in range(6, 9)} == {"c"}
    assert not torch.equal(test[0]["before"], test[0]["query"])


def test_split_by_image_and_by_task_where_the_data_do_not_say(tmp_path):
    made = lines("abc", "", 100)
    jsonl(tmp_path, made)
    module = data("pairs", root=str(tmp_path), size=16, unseen_tasks=["c"])
    module.setup("fit")
    module.setup("test")
    train = {p.image for p in module.datasets["train"].pairs}
    assert {p.task for p in module.datasets["train"].pairs} == {"a", "b"}
    tested = {pair.image for _, pair, group in module.datasets["test"].items if group == 0}
    assert tested
    assert not train & tested
    with pytest.raises(ZooError, match="'d', of which there is no pair"):
        data("pairs", root=str(tmp_path), unseen_tasks=["d"]).setup("fit")


@pytest.mark.parametrize(
    ("dataset", "file", "columns"),
    [
        ("magicbrush", "data/train-00000-of-00001.parquet", ("source_img", "target_img", "img_id")),
        ("omniedit", "data/train-00000-of-00001.parquet", ("src_img", "edited_img", "task")),
        ("ultraedit", "train-00000-of-00001.parquet", ("source_image", "edited_image", None)),
    ],
)
def test_parquet_layouts(tmp_path, dataset, file, columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {
        columns[0]: [encoded(i) for i in range(5)],
        columns[1]: [encoded(9 + i) for i in range(5)],
    }
    if columns[2]:
        rows[columns[2]] = [f"name{i // 2}" for i in range(5)]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.table(rows), tmp_path / file, row_group_size=2)
    pairs = open_layout(dataset, tmp_path)
    assert len(pairs) == 5
    source, target = pairs[3].read()
    expected = np.asarray(Image.open(io.BytesIO(rows[columns[0]][3]["bytes"])))
    assert np.array_equal((source * 255).round().astype(np.uint8), expected)
    assert not np.array_equal(source, target)
    if dataset == "omniedit":
        assert pairs[3].task == "name1"
    if dataset == "magicbrush":
        assert (pairs[3].image, pairs[3].split) == ("name1", "train")
    (tmp_path / file).write_bytes(b"PAR1 and no more")
    with pytest.raises(ZooError, match="no readable parquet"):
        open_layout(dataset, tmp_path)


def test_parquet_with_other_columns_says_which(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"image": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ZooError, match="has the columns image: expected 'source_image'"):
        open_layout("ultraedit", tmp_path)


def test_folder_layouts(tmp_path):
    for seed in ("11", "12"):
        for side in (0, 1):
            save(tmp_path / f"ip2p/shard-00/000{seed}/{seed}_{side}.jpg", side)
    pairs = open_layout("instructpix2pix", tmp_path / "ip2p")
    assert [p.task for p in pairs] == ["shard-00/00011", "shard-00/00012"]
    assert pairs[0].read()[0].shape == (20, 24, 3)
    for name in ("1_source", "1_target", "2_source", "2_target"):
        save(tmp_path / f"r/add_hat/{name}.png")
    pairs = open_layout("relation252k", tmp_path / "r")
    assert [p.task for p in pairs] == ["add_hat", "add_hat"]


def test_errors_name_the_file_and_the_line(tmp_path):
    first = lines("a", count=2)
    jsonl(tmp_path, first)
    save(tmp_path / "a0_.png", size=(30, 20))
    with pytest.raises(ZooError, match=r"line 1: source and target are 24x20 and 30x20 pixels"):
        data("pairs", root=str(tmp_path)).setup("fit")
    for name in ("a0.png", "a0_.png"):
        save(tmp_path / name, size=(12, 20))
    with pytest.raises(ZooError, match=r"a0\.png has 12x20 pixels"):
        data("pairs", root=str(tmp_path)).setup("fit")
    save(tmp_path / "a0.jpg", mode="CMYK")
    (tmp_path / "pairs.jsonl").write_text(json.dumps({**first[0], "source": "a0.jpg"}))
    with pytest.raises(ZooError, match="CMYK"):
        data("pairs", root=str(tmp_path)).setup("fit")
    (tmp_path / "pairs.jsonl").write_text("{")
    with pytest.raises(ZooError, match="line 1 is no JSON"):
        data("pairs", root=str(tmp_path)).setup("fit")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ZooError, match="has no pair: expected train-"):
        data("magicbrush", root=str(tmp_path / "empty")).setup("fit")
    (tmp_path / "single").mkdir()
    jsonl(tmp_path / "single", lines("ab", "test", 1))
    with pytest.raises(ZooError, match="No task has two pairs"):
        data("pairs", root=str(tmp_path / "single")).setup("test")
    with pytest.raises(ZooError, match="takes no root"):
        data(root=str(tmp_path))


def test_alpha_and_16_bits_are_converted(tmp_path):
    save(tmp_path / "a0.png", mode="RGBA")
    deep = np.full((20, 24), 32768, np.uint16)
    Image.fromarray(deep).save(tmp_path / "a0_.png")
    jsonl(tmp_path, lines("a", count=1))
    source, target = open_layout("pairs", tmp_path)[0].read()
    assert source.shape == target.shape == (20, 24, 3)
    assert float(target.mean()) == pytest.approx(0.5, abs=1e-3)


def test_missing_pyarrow_names_the_extra(tmp_path, monkeypatch):
    import sys

    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ZooError, match=r"lightning-zoo\[edit\]"):
        open_layout("ultraedit", tmp_path)


def test_photographs_of_training_vary_and_keep_their_edit():
    """The edit is of the varied crop, whichever batch it is in; other splits have no variation."""
    rng = torch.Generator().manual_seed(0)
    fog = photos.TASKS.index("fog")
    edits = torch.tensor([[fog, -1]] * 64)
    train = photos.PhotoEdits("train", edits, rng)
    where = torch.arange(64)
    before, after = train.before(where)[0], train.after(where)[0]
    assert torch.allclose(after, photos.fog(before), atol=1e-6)
    assert torch.equal(train.before(where[5:7])[0], before[5:7])
    assert before.min() >= 0
    assert before.max() <= 1
    train.look = None
    plain = train.before(where)[0]
    changed = (plain - before).abs().mean(dim=(1, 2, 3))
    assert (changed > 0.01).float().mean() > 0.9
    assert photos.PhotoEdits("test", edits, rng).look is None


def test_neutral_variation_changes_nothing():
    image = torch.rand(4, 3, 8, 8)
    same = torch.tensor([0.9, 0.9, 0.5, 0.5, 0.5]).expand(4, 5)
    assert torch.allclose(photos.vary(image, same), image, atol=1e-6)
    turned = photos.vary(image, torch.tensor([0.1, 0.1, 0.5, 0.5, 0.5]).expand(4, 5))
    assert torch.allclose(turned, image.transpose(2, 3).flip(-1), atol=1e-6)
    grey = photos.vary(image, torch.tensor([0.9, 0.9, 0.5, 0.5, -0.75]).expand(4, 5))
    assert torch.allclose(grey[:, 0], grey[:, 2], atol=1e-6)
