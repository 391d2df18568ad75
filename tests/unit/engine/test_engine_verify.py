"""What verify makes of engines that are right, wrong, foreign, altered, or that cannot run here."""

from __future__ import annotations

import dataclasses
import math
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.engines import DIMS, NET, Built, build, call_here, give_gpu
from support.gpu import FakeDriver
from support.paths import ROOT
from support.quantized_models import Net, Quantiser, make_net
from trtconv.cli.commands.verify import command
from trtconv.cli.formats.engine import verify_text
from trtconv.core.agreement import CodeFile
from trtconv.core.dims import Range
from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.documents.verify import Disagreement, VerifyCase, VerifyReport
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.core.files import report_beside
from trtconv.core.requests.engine import Limits, VerifyRequest
from trtconv.engine import verify, verifying
from trtconv.engine.memory import available_bytes
from trtconv.runtimes.compare import TOLERANCES


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return give_gpu(monkeypatch)


def run(built: Built, **options: Any) -> VerifyReport:
    return verify(VerifyRequest(built.model, **options))


def sizes(report: VerifyReport) -> list[tuple[int, str]]:
    return [(case.profile, case.size) for case in report.cases]


def test_an_engine_that_computes_the_model(gpu: FakeDriver, tmp_path: Path) -> None:
    report = run(build(tmp_path))
    assert (report.exit_code, report.ran, report.why_not_run, report.precision) == (0, "engine", None, "tf32")
    assert sizes(report) == [(0, "min"), (0, "opt"), (0, "max"), (0, "random 1"), (0, "random 2")]
    assert report.runtime == RuntimeIdentity("tensorrt", "8.6.0", "Fake GPU")
    for case in report.cases:
        assert [output.name for output in case.outputs] == ["y", "z"]
        assert case.shapes["x"][2] % 2 == 0, "only multiples of 2 are accepted"
        assert max(output.max_rel for output in case.outputs) < 1e-6
    assert "engine" in report.seconds and "rewritten model" not in report.seconds


def test_an_engine_is_held_against_itself_at_every_size(
    gpu: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, ...]] = []

    def disagree(_run: object, profile: int, feeds: dict[str, Any], *_: object) -> list[Disagreement]:
        shapes.append(feeds["x"].shape)
        return [Disagreement("twice", "y", f"profile {profile}")]

    monkeypatch.setattr(verifying, "self_check", disagree)
    report = run(build(tmp_path), self_check=True, random=0)
    assert shapes == [case.shapes["x"] for case in report.cases]
    assert len(report.self_check or ()) == 3 and report.exit_code == 1


