"""Byte text, token shards, digits and CIFAR-10: what is read, how it is split, what is refused."""

import json
import pickle

import numpy as np
import pytest
import torch
from lightning import seed_everything

from zoo.datamodules import (
    ByteTextDataModule,
    CifarDataModule,
    DigitsDataModule,
    TokenShardsDataModule,
)
from zoo.datamodules.byte_text import standard_library
from zoo.errors import ZooError


def built(data, stage="fit"):
    data.setup(stage)
    return data.datasets


def samples(dataset):
    return [dataset[index] for index in range(len(dataset))]


# -- bytes --------------------------------------------------------------------------------------


def test_standard_library_is_ascii_and_of_a_useful_size():
    ids = standard_library()
    assert len(ids) > 2_000_000
    assert ids.max() < 128
    assert b"def " in ids[:100_000].tobytes()


def test_splits_do_not_share_a_byte(tmp_path):
    text = bytes(i % 97 + 10 for i in range(4000))
    (tmp_path / "b.txt").write_bytes(text[2000:])
    (tmp_path / "a.txt").write_bytes(text[:2000])
    (tmp_path / "c.bin").write_bytes(b"no text")
    data = ByteTextDataModule(str(tmp_path), context=15, samples_per_epoch=500)
    sets = built(data) | built(data, "test")
    parts = [bytes(sets[split].ids) for split in ("train", "val", "test")]
    assert [len(part) for part in parts] == [3600, 200, 200]
    assert b"".join(parts) == text  # in the order of the names
    windows = {bytes(sample["ids"].tolist()) for sample in samples(sets["train"])}
    assert len(windows) > 90
    assert all(window in parts[0] for window in windows)


def test_windows_for_evaluation_do_not_overlap(tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(range(128)) * 40)
    data = ByteTextDataModule(str(tmp_path), context=9, eval_windows=7)
    windows = built(data)["val"]
    assert len(windows) == 7
    assert windows.step >= 10
    assert [int(w["ids"][0]) for w in samples(windows)] == [
        int(windows.ids[i * windows.step]) for i in range(7)
    ]


def test_other_bytes_count_as_the_last(tmp_path):
    (tmp_path / "a.txt").write_text("caf\u00e9" * 100)
    train = built(ByteTextDataModule(str(tmp_path), context=4))["train"]
    assert set(train.ids.tolist()) == {*b"caf", 127}


def test_windows_follow_the_seed():
    def first(seed):
        seed_everything(seed)
        return built(ByteTextDataModule(context=8))["train"][0]["ids"]

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


# -- shards -------------------------------------------------------------------------------------


def shards(folder, splits=("train_0", "train_1", "val_0"), size=300, meta=True, top=50):
    rng = np.random.default_rng(0)
    for name in splits:
        rng.integers(0, top, size).astype("<u2").tofile(folder / f"{name}.bin")
    if meta:
        (folder / "meta.json").write_text(json.dumps({"vocab_size": top, "eos_id": 0}))
    return {"root": str(folder), "vocab_size": 50, "context": 16, "samples_per_epoch": 64}


def test_shards_are_mapped_and_all_are_drawn_from(tmp_path):
    data = TokenShardsDataModule(**shards(tmp_path))
    sets = built(data) | built(data, "test")
    whole = [np.fromfile(tmp_path / f"train_{i}.bin", "<u2").tobytes() for i in (0, 1)]
    hits = [0, 0]
    for sample in samples(sets["train"]):
        ids = sample["ids"]
        assert ids.dtype == torch.int64
        assert ids.shape == (17,)
        inside = [ids.numpy().astype("<u2").tobytes() in shard for shard in whole]
        assert any(inside)
        hits[inside.index(True)] += 1
    assert min(hits) > 20
    assert len(sets["val"]) == 300 // 17
    assert torch.equal(sets["test"][0]["ids"], sets["val"][0]["ids"])


def wrong(folder, change):
    options = shards(folder)
    change(folder, options)
    return options


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (lambda f, o: o.update(root=str(f / "no")), "is no folder: expected train"),
        (lambda f, o: [p.unlink() for p in f.glob("*.bin")], r"has no train_\*\.bin"),
        (lambda f, o: (f / "val_0.bin").unlink(), r"has no val_\*\.bin"),
        (lambda f, o: (f / "meta.json").unlink(), r"meta\.json is missing"),
        (lambda f, o: (f / "meta.json").write_text("{}"), "vocab_size and eos_id"),
        (lambda f, o: (f / "train_1.bin").write_bytes(b"abc"), r"train_1\.bin has 3 bytes"),
        (lambda f, o: o.update(context=400), "300 tokens, but a window"),
        (lambda f, o: o.update(vocab_size=49), "more than the 49"),
        (
            lambda f, o: np.array([1] * 40 + [77] + [1] * 9, "<u2").tofile(f / "train_1.bin"),
            r"train_1\.bin has the token 77 at offset 40",
        ),
    ],
)
def test_wrong_shards_are_one_sentence(tmp_path, change, pattern):
    with pytest.raises(ZooError, match=pattern):
        built(TokenShardsDataModule(**wrong(tmp_path, change)))


