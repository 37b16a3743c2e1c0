"""What several test files share."""

import pytest

from tests.standin import standin_device
from tinygrad_lite.device import why_no_cuda


@pytest.fixture(params=["cpu", "standin", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """The name of each device in turn: the CPU, the stand-in for CuPy, and a GPU where there is one."""
    if request.param == "standin":
        with standin_device() as name:
            yield name
        return
    if request.param == "cuda" and why_no_cuda():
        pytest.skip(why_no_cuda())
    yield request.param