RANDOM = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z)
    { e = RandomNormalLike (x)  y = Add (x, e)  z = Relu (x) }"""
FIXED = RANDOM.replace("RandomNormalLike", "Neg")
BATCH = ({"n": Range(2, 2, 4)},)


@pytest.mark.parametrize(("wrong", "code"), [(False, 0), (True, 1)])
def test_an_output_that_hangs_on_random_numbers_is_not_compared_and_all_others_are(
    gpu: FakeDriver, tmp_path: Path, wrong: bool, code: int
) -> None:
    computes = FIXED.replace("Relu", "Neg") if wrong else FIXED
    report = run(build(tmp_path, RANDOM, BATCH, computes=computes), self_check=True)
    assert (report.exit_code, report.self_check) == (code, ())
    for case in report.cases:
        assert [output.name for output in case.outputs] == ["z"]
        assert case.passed is not wrong
        assert wrong or (case.skipped or "").startswith("output 'y' has other numbers with each run")
    assert wrong or "it hangs on a RandomNormalLike" in verify_text(report)


def test_nothing_is_verified_where_all_outputs_hang_on_random_numbers(gpu: FakeDriver, tmp_path: Path) -> None:
    texts = [text.replace(", float[n, 4] z", "").replace("z = Relu (x)", "") for text in (RANDOM, FIXED)]
    report = run(build(tmp_path, texts[0], BATCH, computes=texts[1]))
    assert (report.exit_code, [case.passed for case in report.cases][:3]) == (4, [None] * 3)
    assert "RandomNormalLike" in report.incomplete


def test_every_profile_is_run_with_its_own_context(gpu: FakeDriver, tmp_path: Path) -> None:
    second = {"n": Range(1, 1, 1), "h": Range(12, 16, 20), "w": Range(12, 16, 20)}
    report = run(build(tmp_path, dims=(*DIMS, second)), random=1)
    assert report.exit_code == 0
    assert sizes(report)[4:] == [(1, "min"), (1, "opt"), (1, "max"), (1, "random 1")]


def test_an_engine_that_computes_something_else(gpu: FakeDriver, tmp_path: Path) -> None:
    report = run(build(tmp_path, computes=NET.replace("AveragePool", "MaxPool")))
    assert report.exit_code == 1
    assert not report.verified
    assert report.worst is not None
    assert report.worst.max_rel > 0.05


@pytest.mark.parametrize(("fault", "code"), [(1e-6, 0), (0.5, 1), (float("nan"), 1), (float("inf"), 1)])
def test_one_element_is_enough(gpu: FakeDriver, tmp_path: Path, fault: float, code: int) -> None:
    report = run(build(tmp_path, faults={"z": fault}), random=0)
    assert report.exit_code == code
    failing = {output.name for case in report.cases for output in case.outputs if output.why}
    assert failing == ({"z"} if code else set())


def test_few_elements_that_are_off_are_told_with_what_to_try(gpu: FakeDriver, tmp_path: Path) -> None:
    report = run(build(tmp_path, faults={"y": 0.5}), random=0)
    cases = [
        dataclasses.replace(
            case, outputs=tuple(dataclasses.replace(output, mismatches=0.002) for output in case.outputs)
        )
        for case in report.cases
    ]
    few = dataclasses.replace(report, cases=tuple(cases))
    assert "--inputs FILE.npz compares at real ones; --mismatches 0.01 lets so many be off" in verify_text(few)
    given = tuple(dataclasses.replace(case, size="inputs") for case in cases)
    assert "--inputs FILE.npz" not in verify_text(dataclasses.replace(report, cases=given))


def test_where_the_cosine_alone_fails_no_elements_are_let_off(gpu: FakeDriver, tmp_path: Path) -> None:
    report = run(build(tmp_path, faults={"y": 1e-6}), random=0, limits=Limits(relative=1.0, cosine=1.0))
    assert report.exit_code == 1
    assert {output.mismatches for case in report.cases for output in case.outputs} == {0.0}
    assert "lets so many be off" not in verify_text(report)


def test_limits_of_the_user_hold(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path, faults={"z": 0.5})
    assert run(built, limits=Limits(relative=1.0, cosine=0.0)).exit_code == 0
    assert run(built, limits=Limits(mismatches=0.2, cosine=0.0)).exit_code == 0
    assert run(built, limits=Limits(relative=1e-9)).exit_code == 1


def test_tolerances_follow_the_precision(gpu: FakeDriver, tmp_path: Path) -> None:
    assert run(build(tmp_path, precision="fp16"), random=0).precision == "fp16"
    assert run(build(tmp_path, precision="int8"), random=0).precision == "int8"


@pytest.mark.parametrize("name", ["relative", "cosine", "mismatches"])
def test_a_limit_beyond_which_nothing_is_is_refused_where_it_is_given(name: str) -> None:
    with pytest.raises(InputError, match="nan is not"):
        Limits(**{name: math.nan})


def test_what_passes_quantised_anew_is_held_to_less(gpu: FakeDriver, tmp_path: Path) -> None:
    text = onnx.printer.to_text(make_net(Net(weight=Quantiser(axis=0)))[0])
    built = build(tmp_path, text, ({},))
    assert run(built).precision == "requantized"
    built.change_report(plan__rewrite=False)
    assert run(built).precision == "int8"


def test_a_limit_within_which_all_is(gpu: FakeDriver, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is inf"):
        run(build(tmp_path), limits=Limits(relative=math.inf))


def test_a_negative_seed(gpu: FakeDriver, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed -1"):
        run(build(tmp_path), seed=-1)


def test_the_help_and_the_page_tell_the_tolerances() -> None:
    text = " ".join(next(p.help or "" for p in command.params if p.name == "tolerance").split())
    told = {name: float(value) for name, value in re.findall(r"(\w+) (\d+e-\d+)", text)}
    assert told == {name: each.relative for name, each in TOLERANCES.items()}
    page = (ROOT / "docs" / "engines.md").read_text()
    for each in TOLERANCES.values():
        found = re.findall(rf"^\|[^|]*\| {each.relative:.0e} \| {each.cosine:g} \|$".replace("e-0", "e-"), page, re.M)
        assert found, each


def test_dims_choose_the_sizes(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    report = run(built, dims={"h": Range(6, 6, 6)}, random=0)
    assert {case.shapes["x"][2] for case in report.cases} == {6}
    with pytest.raises(InputError, match="no profile of the engine contains h=100"):
        run(built, dims={"h": Range(100, 100, 100)})
    with pytest.raises(InputError, match="7") as refused:
        run(built, dims={"h": Range(7, 7, 7)})
    assert "8" in refused.value.hint


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_inputs_of_the_user(gpu: FakeDriver, tmp_path: Path) -> None:
    inputs = save(tmp_path / "i.npz", x=np.ones((1, 3, 8, 4), np.float32))
    report = run(build(tmp_path), inputs=inputs)
    assert (report.exit_code, sizes(report)) == (0, [(0, "inputs")])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.ones(3)}, "'y', which is not an input"),
        ({}, "no values for input 'x'"),
        ({"x": np.ones((1, 3, 8, 8))}, "float32 in the model, and float64 here"),
        ({"x": np.ones((1, 3, 8), np.float32)}, "has the shape"),
        ({"x": np.ones((1, 4, 8, 8), np.float32)}, "has the shape"),
        ({"x": np.ones((1, 3, 80, 8), np.float32)}, "no profile of the engine contains x 1x3x80x8"),
        ({"x": np.full((1, 3, 8, 8), np.nan, np.float32)}, "holds NaN, 192 of 192"),
        ({"x": np.array(["a"])}, "<U1 here"),
    ],
)
def test_inputs_that_do_not_fit(gpu: FakeDriver, tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(build(tmp_path), inputs=save(tmp_path / "i.npz", **arrays))


@pytest.mark.parametrize(("height", "width"), [(9, 8), (8, 11)])
def test_inputs_of_a_size_that_the_network_does_not_accept(
    gpu: FakeDriver, tmp_path: Path, height: int, width: int
) -> None:
    path = save(tmp_path / "i.npz", x=np.ones((1, 3, height, width), np.float32))
    with pytest.raises(InputError) as refused:
        run(build(tmp_path), inputs=path)
    name, size = ("h", height) if height % 2 else ("w", width)
    assert f"{path}: x 1x3x{height}x{width}" in refused.value.message
    assert f"no {name} of {size}" in refused.value.message
    assert f"nearest sizes of {name} that it accepts are {size - 1} and {size + 1}." in refused.value.hint


def test_the_hint_about_sizes_is_for_the_one_that_is_refused(gpu: FakeDriver, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        run(build(tmp_path), dims={"n": Range(1, 1, 1), "h": Range(5, 5, 5), "w": Range(7, 7, 7)})
    assert "no h of 5" in refused.value.message
    assert "--dim h=4" in refused.value.hint


def test_a_generator_beside_inputs_is_refused(gpu: FakeDriver, tmp_path: Path) -> None:
    inputs = save(tmp_path / "i.npz", x=np.ones((1, 3, 8, 8), np.float32))
    (tmp_path / "make.py").write_text("def make(shapes, seed):\n    raise ValueError\n")
    with pytest.raises(InputError, match="--generator would not be called"):
        run(build(tmp_path), inputs=inputs, generator=f"{tmp_path / 'make.py'}:make")


def test_a_file_that_is_no_npz(gpu: FakeDriver, tmp_path: Path) -> None:
    (tmp_path / "i.npz").write_text("no")
    with pytest.raises(InputError, match=r"is not an \.npz file"):
        run(build(tmp_path), inputs=tmp_path / "i.npz")
    np.save(tmp_path / "i.npy", np.ones(3))
    with pytest.raises(InputError, match="one array without a name"):
        run(build(tmp_path), inputs=tmp_path / "i.npy")
    np.savez(tmp_path / "o.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=r"is not an \.npz file of plain arrays: .*'x' holds Python objects"):
        run(build(tmp_path), inputs=tmp_path / "o.npz")


@pytest.mark.parametrize("content", [b"def make(shapes, seed): ...", b"", b"\x80\x04K\x01."])
def test_another_file_is_no_pickle_to_be_trusted(gpu: FakeDriver, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "i.py").write_bytes(content)
    with pytest.raises(InputError) as refused:
        run(build(tmp_path), inputs=tmp_path / "i.py")
    assert refused.value.message == f"{tmp_path / 'i.py'} is not an .npz file"
    assert "pickle" not in refused.value.hint


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, 99])
def test_a_damaged_npz(gpu: FakeDriver, tmp_path: Path, method: int) -> None:
    path = tmp_path / "i.npz"
    np.savez_compressed(path, x=np.zeros((1, 3, 8, 8), np.float32))
    data = bytearray(path.read_bytes())
    central = data.find(b"PK\x01\x02")
    # A compression that zipfile does not know, or blocks that zlib does not.
    for at in (8, central + 10):
        data[at] = method
    start = 30 + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
    data[start : start + 4] = b"\xff" * 4
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"is not an \.npz file of plain arrays"):
        run(build(tmp_path), inputs=path)


def test_a_generator_makes_the_inputs(gpu: FakeDriver, tmp_path: Path) -> None:
    made = "{n: np.full(s, seed, np.float32) for n, s in shapes.items()}"
    (tmp_path / "g.py").write_text(f"import numpy as np\ndef make(shapes, seed):\n    return {made}\n")
    report = run(build(tmp_path), generator=f"{tmp_path / 'g.py'}:make", seed=5)
    assert report.exit_code == 0
    assert [case.seed for case in report.cases] == [5, 6, 7, 8, 9]


def test_inputs_at_which_the_model_itself_fails_prove_nothing(gpu: FakeDriver, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (int64[n] i) => (float[n] y)
    <float[2] t = {1, 2}> { y = Gather (t, i) }"""
    (tmp_path / "g.py").write_text("import numpy as np\ndef make(s, seed): return {'i': np.full(s['i'], 9)}\n")
    report = run(build(tmp_path, text, BATCH), generator=f"{tmp_path / 'g.py'}:make", random=0)
    assert [(case.passed, bool(case.skipped)) for case in report.cases] == [(None, True)] * len(report.cases)
    assert report.exit_code == 4


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("def make(shapes, seed): raise ValueError('oh')", "g.py:make", "ValueError: oh"),
        ("def make(shapes, seed): return [1]", "g.py:make", "no dict of arrays"),
        ("def make(shapes, seed): return {'q': 1}", "g.py:make", "'q', which is not an input"),
        ("def make(shapes, seed): return {'x': [[1, 2], [3]]}", "g.py:make", "'x' is not an array"),
        ("def make(shapes, seed): raise SystemExit('enough')", "g.py:make", "SystemExit: enough"),
        ("1 / 0", "g.py:make", "ZeroDivisionError"),
        ("raise SystemExit(0)", "g.py:make", "SystemExit"),
        ("", "g.py:make", "no function 'make'"),
        ("", "other.py:make", "no such file"),
        ("", "make", "is not FILE.py:FUNCTION"),
    ],
)
def test_a_generator_that_fails(gpu: FakeDriver, tmp_path: Path, code: str, name: str, message: str) -> None:
    (tmp_path / "g.py").write_text(code)
    with pytest.raises(InputError, match=message):
        run(build(tmp_path), generator=f"{tmp_path}/{name}" if ".py" in name else name)


