"""The mathematics: delta, adapter, attention in both kinds of block, flow, losses."""

import pytest
import torch
from torch.nn import functional as F

from zoo.delta_adapter.adapter import DeltaAdapterNetwork, Edit
from zoo.delta_adapter.backbones import TinyFlux
from zoo.delta_adapter.delta import (
    augment_pair,
    condition_tokens,
    drop_tokens,
    semantic_delta,
    token_norm,
)
from zoo.delta_adapter.encoders import TinyEncoder, attribute_loss, letter_box
from zoo.delta_adapter.flow import clean_estimate, draw_noise, euler, noisy, shift_time
from zoo.delta_adapter.lora import pair_lora
from zoo.delta_adapter.loss import (
    consistency_loss,
    delta_cosine,
    directional_similarity,
    flow_loss,
)
from zoo.delta_adapter.metrics import attributes_right, content_psnr, l1, psnr
from zoo.layers.perceiver import PerceiverResampler


def adapter(**changes):
    sizes = {"channels": 64, "positions": 16, "pair": False, "width": 16, "tokens": 3, "layers": 1}
    return DeltaAdapterNetwork(
        **{**sizes, "blocks": 4, "heads": 4, "head_dim": 32, "out_rank": 4, **changes}
    )


def editor():
    """A tiny editor that does something: its last layer is zero at first."""
    made = TinyFlux(5).eval()
    torch.nn.init.normal_(made.transformer.proj_out.weight, std=0.02)
    return made


def live_edit(count=2):
    network = adapter()
    torch.nn.init.normal_(network.up, std=0.5)
    return network.edit(network.tokens(torch.randn(count, 16, 64)))


# -- delta --------------------------------------------------------------------------------------