@pytest.fixture
def tokenizer(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "<|endoftext|>": 1, "red": 2, "green": 3, "blue": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


def test_parquet_is_tokenised_once_with_a_validation_share(tmp_path, tokenizer):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    root = tmp_path / "corpus"
    root.mkdir()
    texts = ["red green blue"] * 399 + ["blue blue blue"]
    parquet.write_table(pyarrow.table({"text": texts, "id": list(range(400))}), root / "a.parquet")
    options = {"root": str(root), "vocab_size": 5, "context": 3, "eval_windows": 4}
    data = TokenShardsDataModule(**options, tokenizer_path=tokenizer)
    data.prepare_data()
    sets = built(data)
    val = np.fromfile(root / "tokens/val_a.bin", "<u2")
    assert val.tolist() == [2, 3, 4, 1, 4, 4, 4, 1]  # documents 200 and 400
    assert len(np.fromfile(root / "tokens/train_a.bin", "<u2")) == 398 * 4
    assert json.loads((root / "tokens/meta.json").read_text()) == {"vocab_size": 5, "eos_id": 1}
    assert len(sets["val"]) == 2
    before = (root / "tokens/train_a.bin").stat().st_mtime_ns
    data.prepare_data()
    assert (root / "tokens/train_a.bin").stat().st_mtime_ns == before
    assert built(TokenShardsDataModule(**options))["train"][0]["ids"].shape == (4,)


@pytest.mark.parametrize(
    ("table", "pattern"),
    [({"body": ["a"]}, "no column 'text', only body"), (None, "no parquet file")],
)
def test_wrong_parquet_is_one_sentence(tmp_path, tokenizer, table, pattern):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    root = tmp_path / "corpus"
    root.mkdir()
    if table is None:
        (root / "a.parquet").write_bytes(b"nothing")
    else:
        parquet.write_table(pyarrow.table(table), root / "a.parquet")
    with pytest.raises(ZooError, match="tokenizer_path=None"):
        built(TokenShardsDataModule(str(root)))
    with pytest.raises(ZooError, match=pattern):
        built(TokenShardsDataModule(str(root), tokenizer_path=tokenizer))
    assert not list(root.glob("tokens/*.bin"))  # whole or not at all


# -- images -------------------------------------------------------------------------------------


def test_digits_are_split_by_the_seed_without_overlap():
    data = DigitsDataModule()
    sets = built(data) | built(data, "test")
    assert [len(sets[split]) for split in ("train", "val", "test")] == [1297, 250, 250]
    sample = sets["train"][0]
    assert sample["image"].shape == (1, 8, 8)
    assert sample["image"].max() == 1
    counts = sum(np.bincount(sets[split].labels, minlength=10) for split in sets)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as UCI counts
    other = built(DigitsDataModule(seed=1))
    assert not np.array_equal(other["train"].labels, sets["train"].labels)
    with pytest.raises(ZooError, match="no root"):
        DigitsDataModule(root="/data")


def cifar(folder, rows=20):
    batches = folder / "cifar-10-batches-py"
    batches.mkdir()
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        batch = {
            b"data": rng.integers(0, 256, (rows, 3072), dtype=np.uint8),
            b"labels": rng.integers(0, 10, rows).tolist(),
            b"batch_label": name.encode(),
        }
        (batches / name).write_bytes(pickle.dumps(batch, protocol=2))
    return batches


def test_cifar_is_read_as_published(tmp_path):
    batches = cifar(tmp_path)
    data = CifarDataModule(str(tmp_path))
    sets = built(data) | built(data, "test")
    assert [len(sets[split]) for split in ("train", "val", "test")] == [90, 10, 20]
    raw = pickle.loads((batches / "test_batch").read_bytes(), encoding="bytes")
    sample = sets["test"][3]
    expected = torch.tensor(raw[b"data"][3].reshape(3, 32, 32)).float() / 255
    assert torch.equal(sample["image"], expected)
    assert sample["label"] == raw[b"labels"][3]
    images = [sets["train"][0]["image"] for _ in range(6)]
    assert any(not torch.equal(images[0], image) for image in images[1:])  # cropped, mirrored
    assert torch.equal(sets["val"][0]["image"], sets["val"][0]["image"])


class Harm:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (None, "data_batch_3 is missing"),
        (b"nothing", "no batch of CIFAR-10"),
        (pickle.dumps(Harm()), "names builtins.print"),
        (pickle.dumps({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}), r"shape \(2, 5\)"),
        (
            pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 12]}),
            "label 12 at row 1",
        ),
    ],
)
def test_wrong_cifar_files_are_one_sentence(tmp_path, content, pattern):
    path = cifar(tmp_path) / "data_batch_3"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ZooError, match=pattern):
        built(CifarDataModule(str(tmp_path)))
