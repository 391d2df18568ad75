"""Builds begun early: they end as those that are not, whatever the model and whatever becomes of the process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.failing_models import (
    foreign_operator,
    misread_deconvolution,
    refused_operator,
    slice_of_scalar,
    zero_points,
)

WITHOUT = """
from trtconv.runtimes.tensorrt.early import runtime
runtime.is_eligible = lambda request: False
"""
TELLING = """
import json, os, sys
from trtconv.cli.process import status
from trtconv.runtimes.tensorrt.early.runtime import EarlyProcess
begin, finish, pids = EarlyProcess.__init__, status.finish, []
def noted(self, request):
    begin(self, request)
    pids.append(self._fork.pid)
    with open(os.environ["TOLD"], "w") as file:
        json.dump({"pids": pids}, file)
def told(code):
    if status.is_watched():
        with open(os.environ["TOLD"], "w") as file:
            json.dump({"loads": "tensorrt_rtx" in sys.modules, "pids": pids}, file)
    finish(code)
EarlyProcess.__init__, status.finish = noted, told
"""
DYING = """
import os, signal
from trtconv.runtimes.tensorrt.early import worker
worker.{place} = lambda *args, **kwargs: {end}
"""
KILL, RAISE = "os.kill(os.getpid(), signal.SIGKILL)", "1 / 0"
REFUTED = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from trtconv.runtimes.tensorrt.readback import read
weights_of = read.weights_of
def other(value):
    weights = weights_of(value)
    return weights + 1 if weights is not None and weights.size else weights
read.weights_of = other
"""
OTHER_FILE = """
import os
from pathlib import Path
from trtconv.runtimes.tensorrt.early.memory import SharedMemory
append_file = SharedMemory.append_file
SharedMemory.append_file = lambda self, path: append_file(self, Path(os.environ["OTHER"]))
"""
LARGE = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from trtconv.graph import light_file, wire
from trtconv.runtimes.tensorrt.early import memory
wire.LARGE_FILE, wire.LARGE_BYTES, light_file._MOST_OTHERS = 0, 64, 10.0
memory._SMALL_BYTES = 64
leave = light_file.leave_weights
def left(model, file):
    done = leave(model, file)
    open(os.environ["LEFT"], "w").write(str(done))
    return done
light_file.leave_weights = left
"""
"""Every weight is a large one, which stays in the file where it can; tells whether it did."""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are isolated on Linux")
ENTRY = "\nfrom trtconv.cli.process.boundary import run\nrun()\n"

CONVOLUTION = """<ir_version: 8, opset_import: ["": 17]> g (float[{batch},3,16,16] x) => (float[{batch},32,14,14] y)
    <float[32,3,3,3] w> {{ z = Conv (x, w)  y = Relu (z) }}"""
DECONVOLUTION = """<ir_version: 8, opset_import: ["": 17]> g (float[{batch},4,8,8] x) => (float[{batch},8,16,16] y)
    <float[4,8,3,3] w> {{ y = ConvTranspose <strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]> (x, w) }}"""
EVEN = DECONVOLUTION.replace("3,3", "4,4").replace(", output_padding=[1,1]", "")
IN_FUNCTION = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[1,4,8,8] x) => (float[1,8,16,16] y)
    <float[4,8,4,4] w> { y = my.Up (x, w) }
    <opset_import: ["": 17], domain: "my"> Up (a, w) => (b)
    { b = ConvTranspose <strides=[2,2], pads=[1,1,1,1]> (a, w) }"""
WRONG = """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,16,16] x) => (float[1,32,14,15] y)
    <float[32,3,3,3] w> { z = Conv (x, w)  y = Relu (z) }"""
BATCH = ("--dim", "n=1:2:4")


@dataclasses.dataclass(frozen=True)
class End:
    """What a command left: its exit status, its report without times, its engine, what it said."""

    code: int
    report: Any
    engine: str
    stdout: str
    stderr: str


Build = Callable[..., End]


def model(text: str, seed: int = 0) -> onnx.ModelProto:
    """Returns a model whose weights are random."""
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(seed)
    for value in proto.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        weights = random.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weights, value.name))
    proto.graph.ClearField("value_info")
    return proto


