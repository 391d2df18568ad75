"""How all tests run; what they share is in `support`."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# The same examples in every run; `--hypothesis-profile thorough` looks for new ones.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, phases=_PHASES, suppress_health_check=_SLOW
)
settings.register_profile("thorough", deadline=None, max_examples=2000, phases=_PHASES, suppress_health_check=_SLOW)
settings.load_profile("steady")

# A shell that runs the tests in the background has them ignore Ctrl-C, which some of them are about.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail what is marked gpu where there is none")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    if gpu_name() is None:
        leave = pytest.fail if item.config.getoption("--require-gpu") else pytest.skip
        leave("there is no GPU here")
