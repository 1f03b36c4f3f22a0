"""Stages, masks, invariances, and the calls that a chemist makes."""

import json

import numpy as np
import pytest
import torch
from lightning import Callback, Trainer, seed_everything

from tests.degrade_query.case import CASE, DEGRADER, SMILES
from tests.processes import run_with_one_and_two
from zoo import DegradeQuery
from zoo.datamodules import ProtacTuplesDataModule
from zoo.degrade_query import FingerprintForest
from zoo.errors import ZooError
from zoo.molecules import featurize

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
FEATURES = ("fp", "atoms", "bonds", "ptr")


def build(**changes):
    torch.manual_seed(0)
    return DegradeQuery(**{**CASE.model, **changes})


def data(**changes):
    return ProtacTuplesDataModule(**{**CASE.data, **changes})


def fit(model, module, steps, **options):
    seed_everything(0, verbose=False)
    trainer = Trainer(max_steps=steps, max_epochs=-1, **{**SILENT, **options})
    trainer.fit(model, module)
    return model


@pytest.fixture(scope="module")
def trained():
    """Both stages, on the tiny sample."""
    model = build(pretrain_steps=20, finetune_steps=20, dim=32)
    return fit(model, data(), 40, limit_val_batches=0).eval()


# -- training ------------------------------------------------------------------------------------


def test_labels_never_reach_the_first_stage():
    """Shuffled labels leave it bit-identical; they do change the second one."""

    def run(shuffled, steps):
        module = data()
        table, *_ = module.load()
        if shuffled:
            table.label[:] = table.label[::-1].copy()
            table.potency[:] = 7
            for name in ("labels", "positives"):
                module._loaded[2][name][:] = 1
        model = build(pretrain_steps=6, finetune_steps=6)
        return fit(model, module, steps, limit_val_batches=0).network.state_dict()

    for steps, same in ((6, True), (12, False)):
        a, b = run(False, steps), run(True, steps)
        assert all(torch.equal(a[key], b[key]) for key in a) == same


def test_the_first_stage_sees_no_label_at_all():
    module = data()
    module.setup("fit")
    batch = next(iter(module.train_dataloader()))
    assert "label" not in batch["unlabelled"]
    model = build()
    model.log = lambda *_, **__: None
    model.training_step({k: v for k, v in batch.items() if k != "labelled"}, 0)


def test_stages_train_what_they_should_and_all_of_it_gets_a_gradient():
    heads = {}

    class Watch(Callback):
        def on_after_backward(self, trainer, pl_module):
            trained = {n: p for n, p in pl_module.named_parameters() if p.requires_grad}
            heads[pl_module.stage.name] = {name.split(".")[1] for name in trained}
            assert not [n for n, p in trained.items() if p.grad is None]

    watched = {"callbacks": [Watch()], "limit_val_batches": 0}
    steps = {"pretrain_steps": 2, "finetune_steps": 2}
    fit(build(**steps), data(), 4, **watched)
    assert heads["finetune"] - heads["pretrain"] == {"tuple", "degradation"}
    assert heads["pretrain"] - heads["finetune"] == {"matching", "compatibility"}


