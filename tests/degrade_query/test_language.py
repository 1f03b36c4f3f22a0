"""Frozen language models: random weights, kept features, sequences, the real-scale config."""

import json

import pytest
import torch

from tests.degrade_query.case import CASE, SMILES, TARGETS
from zoo import DegradeQuery
from zoo.cli.main import main
from zoo.errors import ZooError
from zoo.language_features import LanguageModel, embed, read_fasta

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ESM = LanguageModel(
    "facebook/esm2_t33_650M_UR50D",
    16,
    sizes={
        "model_type": "esm",
        "vocab_size": 33,
        "intermediate_size": 8,
        "pad_token_id": 1,
        "mask_token_id": 32,
        **TINY,
    },
)
ROBERTA = LanguageModel(
    "seyonec/ChemBERTa-zinc-base-v1", 16, sizes={"vocab_size": 64, "intermediate_size": 8, **TINY}
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/language"


@pytest.mark.parametrize("model", [ESM, ROBERTA], ids=["esm", "roberta"])
def test_features_are_the_same_in_any_batch_and_kept(model, cache, monkeypatch):
    texts = ["MKV", "MKVLAAGIV", "GG"]
    found = embed(texts, model)
    assert found.shape == (3, 16)
    alone = torch.cat([embed([text], model) for text in texts])
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-4)
    assert len(list(cache.iterdir())) == 4
    import zoo.language_features

    monkeypatch.setattr(zoo.language_features, "_compute", None)
    assert torch.equal(embed(texts, model), found)
    with pytest.raises(ZooError, match="16 numbers wide, not 8"):
        embed(texts, LanguageModel(model.name, 8, sizes=model.sizes))


def test_a_model_that_cannot_be_loaded(tmp_path):
    with pytest.raises(ZooError, match="nowhere cannot be loaded"):
        embed(["MKV"], LanguageModel(str(tmp_path / "nowhere"), 16))


def test_fasta(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(">sp|O60885|BRD4_HUMAN x\nMKV\nLA\n\n>P40337\nMPR\n")
    assert read_fasta(path) == {"O60885": "MKVLA", "P40337": "MPR"}
    for text, pattern in (
        ("MKV\n", "line 1: no header"),
        (">a\nMK1\n", "line 2: '1'"),
        ("", "no seq"),
    ):
        path.write_text(text)
        with pytest.raises(ZooError, match=pattern):
            read_fasta(path)


def test_an_unknown_target_by_its_sequence():
    torch.manual_seed(0)
    sizes = {**CASE.model, "protein_dim": 16}
    model = DegradeQuery(**sizes, protein_model=ESM).eval()
    p = model.predict("CCO", "Q9ZZZ9", "VHL", sequence="MKVLA")
    assert p != model.predict("CCO", "Q9ZZZ9", "VHL", sequence="GGGGW")
    with pytest.raises(ZooError, match="trained with a protein_model"):
        DegradeQuery(**CASE.model).predict("CCO", "Q9ZZZ9", "VHL", sequence="MKVLA")
    with pytest.raises(ZooError, match="makes 16 features, but protein_dim is 64"):
        DegradeQuery(**CASE.model, protein_model=ESM)


def test_the_real_scale_config_runs_with_random_weights(tmp_path, monkeypatch):
    """Both language models, the layout of PROTAC-8K, and its full width d = 256."""
    monkeypatch.chdir(tmp_path)
    entries = {}
    for i, smiles in enumerate(f"{s}{'C' * n}" for n in range(8) for s in SMILES[2:]):
        for j, target in enumerate(TARGETS):
            for k, e3 in enumerate(("CRBN_Q96SW2", "VHL_P40337")):
                entries[f"c{len(entries)}"] = {
                    "tar_path": f"target_pocket/{target}.pdb",
                    "e3_ligase_path": f"ligase_pocket/{e3}.pdb",
                    "smiles": smiles,
                    "label": (i + j + k) % 3 - 1,
                }
    (tmp_path / "PROTAC.json").write_text(json.dumps(entries))
    names = (*TARGETS, "Q96SW2", "P40337")
    fasta = "".join(f">{name}\n{'MKVLAAGIVGLC'[i:]}\n" for i, name in enumerate(names))
    (tmp_path / "proteins.fasta").write_text(fasta)
    sized = {}
    for part, one in (("protein_model", ESM), ("smiles_model", ROBERTA)):
        sized[part] = json.dumps({"name": one.name, "width": 16, "sizes": one.sizes})
    options = [
        f"--{group}.{part}={text}" for part, text in sized.items() for group in ("model", "data")
    ]
    main(
        [
            "fit",
            "--config",
            "zoo/degrade_query/full.yaml",
            "--data.root",
            str(tmp_path),
            "--data.sequences",
            str(tmp_path / "proteins.fasta"),
            "--data.val_labels=20",
            "--model.protein_dim=16",
            "--data.protein_dim=16",
            *options,
            "--trainer.fast_dev_run=true",
            "--trainer.enable_progress_bar=false",
            "--trainer.enable_model_summary=false",
            "--trainer.accelerator=cpu",
        ]
    )


def test_data_and_model_must_name_the_same_model():
    from lightning import Trainer

    from zoo.datamodules import ProtacTuplesDataModule

    module = ProtacTuplesDataModule(**CASE.data, smiles_model=ROBERTA)
    trainer = Trainer(
        fast_dev_run=1, logger=False, enable_progress_bar=False, enable_model_summary=False
    )
    with pytest.raises(ZooError, match="16 numbers wide, but the model expects None"):
        trainer.fit(DegradeQuery(**CASE.model), module)
    with pytest.raises(ZooError, match="go together"):
        ProtacTuplesDataModule(**CASE.data, protein_model=ESM)
