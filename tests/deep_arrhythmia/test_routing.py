"""Confidence, threshold and curves, and that tools are called only where they are asked for."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torchmetrics.classification import MulticlassF1Score

from tests.deep_arrhythmia.case import CASE
from zoo import DeepArrhythmia
from zoo.datamodules.ecg_segments.synthetic import synthetic_record
from zoo.deep_arrhythmia import routing


def rows(count=40, beats=6, seed=0):
    rng = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 4, (count, beats), generator=rng)
    label[0, 0] = 4  # Q, which is not judged
    label[:, -1] = -1
    label[1, 0] = 5
    truth = F.one_hot(label.clamp(0, 4), 5).float()
    noise = torch.randn(2, count, beats, 5, generator=rng)
    minimal, rich = truth * 2 + noise[0], truth * 3 + noise[1]
    missed = torch.zeros(count, 5, dtype=torch.long)
    missed[2, 1] = 2
    mask = torch.ones(count, beats, dtype=torch.bool)
    head = torch.randn(count, generator=rng)
    return routing.Rows(minimal, rich, label, missed, mask, head)


def test_confusion_against_a_loop():
    r = rows()
    expected = torch.zeros(len(r.label), 6, 6, dtype=torch.long)
    for i in range(len(r.label)):
        for j in range(r.label.shape[1]):
            if r.label[i, j] >= 0:
                expected[i, r.label[i, j], r.minimal[i, j].argmax()] += 1
        for k in range(5):
            expected[i, k, 5] += r.missed[i, k]
    assert torch.equal(routing.confusion(r.minimal, r.label, r.missed), expected)


def test_f1_is_that_of_torchmetrics_where_all_beats_are_found():
    r = rows()
    label = torch.where(r.label > 3, -1, r.label)
    minimal = r.minimal.clone()
    minimal[..., 4] = -100
    matrix = routing.confusion(minimal, label, r.missed * 0).sum(dim=0)
    known = label >= 0
    expected = MulticlassF1Score(5, average=None)(minimal[known], label[known])[:4]
    assert torch.allclose(routing.f1_of(matrix).float(), expected)
    without_s = torch.where(label == 1, -1, label)
    matrix = routing.confusion(minimal, without_s, r.missed * 0).sum(dim=0)
    assert routing.f1_of(matrix).isnan().tolist() == [False, True, False, False]
    assert routing.macro_f1(matrix) == routing.f1_of(matrix)[[0, 2, 3]].mean()


def test_missed_beats_and_false_detections_cost():
    label = torch.tensor([[0, 0, 2, 5]])
    logits = F.one_hot(torch.tensor([[0, 0, 2, 2]]), 5).float()
    missed = torch.tensor([[1, 0, 0, 0, 0]])
    found = routing._by_class(routing.confusion(logits, label, missed).sum(dim=0), "")
    assert found["se_N"] == pytest.approx(2 / 3)
    assert found["ppv_V"] == pytest.approx(1 / 2)
    assert found["peak_se"] == pytest.approx(3 / 4)
    assert found["peak_ppv"] == pytest.approx(3 / 4)
    assert found["absent_classes"] == 2


def test_curve_goes_from_minimal_to_rich():
    r = rows()
    minimal, rich = (routing.confusion(x, r.label, r.missed) for x in (r.minimal, r.rich))
    order = torch.randperm(len(r.label))
    curve = routing.curve(minimal, rich, order)
    assert curve[0] == routing.macro_f1(minimal.sum(dim=0))
    assert curve[-1] == routing.macro_f1(rich.sum(dim=0))
    mixed = minimal.clone()
    mixed[order[:7]] = rich[order[:7]]
    assert curve[7] == routing.macro_f1(mixed.sum(dim=0))
    ends = routing.random_curve(minimal, rich, torch.tensor([0.0, 1.0]))
    assert torch.allclose(ends, curve[[0, -1]])
    draws = [routing.curve(minimal, rich, torch.randperm(40))[20] for _ in range(200)]
    middle = routing.random_curve(minimal, rich, torch.tensor(0.5))
    assert middle == pytest.approx(float(torch.stack(draws).mean()), abs=0.01)


@pytest.mark.parametrize("cost", [0.0, 0.02, 0.5])
def test_threshold_against_trying_all(cost):
    r = rows()
    minimal, rich = (routing.confusion(x, r.label, r.missed) for x in (r.minimal, r.rich))
    conf = routing.confidence(r.head, r.minimal, r.mask, 1.0)

    def value(tau):
        routed = routing.route(conf, tau)
        mixed = torch.where(routed[:, None, None], rich, minimal).sum(dim=0)
        return float(routing.macro_f1(mixed) - cost * routed.double().mean())

    tau = routing.choose_tau(minimal, rich, conf, cost)
    assert value(tau) == pytest.approx(max(map(value, [0, 2, *(conf + 1e-6).tolist()])))
    if cost == 0.5:
        assert tau < 0.5
    same = routing.choose_tau(minimal, minimal, conf, 0.02)
    assert same == 0.0
    equal = torch.full_like(conf, 0.3)
    assert routing.choose_tau(minimal, rich, equal, 0.0) in (0.0, 1.0 + 1e-6)


def test_temperature_undoes_overconfidence():
    torch.manual_seed(0)
    logits = 2 * torch.randn(4000, 5)
    label = torch.distributions.Categorical(logits=logits).sample()
    assert routing.fit_temperature(3 * logits, label) == pytest.approx(3, rel=0.1)
    assert routing.fit_temperature(logits, torch.full_like(label, -1)) == 1


def test_confidence_is_the_head_times_the_mean_probability():
    logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]], [[5.0, 0.0], [0.0, 5.0]]])
    mask = torch.tensor([[True, True], [False, False]])
    found = routing.confidence(torch.tensor([0.4, 9.0]), logits, mask, 2.0)
    chosen = [1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(-0.5))]
    assert found.tolist() == pytest.approx([np.mean(chosen) / (1 + np.exp(-0.4)), 0.0])


@pytest.fixture(scope="module")
def record():
    return synthetic_record(0, "test", 1, 40.0).record.signal[0]


@pytest.mark.parametrize(
    ("options", "called"),
    [
        ({"tau": 0.0}, "none"),
        ({"evidence": "minimal"}, "none"),
        ({"tau": 1.1}, "all"),
        ({"evidence": "rich"}, "all"),
        ({}, "some"),
    ],
)
def test_tools_are_called_for_doubtful_segments_only(record, options, called):
    torch.manual_seed(0)
    model = DeepArrhythmia(**CASE.model, **options)
    if called == "some":
        confident = model.annotate(record, fs=360)
        middle = float(np.median([n.confidence for n in confident.segments]))
        model.threshold.fill_(middle)
        model.measure_tool.calls = model.report_tool.calls = 0
    beats = model.annotate(record, fs=360)
    rich = sum(note.state for note in beats.segments)
    assert model.measure_tool.calls == model.report_tool.calls == rich
    expected = {"none": [0], "all": [len(beats.segments)]}
    assert rich in expected.get(called, range(1, len(beats.segments)))
    for beat in beats:
        assert (beat["report"] is None) == (beat["measures"] is None) == (beat["state"] == 0)
        assert sum(beat["probs"].values()) == pytest.approx(1, abs=1e-5)
    assert beats.share_rich == rich / len(beats.segments)


def test_routed_beats_are_those_of_the_two_states(record):
    """Deciding some of a batch again gives what deciding all of them does."""
    torch.manual_seed(0)
    model = DeepArrhythmia(**CASE.model)
    with torch.no_grad():
        for gate in model.backbone.gates:
            gate.fill_(0.1)
    said = {}
    for evidence in ("minimal", "rich"):
        model.evidence = evidence
        said[evidence] = model.annotate(record, fs=360)
    model.evidence = "route"
    model.threshold.fill_(float(np.median([n.confidence for n in said["rich"].segments])))
    routed = model.annotate(record, fs=360)
    for beat, minimal, rich in zip(routed, said["minimal"], said["rich"], strict=True):
        expected = rich if beat["state"] else minimal
        assert beat["probs"] == pytest.approx(expected["probs"], abs=1e-5)
    assert 0 < routed.share_rich < 1