def test_the_learning_rate_falls_in_fine_tuning_alone():
    rates = []

    class Watch(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    model = build(pretrain_steps=3, finetune_steps=4)
    fit(model, data(), 7, callbacks=[Watch()], limit_val_batches=0)
    assert rates[:3] == [1e-3] * 3
    assert rates[3] == 2e-4
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[6] == pytest.approx(2e-4 * (1 - 0.98 * 3 / 4))


def test_pretraining_tells_swaps_apart():
    module = data(tuples=400, batch_size=48)
    model = build(dim=32, pretrain_steps=100, finetune_steps=1, hard_fraction=0.0)
    judge = Trainer(**SILENT)
    (before,) = judge.validate(model, module, verbose=False)
    fit(model, module, 100, limit_val_batches=0)
    (after,) = judge.validate(model, module, verbose=False)
    assert after["val_swap_target"] > before["val_swap_target"] + 0.08


@pytest.mark.parametrize("molecule", ["both", "graph", "fingerprint"])
def test_each_encoder_learns(molecule):
    model, module = build(molecule=molecule, pretrain_steps=0, dropout=0.0), data()
    module.setup("fit")
    batch = next(iter(module.train_dataloader()))
    model.vocabulary.fit(batch["vocabulary"])
    model.log = lambda *_, **__: None
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(40):
        loss = model.training_step(batch, 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_potency_is_learnt_where_it_is_known():
    model, module = build(potency_weight=0.5, pretrain_steps=0), data()
    module.setup("fit")
    batch = next(iter(module.train_dataloader()))
    model.log = lambda *_, **__: None
    batch["labelled"]["potency"][:] = torch.nan
    without = model.training_step(batch, 0)
    without.backward()
    assert not model.network.potency.weight.grad.any()
    batch["labelled"]["potency"][0] = torch.tensor([7.0, torch.nan])
    model.zero_grad()
    model.training_step(batch, 0).backward()
    assert model.network.potency.weight.grad[0].any()
    assert not model.network.potency.weight.grad[1].any()


def test_without_context_target_and_ligase_do_not_matter(trained):
    alone = build(context=False, pretrain_steps=0).eval()
    fit(alone, data(), 2, limit_val_batches=0)
    for model, same in ((alone, True), (trained, False)):
        a = model.predict(DEGRADER, "BRD4", "VHL")
        assert np.array_equal(a, model.predict(DEGRADER, "AR", "CRBN")) == same


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"molecule": "grap"}, "Did you mean 'graph'"),
        ({"swaps": ["targets"]}, "Did you mean 'target'"),
        ({"swaps": []}, "swaps is empty"),
        ({"context": False}, "nothing to swap"),
        ({"negatives": 0}, "negatives=0 must be at least 1"),
        ({"dim": 18}, "multiple of 4"),
        ({"hard_fraction": 1.5}, "hard_fraction=1.5"),
    ],
)
def test_options_that_do_not_go(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        build(**options)


def test_a_vocabulary_that_does_not_fit_is_refused():
    module = data()
    module.setup("fit")
    for options, pattern in (
        ({"max_proteins": 9}, "room for 9: raise max_proteins"),
        ({"protein_dim": 8}, "64 numbers a protein, but protein_dim is 8"),
    ):
        with pytest.raises(ZooError, match=pattern):
            fit(build(**options), module, 1, limit_val_batches=0)


# -- invariances ---------------------------------------------------------------------------------


@pytest.mark.parametrize("molecule", ["graph", "both"])
def test_the_order_of_atoms_does_not_matter(molecule):
    from rdkit import Chem

    torch.manual_seed(0)
    smiles = "C[C@H](N)C(=O)N1CCC[C@@H]1C(=O)Nc1ccc(Cl)cc1C#N"
    mol = Chem.MolFromSmiles(smiles)
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms()).tolist()
    other = Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False)
    assert other != smiles
    model = build(molecule=molecule).eval()
    example = model.example_inputs()
    outs = []
    for one in (smiles, other):
        table, _ = featurize([one])
        batch = table.batch(np.array([0]))
        pair = {k: v[:1] for k, v in example.items() if k not in FEATURES}
        outs.append(model(**batch, **pair))
    for key in ("logit", "compatibility", "repr"):
        torch.testing.assert_close(outs[0][key], outs[1][key], atol=1e-5, rtol=1e-5)
    match = Chem.MolFromSmiles(smiles).GetSubstructMatch(
        Chem.MolFromSmiles(other), useChirality=True
    )
    # Symmetric atoms have equal attention, so any match will do.
    a, b = (out["attention"][0] for out in outs)
    torch.testing.assert_close(a[:, list(match)], b, atol=1e-5, rtol=1e-4)
    mirrored, _ = featurize([smiles.replace("@@", "#").replace("@", "@@").replace("#", "@")])
    out = model(**mirrored.batch(np.array([0])), **pair)
    assert not torch.allclose(out["repr"], outs[0]["repr"], atol=1e-4) or molecule == "both"


