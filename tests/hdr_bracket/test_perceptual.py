"""Models of vision in the place of observers, and what happens without them."""

import pytest
import torch

from zoo import HDRBracket, ZooError
from zoo.hdr_bracket import perceptual
from zoo.hdr_bracket.bracket import mertens_weights
from zoo.hdr_bracket.report import compare, update


@pytest.fixture
def images():
    torch.manual_seed(0)
    target = torch.rand(2, 3, 64, 64)
    target[:, :, 20:40, 20:40] = 6.0
    noise = torch.randn_like(target)
    return [(target * (1 + share * noise)).clamp_min(0) for share in (0.0, 0.05, 0.3)]


def test_jods_fall_with_the_error_and_the_nearer_image_is_preferred(images):
    pytest.importorskip("pycvvdp")
    target, near, far = images
    scores = [float(perceptual.jods(x, target).mean()) for x in images]
    assert scores[0] == pytest.approx(10, abs=1e-3)
    assert scores[0] > scores[1] > scores[2]
    share = perceptual.PreferredShare()
    share.update(near, far, target)
    assert share.compute() == 1
    share.update(far, far, target)  # a tie in each of as many images
    assert share.compute() == 0.75


def test_lpips_shows_highlights_within_a_displays_range(images, monkeypatch):
    seen = []

    class Network:
        def to(self, device):
            return self

        def __call__(self, a, b):
            seen.append((a, b))
            return (a - b).abs().mean()

    monkeypatch.setattr(perceptual, "_lpips", Network)
    metric = perceptual.LPIPS()
    metric.update(images[2], images[0])
    assert metric.compute() == pytest.approx(
        float(torch.stack([(a - b).abs().mean() for a, b in seen]).mean()), rel=1e-5
    )
    assert len(seen) == 2
    highlight = seen[0][1][0, 0, 30, 30]
    assert 0.9 < highlight < 1  # 6 / 7 in linear light, and not clipped


def test_lpips_without_a_network_is_left_out_with_a_warning(images, monkeypatch):
    def unreachable(*args, **options):
        raise OSError("no route to host")

    monkeypatch.setattr(perceptual, "LearnedPerceptualImagePatchSimilarity", unreachable)
    perceptual._lpips.cache_clear()
    metric = perceptual.LPIPS()
    with pytest.warns(UserWarning, match="LPIPS is left out.*no route"):
        metric.update(images[1], images[0])
    assert metric.compute().isnan()
    perceptual._lpips.cache_clear()


def test_absent_package_is_one_sentence_before_training(monkeypatch):
    monkeypatch.setattr(perceptual, "find_spec", lambda name: None)
    with pytest.raises(ZooError, match=r"cvvdp.*lightning-zoo\[peers\]"):
        HDRBracket(perceptual=["jod"]).setup("fit")
    with pytest.raises(ZooError, match=r"perceptual='fid' is unknown"):
        HDRBracket(perceptual=["fid"])


def test_preference_compares_the_result_with_its_rival():
    pytest.importorskip("pycvvdp")
    model = HDRBracket(perceptual=["jod"], steps=1).eval()
    torch.manual_seed(0)
    target = 3 * torch.rand(1, 3, 32, 32)
    image = target.clamp(0, 1)
    batch = {"image": image, "target": target, "index": torch.tensor([0])}
    with torch.inference_mode():
        out = model(image)
        estimates = compare(model, batch, out) | {"": target}  # a perfect result
        update(model.test_metrics, "test_", estimates, batch, out["weights"])
    found = model.test_metrics.compute()
    assert found["test_jod"] == pytest.approx(10, abs=1e-3)
    assert found["test_jod_input"] < 9.9
    assert found["test_preferred_to_input"] == 1


def test_mertens_weights_prefer_a_well_exposed_colourful_pixel():
    torch.manual_seed(0)
    well = 0.5 + 0.2 * torch.rand(1, 3, 16, 16)
    bright = (well + 0.45).clamp(max=1)
    weights = mertens_weights(torch.stack([well, bright, torch.zeros_like(well)], dim=1))
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(1, 16, 16))
    assert weights[:, 0].mean() > 0.9
    flat = mertens_weights(torch.full((1, 3, 3, 4, 4), 0.5))
    torch.testing.assert_close(flat, torch.full((1, 3, 4, 4), 1 / 3))