def test_norm_stands_before_the_difference():
    """A channel of huge size in both images must not rule the delta."""
    x, y = torch.randn(2, 3, 5, 8).unbind(0)
    expected = (y - y.mean(-1, keepdim=True)) / (
        y.var(-1, correction=0, keepdim=True) + 1e-5
    ).sqrt()
    expected = (
        expected
        - (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    )
    assert torch.allclose(semantic_delta(x, y), expected, atol=1e-5)
    assert torch.equal(semantic_delta(x, x), torch.zeros_like(x))
    assert semantic_delta(x.bfloat16(), y.bfloat16()).dtype == torch.float32


def test_conditions_see_what_they_say():
    x, y = torch.randn(2, 2, 16, 8).unbind(0)
    assert torch.equal(condition_tokens(x, y, "delta"), semantic_delta(x, y))
    assert torch.equal(condition_tokens(x, y, "target"), token_norm(y))
    assert condition_tokens(x, y, "pair").shape == (2, 32, 8)


def test_augmentation_is_the_same_for_both_and_another_for_each_sample():
    image = torch.rand(1, 3, 24, 32).expand(4, -1, -1, -1)
    first, second = augment_pair(image, image)
    assert torch.equal(first, second)
    assert not torch.allclose(first[0], first[1])
    changed = image.clone()
    changed[:, 0] = 1 - changed[:, 0]
    source, target = augment_pair(image, changed)
    assert torch.allclose(target[:, 0], 1 - source[:, 0], atol=1e-5)
    assert torch.equal(target[:, 1:], source[:, 1:])


def test_augmentation_keeps_shapes_upright_and_round():
    """A disc stays one in a wide picture: rotation counts in pixels, not in halves of the sides."""
    rows, columns = torch.meshgrid(torch.arange(40.0), torch.arange(80.0), indexing="ij")
    disc = ((rows - 19.5) ** 2 + (columns - 39.5) ** 2 < 100).float().expand(8, 3, 40, 80)
    seen, _ = augment_pair(disc, disc)
    mass = seen[:, 0]
    total = mass.sum(dim=(1, 2))
    spread = []
    for axis in (rows, columns):
        mean = (mass * axis).sum(dim=(1, 2)) / total
        spread.append((mass * (axis - mean.view(-1, 1, 1)) ** 2).sum(dim=(1, 2)) / total)
    assert torch.allclose(spread[0], spread[1], rtol=0.06)


def test_dropped_tokens_are_not_read():
    network, pair = adapter(), torch.randn(2, 16, 64)
    visible = torch.ones(2, 16, dtype=torch.bool)
    visible[:, 5:] = False
    other = pair.clone()
    other[:, 5:] = torch.randn(2, 11, 64)
    assert torch.allclose(network.tokens(pair, visible), network.tokens(other, visible), atol=1e-6)
    assert not torch.allclose(network.tokens(pair), network.tokens(other), atol=1e-3)
    share = drop_tokens(torch.zeros(200, 50, 1), 0.3).float().mean()
    assert float(share) == pytest.approx(0.7, abs=0.02)
    assert drop_tokens(pair, 0.0) is None


# -- adapter ------------------------------------------------------------------------------------


def test_gate_is_shut_at_first_but_can_open():
    network, pair = adapter(), torch.randn(2, 16, 64)
    assert torch.equal(network.project(pair), pair)
    network.tokens(pair).sum().backward()
    assert network.project.gate.grad.abs().sum() > 0
    assert network.project.mlp[1].weight.grad.abs().sum() == 0  # behind the shut gate
    with torch.no_grad():
        network.project.gate.fill_(0.1)
    network.tokens(pair).sum().backward()
    assert network.project.mlp[1].weight.grad.abs().sum() > 0


def test_resampler_against_a_naive_loop():
    resampler = PerceiverResampler(8, 3, 1, heads=2)
    tokens = torch.randn(1, 5, 8)
    layer = resampler.layers[0]
    q = resampler.queries[None]
    normed, keys = (
        layer.norm_queries(q),
        torch.cat([layer.norm_tokens(tokens), layer.norm_queries(q)], 1),
    )
    k, v = layer.to_kv(keys).chunk(2, -1)
    wanted = layer.to_q(normed)
    rows = []
    for i in range(3):
        parts = []
        for h in range(2):
            cut = slice(4 * h, 4 * h + 4)
            scores = (k[0, :, cut] @ wanted[0, i, cut]) / 2
            parts.append(scores.softmax(0) @ v[0, :, cut])
        rows.append(torch.cat(parts))
    q = q + layer.to_out(torch.stack(rows)[None])
    q = q + layer.feed_forward(q)
    assert torch.allclose(resampler(tokens), resampler.norm(q), atol=1e-5)


def test_keys_and_values_are_those_of_each_block():
    network, tokens = adapter(), torch.randn(2, 3, 16)
    edit = network.edit(tokens)
    weight = network.to_k.weight.view(4, 4, 32, 16)  # blocks, heads, d
    for block in range(4):
        expected = torch.einsum("bqc,hdc->bhqd", tokens, weight[block])
        assert torch.allclose(edit.keys[block], expected, atol=1e-5)


# -- attention ----------------------------------------------------------------------------------


def call(model, edit, size=16, instruction=None):
    torch.manual_seed(3)
    image = torch.rand(2, 3, size, size)
    grid, context = model.grid(image), model.encode(image)
    z = torch.randn_like(context)
    return model.velocity(z, torch.tensor([0.3, 0.9]), context, grid, edit, instruction)


def test_untrained_or_at_strength_zero_the_editor_is_untouched_bit_for_bit():
    """Alone it is told to leave the picture as it is; with an edit it is told nothing."""
    model = editor()
    network = adapter()
    fresh = network.edit(network.tokens(torch.randn(2, 16, 64)))
    alone, untold = call(model, None), call(model, None, instruction=model.unprompted(2))
    assert torch.equal(call(model, fresh), untold)
    assert torch.equal(call(model, live_edit().of(0.0)), alone)
    assert torch.equal(call(model, live_edit().of(torch.zeros(2))), alone)
    for other in (alone, untold):
        assert not torch.allclose(call(model, live_edit()), other, atol=1e-3)


def test_between_the_strengths_it_is_told_less_and_less():
    """A dead edit leaves what the editor is told: "leave it" at 0, nothing from 1 on."""
    model, network = editor(), adapter()
    fresh = network.edit(network.tokens(torch.randn(2, 16, 64)))
    alone, untold = call(model, None), call(model, None, instruction=model.unprompted(2))
    half = call(model, fresh.of(0.5))
    assert not torch.allclose(half, alone, atol=1e-4)
    assert not torch.allclose(half, untold, atol=1e-4)
    assert torch.equal(call(model, fresh.of(1.5)), untold)
    each = call(model, fresh.of(torch.tensor([0.0, 1.0])))
    assert torch.allclose(each[0], alone[0], atol=1e-5)
    assert torch.allclose(each[1], untold[1], atol=1e-5)


def test_every_block_of_both_kinds_is_reached():
    model, edit = editor(), live_edit()
    plain = call(model, None, instruction=model.unprompted(2))
    for block in range(4):
        up = torch.zeros_like(edit.up)
        up[block] = edit.up[block]
        one = call(model, Edit(edit.keys, edit.values, edit.down, up))
        assert not torch.allclose(one, plain, atol=1e-5), block


@pytest.mark.parametrize("double", [True, False])
def test_processor_against_the_formula(double):
    model, edit = editor(), live_edit(1)
    blocks = model.transformer.transformer_blocks
    attn = (blocks if double else model.transformer.single_transformer_blocks)[0].attn
    number = 0 if double else 2
    image, text = (
        torch.randn(1, 6, 128),
        torch.randn(1, 1, 128),
    )  # 3 of the target, 3 of the context
    hidden = image if double else torch.cat([text, image], dim=1)
    more = {"encoder_hidden_states": text} if double else {}
    plain = attn(hidden, **more)
    got = attn(hidden, **more, edit=edit.of(0.7), targets=3, context=3)
    plain, got = (x[0] if double else x for x in (plain, got))
    first = 0 if double else 1
    q = attn.norm_q(attn.to_q(image[:, :3]).unflatten(-1, (4, 32))).transpose(1, 2)
    attn.processor.query = None
    scores = (q @ edit.keys[number].transpose(-1, -2)) / 32**0.5
    read = (scores.softmax(-1) @ edit.values[number]).transpose(1, 2).flatten(2)
    added = 0.7 * read @ edit.down[number] @ edit.up[number]
    expected = plain + F.pad(added, (0, 0, first, 3))
    assert torch.allclose(got, expected, atol=1e-5)


def test_strength_of_each_sample():
    model, edit = editor(), live_edit()
    mixed = call(model, edit.of(torch.tensor([0.0, 1.0])))
    off = call(model, None)
    on = call(model, edit)
    assert torch.allclose(mixed[0], off[0], atol=1e-6)
    assert torch.allclose(mixed[1], on[1], atol=1e-6)


def test_gradient_checkpointing_changes_nothing():
    model, network = editor(), adapter()
    torch.nn.init.normal_(network.up, std=0.5)
    pair = torch.randn(2, 16, 64)
    gradients = []
    for on in (False, True):
        if on:
            model.transformer.enable_gradient_checkpointing()
        network.zero_grad()
        call(model, network.edit(network.tokens(pair))).square().sum().backward()
        gradients.append(network.resampler.queries.grad.clone())
    assert torch.allclose(*gradients, rtol=1e-4)


# -- flow and losses ----------------------------------------------------------------------------


def test_flow_path_and_its_inverse():
    clean, noise = torch.randn(2, 3, 4, 5).unbind(0)
    t = torch.tensor([0.0, 0.4, 1.0])
    z = noisy(clean, noise, t)
    assert torch.equal(z[0], clean[0])
    assert torch.equal(z[2], noise[2])
    assert torch.allclose(clean_estimate(z, noise - clean, t), clean, atol=1e-6)
    assert float(flow_loss(noise - clean, clean, noise)) == 0
    assert float(flow_loss(noise - clean + 2, clean, noise)) == pytest.approx(4, rel=1e-5)


def test_euler_is_exact_for_the_straight_flow():
    clean, noise = torch.randn(2, 2, 4, 5).unbind(0)
    assert torch.allclose(euler(lambda z, t: noise - clean, noise, 5, 0.7), clean, atol=1e-5)
    t = torch.tensor([0.0, 0.5, 1.0])
    assert shift_time(t, 0.0).tolist() == [0.0, 0.5, 1.0]
    assert float(shift_time(t, 1.0)[1]) == pytest.approx(2.71828 / 3.71828, rel=1e-4)


def test_noise_belongs_to_the_seed_not_to_the_batch():
    like = torch.zeros(2, 4, 3)
    assert torch.equal(draw_noise(like, [5, 7])[1], draw_noise(like[:1], [7])[0])


def test_delta_cosine_weighs_by_the_change():
    wanted = torch.zeros(1, 3, 2)
    wanted[0, 0], wanted[0, 1] = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 1.0])
    found = wanted.clone()
    found[0, 1] *= -5
    found[0, 2] = 9.0  # where nothing should change: no direction, no weight
    assert float(delta_cosine(found, wanted)) == pytest.approx((3 * 1 + 1 * -1) / 4)
    assert torch.equal(delta_cosine(wanted, torch.zeros_like(wanted)), torch.zeros(1))


