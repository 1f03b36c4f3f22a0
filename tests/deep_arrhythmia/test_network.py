"""The network: states, context, masks; and its losses."""

import pytest
import torch
import torch.nn.functional as F

from zoo.deep_arrhythmia.loss import class_weights, focal_loss, heat_loss
from zoo.deep_arrhythmia.network import BeatNetwork, Evidence
from zoo.deep_arrhythmia.report import LENGTH
from zoo.errors import ZooError

T = 1250


def network(**options):
    torch.manual_seed(0)
    return BeatNetwork(dim=16, layers=1, image_size=(32, 64), **options).eval()


def inputs(leads=1):
    torch.manual_seed(1)
    peaks = torch.tensor([[150, 500, 900, 1150], [200, 600, 0, 0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return torch.randn(2, leads, T), torch.rand(2, 3, 32, 64), peaks, mask


def evidence(rich, beats=4):
    torch.manual_seed(2)
    ids = torch.randint(1, 40, (2, beats, LENGTH))
    measures = torch.randn(2, beats, 16)
    measures[0, 0, 3] = torch.nan
    return Evidence(measures, ids, torch.tensor(rich))


def decide(net, data, given=None):
    with torch.no_grad():
        return net.decide(net.encode(*data), given)[0]


@pytest.mark.parametrize("context", [True, False])
def test_rich_state_starts_as_the_minimal_one(context):
    net, data = network(context=context), inputs()
    minimal = decide(net, data)
    assert torch.allclose(decide(net, data, evidence([True, True])), minimal, atol=1e-6)
    with torch.no_grad():
        net.gates[0].fill_(0.1)
    changed = decide(net, data, evidence([True, False]))
    assert not torch.allclose(changed[0], minimal[0], atol=1e-3)
    assert torch.allclose(changed[1], minimal[1], atol=1e-6)


def test_isolated_beats_know_nothing_of_their_neighbours():
    signal, image, peaks, mask = inputs()
    other_signal, other_image = signal.clone(), image.clone()
    other_signal[0, :, :400] += 3.0  # 500 - 88 = 412 is the first sample that beat 1 sees
    other_signal[0, :, 600:] -= 3.0
    other_image[0, :, :, :20] = 0.0
    other_image[0, :, :, 32:] = 0.0
    moved = peaks.clone()
    moved[0, 0] = 100
    for context in (True, False):
        net = network(context=context)
        before = decide(net, (signal, image, peaks, mask))[0, 1]
        after = decide(net, (other_signal, other_image, moved, mask))[0, 1]
        assert torch.allclose(before, after, atol=1e-5) == (not context)


@pytest.mark.parametrize("context", [True, False])
def test_padding_changes_nothing(context):
    net, (signal, image, peaks, mask) = network(context=context), inputs()
    wide = torch.cat([peaks, torch.full((2, 3), 777)], dim=1)
    there = torch.cat([mask, torch.zeros(2, 3, dtype=torch.bool)], dim=1)
    narrow = decide(net, (signal, image, peaks, mask))
    padded = decide(net, (signal, image, wide, there))
    assert torch.allclose(padded[:, :4], narrow, atol=1e-5)
    assert not padded[:, 4:].any()


@pytest.mark.parametrize("context", [True, False])
def test_selected_segments_are_decided_alike(context):
    net, data = network(context=context), inputs()
    with torch.no_grad():
        encoded = net.encode(*data)
        both = net.decide(encoded)[0]
        second = net.decide(encoded.select(torch.tensor([1])))[0]
    assert torch.allclose(second[0], both[1], atol=1e-5)


def test_a_segment_without_beats_is_finite():
    net, (signal, image, peaks, mask) = network(), inputs()
    mask[1] = False
    assert decide(net, (signal, image, peaks, mask)).isfinite().all()


def test_picture_or_signal_alone():
    data = inputs()
    image_only, signal_only = network(leads=0), network(image_backbone="none")
    assert torch.equal(
        decide(image_only, data), decide(image_only, (torch.zeros(2, 1, T), *data[1:]))
    )
    assert torch.equal(
        decide(signal_only, data), decide(signal_only, (data[0], data[1] * 0, *data[2:]))
    )
    assert decide(network(leads=2), inputs(2)).shape == (2, 4, 5)


def test_a_vision_transformer_gives_the_picture():
    net = network(image_backbone="test_vit")
    assert decide(net, inputs()).shape == (2, 4, 5)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"leads": 0, "image_backbone": "none"}, "nothing to look at"),
        ({"image_backbone": "vit_of_nobody"}, "neither 'tiny', 'none' nor a vision transformer"),
        ({"context": False, "image_backbone": "test_vit"}, "go with image_backbone"),
    ],
)
def test_impossible_networks_are_refused(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        network(**options)


def test_focal_loss_by_hand():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5)
    labels = torch.tensor([[0, 2, -1], [4, 5, 1]])  # padding, and a detection that is no beat
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    total = norm = 0.0
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 2)):
        label = labels[row, column]
        p = logits[row, column].softmax(0)[label]
        total += weights[label] * (1 - p) ** 2 * -p.log()
        norm += weights[label]
    assert focal_loss(logits, labels, weights) == pytest.approx(float(total / norm), rel=1e-5)
    plain = focal_loss(logits, labels, torch.ones(5), gamma=0.0)
    known = (labels >= 0) & (labels < 5)
    assert plain == pytest.approx(float(F.cross_entropy(logits[known], labels[known])), rel=1e-5)
    assert focal_loss(logits, torch.full((2, 3), -1), weights) == 0


def test_class_weights_are_capped():
    found = class_weights(torch.tensor([10000.0, 2500.0, 400.0, 1.0, 0.0]))
    assert found.tolist() == pytest.approx([1, 2, 5, 10, 10])


def test_heat_is_where_the_peaks_are():
    logits = torch.full((1, 4), -20.0)
    logits[0, 2] = 20.0
    peaks, there = torch.tensor([[70, 0]]), torch.tensor([[True, False]])
    assert heat_loss(logits, peaks, there, 32) < 1e-6
    assert heat_loss(logits, peaks, torch.tensor([[True, True]]), 32) > 4


def test_without_layers_beats_are_seen_on_their_own():
    """The plain network per beat of the claim: it sees what is around a peak, and no more."""
    torch.manual_seed(0)
    network = BeatNetwork(1, 16, 0, image_backbone="none", context=False).eval()
    signal, image = torch.randn(1, 1, 2500), torch.zeros(1, 3, 8, 8)
    peaks, mask = torch.tensor([[600, 1900]]), torch.ones(1, 2, dtype=torch.bool)
    logits, _ = network.decide(network.encode(signal, image, peaks, mask))
    other = signal.clone()
    other[..., 1500:] = 0
    again, _ = network.decide(network.encode(other, image, peaks, mask))
    assert torch.equal(logits[0, 0], again[0, 0])
    assert not torch.equal(logits[0, 1], again[0, 1])
