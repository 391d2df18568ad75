"""How all tests run; what they share is in `support`."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

# The same examples in every run; `--hypothesis-profile thorough` looks for new ones.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    phases=_PHASES,
    suppress_health_check=_SLOW,
)
settings.register_profile("thorough", deadline=None, max_examples=2000, phases=_PHASES, suppress_health_check=_SLOW)
settings.load_profile("steady")

# A shell that runs the tests in the background has them ignore Ctrl-C, which some of them are about.
HANDLERS: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
for number, handler in HANDLERS.items():
    signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _signals() -> None:
    """A command that ran inside an earlier test, or a fixture, has taken the signals over; no test sees that."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in HANDLERS.items():
            signal.signal(number, handler)


SLOW = {
    "fuzz": "broken models and hostile folders, against whole commands",
    "runtime": "engines and proofs of many networks, by the TensorRT that is installed",
    "cli/test_budget.py": "models that take all the time and memory that they may",
    "cli/test_ci_files.py": "recipes, run as CI runs them",
    "cli/test_collect.py": "jobs of a farm, built one by one",
    "cli/test_early_build.py": "builds in processes, most of them twice",
    "cli/test_end_to_end.py": "from a model to an engine, in processes",
    "cli/test_endings.py": "commands that are ended in the middle",
    "cli/test_engine_commands.py": "engines, built and verified",
    "cli/test_executors.py": "builds by each executor: processes, a farm, a batch system",
    "cli/test_export_command.py": "exports, in processes",
    "cli/test_farm_command.py": "a scheduler and its workers",
    "cli/test_gate.py": "engines, built, compared and gated",
    "cli/test_hostile_extensions.py": "files of passes and rules that are traps, in processes",
    "cli/test_hostile_files.py": "models and folders that are traps, in processes",
    "cli/test_isolated.py": "children that crash, hang and take all memory",
    "cli/test_many.py": "configurations of many models",
    "cli/test_mix_command.py": "searches of types, each over many networks",
    "cli/test_partition.py": "models cut, built in parts, run and verified",
    "cli/test_quantized.py": "quantised networks, built",
    "cli/test_shell.py": "commands as shells start them",
    "cli/test_signatures.py": "engines, built and signed",
    "cli/test_traps.py": "commands among files that are traps",
    "cli/test_upgrade_command.py": "models in processes of other environments",
    "unit/engine/farm": "schedulers, workers and stores, in processes",
    "unit/engine/test_rebuilding.py": "each way to build, twice",
    "unit/exporter": "networks, exported by torch (make test-export)",
    "unit/passes/test_passes_node_suite.py": "every node test of ONNX, through the passes",
    "unit/passes/test_passes_odd_constants.py": "every operator with every odd constant",
    "unit/passes/test_passes_quant_exact.py": "every quantised value, not a sample",
    "unit/plugins/test_plugins_in_builds.py": "engines with plugins, built and proven",
    "unit/shapes/test_lattice_backend.py": "the lattice, held to ONNX's own node tests",
    "unit/shapes/test_lattice_long.py": "the lattice, held to ONNX Runtime at every size",
    "unit/shapes/test_lattice_torch.py": "the lattice, held to PyTorch",
    "unit/test_docs.py": "every command of the documents, run",
}
"""Places in tests/ that are left to `make test-all`, each with what is slow there: end to end, exhaustive, or fuzz."""


def is_slow(path: Path, config: pytest.Config) -> bool:
    """Whether a file of tests, or a folder of them, is one of the slow ones."""
    tests = config.rootpath / "tests"
    place = path.relative_to(tests).as_posix() if path.is_relative_to(tests) else ""
    return any(place == slow or place.startswith(f"{slow}/") for slow in SLOW)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves slow tests alone where none of them is to run: to read them takes each worker seconds."""
    return True if config.option.markexpr == "not slow" and is_slow(collection_path, config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_slow(item.path, config):
            item.add_marker("slow")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail what is marked gpu where there is none")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    if gpu_name() is None:
        leave = pytest.fail if item.config.getoption("--require-gpu") else pytest.skip
        leave("there is no GPU here")