def test_consistency_loss_in_its_limits():
    x, y = torch.randn(2, 2, 16, 8).unbind(0)
    kept = torch.tensor([True, True])
    assert float(consistency_loss(y, x, y, kept)) == pytest.approx(0, abs=1e-5)
    assert float(consistency_loss(y, x, y, ~kept)) == 0
    assert float(consistency_loss(y, x, x, kept)) == 0  # no edit has no direction
    assert float(consistency_loss(x.flip(1), x, y, kept)) > 0.3


def test_directional_similarity_is_of_the_change():
    query, before, after = torch.randn(3, 2, 16, 8).unbind(0)
    same = directional_similarity(after, before, before, after)
    back = directional_similarity(before, after, before, after)
    assert torch.allclose(same, torch.ones(2), atol=1e-5)
    assert torch.allclose(back, -torch.ones(2), atol=1e-5)
    assert directional_similarity(query, query, before, after).abs().max() < 1e-5


def test_metrics_by_hand():
    query, truth = torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 4, 4)
    truth[..., :2] = 1.0
    output = torch.full_like(query, 0.1)
    assert float(l1(output, truth)) == pytest.approx(0.5 * 0.9 + 0.5 * 0.1)
    assert float(psnr(output, query)) == pytest.approx(20, rel=1e-4)
    value, known = content_psnr(output, query, truth)
    assert (float(value), bool(known)) == (pytest.approx(20, rel=1e-4), True)
    assert not content_psnr(output, query, torch.ones_like(query))[1]
    right, known = attributes_right(
        torch.tensor([[1, 2], [1, 0], [0, 0]]), torch.tensor([[1, 2], [1, -1], [-1, -1]])
    )
    assert right.tolist() == [1, 1, 1]
    assert known.tolist() == [True, True, False]
    assert attributes_right(torch.tensor([[1, 0]]), torch.tensor([[1, 2]]))[0].tolist() == [0]


