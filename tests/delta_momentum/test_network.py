"""The decoder: causal, of the stated sizes, and the same at every width under muP."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from zoo import DeltaLM
from zoo.delta_momentum.network import Decoder, Shape, rotary
from zoo.errors import ZooError
from zoo.optim import DeltaAdamW, attach_delta_keys, delta_flops


def shape(width, layers=2):
    return Shape(width, layers, heads=4, hidden=8 * width // 3, vocab_size=32, context=32)


def test_a_token_sees_none_after_it():
    torch.manual_seed(0)
    network = Decoder(shape(24)).eval()
    torch.nn.init.normal_(network.lm_head.weight)
    ids = torch.randint(32, (2, 10))
    changed = ids.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % 32
    with torch.no_grad():
        a, b = network(ids), network(changed)
    torch.testing.assert_close(a[:, :6], b[:, :6])
    assert not torch.allclose(a[:, 6:], b[:, 6:])


def test_rotary_products_depend_on_distance_alone():
    q, k = torch.randn(2, 8)
    turned_q, turned_k = (rotary(x.expand(1, 1, 12, 8))[0, 0] for x in (q, k))
    for distance in (0, 3):
        products = (turned_q[distance:] * turned_k[: 12 - distance]).sum(-1)
        torch.testing.assert_close(products, products[:1].expand_as(products))


def test_starts_at_an_even_guess():
    logits = Decoder(shape(24))(torch.zeros(1, 4, dtype=torch.long))
    assert torch.equal(logits, torch.zeros_like(logits))


@pytest.mark.parametrize(("preset", "millions"), [("67M", 67.0), ("370M", 367)])
def test_real_sizes_are_the_stated_ones(preset, millions):
    with torch.device("meta"):
        model = DeltaLM(preset=preset)
    count = sum(p.numel() for p in model.parameters())
    assert count == pytest.approx(millions * 1e6, rel=0.03)


@pytest.mark.parametrize(("preset", "share"), [("67M", 0.073), ("370M", 0.110)])
def test_counted_overhead_at_real_scale_is_that_of_the_abstract(preset, share):
    """With attention and the output layer in the sum, 7.3 % and 11.0 % as its runs had."""
    with torch.device("meta"):
        model = DeltaLM(preset=preset)
    tokens, size = 524288, model.shape
    count = delta_flops(model, tokens)
    attention = 12 * size.context * size.width * size.layers * tokens
    output = 6 * size.width * size.vocab_size * tokens
    assert count.paper / (count.layers + attention + output) == pytest.approx(share, rel=0.02)
    assert count.overhead < 0.1574


def test_recomputing_blocks_gives_the_same_gradients():
    torch.manual_seed(0)
    network = Decoder(shape(24))
    torch.nn.init.normal_(network.lm_head.weight)
    ids = torch.randint(32, (2, 10))
    found = []
    for network.checkpointing in (False, True):
        network.zero_grad()
        network(ids).square().mean().backward()
        found.append(network.blocks[0].attention.q_proj.weight.grad.clone())
    torch.testing.assert_close(*found)


def keep(seen, name, layer, args, output):
    seen[name] = output


def coordinates(width, mup, steps=(1, 2, 5, 10), base=64, seeds=3):
    """Mean absolute change of each layer's output since the start, by layer and step."""
    changes = {}
    for seed in range(seeds):
        torch.manual_seed(seed)
        network = Decoder(shape(width), mup=mup, base_width=base)
        data = torch.randint(32, (max(steps), 4, 17), generator=torch.Generator().manual_seed(seed))
        probe, seen = data[0, :, :-1], {}
        # The output layer's change grows with the width before muP's multiplier, so logits count.
        layers = {
            name or "logits": layer
            for name, layer in network.named_modules()
            if not name or name.endswith("_proj")
        }
        hooks = [
            layer.register_forward_hook(partial(keep, seen, name)) for name, layer in layers.items()
        ]
        with torch.no_grad():
            network.eval()(probe)
            start = dict(seen)
        optimizer = DeltaAdamW(network.groups(1e-2), weight_decay=0.0)
        with attach_delta_keys(network.train()):
            for step in range(1, max(steps) + 1):
                optimizer.zero_grad()
                ids = data[step - 1]
                F.cross_entropy(network(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
                optimizer.step()
                if step in steps:
                    with torch.no_grad():
                        network.eval()(probe)
                    network.train()
                    for name in layers:
                        change = float((seen[name] - start[name]).abs().mean()) / seeds
                        changes[name, step] = changes.get((name, step), 0.0) + change
        for hook in hooks:
            hook.remove()
    return changes


def slopes(widths, mup):
    """Of log change against log width, by layer and step."""
    found = [coordinates(width, mup) for width in widths]
    x = torch.tensor([math.log(width) for width in widths])
    x = x - x.mean()
    result = {}
    for key in found[0]:
        if any(changes[key] == 0 for changes in found):
            continue  # the output starts at zero, so the first step moves nothing below it
        y = torch.tensor([math.log(changes[key]) for changes in found])
        result[key] = float((x * y).sum() / (x * x).sum())
    return result


@pytest.mark.slow
def test_changes_do_not_grow_with_the_width_under_mup():
    """What is left falls as networks get wide: 0.15 here at most, 0.10 at widths 128 to 1024."""
    found = slopes((64, 128, 256, 512), mup=True)
    worst = max(found, key=lambda key: abs(found[key]))
    assert abs(found[worst]) < 0.16, (worst, found[worst])
    assert max(slopes((64, 128, 256), mup=False).values()) > 0.5


def test_learning_rate_of_hidden_matrices_falls_with_the_width():
    model = DeltaLM(width=192, mup=True)
    hidden, others = model.parameter_groups(1e-2)
    assert hidden["lr"] == pytest.approx(5e-3)
    assert others["lr"] == 1e-2
    assert len(hidden["params"]) == 7 * 3
    assert len(hidden["params"]) + len(others["params"]) == len(list(model.parameters()))
    plain, _ = DeltaLM(width=192).parameter_groups(1e-2)
    assert plain["lr"] == 1e-2


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"preset": "67m"}, "Did you mean '67M'"),
        ({"width": 30}, "multiple of twice heads=4"),
        ({"layers": 0}, "layers=0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        DeltaLM(**options)
