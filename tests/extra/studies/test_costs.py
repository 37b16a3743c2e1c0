"""What a run costs: the sizes of published models and the numbers that lectures and papers quote of them."""

import re

import numpy as np
import pytest

import train
from extra.families import SEQ2SEQ
from extra.gpt.config import GPTConfig
from extra.studies.sizes import SIZES, published_of
from extra.studies.trials import parameters_by_part, products_of, tokens_per_step
from families import FAMILIES
from gpt.model import GPT
from training.estimate import cache_bytes, size_of
from training.start import read_setup

pytestmark = pytest.mark.usefixtures("workplace")

# Of GPT-2 by the state dicts of its four checkpoints; of GPT-3, Llama 3 and the Transformers counted here.
PARAMETERS = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200}
PARAMETERS |= {"gpt3": 174_604_259_328, "transformer-base": 63_082_496, "transformer-big": 214_245_376}
PARAMETERS |= {"llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496}


@pytest.fixture
def cost_of(ran):
    """A function: what a dry run says of a size."""
    return lambda name, *words: ran(train.main, name, "--dry_run", "--flops_per_second", "9.5e12", *words).err


def total(name):
    """The operations of a whole training, counted."""
    setup = read_setup([name, "--dry_run"], FAMILIES)
    return setup.options.max_iters * products_of(setup.options, size_of(setup).model)


def test_the_sizes_have_the_parameters_that_are_known():
    assert PARAMETERS.keys() == SIZES.keys()
    for name, count in PARAMETERS.items():
        model = size_of(read_setup([name, "--dry_run"], FAMILIES)).model
        assert (model.num_parameters(), sum(parameters_by_part(model).values())) == (count, count)


def test_the_parts_of_gpt3_by_hand(cost_of):
    c, layers = 12288, 96
    matrices = {"attention": 4 * (c * c + c), "feed-forward": 8 * c * c + 5 * c, "norms": 4 * c}
    parts = {part: layers * count for part, count in matrices.items()}
    parts["norms"] += 2 * c
    parts |= {"token embedding": 50257 * c, "position embedding": 2048 * c}
    said = cost_of("gpt3", "--watts", 300)
    shown = re.findall(r"^ +([\d,]+) +\d+\.\d% +(.*)$", said, re.M)
    assert {part: int(count.replace(",", "")) for count, part in shown} == parts
    assert [part for _, part in shown] == "feed-forward/attention/token embedding/position embedding/norms".split("/")
    assert "parameters       174,604,259,328\n" in said
    assert "349 GB in 16 bits, 698 GB in 32 bits" in said
    assert "2.79 TB weights, gradients and two moments" in said
    joules = total("gpt3") / 9.5e12 * 300
    assert f"energy           {joules / 3.6e6:,.0f} kWh at 300 W" in said


def test_the_training_of_gpt3_takes_what_its_paper_counts():
    """Brown et al. 2020, table D.1: 3.14e23 operations, 6 per parameter and token, without those of attention."""
    assert total("gpt3") == pytest.approx(3.14e23, rel=0.05)


def test_the_papers_operations_are_time_times_capacity(cost_of):
    """Vaswani et al. 2017, table 2: 8 GPUs x 3.5 days x 9.5 TFLOP/s, of which a part are products."""
    assert published_of("transformer-big").operations == pytest.approx(2.3e19, rel=0.01)
    assert total("transformer-big") / 2.3e19 == pytest.approx(0.42, abs=0.01)
    said = cost_of("transformer-big")
    assert "published        2.3e+19 FLOP = 8 P100 x " in said
    assert "counted above are 42% of it" in said


def test_a_step_of_translation_counts_each_pair_of_tokens_once():
    """`flops_per_token` is that of a source and a target token, of which a step has half its tokens each."""
    setup = read_setup(["translate-de-en", "--dry_run", "--batch_tokens", "1000"], FAMILIES)
    linear = SEQ2SEQ.model.blueprint(setup.options.model_config(4000)).flops_per_token()
    products = products_of(setup.options, size_of(setup).model)
    assert (tokens_per_step(setup.options)[0], products) == (1000, 500 * linear)


def test_the_memory_of_keys_and_values_is_that_of_the_caches():
    config = GPTConfig(50, block_size=8, n_layer=2, n_head=4, n_embd=16, n_kv_head=2)
    _, state = GPT(config).eval().start([[1, 2, 3]])
    held = [value for cache in state.caches for value in vars(cache).values() if isinstance(value, np.ndarray)]
    assert cache_bytes(config, 4) == sum(array.nbytes for array in held) > 0