NOTHING_BUT_NAN = NET.replace("y = Tanh (c)", "m = Neg (c)\n  n1 = Mul (c, m)\n  n2 = Sub (n1, one)\n  y = Sqrt (n2)")


def test_a_model_that_returns_nothing_but_nan_proves_nothing(gpu: FakeDriver, tmp_path: Path) -> None:
    text = NOTHING_BUT_NAN.replace("<float[3", "<float one = {1}, float[3", 1)
    report = run(build(tmp_path, text), random=0)
    assert report.exit_code == 1
    assert "nothing but NaN" in report.cases[0].outputs[0].why


# Engines that may not be loaded, or not here.


def test_an_altered_engine(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.engine.write_bytes(built.engine.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"altered, cut short or replaced; it has \d+ bytes instead of \d+") as caught:
        run(built)
    assert caught.value.exit_code == 2


def test_an_engine_without_a_report(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.report.unlink()
    with pytest.raises(InputError, match="loading an engine runs code") as caught:
        run(built)
    assert "--trust" in caught.value.hint
    report = run(built, trust=True)
    assert report.exit_code == 0
    assert sizes(report)[:3] == [(0, "min"), (0, "opt"), (0, "max")]


def test_an_engine_of_another_model(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    other = build(tmp_path, NET.replace("Tanh", "Sigmoid"), name="other")
    with pytest.raises(InputError, match="was built from another version"):
        verify(VerifyRequest(other.model, built.engine))


def test_of_several_engines_that_of_the_model_is_taken_or_both_are_named(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    newer = tmp_path / f"{built.model.stem}.rtx.engine"
    for file, copy in ((built.engine, newer), (built.report, report_beside(newer))):
        copy.write_bytes(file.read_bytes())
    with pytest.raises(InputError) as caught:
        run(built)
    assert caught.value.message == (
        f"{built.model} has several engines: {built.engine} (for tensorrt-8.6), {newer} (for tensorrt-8.6)"
    )
    assert run(built, engine=built.engine).exit_code == 0
    # One of another version of the model is no choice.
    built.change_report(model__sha256="0" * 64)
    found = run(built, bisect=True)
    assert (found.exit_code, found.engine.path if found.engine else None) == (0, str(newer))
    newer.unlink()
    with pytest.raises(InputError, match="was built from another version"):
        run(built)


def test_a_link_to_an_engine_is_no_other_one(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    link = tmp_path / f"{built.model.stem}.current.engine"
    link.symlink_to(built.engine)
    report_beside(link).symlink_to(built.report)
    assert run(built).exit_code == 0


def test_an_engine_without_a_report_is_not_passed_over(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    other = tmp_path / f"{built.model.stem}.rtx.engine"
    other.write_bytes(built.engine.read_bytes())
    built.report.rename(report_beside(other))
    with pytest.raises(InputError, match="has no report"):
        run(built)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runtime__version": "10.3.0"}, r"built by tensorrt 10\.3\.0, and tensorrt 8\.6\.0 is installed"),
        ({"runtime__gpu": "NVIDIA T4"}, "built for NVIDIA T4, and the GPU here is Fake GPU"),
    ],
)
def test_an_engine_for_another_machine(gpu: FakeDriver, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    built = build(tmp_path)
    built.change_report(**changes)
    with pytest.raises(EnvironmentMissing, match=message):
        run(built)


def test_engines_that_run_on_other_versions_or_gpus(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.change_report(runtime__version="8.6.1", plan__options={"version_compatible": True})
    with pytest.raises(InputError, match="brings code that runs on this machine"):
        run(built, random=0)
    assert run(built, random=0, trust=True).exit_code == 0
    built.change_report(runtime__version="8.6.0", runtime__gpu="NVIDIA T4", plan__options={"hardware": "ampere+"})
    assert run(built, random=0).exit_code == 0


def test_an_engine_of_another_version_takes_its_lean_runtime(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    lean, broken = (CodeFile(tmp_path / name) for name in ("lean.so", "broken.so"))
    lean.path.write_bytes(b"LEAN of 8.6.1")
    broken.path.write_bytes(b"something")
    with pytest.raises(InputError, match="was not built with --version-compatible"):
        run(built, random=0, lean_runtime=(lean,))
    compatible = {"version_compatible": True, "exclude_lean_runtime": True}
    built.change_report(runtime__version="8.6.1", plan__options=compatible)
    with pytest.raises(InputError, match="with --exclude-lean-runtime") as caught:
        run(built, random=0, trust=True)
    assert "--lean-runtime" in caught.value.hint
    with pytest.raises(InputError, match="it is no lean runtime"):
        run(built, random=0, trust=True, lean_runtime=(broken,))
    assert gpu.lean == []
    assert run(built, random=0, trust=True, lean_runtime=(broken, lean)).exit_code == 0
    assert gpu.lean == ["lean.so"]
    built.change_report(runtime__version="8.6.0")
    assert run(built, random=0, trust=True).exit_code == 0


def test_an_engine_without_weights(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.change_report(plan__options={"strip_weights": True})
    with pytest.raises(InputError, match="does not tell of its network"):
        run(built)


def test_float32_is_held_to_more_where_tf32_was_off(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.change_report(plan__options={"tf32": False})
    assert run(built, random=0).precision == "float32"


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 99}', '{"schema": 1}'])
def test_a_report_that_is_none(gpu: FakeDriver, tmp_path: Path, content: str) -> None:
    built = build(tmp_path)
    built.report.write_text(content)
    with pytest.raises(InputError, match=r"net\.engine\.json"):
        run(built)


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": ["fp16"]},
        {"plan__options": "fast"},
        {"plan__precision": "fp64"},
        {"runtime": ["tensorrt"]},
        {"runtime__family": "other"},
        {"engine": "net.engine"},
        {"inputs": [1]},
        {"io": 5},
        {"edits": [{"node": "up"}]},
        {"profiles": [{"other": {"min": [1], "opt": [1], "max": [1]}}]},
    ],
)
def test_a_report_that_was_altered(gpu: FakeDriver, tmp_path: Path, changes: dict[str, Any]) -> None:
    built = build(tmp_path)
    built.change_report(**changes)
    with pytest.raises(InputError, match=r"net\.engine\.json"):
        run(built)


def test_bytes_that_tensorrt_does_not_take(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.engine.write_bytes(b"\x00\x01\xfesomething else")
    with pytest.raises(EngineFailed, match="Version tag does not match"):
        run(built, trust=True)


def test_too_little_gpu_memory(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path, memory=10_000)
    gpu.total = 5000
    report = run(built, random=0)
    assert (report.exit_code, [case.passed for case in report.cases]) == (4, [None] * 3)
    assert "10000 bytes of GPU memory, 5000 are free" in report.incomplete


def test_only_the_largest_size_does_not_fit(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    gpu.total = 8000
    report = run(built, random=0)
    assert (report.exit_code, [case.passed for case in report.cases]) == (4, [True, True, None])
    assert "max of profile 0: the GPU's memory does not suffice" in report.incomplete


def test_an_engine_that_breaks_down(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    gpu.failing["cuStreamSynchronize"] = 700
    report = run(built, random=0)
    assert report.exit_code == 1
    assert all(case.passed is False for case in report.cases)
    assert "700" in report.cases[0].skipped


def test_without_an_engine_the_parsed_network_is_compared_and_it_is_said(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.engine.unlink()
    report = run(built, dims=DIMS[0])
    assert (report.exit_code, report.ran, report.engine) == (0, "network", None)
    assert (report.proof.of, report.proof.agrees, report.proof.unproven) == ("network", True, ())
    assert report.proof.layers > 0
    assert "there is no engine" in str(report.why_not_run)
    with pytest.raises(InputError, match="cannot be read"):
        run(built, engine=built.engine)
    with pytest.raises(InputError, match=r"there is no engine .*3 dynamic dimension\(s\) without bounds"):
        run(built)
    with pytest.raises(InputError) as lacking:
        run(built, dims={"n": Range(1, 1, 2)})
    assert lacking.value.lacks_bounds
    with pytest.raises(EnvironmentMissing, match="there is no engine"):
        run(built, require_engine=True)


def test_without_a_gpu_another_version_than_the_engine_is_of_proves_nothing(tmp_path: Path) -> None:
    import tensorrt_rtx

    here = tensorrt_rtx.__version__
    for version, ran in ((here, "network"), ("1.0.0.1", None), ("99.9.0.1", None)):
        folder = tmp_path / version
        folder.mkdir()
        built = build(folder, runtime={"family": "rtx", "version": version, "gpu": None})
        if ran is not None:
            assert run(built, dims=DIMS[0], random=0).ran == ran
            continue
        # Nothing was rewritten, so that there is nothing else to compare either.
        with pytest.raises(EnvironmentMissing, match=r"there is nothing to compare: .*was asked for, but TensorRT-RTX"):
            run(built, dims=DIMS[0], random=0)


@pytest.mark.parametrize("limit", [1, 3])
def test_boxes_in_the_order_of_their_scores_are_the_same(gpu: FakeDriver, tmp_path: Path, limit: int) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[1, n, 4] b, float[1, 3, n] s) => (int64[m, 3] y)
    <int64[1] k = {{{limit}}}, float[1] i = {{0.5}}, float[1] t = {{-5.0}}>
    {{ y = NonMaxSuppression (b, s, k, i, t) }}"""
    built = build(tmp_path, text, ({"n": Range(6, 6, 6)},))
    built.engine.unlink()
    report = run(built, dims={"n": Range(6, 6, 6)}, random=0)
    assert (report.ran, report.proof.agrees, report.exit_code) == ("network", True, 0)


def test_what_is_not_proven_is_not_told_as_a_difference(gpu: FakeDriver, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] y, float[n, 3] z)
    { y = Relu (x)  z = RandomNormalLike (x) }"""
    built = build(tmp_path, text, ({"n": Range(2, 2, 2)},))
    built.engine.unlink()
    report = run(built, dims={"n": Range(2, 2, 2)}, random=0)
    assert (report.exit_code, report.ran, report.cases[0].passed) == (4, "network", None)
    assert "output 'z' of the parsed network is not proven: it makes random numbers" in report.incomplete
    assert [output.name for output in report.cases[0].outputs] == ["y"]


def test_without_a_gpu_the_rewrite_is_compared_and_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call_here(monkeypatch)
    built = build(tmp_path, precision="fp16")
    report = run(built)
    assert (report.exit_code, report.ran, report.runtime) == (0, "rewritten model", None)
    assert report.why_not_run
    errors = [output.max_rel for case in report.cases for output in case.outputs]
    assert 1e-5 < max(errors) < 1e-2, "the cast to float16 is seen"
    with pytest.raises(EnvironmentMissing, match="cannot be run"):
        run(built, require_engine=True)


def test_a_model_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call_here(monkeypatch)
    with pytest.raises(EnvironmentMissing, match=r"there is nothing to compare: .* nothing was rewritten"):
        run(build(tmp_path))


def test_sizes_that_do_not_fit_into_memory_are_not_tried(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = build(tmp_path)
    # The largest tensors have 3 channels: 4 bytes * 2 * 3 * 12 * 12 = 3456 at max, held three times.
    monkeypatch.setattr(verifying, "available_bytes", lambda: 3 * 3455)
    report = run(built, random=0)
    assert report.exit_code == 4
    assert [bool(case.skipped) for case in report.cases] == [False, False, True]
    assert "its largest tensor takes 3456 bytes" in report.incomplete
    monkeypatch.setattr(verifying, "available_bytes", lambda: 3 * 3456)
    assert run(built, random=0).exit_code == 0


def test_memory_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 10 kB\nMemAvailable:   7 kB\n")
    group, none = tmp_path / "group", tmp_path / "none"
    assert available_bytes(path, none) == 7168
    assert available_bytes(none, none) is None
    (group / "memory").mkdir(parents=True)
    (group / "memory" / "memory.limit_in_bytes").write_text("9000\n")
    (group / "memory" / "memory.usage_in_bytes").write_text("4000\n")
    assert available_bytes(path, group) == 5000
    (group / "memory.current").write_text("1000\n")
    (group / "memory.max").write_text("max\n")
    assert available_bytes(path, group) == 5000
    (group / "memory.max").write_text("3000\n")
    assert available_bytes(path, group) == available_bytes(none, group) == 2000


def arrays(case: VerifyCase) -> dict[str, np.ndarray]:
    with np.load(str(case.saved)) as held:
        return {name: held[name] for name in held.files}


def test_what_was_compared_is_saved_size_by_size(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    folder = tmp_path / "deep" / "tensors"
    report = run(built, save_tensors=folder, random=1)
    assert (report.ran, sizes(report)) == ("engine", [(0, "min"), (0, "opt"), (0, "max"), (0, "random 1")])
    assert sorted(each.name for each in folder.iterdir()) == [
        "000-profile0-min.npz",
        "001-profile0-opt.npz",
        "002-profile0-max.npz",
        "003-profile0-random1.npz",
    ]
    for case in report.cases:
        held = arrays(case)
        assert set(held) == {"input/x", "expected/y", "expected/z", "got/y", "got/z"}
        assert held["input/x"].shape == tuple(case.shapes["x"])
        for difference in case.outputs:
            ours, theirs = (held[f"{group}/{difference.name}"] for group in ("got", "expected"))
            assert np.abs(ours - theirs).max() == pytest.approx(difference.max_abs)
    with pytest.raises(InputError, match="not empty"):
        run(built, save_tensors=folder)


def test_inner_tensors_are_those_of_the_model_and_of_what_was_parsed(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.engine.unlink()
    report = run(built, dims=DIMS[0], save_tensors=tmp_path / "t", tensors=("a", "type:Conv*"), random=0)
    assert (report.ran, report.exit_code) == ("network", 0)
    held = arrays(report.cases[0])
    assert set(held) - {"input/x", "got/a", "got/c"} == {f"expected/{name}" for name in "yzac"} | {"got/y", "got/z"}
    np.testing.assert_array_equal(held["expected/a"], np.maximum(held["input/x"], 0))
    np.testing.assert_allclose(held["got/c"], held["expected/c"], atol=1e-5)
    # What is saved changes nothing of what is compared.
    assert [case.outputs for case in run(built, dims=DIMS[0], random=0).cases] == [c.outputs for c in report.cases]


def test_inner_tensors_of_an_engine_that_shows_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_gpu(monkeypatch, "tensorrt-10.16.1")
    built = build(tmp_path, debug=("a", "b"))
    report = run(built, save_tensors=tmp_path / "t", tensors=("a", "c"), random=0)
    assert (report.ran, report.exit_code) == ("engine", 0)
    for case in report.cases:
        held = arrays(case)
        # c was not marked when the engine was built, and b is not asked for.
        assert {name for name in held if name.startswith("got/")} == {"got/y", "got/z", "got/a"}
        np.testing.assert_array_equal(held["got/a"], np.maximum(held["input/x"], 0))
        assert set(held) >= {"expected/a", "expected/c"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tensors": ("a",)}, "goes with --save-tensors"),
        ({"tensors": ("q",), "save_tensors": "t"}, "'q' means no inner tensor"),
        ({"tensors": ("y",), "save_tensors": "t"}, "'y' means no inner tensor"),
        ({"save_tensors": "net.onnx"}, "is there, and not empty"),
    ],
)
def test_tensors_that_cannot_be_saved(gpu: FakeDriver, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    built = build(tmp_path)
    before = sorted(tmp_path.iterdir())
    if "save_tensors" in options:
        options = {**options, "save_tensors": tmp_path / options["save_tensors"]}
    with pytest.raises(InputError, match=said):
        run(built, **options)
    assert sorted(tmp_path.iterdir()) == before