def test_a_molecule_is_judged_alike_alone_and_in_a_batch(trained):
    together = trained.predict(SMILES, "BTK", "CRBN")
    alone = [trained.predict(one, "BTK", "CRBN")[0] for one in SMILES]
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_evaluation_does_not_depend_on_the_batch_size(trained):
    found = []
    for size in (5, 48):
        trainer = Trainer(**SILENT)
        found.append(trainer.test(trained, data(eval_batch_size=size), verbose=False)[0])
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_a_model_finds_its_proteins_in_another_vocabulary(trained):
    module = data()
    module.setup("test")
    batch = module.datasets["test"].__getitems__(list(range(12)))
    with torch.inference_mode():
        expected = trained._evaluate(batch, trained.test_metrics)["logit"]
        given = batch["vocabulary"]
        order = torch.cat(
            [torch.zeros(1, dtype=torch.long), 1 + torch.randperm(len(given["names"]) - 1)]
        )
        place = order.argsort()
        part = {**batch["tuples"], **{k: place[batch["tuples"][k]] for k in ("target", "e3")}}
        shuffled = {k: v[order] for k, v in given.items()}
        found = trained._evaluate(
            {**batch, "vocabulary": shuffled, "tuples": part}, trained.test_metrics
        )
    torch.testing.assert_close(found["logit"], expected)


# -- use -----------------------------------------------------------------------------------------


def test_predict_by_names_and_what_it_refuses(trained):
    p = trained.predict([DEGRADER, "CCO"], target="BRD4", e3="VHL")
    assert p.shape == (2,)
    assert ((p > 0) & (p < 1)).all()
    assert np.array_equal(p, trained.predict([DEGRADER, "CCO"], "O60885", "P40337"))
    # A rare ligase is in the bag of others.
    assert trained.predict(DEGRADER, "BRD4", "RNF4") == trained.predict(DEGRADER, "BRD4", "Other")
    for arguments, pattern in (
        ((["CCO", "CC(=O"], "BRD4", "VHL"), "Molecule 2 of 2: .*position 3"),
        (("CCO", "BRDD4", "VHL"), "Did you mean 'BRD4'"),
        (("CCO", "BRD4", "VHLL"), "Did you mean 'VHL'"),
        (("CCO", "Q9ZZZ9", "VHL"), "is not known to the model"),
        (([], "BRD4", "VHL"), "at least one SMILES"),
    ):
        with pytest.raises(ZooError, match=pattern):
            trained.predict(*arguments)
    with pytest.raises(ZooError, match=r"shape \(3,\): expected \(64,\)"):
        trained.predict("CCO", "Q9ZZZ9", "VHL", features=np.ones(3))
    assert trained.predict("CCO", "Q9ZZZ9", "VHL", features=np.ones(64)).shape == (1,)


def test_a_scan_of_all_targets_encodes_the_molecule_once(trained):
    calls = []
    handle = trained.network.graph.register_forward_hook(lambda *_: calls.append(1))
    fusions = []
    other = trained.network.tuple.register_forward_hook(lambda *_: fusions.append(1))
    try:
        ranked = trained.rank_targets(DEGRADER, e3="CRBN", top=1000)
    finally:
        handle.remove()
        other.remove()
    assert len(calls) == len(fusions) == 1
    assert len(ranked) == int((trained.vocabulary.target_count > 0).sum()) > 20
    fits = [one.compatibility for one in ranked]
    assert fits == sorted(fits, reverse=True)
    for one in ranked[:3]:
        p = trained.predict(DEGRADER, one.target, "CRBN")
        assert one.probability == pytest.approx(float(p[0]), abs=1e-5)
    few = trained.rank_targets(DEGRADER, "CRBN", targets=["BRD4", "BTK"])
    assert {one.gene for one in few} == {"BRD4", "BTK"}


def test_explain_weighs_each_atom(trained):
    found = trained.explain(DEGRADER, "BRD4", "VHL")
    atoms = sum(c.isalpha() for c in DEGRADER)
    assert found.target.shape == found.e3.shape == (atoms,)
    assert found.target.sum() == pytest.approx(1, abs=1e-5)
    assert found.probability == pytest.approx(float(trained.predict(DEGRADER, "BRD4", "VHL")[0]))
    with pytest.raises(ZooError, match="looks at atoms"):
        build(molecule="fingerprint").explain(DEGRADER, "BRD4", "VHL")


