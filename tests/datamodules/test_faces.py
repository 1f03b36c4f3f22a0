"""The renderer: the same for the same seed, alive where it should be, and what its attacks lack."""

import pytest
import torch

from zoo.datamodules.faces import DOMAINS, capture, draw_faces, shade
from zoo.datamodules.faces.sheet import draw_sheet
from zoo.face_files import KINDS, minmax


def test_a_capture_depends_on_its_arguments_alone():
    first = capture("W", "train", 12, 32, 0)
    capture.cache_clear()
    torch.manual_seed(7)  # the global generator is of no account
    again = capture("W", "train", 12, 32, 0)
    for name in ("rgb", "depth", "ir", "label", "kind"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    for other in (("W", "train", 12, 32, 1), ("C", "train", 12, 32, 0), ("W", "val", 12, 32, 0)):
        assert not torch.equal(first.rgb, capture(*other).rgb)


@pytest.mark.parametrize("domain", DOMAINS)
def test_values_labels_and_mix(domain):
    batch = capture(domain, "test", 200, 24, 3)
    for image, channels in ((batch.rgb, 3), (batch.depth, 1), (batch.ir, 1)):
        assert image.shape == (200, channels, 24, 24)
        assert image.dtype == torch.float32
        assert image.min() >= 0
        assert image.max() <= 1
    assert torch.equal(batch.label, (batch.kind == 0).long())
    shares = torch.bincount(batch.kind, minlength=len(KINDS)) / 100
    expected = torch.tensor([1.0, *DOMAINS[domain].mix, 0.0])
    torch.testing.assert_close(shares, expected, atol=0.011, rtol=0)


def test_flat_attacks_have_no_relief_and_masks_do():
    """Relief: how much nearer the middle of the face is than a ring around it."""
    batch = capture("W", "test", 120, 48, 0)
    depth = batch.depth[:, 0]
    relief = depth[:, 20:28, 20:28].mean(dim=(1, 2)) - depth[:, 8:40, 10:14].mean(dim=(1, 2))
    means = {kind: relief[batch.kind == number].mean() for number, kind in enumerate(KINDS[:-1])}
    assert means["live"] > 0.2
    assert means["mask"] > 0.2
    assert abs(means["print"]) < 0.1
    assert abs(means["replay"]) < 0.1


def test_screens_are_dark_in_infrared():
    """Before each image is scaled: their infrared has less structure than a face's."""
    batch = capture("W", "test", 120, 48, 0)
    blurred = torch.nn.functional.avg_pool2d(batch.ir, 8)
    contrast = blurred.flatten(1).std(dim=1)
    assert contrast[batch.kind == 2].median() < 0.6 * contrast[batch.kind == 0].median()


def test_the_background_gives_the_label_away_with_a_sign_of_its_domain():
    for domain, habits in DOMAINS.items():
        batch = capture(domain, "test", 200, 24, 3)
        corner = batch.rgb[:, :, :2, :2].mean(dim=(1, 2, 3))
        cue = corner[batch.label == 1].mean() - corner[batch.label == 0].mean()
        assert cue.sign() == torch.tensor(habits.cue).sign()


def test_faces_alone_serve_other_data():
    faces = draw_faces(3, 40, torch.Generator().manual_seed(0))
    lights = torch.tensor([[0.0, 0.0, 1.0]]).expand(3, 3)
    rgb = shade(faces.albedo, faces.normals, lights, 0.3)
    assert rgb.shape == (3, 3, 40, 40)
    assert (faces.height[~faces.head] == 0).all()
    assert faces.eyes.amax(dim=(1, 2)).min() > 0.5
    torch.testing.assert_close(faces.normals.norm(dim=1), torch.ones(3, 40, 40))


def test_minmax_of_a_constant_is_zero():
    image = torch.stack([torch.full((1, 4, 4), 0.3), torch.arange(16.0).view(1, 4, 4)])
    found = minmax(image)
    assert (found[0] == 0).all()
    assert found[1].min() == 0
    assert found[1].max() == 1


def test_the_sheet_shows_each_domain_and_kind():
    assert len(draw_sheet(per_kind=1, size=16).axes) == len(DOMAINS) * (len(KINDS) - 1)
