"""Torch's and NumPy's names: those accepted here too, and what to write instead of the others.

The tables are all there is to edit. A name that is accepted works like the one it stands for; `help()` and docs/api.md
list only that one. Any other name in the tables raises an error that says what to write. Those of arguments are read by
`tinygrad_lite/arguments.py`, all others are attributes of classes and modules: nothing here runs in a call under its
own name, and no function of this file stands in the traceback of a call that is accepted.
"""

import functools
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

# --- arguments --------------------------------------------------------------------------------------------------

# The name there -> the name here: the first one that the function has.
ACCEPTED_ARGUMENTS = {
    "attn_mask": "mask",
    "chunks": "count",
    "dim": "axis axes",
    "dim0": "axis0",
    "dim1": "axis1",
    "dims": "axis axes",
    "end_dim": "end_axis",
    "fill_value": "value",
    "input": "x logits",
    "keepdims": "keepdim",
    "max": "high",
    "min": "low",
    "size": "shape",
    "split_size": "sizes",
    "split_size_or_sections": "sizes",
    "start_dim": "start_axis",
    "target": "targets",
}
ARGUMENTS_INSTEAD = {
    "ceil_mode": "pad x first, with x.pad(...)",
    "count_include_pad": "leave it out: the zeros of the padding count",
    "create_graph": "second derivatives are not offered",
    "inplace": "write x = ...; every operation returns a new tensor",
    "order": "write .permute() first",
    "retain_graph": "add the losses and call backward() once",
    "training": "use nn.Dropout, which knows model.train() and model.eval()",
    "unbiased": "write correction=0 to divide by n, correction=1 to divide by n - 1",
    "weight": "there are no class weights; multiply the losses of reduction='none'",
}

# Operations whose namesakes in torch take or return something else: there, x.max(1) is a pair, values and positions.
BY_NAME_ONLY = {
    "max": "x.amax(axis) gives the values, x.argmax(axis) their positions, x.maximum(y) the larger of two tensors",
    "layer_norm": "leave out torch's normalized_shape, and give weight=..., bias=..., eps=... by name",
    "rms_norm": "leave out torch's normalized_shape, and give weight=..., eps=... by name",
    "min": "x.amin(axis) gives the values, x.argmin(axis) their positions, x.minimum(y) the smaller of two tensors",
}

# --- methods of a tensor ----------------------------------------------------------------------------------------

# The name there -> the method here, and an argument that it is called with.
ACCEPTED_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "add": ("__add__", {}),
    "clamp": ("clip", {}),
    "div": ("__truediv__", {}),
    "float": ("cast", {"dtype": "float32"}),
    "matmul": ("__matmul__", {}),
    "mul": ("__mul__", {}),
    "neg": ("__neg__", {}),
    "pow": ("__pow__", {}),
    "square": ("__pow__", {"exponent": 2}),
    "sub": ("__sub__", {}),
    "view": ("reshape", {}),
}
# The names there (several on a line mean the same) -> what to write here.
METHODS_INSTEAD = {
    "size": "x.shape for the sizes, x.numel() for the number of elements",
    "dim ndimension": "x.ndim",
    "nelement": "x.numel()",
    "nbytes itemsize strides stride flags": "x.data, which is the NumPy array",
    "type astype type_as long int double half bool bfloat16 byte": "x.cast(dtype), as in x.cast('int64')",
    "cpu cuda": "x.to(device), as in x.to('cuda')",
    "is_cuda": "x.device == 'cuda'",
    "copy copy_": "x.clone() for a copy with its gradient, x.numpy().copy() for an array, y[:] = x to write into y",
    "contiguous": "nothing: reshape takes any layout",
    "grad_fn is_leaf": "x.op, which is empty for a leaf; `with tinygrad_lite.debug.graph.Graph() as g:` shows a graph",
    "register_hook hook": "x.retain_grad(), and read x.grad after backward()",
    "detach_": "x = x.detach()",
    "mm bmm mv dot addmm": "x @ y",
    "inner": "(x * y).sum(-1) of vectors, or x @ y.transpose(-2, -1)",
    "outer": "x.unsqueeze(1) * y",
    "t swapaxes swapdims": "x.T, or x.transpose(axis0, axis1)",
    "mT mH H": "x.transpose(-2, -1)",
    "movedim moveaxis": "x.permute(axes)",
    "expand_as broadcast_to": "x.expand(y.shape)",
    "view_as reshape_as": "x.reshape(y.shape)",
    "ravel": "x.flatten()",
    "tile": "x.repeat(times)",
    "concat concatenate": "x.cat(y, axis=0)",
    "hstack vstack": "x.cat(y, axis=1) or x.cat(y, axis=0), of matrices",
    "eq ne lt le gt ge equal": "x == y, x < y and so on; (x == y).all() for one answer",
    "logical_and logical_or logical_xor logical_not": "a & b, a | b, a ^ b, ~a, on truth values",
    "isnan": "x != x",
    "norm": "(x * x).sum(axis).sqrt()",
    "rsqrt reciprocal": "x ** -0.5, x ** -1.0",
    "log2 log10": "x.log() / math.log(2), or / math.log(10)",
    "log1p expm1 exp2": "(1 + x).log(), x.exp() - 1, 2 ** x",
    "cumsum": "x @ Tensor.ones(n, n).triu() along the last axis, of length n",
    "fmod": "x % y for positive numbers; for others np.fmod(x.numpy(), y.numpy()): no gradient",
    "roll": "x[count:].cat(x[:count]) along the first axis",
    "floor_divide remainder": "x // y, x % y",
    "masked_select index_select take select narrow": "x[index], with slices, integer tensors or truth values",
    "scatter scatter_ index_add_": "y.where(a, b) or one_hot; y[index] = values under no_grad()",
    "mse_loss": "((x - y) ** 2).mean()",
    "nll_loss": "logits.cross_entropy(targets)",
    "softplus leaky_relu elu": "its formula; docs/engine.md adds softplus as an operation of your own",
    "new_zeros new_ones new_full": "Tensor.zeros(shape, dtype=x.dtype, device=x.device)",
    "rand_like randn_like": "Tensor.randn(x.shape, device=x.device)",
    "zero_ fill_ normal_ uniform_": "w[:] = values under no_grad()",
    "tensor as_tensor from_numpy asarray": "Tensor(data)",
    "empty": "Tensor.zeros(shape)",
    "randint randperm": "Tensor(rng.integers(low, high, shape)), with rng = np.random.default_rng(seed)",
    "linspace": "Tensor(np.linspace(start, stop, count), dtype='float32')",
}