def test_adapting_moves_one_target_and_a_copy_only(trained):
    start = {k: v.clone() for k, v in trained.state_dict().items()}
    row = trained.vocabulary.index()["Q9NWZ3"]
    support = [(one, "IRAK4", "CRBN", i % 2) for i, one in enumerate(SMILES)]
    adapted = trained.adapt(support, steps=60, lr=1e-2)
    for key, value in trained.state_dict().items():
        assert torch.equal(value, start[key]), key
    moved = {k for k, v in adapted.state_dict().items() if not torch.equal(v, start[k])}
    allowed = ("network.tuple.film", "network.degradation", "network.protein.identity")
    allowed += ("vocabulary.labels", "vocabulary.seen")
    assert moved
    assert all(key.startswith(allowed) for key in moved)
    before, after = (m.network.protein.identity.weight for m in (trained, adapted))
    assert (before != after).any(dim=1).nonzero()[:, 0].tolist() == [row]
    assert adapted.vocabulary.labels[row] == trained.vocabulary.labels[row] + 6
    p = adapted.predict(SMILES, "IRAK4", "CRBN")
    labels = np.arange(6) % 2
    gain = p - trained.predict(SMILES, "IRAK4", "CRBN")
    assert gain[labels == 1].mean() > gain[labels == 0].mean()
    with pytest.raises(ZooError, match="Support 1: label 2"):
        trained.adapt([("CCO", "BRD4", "VHL", 2)])
    with pytest.raises(ZooError, match="at least one"):
        trained.adapt([])


def test_a_saved_checkpoint_answers_alike(trained, tmp_path):
    trained.save_pretrained(tmp_path)
    again = DegradeQuery.from_pretrained(tmp_path)
    assert np.array_equal(
        again.predict(SMILES, "BTK", "CRBN"), trained.predict(SMILES, "BTK", "CRBN")
    )
    assert again.rank_targets("CCO", "VHL") == trained.rank_targets("CCO", "VHL")


def test_figures_show_molecule_curve_and_ranking(trained):
    module = data()
    module.setup("test")
    batch = module.datasets["test"].__getitems__(list(range(20)))
    with torch.inference_mode():
        found = trained.figures(batch, trained._evaluate(batch, trained.test_metrics))
    assert set(found) == {"attention", "roc", "ranking"}
    picture = found["attention"].axes[0].images[0].get_array()
    shaded = (picture[..., 0] > 240) & (picture[..., 2] < 120)
    assert shaded.any()


# -- baselines -------------------------------------------------------------------------------------


def test_the_forest_is_scikit_learns():
    from sklearn.ensemble import RandomForestClassifier

    seed_everything(0, verbose=False)
    model, module = FingerprintForest(trees=12, max_nodes=256), data()
    trainer = Trainer(max_epochs=1, **SILENT)
    trainer.fit(model, module)
    rows = list(model._rows.values())
    x = torch.stack([row for row, _ in rows]).numpy()
    y = torch.stack([label for _, label in rows]).numpy()
    forest = RandomForestClassifier(12, class_weight="balanced", random_state=0).fit(x, y)
    model._inputs = lambda fp, target, e3: fp
    found = model(torch.from_numpy(x), None, None)["probability"]
    np.testing.assert_allclose(found.numpy(), forest.predict_proba(x)[:, 1], atol=1e-6)


def test_the_forest_is_tested_from_its_checkpoint(tmp_path):
    for context in (True, False):
        model, module = FingerprintForest(context, trees=10, max_nodes=256), data()
        trainer = Trainer(max_epochs=1, **SILENT)
        trainer.fit(model, module)
        expected = trainer.test(model, module, verbose=False)
        trainer.save_checkpoint(tmp_path / "forest.ckpt")
        again = FingerprintForest.load_from_checkpoint(tmp_path / "forest.ckpt")
        assert trainer.test(again, module, verbose=False) == expected


