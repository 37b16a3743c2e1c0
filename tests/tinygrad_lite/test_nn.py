import numpy as np
import pytest

from tests.places import here
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Conv2d, Dropout, Embedding, LayerNorm, Linear, Module, Parameter, RMSNorm, shapes_only

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]


class Net(Module):
    """One of each: an embedding, a list of modules, a tied matrix, a parameter that belongs to no layer."""

    def __init__(self):
        super().__init__()
        self.table = Embedding(5, 4)
        self.layers = [Linear(4, 4), Linear(4, 4, bias=False)]
        self.norm = LayerNorm(4)
        self.drop = Dropout(0.5)
        self.gain = Parameter(np.ones(3, np.float32))
        self.head = Linear(4, 5, bias=False)
        self.head.weight = self.table.weight
        self.notes = ["a list of other objects", 3]

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(self.norm(x)))


NAMES = ["gain", "table.weight", "layers.0.weight", "layers.0.bias", "layers.1.weight", "norm.weight", "norm.bias"]


def copies(state):
    return {name: array.copy() for name, array in state.items()}


def test_a_tied_parameter_counts_once():
    net = Net()
    assert sum(parameter is net.table.weight for parameter in net.parameters()) == 1
    assert list(net.state_dict()) == NAMES
    assert net.num_parameters() == 3 + 5 * 4 + (4 * 4 + 4) + 4 * 4 + 4 + 4


def test_a_tied_parameter_collects_the_gradients_of_both_uses():
    net = Net().eval()
    ids = Tensor([0, 1, 1])
    net(ids).sum().backward()
    tied = net.table.weight.grad.numpy().copy()
    net.zero_grad()
    net.head.weight = Parameter(net.table.weight.numpy().copy())
    net(ids).sum().backward()
    np.testing.assert_allclose(tied, net.table.weight.grad.numpy() + net.head.weight.grad.numpy(), rtol=1e-5)


def test_evaluating_lasts_for_a_block_and_each_part_is_then_as_before():
    net = Net()
    net.drop.eval()
    with net.evaluating():
        assert not any(part.training for _, part in net.named_modules())
    assert [name for name, part in net.named_modules() if not part.training] == ["drop"]


def test_a_convolution_has_its_settings_in_torchs_order():
    layer, x = Conv2d(4, 6, (3, 2), 2, (1, 0), 2, 2), Tensor.randn(2, 4, 7, 6)
    assert {name: p.shape for name, p in layer.named_parameters()} == {"weight": (6, 2, 3, 2), "bias": (6,)}
    settings = {"stride": 2, "padding": (1, 0), "dilation": 2, "groups": 2}
    np.testing.assert_array_equal(layer(x).numpy(), x.conv2d(layer.weight, layer.bias, **settings).numpy())
    assert np.abs(layer.weight.numpy()).max() <= 12**-0.5  # 12 inputs: 2 channels, 3 x 2 pixels


@pytest.mark.parametrize("layer", [Linear(2, 3, bias=False), LayerNorm(2, bias=False), Conv2d(1, 2, 3, bias=False)])
def test_without_a_bias_there_is_no_parameter_for_it(layer):
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_initial_values_are_distributed_as_in_torch():
    """Uniform in +-1/sqrt(inputs) has deviation 1/sqrt(3 inputs); embeddings are normal with deviation 1."""
    manual_seed(1)
    layer, table, norm, rms = Linear(100, 200), Embedding(300, 100), LayerNorm(7), RMSNorm(7)
    for values in (layer.weight.numpy(), layer.bias.numpy()):
        assert np.abs(values).max() <= 0.1
    assert layer.weight.numpy().std() == pytest.approx(0.1 / 3**0.5, rel=0.02)
    assert table.weight.numpy().std() == pytest.approx(1, rel=0.02)
    assert norm.weight.tolist() == rms.weight.tolist() == [1.0] * 7
    assert norm.eps == rms.eps == 1e-5
    assert norm.bias.tolist() == [0.0] * 7
    assert {parameter.dtype for parameter in (*layer.parameters(), *table.parameters())} == {np.dtype("float32")}


def test_initial_values_depend_on_the_seed_only():
    states = []
    for seed in (1, 1, 2):
        manual_seed(seed)
        states.append(Net().state_dict())
    first, same, other = states
    assert all((first[name] == same[name]).all() for name in NAMES)
    assert (first["layers.0.weight"] != other["layers.0.weight"]).all()
    assert (first["layers.0.weight"] != first["layers.1.weight"]).all()


def test_train_and_eval_switch_all_modules():
    net = Net().eval()
    ids = Tensor([0, 1, 2, 3, 4] * 20)
    np.testing.assert_array_equal(net(ids).numpy(), net(ids).numpy())
    net.train()
    assert (net(ids).numpy() != net(ids).numpy()).any()


# --- state ----------------------------------------------------------------------------------------------------