# --- names of modules -------------------------------------------------------------------------------------------

NAMES_INSTEAD = {
    "ReLU GELU SiLU Sigmoid Tanh Softmax Flatten": "the method: x.relu(), x.gelu(), x.softmax(axis), ...",
    "CrossEntropyLoss NLLLoss": "logits.cross_entropy(targets)",
    "MSELoss mse_loss": "((x - y) ** 2).mean()",
    "L1Loss l1_loss": "(x - y).abs().mean()",
    "BCEWithLogitsLoss": "functional.binary_cross_entropy_with_logits(x, targets)",
    "lr_scheduler": "optimizer.lr = cosine(step, learning_rate, ...) in the loop; constant and trapezoid likewise",
    "MaxPool2d AvgPool2d": "the method: x.max_pool2d(2), x.avg_pool2d(2)",
    "AdaptiveAvgPool2d adaptive_avg_pool2d": "x.mean((2, 3)) for the mean of whole pictures",
    "BatchNorm2d BatchNorm1d GroupNorm": "LayerNorm or RMSNorm, over the last axis",
    "Conv1d conv1d": "Conv2d with pictures of one row: x.unsqueeze(2), and kernel_size=(1, k)",
    "RNN LSTM": "extra.mixers.recurrent.LSTM(input_size, hidden_size), which is one layer, batch first; RNN likewise",
    "MultiheadAttention": "tinygrad_lite.transformer.MultiHeadAttention",
    "TransformerEncoderLayer TransformerDecoderLayer Transformer": "tinygrad_lite.transformer.Block",
    "init": "parameter[:] = values under no_grad()",
    "utils": "optimizer.clip_grad_norm(max_norm)",
    "functional": "tinygrad_lite.functional",
    "float32 float64 int64 bool": "the name in quotes, as in dtype='float32'",
    "device": "the name in quotes, 'cpu' or 'cuda'",
    "inference_mode enable_grad set_grad_enabled": "no_grad()",
    "autograd grad": "loss.backward(), and read the .grad of each leaf",
    "Function": "a function that returns node(y, parents, backward, name): docs/engine.md adds one",
    "save load": "safetensors.numpy.save_file(model.state_dict(), path), load_file and model.load_state_dict",
}


