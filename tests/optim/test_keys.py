"""What hooks leave beside the weights: right sums, shared, freed, and only in training."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from zoo.errors import ZooError
from zoo.optim import DeltaAdamW, DeltaSGD, attach_delta_keys, delta_flops
from zoo.optim.keys import KEYS, spread


def gram(rows):
    unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-6)
    return unit.T @ unit


class Attention(nn.Module):
    """Three layers on one input, a fourth on another."""

    def __init__(self, width=6):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, skip=False):
        mixed = self.q(x) * self.k(x) + (0 if skip else self.v(x))
        return self.o(mixed)


def test_sum_is_that_of_unit_keys():
    layer = nn.Linear(5, 3)
    x = torch.randn(2, 7, 5)
    with attach_delta_keys(layer, key_fraction=1.0):
        layer(x)
        found = KEYS.peek(layer.weight)["gram"]
    torch.testing.assert_close(found.total, gram(x.flatten(0, 1)))
    assert found.count == 14


def test_fraction_of_the_keys_is_right_on_average():
    layer = nn.Linear(5, 3)
    x = torch.randn(4000, 5) * torch.tensor([3.0, 1, 1, 1, 1])
    with attach_delta_keys(layer, key_fraction=0.5):
        layer(x)
        found = KEYS.peek(layer.weight)["gram"]
    assert found.count == 2000
    torch.testing.assert_close(found.total / 2000, gram(x) / 4000, atol=0.03, rtol=0)


@pytest.mark.parametrize(("total", "number"), [(65536, 4096), (2048, 1024), (17, 16), (1, 1)])
def test_chosen_places_are_distinct_and_meet_all_columns(total, number):
    places = spread(total, number)
    assert len(set(places.tolist())) == number
    assert places.max() < total
    if total >= 2048:
        counts = torch.bincount(places % 32, minlength=32)
        assert counts.min() > 0.8 * number / 32


def test_layers_on_one_input_share_one_sum():
    net, x = Attention(), torch.randn(9, 6)
    with attach_delta_keys(net, key_fraction=1.0):
        net(x)
        net(x + 1)  # a second micro-batch
        q, k, v, o = (KEYS.peek(m.weight)["gram"] for m in (net.q, net.k, net.v, net.o))
    assert q is k is v
    assert o is not q
    torch.testing.assert_close(q.total, gram(x) + gram(x + 1))


def test_a_layer_skipped_in_one_micro_batch_keeps_its_own_sum():
    net, x = Attention(), torch.randn(9, 6)
    with attach_delta_keys(net, key_fraction=1.0):
        net(x, skip=True)
        net(x + 1)
        q, v = (KEYS.peek(m.weight)["gram"] for m in (net.q, net.v))
    torch.testing.assert_close(q.total, gram(x) + gram(x + 1))
    torch.testing.assert_close(v.total, gram(x + 1))
    assert (q.count, v.count) == (18, 9)


def test_an_input_changed_in_place_is_a_new_one():
    layer, x = nn.Linear(4, 4), torch.randn(6, 4)
    first = gram(x)
    with attach_delta_keys(layer, key_fraction=1.0):
        layer(x)
        x.mul_(torch.tensor([1.0, 2, 3, 4]))
        layer(x)
        torch.testing.assert_close(KEYS.peek(layer.weight)["gram"].total, first + gram(x))


def test_a_weight_used_twice_sums_both():
    layer, x = nn.Linear(5, 5), torch.randn(8, 5)
    with attach_delta_keys(layer, key_fraction=1.0):
        hidden = layer(x)
        layer(hidden)
        found = KEYS.peek(layer.weight)["gram"]
    torch.testing.assert_close(found.total, gram(x) + gram(hidden))


def test_accumulated_micro_batches_are_one_batch():
    x, y = torch.randn(16, 6), torch.randn(16, 6)

    def last(parts):
        torch.manual_seed(0)
        net = Attention()
        optimizer = DeltaSGD(net.parameters(), lr=0.3)
        with attach_delta_keys(net, key_fraction=1.0):
            for _ in range(4):
                optimizer.zero_grad()
                for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
                    ((net(a) - b).square().mean() / parts).backward()
                optimizer.step()
        return net.o.weight.detach()

    torch.testing.assert_close(last(4), last(1))


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations_change_nothing(reentrant):
    x = torch.randn(16, 6, requires_grad=True)

    def last(recompute):
        torch.manual_seed(0)
        net = Attention()
        optimizer = DeltaAdamW(net.parameters(), lr=0.1)
        with attach_delta_keys(net):
            for _ in range(4):
                optimizer.zero_grad()
                out = checkpoint(net, x, use_reentrant=reentrant) if recompute else net(x)
                (out - 1).square().mean().backward()
                optimizer.step()
        return net.q.weight.detach()

    torch.testing.assert_close(last(True), last(False))


def test_only_training_with_gradients_leaves_keys():
    layer, frozen = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)
    with attach_delta_keys(nn.ModuleList([layer, frozen])):
        layer.eval()(torch.randn(3, 4))
        with torch.no_grad():
            layer.train()(torch.randn(3, 4))
        frozen(torch.randn(3, 4))
        assert not KEYS.peek(layer.weight)
        assert not KEYS.peek(frozen.weight)


def test_a_step_frees_everything_and_the_handle_removes_the_hooks():
    net, x = Attention(), torch.randn(8, 6)
    optimizer = DeltaSGD(net.parameters())
    with attach_delta_keys(net):
        net(x).sum().backward()
        sums = [weakref.ref(KEYS.peek(m.weight)["gram"].total) for m in (net.q, net.o)]
        optimizer.step()
        gc.collect()
        assert all(reference() is None for reference in sums)  # x lives on, its sums do not
    net(x)
    assert not KEYS.peek(net.q.weight)
    assert net.q.weight not in KEYS.shapes


# PyTorch itself pads a copy there: aten/src/ATen/native/Convolution.cpp.
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3},
        {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
        {"kernel_size": 3, "dilation": 2, "padding": 2},
        {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"},
        {"kernel_size": (4, 3), "padding": "same"},
    ],
)
def test_keys_of_a_convolution_are_its_patches(options):
    conv = nn.Conv2d(3, 4, **options)
    x = torch.randn(2, 3, 9, 8)
    with attach_delta_keys(conv, max_keys=10**6):
        out = conv(x)
        found = KEYS.peek(conv.weight)["gram"]
    # A convolution of the same geometry whose kernels are the unit vectors gives the patches.
    basis = nn.Conv2d(3, 3 * conv.weight[0, 0].numel(), bias=False, **options)
    basis.weight.data = torch.eye(len(basis.weight)).view_as(basis.weight)
    patches = basis(x).detach().permute(0, 2, 3, 1).flatten(0, 2)
    assert found.count == out.shape[0] * out.shape[2] * out.shape[3]
    torch.testing.assert_close(found.total, gram(patches), rtol=1e-4, atol=1e-4)


def test_convolutions_take_at_most_so_many_patches_and_groups_none():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1, groups=2))
    with attach_delta_keys(net, max_keys=50) as handle:
        net(torch.randn(2, 4, 16, 16))
        assert KEYS.peek(net[0].weight)["gram"].count == 50
        assert handle.names == ["0"]


def test_embeddings_tied_weights_and_own_forwards_are_left_out():
    class Own(nn.Linear):
        def forward(self, x):
            return F.linear(x + 1, self.weight)

    net = nn.ModuleDict({"table": nn.Embedding(7, 4), "tied": nn.Linear(4, 7), "own": Own(4, 4)})
    net["tied"].weight = net["table"].weight
    net["lm_head"], net["plain"] = nn.Linear(4, 7), nn.Linear(4, 4)
    with attach_delta_keys(net) as handle:
        assert handle.names == ["plain"]
        with attach_delta_keys(net) as again:
            assert again.names == []


def test_low_precision_forward_keeps_its_sums_in_float32():
    layer = nn.Linear(5, 3)
    with attach_delta_keys(layer), torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.randn(6, 5, dtype=torch.bfloat16))
        assert KEYS.peek(layer.weight)["gram"].total.dtype == torch.float32


def test_a_loss_scale_changes_nothing_and_an_overflow_costs_one_plain_step():
    x = torch.randn(16, 6)

    def last(scale):
        torch.manual_seed(0)
        layer = nn.Linear(6, 6)
        optimizer = DeltaAdamW(layer.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale is not None)
        with attach_delta_keys(layer):
            for step in range(4):
                optimizer.zero_grad()
                batch = x * float("inf") if step == 1 and scale == 4.0 else x
                scaler.scale((layer(batch) - 1).square().mean()).backward()
                scaler.step(optimizer)
                scaler.update()
        return layer.weight.detach()

    plain = last(None)
    torch.testing.assert_close(last(1024.0), plain)
    assert last(4.0).isfinite().all()


# PyTorch's tracer looks at .grad of all tensors that cross a graph break.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_and_plain_agree():
    x = torch.randn(16, 6)

    def last(compiled):
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = Attention()
        optimizer = DeltaSGD(net.parameters(), lr=0.3)
        with attach_delta_keys(net):
            run = torch.compile(net, backend="aot_eager") if compiled else net
            for _ in range(4):
                optimizer.zero_grad()
                (run(x) - 1).square().mean().backward()
                assert len(KEYS.peek(net.q.weight)) == 1
                optimizer.step()
        return net.q.weight.detach()

    torch.testing.assert_close(last(True), last(False))


def test_reading_out_equals_the_gram_matrix():
    x, y = torch.randn(32, 24), torch.randn(32, 4)

    def last(route):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(24, 4), nn.Linear(4, 4))
        optimizer = DeltaAdamW(net.parameters(), lr=0.05)
        with attach_delta_keys(net, key_fraction=1.0, route=route):
            for _ in range(5):
                optimizer.zero_grad()
                (net(x) - y).square().mean().backward()
                kinds = [set(KEYS.peek(layer.weight)) for layer in net]
                optimizer.step()
        return kinds, net[0].weight.detach()

    kinds, found = last("readout")
    assert kinds == [{"readout"}, {"gram"}]  # only a wide input is worth it
    torch.testing.assert_close(found, last("gram")[1])


@pytest.mark.parametrize("cls", [DeltaSGD, DeltaAdamW])
def test_unit_values_store_errors_without_the_length_of_their_keys(cls):
    torch.manual_seed(0)
    layer = nn.Linear(6, 4, bias=False).double()
    optimizer = cls(layer.parameters(), lr=0.1)
    memory = None
    with attach_delta_keys(layer, key_fraction=1.0, values="unit"):
        for _ in range(4):
            x = torch.randn(9, 6).double()
            optimizer.zero_grad()
            out = layer(x)
            out.square().sum(1).mean().backward()
            unit = x / x.norm(dim=1, keepdim=True)
            stored = (2 * out.detach() / 9).T @ unit
            optimizer.step()
            first = stored if cls is DeltaSGD else 0.1 * stored
            second = unit.T @ unit / 9
            memory = (
                first if memory is None else 0.9 * memory + 0.1 * stored - 0.8 * memory @ second
            )
            torch.testing.assert_close(optimizer.momentum(layer.weight), memory)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"key_fraction": 0}, "key_fraction=0"),
        ({"max_keys": 0}, "max_keys"),
        ({"route": "grams"}, "Did you mean 'gram'"),
        ({"values": "rau"}, "Did you mean 'raw'"),
    ],
)
def test_wrong_options_are_one_sentence(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        attach_delta_keys(nn.Linear(2, 2), **options)


class Gated(nn.Module):
    """The linear layers of a gated-MLP block."""

    def __init__(self, d, hidden):
        super().__init__()
        self.attention = Attention(d)
        self.gate, self.up = (nn.Linear(d, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        x = self.attention(x)
        return self.down(self.gate(x) * self.up(x))


def test_counted_operations_are_those_that_are_done():
    net, x = Gated(24, 64), torch.randn(2, 20, 24)

    def operations(fraction):
        optimizer = DeltaSGD(net.parameters())
        with FlopCounterMode(display=False) as counter:
            if fraction:
                with attach_delta_keys(net, key_fraction=fraction):
                    net(x).sum().backward()
                    optimizer.step()
                    net(x).sum().backward()
                    optimizer.step()  # the first step's momentum is empty: no product M S
            else:
                net(x).sum().backward()
                net(x).sum().backward()
        return counter.get_total_flops()

    for fraction in (1.0, 0.5):
        count = delta_flops(net, 40, inputs={"x": x}, key_fraction=fraction)
        extra = operations(fraction) - operations(0)
        assert extra == 2 * count.keys + count.memory
    # The input needs no gradient, so three of the layers have no second backward product.
    assert operations(0) == 2 * (count.layers - 3 * 2 * 40 * 24 * 24)


def test_count_of_a_block_is_that_of_the_abstract():
    net = Gated(96, 256)
    many = delta_flops(net, 10**9, inputs={"x": torch.randn(4, 96)}, key_fraction=1.0)
    assert many.overhead == pytest.approx(0.281, abs=1e-3)
    assert many.paper_overhead == pytest.approx(17 / 108)
    half = delta_flops(net, 10**9, inputs={"x": torch.randn(4, 96)})
    assert half.overhead == pytest.approx(0.140, abs=1e-3)
    assert half.gram_bytes == 4 * (3 * 96**2 + 256**2)
    with pytest.raises(ZooError, match="inputs"):
        delta_flops(net, 10)