def test_encoder_reads_letter_boxed_pictures():
    wide = torch.ones(1, 3, 16, 64)
    boxed = letter_box(wide, 32)
    assert boxed.shape == (1, 3, 32, 32)
    assert torch.equal(boxed[..., 12:20, :], torch.ones(1, 3, 8, 32))
    assert torch.equal(boxed[..., :12, :], torch.full((1, 3, 12, 32), 0.5))
    encoder = TinyEncoder([3, 2])
    assert encoder(wide).shape == (1, 16, 64)
    assert encoder.read(wide).shape == (1, 2)


def test_attribute_loss_leaves_out_what_is_not_labelled():
    logits = [torch.tensor([[0.0, 0.0], [9.0, 0.0]]), torch.zeros(2, 4)]
    labels = torch.tensor([[0, -1], [-1, 3]])
    ones = torch.ones(2)
    expected = (torch.tensor(2.0).log() + torch.tensor(4.0).log()) / 2
    assert float(attribute_loss(logits, labels, ones)) == pytest.approx(float(expected))
    assert float(attribute_loss(logits, -torch.ones_like(labels), ones)) == 0
    assert float(attribute_loss(logits, labels, 0 * ones)) == 0


# -- per-pair LoRA ------------------------------------------------------------------------------


def test_lora_learns_the_pair_and_leaves_the_editor_as_it_was():
    model = editor().requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    source = torch.full((1, 3, 16, 16), 0.2)
    target = 1 - source
    image = model.encode(source)
    grid, t = model.grid(source), torch.tensor([0.9])
    z = noisy(model.encode(target), torch.randn_like(image), t)

    def error():
        clean = clean_estimate(z, model.velocity(z, t, image, grid), t)
        return float((model.decode(clean, grid) - target).abs().mean())

    with torch.inference_mode():
        plain = error()
        with pair_lora(model, source, target, steps=40):
            assert error() < 0.9 * plain
        assert error() == plain
    after = model.state_dict()
    assert set(after) == set(before)
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert not any(p.requires_grad for p in model.parameters())


def test_flux_tokens_are_packed_as_its_pipeline_does():
    from diffusers import FluxKontextPipeline

    from zoo.delta_adapter.pretrained import _pack, _unpack

    latents = torch.randn(1, 16, 8, 6)
    theirs = FluxKontextPipeline._pack_latents(latents, 1, 16, 8, 6)
    assert torch.equal(_pack(latents), theirs)
    assert torch.equal(_unpack(theirs, (4, 3), None, 8), latents)
    assert _unpack(theirs, (4, 3), 32, 8).shape == (1, 16, 4, 3)