def test_a_state_can_be_loaded_into_another_model():
    manual_seed(1)
    one, other = Net().eval(), Net().eval()
    ids = Tensor([3, 1, 4])
    assert (one(ids).numpy() != other(ids).numpy()).any()
    other.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(one(ids).numpy(), other(ids).numpy())
    assert other.head.weight is other.table.weight
    one.gain.data[...] = 7  # copied, not shared
    assert other.gain.tolist() == [1.0, 1.0, 1.0]


def test_loading_takes_arrays_of_any_layout():
    net = Net()
    state = {name: np.asfortranarray(array) for name, array in copies(net.state_dict()).items()}
    state["gain"] = np.arange(6, dtype=np.float32)[::2]
    net.load_state_dict(state)
    assert net.gain.tolist() == [0.0, 2.0, 4.0]


def test_all_mismatches_are_listed_and_nothing_is_changed():
    net = Net()
    before, state = copies(net.state_dict()), copies(net.state_dict())
    for array in state.values():
        array += 1
    del state["norm.bias"], state["gain"]
    state["norm.shift"] = np.zeros(4, np.float32)
    state["layers.1.weight"] = np.zeros((4, 3), np.float32)
    wrong = r"missing: gain, norm.bias; unexpected: norm.shift; mis-shaped: layers.1.weight is \(4, 3\), the model has"
    with pytest.raises(ValueError, match=f"^the state does not match Net; {wrong}"):
        net.load_state_dict(state)
    np.testing.assert_equal(net.state_dict(), before)


def test_loading_over_a_value_that_a_backward_pass_still_needs_is_detected():
    net = Net().eval()
    for write in (lambda: net.load_state_dict(copies(net.state_dict())), lambda: net.layers[1].weight.reset(np.ones)):
        loss = net(Tensor([1])).sum()
        write()
        with pytest.raises(RuntimeError, match="overwritten in place"):
            loss.backward()


def test_a_module_can_be_moved_to_another_type_and_device(device):
    net = Net()
    before = copies(net.state_dict())
    net(Tensor([1])).sum().backward()
    gradients = {name: p.grad.numpy().copy() for name, p in net.named_parameters() if p.grad is not None}
    assert net.to(device, "float64") is net
    moved = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    assert {(x.device, x.dtype.name) for x in (*net.parameters(), *moved.values())} == {(device, "float64")}
    np.testing.assert_equal({name: grad.numpy() for name, grad in moved.items()}, gradients)
    assert net.head.weight is net.table.weight
    assert net(Tensor([1], device=device)).device == device
    np.testing.assert_equal(net.to(here(), np.float32).state_dict(), before)


def test_a_module_shows_its_parts_and_their_parameters():
    net = Net()
    assert repr(net) == (
        "Net, 67 parameters: gain (3,)\n"
        "  table: Embedding, 20 parameters: weight (5, 4)\n"
        "  layers.0: Linear, 20 parameters: weight (4, 4), bias (4,)\n"
        "  layers.1: Linear, 16 parameters: weight (4, 4)\n"
        "  norm: LayerNorm, 8 parameters: weight (4,), bias (4,)\n"
        "  drop: Dropout\n"
        "  head: Linear, 20 parameters: weight (5, 4) tied"
    )
    net.layers = [net.norm, Linear(4, 4), Linear(4, 4), Linear(4, 4), Module(), Module()]
    assert [line for line in repr(net).splitlines() if "layers" in line] == [
        "  layers.0: LayerNorm, 8 parameters: weight (4,), bias (4,)",
        "  layers.1 to layers.3, each: Linear, 20 parameters: weight (4, 4), bias (4,)",
        "  layers.4 to layers.5, each: Module",
    ]


def test_shapes_only_allocates_no_values():
    if here() != "cpu":
        pytest.skip("elsewhere, the tests move every parameter to another device")
    with shapes_only():
        net = Net()
        layer = Linear(10**6, 10**6)
    assert [p.shape for p in net.parameters()] == [p.shape for p in Net().parameters()]
    assert layer.weight.data.strides == (0, 0)  # a single number in memory, stretched to 10^12
    assert repr(layer).startswith("Linear, 1,000,001,000,000 parameters")
    assert Linear(2, 3).weight.numpy().all()  # outside, values are drawn again


class Made(Module):
    """A module built from settings."""

    def __init__(self, config):
        super().__init__()
        self.linear = Linear(config, 3)


def test_from_weights_copies_them_and_draws_no_random_numbers(monkeypatch):
    weights = {"linear.weight": np.ones((3, 2)), "linear.bias": np.ones(3)}
    monkeypatch.setattr("tinygrad_lite.nn.layers.next_rng", None)
    made = Made.from_weights(2, weights, here())
    weights["linear.weight"][0, 0] = 7
    assert made.linear.weight.tolist() == [[1.0, 1.0]] * 3
    assert made.linear.weight.requires_grad
    made.linear(Tensor(np.ones((1, 2)))).sum().backward()
    assert made.linear.bias.grad.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(CheckpointError, match="settings describe a Made of 3,003 parameters, but the weights have 9"):
        Made.from_weights(1000, weights)