# Methods of a module.
MODULES_INSTEAD = {
    "cuda cpu": "module.to(device), as in module.to('cuda')",
    "half float double bfloat16 type": "module.to(device, dtype), as in module.to('cpu', 'float64')",
    "children modules named_children": "module.named_modules()",
    "apply": "a loop over module.named_modules() or module.parameters()",
    "requires_grad_": "parameter.requires_grad_(False) in a loop over module.parameters()",
    "register_parameter add_module": "self.name = ..., a plain attribute",
    "compile": "nothing: there is no compiler",
    "register_forward_hook register_forward_pre_hook": "`with nn.recorded(model, nn.Linear) as calls:` around the call",
    "register_full_backward_hook register_backward_hook": "y.retain_grad(), and read y.grad after backward()",
}
OPTIMIZERS_INSTEAD = {
    "add_param_group": "all groups when the optimizer is made: SGD([{'params': ..., 'lr': ...}, ...])"
}


ALL_NAMES = "docs/api.md lists all names"

# --- how the tables take effect ---------------------------------------------------------------------------------


def install() -> None:
    """Make the engine's classes, functions and modules accept or answer the other names."""
    # Not at the top of the file: `import tinygrad_lite` imports this file, in its last line.
    import tinygrad_lite
    from tinygrad_lite import Tensor, arguments, autograd, functional, nn, optim
    from tinygrad_lite.tensor import Listed

    arguments.ACCEPTED.update(ACCEPTED_ARGUMENTS)
    arguments.INSTEAD.update(ARGUMENTS_INSTEAD)
    arguments.BY_NAME_ONLY.update(BY_NAME_ONLY)
    for name, (method, given) in ACCEPTED_METHODS.items():
        setattr(Tensor, name, Accepted(getattr(Tensor, method), **given))
    answers = {Tensor: others(Tensor) | written(METHODS_INSTEAD), nn.Module: written(MODULES_INSTEAD)}
    for kind, table in (answers | {optim.Optimizer: written(OPTIMIZERS_INSTEAD)}).items():
        for name, instead in table.items():
            setattr(kind, name, Elsewhere(name, instead))
    for module in (tinygrad_lite, autograd, functional, nn, optim):
        module.__getattr__ = functools.partial(no_such_name, module, Tensor)
    Listed.hidden += (Accepted, Elsewhere)


def written(table: dict[str, str]) -> dict[str, str]:
    """For each name in a table, one by one, the end of the sentence."""
    return {name: f"write {instead}" for names, instead in table.items() for name in names.split()}


def others(tensor: type) -> dict[str, str]:
    """The same for NumPy's functions, the names in torch_names.txt, and torch's in-place ones, which end in "_"."""
    known = {name for kind in tensor.__mro__ for name in vars(kind)}
    functions = [name for name, value in vars(np).items() if callable(value) and name[0] != "_"]
    # Names of torch.Tensor that need no advice of their own.
    found = dict.fromkeys(Path(__file__).with_name("torch_names.txt").read_text(encoding="utf-8").split(), ALL_NAMES)
    found |= {name: f"np.{name}(x.numpy()) has no gradient; {ALL_NAMES}" for name in functions}
    in_place = "results are new tensors: write x = ..., or x[...] = values to write into x"
    found |= {f"{name}_": in_place for name in {*known, *found, *written(METHODS_INSTEAD)} if not name.endswith("_")}
    return {name: instead for name, instead in found.items() if name not in known}


def no_such_name(module: ModuleType, tensor: type, name: str) -> NoReturn:
    """Raise the AttributeError of a module for a name that it does not have."""
    instead = written(NAMES_INSTEAD | METHODS_INSTEAD).get(name, ALL_NAMES)
    if instead is ALL_NAMES and not name.startswith("_") and hasattr(tensor, name):
        instead = f"write Tensor.{name}(...): it is a method of tensors"
    raise AttributeError(f"{module.__name__} has no {name!r}: {instead}", name=name)


class Accepted(functools.partial):
    """A method by another name: `x.view(2, 3)`, or `Tensor.view(x, 2, 3)`, called without a frame of its own."""

    def __get__(self, x: Any, owner: type | None = None) -> functools.partial:
        return self if x is None else functools.partial(self.func, x, **self.keywords)


class Elsewhere:
    """An attribute of a class that has another name here: an error that says what to write.

    A `__getattr__` in the class would do the same in three lines, but it slows down every attribute in Python 3.11.
    """

    def __init__(self, name: str, instead: str) -> None:
        self.name, self.instead = name, instead

    def __get__(self, x: Any, owner: type | None = None) -> Any:
        if x is None:
            return self
        raise AttributeError(f"a {type(x).__name__} has no {self.name!r}: {self.instead}", name=self.name, obj=x)

    def __call__(self, x: Any = ..., *args: Any, **options: Any) -> NoReturn:
        """`Tensor.norm(x)`, called on the class instead of a tensor."""
        self.__get__(x)


install()