@pytest.fixture
def build(spawn: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> Build:
    """Builds m.onnx in a process of its own, after some code has run there."""

    def run(code: str, *args: str, name: str = "m.onnx", **env: str) -> End:
        engine = tmp_path / "m.engine"
        report = Path(f"{engine}.json")
        engine.unlink(missing_ok=True)
        report.unlink(missing_ok=True)
        command = ["build", str(tmp_path / name), "-o", str(engine), "--report", str(report), "-q", *args]
        process = spawn(code + ENTRY, *command, env=env)
        out, err = process.communicate(timeout=120)
        document = json.loads(report.read_text()) if report.exists() else {}
        for key in ("seconds", "body_sha256"):
            document.pop(key, None)
        digest = hashlib.sha256(engine.read_bytes()).hexdigest() if engine.exists() else ""
        lines = [line for line in out.splitlines() if not line.startswith(("seconds:", "built "))]
        return End(process.returncode, document, digest, "\n".join(lines), re.sub(r"trtconv-crash-\w+", "crash", err))

    return run


def saved(proto: onnx.ModelProto, folder: Path, name: str = "m.onnx") -> Path:
    onnx.save(proto, folder / name)
    return folder / name


def nothing_runs(pids: list[int]) -> bool:
    """Whether processes are gone within a second; who ends them does not wait for it."""
    end = time.monotonic() + 1
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def is_over(pids: list[int]) -> bool:
    """Whether processes do nothing any more within some seconds, waited for or not."""
    end = time.monotonic() + 5
    states = ["R"]
    while states and time.monotonic() < end:
        time.sleep(0.01)
        paths = [Path(f"/proc/{pid}/stat") for pid in pids]
        states = [path.read_text().rpartition(")")[2].split()[0] for path in paths if path.exists()]
        states = [state for state in states if state != "Z"]
    return not states


@pytest.mark.parametrize(
    ("text", "args", "loads"),
    [
        (CONVOLUTION.format(batch=1), (), False),
        (CONVOLUTION.format(batch=1), ("--prove", "none"), False),
        (CONVOLUTION.format(batch=1), ("--target", "rtx-1"), False),
        (CONVOLUTION.format(batch="n"), BATCH, False),
        (DECONVOLUTION.format(batch=1), (), False),
        (DECONVOLUTION.format(batch="n"), BATCH, False),
        (EVEN.format(batch=1), (), False),
        (CONVOLUTION.format(batch=1), ("--optimization-level", "2"), True),
        (CONVOLUTION.format(batch=1), ("--precision", "fp16"), True),
    ],
)
def test_who_builds(build: Build, tmp_path: Path, text: str, args: tuple[str, ...], loads: bool) -> None:
    saved(model(text), tmp_path)
    end = build(TELLING, *args, TOLD=str(tmp_path / "told.json"))
    told = json.loads((tmp_path / "told.json").read_text())
    assert end.code == 0, end.stderr
    assert told["loads"] is loads
    assert bool(told["pids"]) is not loads
    assert nothing_runs(told["pids"])


@pytest.mark.parametrize(
    ("proto", "args"),
    [
        pytest.param(lambda: model(CONVOLUTION.format(batch=1)), (), id="static"),
        pytest.param(lambda: model(CONVOLUTION.format(batch="n")), (), id="sizes not given"),
        pytest.param(lambda: model(DECONVOLUTION.format(batch=1)), (), id="passes"),
        pytest.param(lambda: model(DECONVOLUTION.format(batch=1)), ("--no-rewrite",), id="passes left out"),
        pytest.param(lambda: model(IN_FUNCTION), ("--no-rewrite",), id="in a function"),
        pytest.param(lambda: model(CONVOLUTION.format(batch=1)), ("--target", "rtx-9"), id="another version"),
        pytest.param(lambda: model(WRONG), (), id="output declared wrongly"),
        pytest.param(lambda: model(WRONG), ("--fail-on", "warning"), id="warning that fails"),
        pytest.param(lambda: refused_operator().proto, (), id="refused"),
        pytest.param(lambda: foreign_operator().proto, (), id="foreign"),
        pytest.param(lambda: slice_of_scalar().proto, (), id="crash"),
        pytest.param(lambda: misread_deconvolution(32).proto, tuple(misread_deconvolution(32).flags), id="misread"),
        pytest.param(lambda: zero_points().proto, (), id="quantised"),
    ],
)
def test_it_ends_as_without(
    build: Build, tmp_path: Path, proto: Callable[[], onnx.ModelProto], args: tuple[str, ...]
) -> None:
    saved(proto(), tmp_path)
    assert build("", *args) == build(WITHOUT, *args)


@pytest.mark.parametrize(
    ("text", "code", "args", "left"),
    [
        (CONVOLUTION, "", (), True),
        (CONVOLUTION, "", ("--prove", "required"), True),
        # The parser of the command itself finds the weights in the file, too.
        (CONVOLUTION, DYING.format(place="_Worker._engine_of", end=KILL), (), True),
        # A node gets a name.
        (EVEN, "", (), False),
        (DECONVOLUTION, "", (), False),
        (CONVOLUTION, OTHER_FILE, (), False),
    ],
)
def test_large_weights_that_are_left_in_the_file(
    build: Build, tmp_path: Path, text: str, code: str, args: tuple[str, ...], left: bool
) -> None:
    saved(model(text.format(batch=1)), tmp_path)
    other = saved(model(text.format(batch=1), seed=1), tmp_path, "other.onnx")
    told = tmp_path / "left.txt"
    assert build(LARGE + code, *args, LEFT=str(told), OTHER=str(other)) == build(WITHOUT, *args)
    assert told.read_text() == str(left)


TWO = """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x) => (float[1,3,8,8] y)
    <float[3,3,3,3] v, float[3,3,3,3] w> {
    z = Conv <pads=[1,1,1,1]> (x, v)  r = Relu (z)  y = Conv <pads=[1,1,1,1]> (r, w) }"""
EXCHANGED = """
from trtconv.runtimes.tensorrt.early.places import Places
find = Places.find
def other(self, data):
    own = find(self, data)
    return next(part for part in (find(self, memoryview(values)) for values in ALL) if part != own)
Places.find = other
"""


def test_a_weight_named_by_the_place_of_another_one_is_found_out(build: Build, tmp_path: Path) -> None:
    proto = model(TWO)
    saved(proto, tmp_path)
    values = [tensor.raw_data for tensor in proto.graph.initializer]
    end = build(LARGE + f"ALL = {values!r}" + EXCHANGED, LEFT=str(tmp_path / "left.txt"))
    assert (end.code, end.engine) == (1, "")
    assert {finding["code"] for finding in end.report["findings"]} == {"TC402"}


LATER = """
import os
from trtconv.runtimes.tensorrt.early.runtime import EarlyProcess
snapshot, done = EarlyProcess.snapshot, []
def later(self):
    path = self.request.model
    if not done:
        done.append(True)
        content = path.read_bytes()
        {what}
    return snapshot(self)
EarlyProcess.snapshot = later
"""
CUT, GONE = "os.truncate(path, 1000)", "path.unlink()"
OTHER_CONTENT = "path.write_bytes(content[:-600] + bytes(600))"
MANY = CONVOLUTION.replace("3,3,3", "3,9,9").replace("14,14", "8,8")


@pytest.mark.parametrize("batch", ["1", "n"])
@pytest.mark.parametrize("what", [CUT, GONE, OTHER_CONTENT])
def test_a_file_that_changes_before_its_network_is_looked_at(
    build: Build, tmp_path: Path, what: str, batch: str
) -> None:
    """It has weights that nobody has read yet."""
    saved(model(MANY.format(batch=batch)), tmp_path)
    args = BATCH if batch == "n" else ()
    end = build(LARGE + LATER.format(what=what), *args, LEFT=str(tmp_path / "left.txt"))
    assert (end.code, end.engine) == (2, "")
    assert "changed while it was read" in end.stderr or "went away" in end.stderr or "SIGBUS" in end.stderr


def test_a_file_that_goes_after_its_weights_were_read_has_no_engine(build: Build, tmp_path: Path) -> None:
    saved(model(MANY.format(batch=1)), tmp_path)
    gone = """
from trtconv.graph.model import OnnxModel
require = OnnxModel.require_unchanged_data
def later(self):
    self.path.unlink()
    require(self)
OnnxModel.require_unchanged_data = later
"""
    end = build(LARGE + gone, LEFT=str(tmp_path / "left.txt"))
    assert (end.code, end.engine) == (2, "")
    assert "changed while it was read" in end.stderr


def test_the_command_leaves_weights_in_the_file_where_a_process_builds_early(build: Build, tmp_path: Path) -> None:
    saved(model(MANY.format(batch=1)), tmp_path)
    told = """
from trtconv.pipeline import building
planned = building.planned
def noted(request, model, *args):
    open(os.environ["TOLD"], "w").write(str(model.leaves_weights))
    return planned(request, model, *args)
building.planned = noted
"""
    path = tmp_path / "told.txt"
    for without, expected in (("", "True"), (WITHOUT, "False")):
        assert build(LARGE + without + told, LEFT=str(tmp_path / "left.txt"), TOLD=str(path)).code == 0
        assert path.read_text() == expected


def test_sizes_of_choice_are_reported_as_without(build: Build, tmp_path: Path) -> None:
    saved(model(CONVOLUTION.format(batch="n")), tmp_path)
    # Two engines with sizes of choice differ in some bytes, whoever builds them.
    ends = [build(code, *BATCH) for code in ("", WITHOUT)]
    for end in ends:
        assert end.report["engine"].pop("sha256") == end.engine
    assert ends[0].report == ends[1].report
    assert (ends[0].code, ends[0].stderr) == (ends[1].code, ends[1].stderr) == (0, "")


def test_weights_beside_the_model(build: Build, tmp_path: Path) -> None:
    proto = model(CONVOLUTION.format(batch=1))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    assert build("") == build(WITHOUT)


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x08" * 100])
def test_a_file_that_is_no_model(build: Build, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    end = build("")
    assert end == build(WITHOUT)
    assert end.code == 2


def test_a_file_that_is_not_there(build: Build) -> None:
    assert build("") == build(WITHOUT)


def test_a_folder_that_is_not_there(build: Build, tmp_path: Path) -> None:
    saved(model(CONVOLUTION.format(batch=1)), tmp_path)
    args = ("--report", str(tmp_path / "none" / "report.json"))
    assert build("", *args) == build(WITHOUT, *args)


@pytest.mark.parametrize(
    ("place", "end"),
    [
        ("_Worker.run", KILL),
        ("_Worker._parsed", KILL),
        ("_Worker._snapshot", KILL),
        ("_Worker._engine_of", KILL),
        ("_Worker._phase", KILL),
        ("_Worker.run", RAISE),
        ("_Worker._parsed", RAISE),
        ("_Worker._engine_of", RAISE),
        ("_Worker._tell", RAISE),
    ],
)
@pytest.mark.parametrize("text", [CONVOLUTION.format(batch=1), DECONVOLUTION.format(batch=1)])
def test_a_process_that_dies_is_done_without(build: Build, tmp_path: Path, place: str, end: str, text: str) -> None:
    saved(model(text), tmp_path)
    died = build(TELLING + DYING.format(place=place, end=end), TOLD=str(tmp_path / "told.json"))
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["loads"]
    assert nothing_runs(told["pids"])
    assert died == build(WITHOUT)


def test_a_model_takes_no_more_time_than_it_may(build: Build, tmp_path: Path) -> None:
    saved(model(CONVOLUTION.format(batch=1)), tmp_path)
    endless = DYING.format(place="_Worker._parsed", end="any(iter(int, 1))")
    assert build(endless, "--budget", "seconds=2") == build(WITHOUT, "--budget", "seconds=2")


@pytest.mark.parametrize("text", [CONVOLUTION, EVEN, DECONVOLUTION])
def test_an_engine_is_never_that_of_another_model(build: Build, tmp_path: Path, text: str) -> None:
    saved(model(text.format(batch=1)), tmp_path)
    other = saved(model(text.format(batch=1), seed=1), tmp_path, "other.onnx")
    end = build(OTHER_FILE, OTHER=str(other))
    assert end == build(WITHOUT)
    assert end.engine != build("", name="other.onnx").engine


def test_another_plan_is_built_here(build: Build, tmp_path: Path) -> None:
    saved(model(CONVOLUTION.format(batch=1)), tmp_path)
    another = """
from trtconv.runtimes.tensorrt.early import worker
import dataclasses
plan_of = worker._plan_of
worker._plan_of = lambda *args: dataclasses.replace(plan_of(*args), trial=True)
"""
    end = build(TELLING + another, TOLD=str(tmp_path / "told.json"))
    assert json.loads((tmp_path / "told.json").read_text())["loads"]
    assert end == build(WITHOUT)


ORDER = """
import os
from trtconv import rules
from trtconv.pipeline import profiles
from trtconv.runtimes.tensorrt.early.runtime import EarlyNetwork, EarlyProcess
def note(word):
    with open(os.environ["ORDER"], "a") as file:
        file.write(word)
say, settle = EarlyProcess.say, profiles.settle
EarlyProcess.say = lambda self, order: (note(type(order).__name__ + " "), say(self, order))[1]
profiles.settle = lambda *args, **options: (note("sizes "), settle(*args, **options))[1]
run_rules = rules.run_rules
rules.run_rules = lambda *args: (note("rules "), run_rules(*args))[1]
"""


@pytest.mark.parametrize(
    ("text", "args", "order"),
    [
        (CONVOLUTION.format(batch="n"), BATCH, "BuildPlan rules sizes"),
        (DECONVOLUTION.format(batch="n"), BATCH, "Extent BuildPlan rules rules sizes"),
        (DECONVOLUTION.format(batch=1), (), "Extent BuildPlan rules rules sizes"),
        (CONVOLUTION.format(batch=1), (), "rules sizes"),
        (CONVOLUTION.format(batch="n"), (*BATCH, "--round"), "rules sizes BuildPlan"),
        (CONVOLUTION.format(batch="n"), (*BATCH, "--split", "2"), "rules sizes BuildPlan"),
        (CONVOLUTION.format(batch="n"), (*BATCH, "--no-rewrite"), "rules sizes BuildPlan"),
    ],
)
def test_it_builds_while_the_rest_is_looked_at(
    build: Build, tmp_path: Path, text: str, args: tuple[str, ...], order: str
) -> None:
    saved(model(text), tmp_path)
    told, noted = tmp_path / "told.json", tmp_path / "order.txt"
    end = build(TELLING + ORDER, *args, TOLD=str(told), ORDER=str(noted))
    assert end.code == 0, end.stderr
    assert not json.loads(told.read_text())["loads"]
    assert noted.read_text().split() == order.split()


@pytest.mark.parametrize(
    "change",
    [
        "plan = dataclasses.replace(plan, profiles=plan.profiles * 2)",
        "plan = dataclasses.replace(plan, profiles=())",
        "later.append(model)",
    ],
)
def test_what_was_begun_with_is_not_what_is_built(build: Build, tmp_path: Path, change: str) -> None:
    saved(model(DECONVOLUTION.format(batch="n")), tmp_path)
    code = f"""
import dataclasses
from trtconv.pipeline import profiles
from trtconv.runtimes.tensorrt.early.runtime import EarlyRuntime
later, start, settle = [], EarlyRuntime.start, profiles.settle
def changed(self, model, plan):
    {change}
    start(self, model, plan)
def settled(model, *args, **options):
    for each in later:
        each.proto.doc_string += "changed"
        each.touch()
    return settle(model, *args, **options)
EarlyRuntime.start, profiles.settle = changed, settled
"""
    end = build(TELLING + code, *BATCH, TOLD=str(tmp_path / "told.json"))
    assert end.code == 0, end.stderr
    assert json.loads((tmp_path / "told.json").read_text())["loads"]
    usual = build(WITHOUT, *BATCH).report
    for report in (usual, end.report):
        # Of two engines with sizes of choice some bytes differ, whoever builds them.
        del report["engine"]["sha256"]
    assert end.report == usual


def test_what_the_proof_refutes_is_not_written(build: Build, tmp_path: Path) -> None:
    saved(model(CONVOLUTION.format(batch=1)), tmp_path)
    end = build(REFUTED + TELLING, TOLD=str(tmp_path / "told.json"))
    assert not json.loads((tmp_path / "told.json").read_text())["loads"]
    assert (end.code, end.engine) == (1, "")
    assert end == build(REFUTED + WITHOUT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_command(
    spawn: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    path = saved(model(CONVOLUTION.format(batch=1)), tmp_path)
    told = tmp_path / "told.json"
    endless = DYING.format(place="_Worker._parsed", end="__import__('time').sleep(60)")
    # A background shell starts us with SIGINT ignored.
    start = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    process = spawn(start + TELLING + endless + ENTRY, "build", str(path), "-q", env={"TOLD": str(told)})
    while not told.exists() or not told.read_text().endswith("}"):
        assert process.poll() is None
        time.sleep(0.01)
    pids = json.loads(told.read_text())["pids"]
    assert not nothing_runs(pids)
    process.send_signal(number)
    process.wait(30)
    assert is_over(pids)
    assert not path.with_suffix(".engine").exists()