# -- two processes ---------------------------------------------------------------------------------

SCRIPT = """
import json, os, sys, torch
from lightning import Trainer, seed_everything
from torch.utils.data import DataLoader
from tests.degrade_query.case import CASE
from zoo import DegradeQuery
from zoo.degrade_query import encoders
from zoo.datamodules import ProtacTuplesDataModule

if __name__ == "__main__":
    devices, folder = int(sys.argv[1]), sys.argv[2]
    pretrain = int(sys.argv[3])
    seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    sizes = {"dropout": 0.0, "pretrain_steps": pretrain, "finetune_steps": 6}
    model = DegradeQuery(**{**CASE.model, **sizes})
    encoders.IDENTITY_DROPOUT = 0.0  # else ranks draw differently
    model.optimizer_config = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
    data = ProtacTuplesDataModule(**CASE.data)
    data.setup("fit")
    rank = int(os.environ.get("LOCAL_RANK", 0)) if devices > 1 else 0
    dataset = data.datasets["train"]
    size = 24 // devices
    def share(n):
        numbers = [i % len(dataset) for i in range(24 * n, 24 * n + 24)][rank::devices]
        return dataset.__getitems__(numbers)
    batches = [share(n) for n in range(6 + pretrain)]
    trainer = Trainer(max_epochs=1, accelerator="cpu", devices=devices, logger=False,
                      strategy="ddp" if devices > 1 else "auto", limit_val_batches=0,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, use_distributed_sampler=False)
    trainer.fit(model, DataLoader(batches, batch_size=None))
    data.setup("test")
    found = trainer.test(model, data, verbose=False)[0]
    if trainer.is_global_zero:
        answer = {"state": model.state_dict(), "auroc": found["test_auroc"]}
        torch.save(answer, f"{folder}/{devices}.pt")
    if devices > 1:
        torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("pretrain", [0, 3])
def test_two_processes_learn_what_one_does(tmp_path, pretrain):
    """Swaps of the first stage are drawn anew on each rank: after it, AUROC alone is compared."""
    run_with_one_and_two(SCRIPT, tmp_path, str(pretrain))
    one, two = (torch.load(tmp_path / f"{d}.pt", weights_only=True) for d in (1, 2))
    if pretrain == 0:
        assert two["auroc"] == pytest.approx(one["auroc"], abs=0.01)
        for key, value in one["state"].items():
            torch.testing.assert_close(two["state"][key], value, atol=1e-4, rtol=1e-4)
    assert 0 <= two["auroc"] <= 1


def test_the_command_line_predicts_a_table(trained, tmp_path):
    """Another layout of columns than the training's, with a name of a gene."""
    from tests.degrade_query.case import write_inputs

    write_inputs(tmp_path)
    module = data(inputs=[str(tmp_path / "*.csv")])
    (found,) = Trainer(**SILENT).predict(trained, module)
    (path,) = trained.write_prediction(found[0], tmp_path / "out")
    lines = path.read_text().splitlines()
    assert lines[0].startswith("smiles,target_uniprot,e3_type,probability")
    p = trained.predict(SMILES, "BRD4", "VHL")
    assert [float(line.split(",")[3]) for line in lines[1:]] == pytest.approx(p.tolist(), abs=1e-4)
    assert json.dumps(found[0]["smiles"])


def test_few_labels_of_held_out_targets(trained, monkeypatch):
    """The study's loop: support and query do not meet, and no label is a start without them."""
    from benchmarks.studies import degrade_query as study

    monkeypatch.setattr(study, "MIN_ROWS", 8)
    monkeypatch.setattr(study, "MIN_CLASS", 3)
    module = data(split="target", tuples=500)
    targets = study.held_out_targets(module)
    assert targets
    found = study.few_shot(trained, module, (0, 2), draws=1, seed=0)
    assert set(found[0]) == set(found[2]) == set(targets)
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 0])
    order = study._alternating(np.random.default_rng(0).permutation(8), labels)
    assert sorted(order.tolist()) == list(range(8))
    assert labels[order[:2]].sum() == 1
    assert "k=2: AUROC" in study.report({"a": found})
