"""`build --precision auto`: real engines of TensorRT-RTX, flags of TensorRT 8.6's builder, and the pinned form."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.cli import Ended
from support.float_nets import HEAD, RESIDUAL, UNET, saved_net, saved_samples
from support.onnx_models import parse
from support.runtime import TENSORRT_8, FakeRuntime
from trtconv import Target, build
from trtconv.cli.formats.mix import mix_text
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.saved import load_report
from trtconv.core.documents.signed import CHECKSUM, checksum
from trtconv.core.errors import EngineFailed, InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.stages import Limit, Stage
from trtconv.engine.farm.job import BuildJob
from trtconv.engine.rebuilding import Recipe, as_built
from trtconv.graph.model import OnnxModel
from trtconv.runtimes import onnxruntime, tensorrt

Call = Callable[..., Ended]
TIGHT = "3.5e-4"
PLAIN = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y) {{
    [c1] a = Conv <pads = [1,1,1,1]> (x, w_8_4_3_3)
    r = Relu (a)
    [c2] b = Conv <pads = [1,1,1,1]> (r, w_8_8_3_3)
    [c3] y = Conv (b, w_4_8_1_1) }}"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = saved_net(RESIDUAL, tmp_path)
    saved_samples(tmp_path, [(1, 4, 8, 8)])
    return path


def built(call: Call, net: Path, *flags: str) -> dict[str, Any]:
    ended = call("build", str(net), "--target", "rtx", "-q", "--format", "json", *flags)
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def test_the_mix_is_found_built_and_pinned(call: Call, net: Path, tmp_path: Path) -> None:
    data = str(tmp_path / "samples")
    loose = built(call, net, "--precision", "auto", "--tolerance", "0.1", "--data", data)
    assert (loose["mix"]["precision"], loose["mix"]["node_precisions"]) == ("fp16", {})
    tight = built(call, net, "--precision", "auto", "--tolerance", TIGHT, "--data", data)
    mix = tight["mix"]
    assert (tight["plan"]["precision"], tight["plan"]["tolerance"]) == ("auto", float(TIGHT))
    assert mix["error"] <= float(TIGHT) < mix["error_of_all"]
    assert mix["source"] == data
    assert set(mix["node_precisions"].values()) == {"fp32"}
    assert 0.5 < mix["time"] < 1
    assert (mix["timed_on"], mix["untimed"]) == (None, "there is no GPU")
    pinned = built(call, net, "--precision", "fp16", *(f"--node-precision={n}=fp32" for n in mix["node_precisions"]))
    assert pinned["mix"] is None
    for key in ("nodes", "kept"):
        assert pinned["cast"][key] == tight["cast"][key]
    assert tight["cast"]["nodes"] < loose["cast"]["nodes"]


def test_a_mix_is_verified_by_the_tolerance_of_its_types(call: Call, net: Path) -> None:
    engine = net.with_suffix(".engine")
    built(call, net, "--precision", "auto", "--tolerance", TIGHT)
    verified = call("verify", str(net), str(engine), "--format", "json", "-q")
    assert verified.code == 0, verified.err
    assert json.loads(verified.out)["precision"] == "fp16"
    report = net.with_suffix(".engine.json")
    for types, part in (
        ({"node_precisions": {"c1": "fp64"}}, "mix.node_precisions.c1"),
        ({"precision": "fp8"}, "mix.precision"),
        ({"precision": 5}, "mix.precision"),
    ):
        document = json.loads(report.read_text())
        told = {"mix": {**document["mix"], **types}}
        forged = {name: value for name, value in document.items() if name != CHECKSUM} | told
        report.write_text(json.dumps({**forged, CHECKSUM: checksum(forged)}))
        refused = call("verify", str(net), str(engine), "-q")
        assert (refused.code, f"key '{part}" in refused.err) == (2, True), refused.err
        report.write_text(json.dumps(document))


def test_a_node_whose_type_is_the_usual_one_changes_nothing(call: Call, net: Path) -> None:
    document = built(call, net, "--node-precision", "c1=fp32")
    assert (document["cast"], document["plan"]["node_precisions"]) == (None, {"c1": "fp32"})
    assert call("verify", str(net), str(net.with_suffix(".engine")), "-q").code == 0


def test_what_is_printed_goes_into_the_configuration(call: Call, net: Path, tmp_path: Path) -> None:
    common = ("--precision", "auto", "--tolerance", TIGHT, "--data", str(tmp_path / "samples"), "--target", "rtx", "-q")
    ended = call("build", str(net), *common)
    assert ended.code == 0, ended.err
    (settings,) = re.findall(r"in trtconv\.toml:\n((?:  .*\n)+)", ended.out)
    assert '= "fp32"' in settings
    entry = f'[[models]]\npath = "{net.name}"\ntargets = ["rtx"]\n{settings}'
    (tmp_path / "trtconv.toml").write_text(entry)
    report = json.loads(net.with_suffix(".engine.json").read_text())
    again = call("build", str(net), "--config", str(tmp_path / "trtconv.toml"), "-q", "--format", "json")
    assert again.code == 0, again.err
    document = json.loads(again.out)
    assert document["cast"]["nodes"] == report["cast"]["nodes"]
    assert document["plan"]["node_precisions"] == report["mix"]["node_precisions"]


def test_the_configuration_says_what_to_measure_on(
    call: Call, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = f'precision = "auto"\ntolerance = {TIGHT}\ndata = "samples"\n'
    (tmp_path / "trtconv.toml").write_text(f'[[models]]\npath = "{net.name}"\ntargets = ["rtx"]\n{settings}')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    document = built(call, net, "--config", str(tmp_path / "trtconv.toml"))
    assert document["mix"]["source"] == str(tmp_path / "samples")
    assert (document["mix"]["samples"], document["plan"]["tolerance"]) == (4, float(TIGHT))
    assert len(document["plan"]["sampled"]) == 64
    # Reading samples counts to a stage that has no limit of time.
    assert (Stage.MEASURE.limit, "plan" in document["seconds"]) == (Limit.NONE, False)
    for tolerance, said in (
        ("nan", "at least 0 is needed"),
        ("-1", "at least 0"),
        ("true", "tolerance must be a number"),
    ):
        wrong = settings.replace(TIGHT, tolerance)
        (tmp_path / "trtconv.toml").write_text(f'[[models]]\npath = "{net.name}"\n{wrong}')
        refused = call("build", "--config", str(tmp_path / "trtconv.toml"), "-q")
        assert (refused.code, said in refused.err) == (2, True), refused.err
    with pytest.raises(InputError, match="samples of precision auto are on this machine alone"):
        BuildJob.of(BuildRequest(net, precision="auto", data="samples"), OnnxModel.load(net), None)


def test_other_samples_make_another_engine(call: Call, net: Path, tmp_path: Path) -> None:
    flags = ("--precision", "auto", "--data", str(tmp_path / "samples"))
    assert not built(call, net, *flags)["up_to_date"]
    assert built(call, net, *flags)["up_to_date"]
    assert built(call, net, *flags[:-1], str(tmp_path / "." / "samples" / ".." / "samples"))["up_to_date"]
    file = tmp_path / "samples" / "0.npz"
    np.savez(file, x=2 * np.load(file)["x"])
    assert not built(call, net, *flags)["up_to_date"]


def test_samples_have_sizes_that_the_engine_takes(call: Call, tmp_path: Path) -> None:
    net = saved_net(UNET, tmp_path)
    folder = saved_samples(tmp_path, [(1, 3, 8, 8), (1, 3, 8, 12)], count=4)
    one = tmp_path / "one.npz"
    np.savez(one, x=np.zeros((1, 3, 20, 16), np.float32))
    common = ("build", str(net), "--target", "rtx", "-q", "--precision", "auto", "--tolerance", "1", "--dim", "n=1:1:2")
    several = ("--profile", "w=4:6:8", "--profile", "w=8:12:16")
    for data, flags, said in (
        (folder, ("--dim", "w=4:6:8"), "1.npz: dimension 3 (w) of input 'x' is 12, and the profile takes 4 to 8"),
        (one, several, "one.npz: dimension 2 (h) of input 'x' is 20, and the profile that fits best takes 4 to 16"),
    ):
        ended = call(*common, "--data", str(data), "--dim", "h=4:8:16", *flags)
        assert ended.code == 2, ended.err
        assert said in " ".join(ended.err.split())
    # Moved to what the network accepts, the profile has room for the 12.
    rounded = call(*common, "--data", str(folder), "--dim", "h=4:8:16", "--dim", "w=4:6:11", "--round")
    assert rounded.code == 0, rounded.err


STEEP = """<ir_version: 8, opset_import: ["": 17]> g (float[1,64] x) => (float[1,64] y)
    <float k = {30}, float small = {1e-6}>
    { [steep] a = Mul (x, k)  [exp] b = Exp (a)  [less] c = Mul (b, small)  [bound] y = Tanh (c) }"""


@pytest.mark.parametrize(
    ("largest", "pinned", "type"),
    [
        # The Exp makes 3e6 of these, and more than float32 holds of random inputs.
        (0.5, (), "bf16"),
        # It makes 1e3, which fits in float16.
        (0.23, (), None),
        (0.23, ("--node-precision", "exp=fp16"), "fp16"),
    ],
)
def test_what_is_cast_is_what_was_measured(
    call: Call, tmp_path: Path, largest: float, pinned: tuple[str, ...], type: str | None
) -> None:
    path, data = tmp_path / "e.onnx", tmp_path / "e.npz"
    onnx.save_model(parse(STEEP), path)
    np.savez(data, x=np.linspace(-largest, largest, 64, dtype=np.float32)[None])
    flags = ("--precision", "auto", "--tolerance", "0.05", "--data", str(data), *pinned)
    report = built(call, path, *flags)
    assert report["mix"]["precision"] == "fp16"
    assert report["mix"]["node_precisions"].get("exp") == type
    assert (report["cast"]["nodes"], report["cast"]["kept_for_values"]) == (4, [])
    assert 0 < report["mix"]["error"] < 0.05
    assert 0 < report["cast"]["verified"]["max_relative_error"] < 0.1
    recipe = Recipe.of(load_report(path.with_suffix(".engine.json")))
    model, _ = as_built(OnnxModel.load(path), recipe, emulated=True)
    fed = {"x": np.load(data)["x"]}
    (exact,), (cast,) = (onnxruntime.session(each).run(None, fed) for each in (OnnxModel.load(path), model))
    error = float(np.sqrt(np.mean((cast - exact) ** 2) / np.mean(exact**2)))
    assert error == pytest.approx(report["mix"]["error"], rel=1e-3)


def test_builders_with_flags_are_told_the_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRuntime(capabilities=TENSORRT_8, version="8.6.0", family="tensorrt")
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    request = BuildRequest(saved_net(PLAIN, tmp_path), precision="auto", tolerance=float(TIGHT), prove="none")
    report = build(request)
    assert (report.exit_code, report.cast) == (0, None)
    assert report.mix is not None
    (plan,) = fake.network.built
    assert (plan.precision, plan.node_precisions) == ("fp16", report.mix.node_precisions)
    assert set(plan.node_precisions.values()) == {"fp32"}
    assert build(request).up_to_date
    assert not build(dataclasses.replace(request, tolerance=0.1)).up_to_date
    assert fake.network.built[-1].node_precisions == {}


class Gpu(FakeRuntime):
    """A runtime whose engines take the time that layers of these names do, with half of it in 16 bits.

    They compute the network in float32, times a factor in 16 bits.
    """

    def __init__(self, layers: dict[str, float], net: Path, factor: float = 1.0) -> None:
        super().__init__(capabilities=TENSORRT_8, version="8.6.0", family="tensorrt", gpu="H100")
        self.layers, self.fed, self.closed, self.factor = layers, [], 0, factor
        self.host_code: list[bool] = []
        self.session = onnxruntime.session(OnnxModel.load(net))

    def engines(self) -> Any:
        return self

    def load(self, data: bytes, *, host_code: bool = False) -> Any:
        self.host_code.append(host_code)
        return self

    def open(self) -> Any:
        return self

    def feed(self, values: dict[str, Any]) -> None:
        self.fed.append({name: array.shape for name, array in values.items()})
        self.values = values

    def run(self) -> dict[str, Any]:
        return {"y": self.session.run(["y"], self.values)[0] * (self.factor if self._half() else 1)}

    def layer_times(self) -> list[tuple[str, float]]:
        return [(name, us / 2 if self._half() else us) for name, us in self.layers.items()]

    def _half(self) -> bool:
        return bool(self.network.built[-1].precision == "fp16")

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("layers", "gpu", "why"),
    [
        ({"c1 + Relu": 30.0, "c2": 50.0, "c3": 20.0, "Reformatting CopyNode": 5.0}, "H100", ""),
        ({"{ForeignNode[c1...c3]}": 100.0}, None, "do not say which nodes"),
    ],
)
def test_a_gpu_times_the_parts(
    layers: dict[str, float], gpu: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = saved_net(PLAIN, tmp_path)
    fake = Gpu(layers, net)
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    request = BuildRequest(net, precision="auto", tolerance=float(TIGHT), prove="none")
    report = build(request)
    assert report.mix is not None
    assert report.mix.timed_on == gpu
    assert why in report.mix.untimed
    assert (fake.fed, fake.closed) == ([{"x": (1, 4, 8, 8)}] * 3, 3)
    assert [plan.precision for plan in fake.network.built] == ["as-is", "fp16", "fp16", "fp16"]
    assert fake.network.built[-2].node_precisions == report.mix.node_precisions
    assert (report.mix.engine_error, report.mix.engine_missing) == (0.0, "")
    times = [part.time for part in report.mix.parts]
    assert times == (pytest.approx([0.3, 0.5, 0.2]) if gpu else times)
    monkeypatch.setattr(Gpu, "load", _fails)
    again = build(dataclasses.replace(request, force=True))
    assert again.mix is not None
    assert (again.exit_code, again.mix.untimed) == (0, "the engine does not load")
    assert (again.mix.engine_error, again.mix.engine_missing) == (None, "the engine does not load")


def test_an_engine_beyond_the_tolerance_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = saved_net(PLAIN, tmp_path)
    fake = Gpu({}, net, factor=1.01)
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    report = build(BuildRequest(net, precision="auto", tolerance=5e-3, prove="none"))
    assert report.mix is not None
    assert (report.mix.precision, report.mix.engine_error) == ("as-is", 0.0)
    # Two are timed, and the last is what is built.
    assert [plan.precision for plan in fake.network.built] == ["fp16", "as-is", "fp16", "as-is", "as-is"]
    text = mix_text(report.mix)
    assert "an engine for the samples' sizes, run on the GPU, has 0;" in text
    beyond = mix_text(dataclasses.replace(report.mix, engine_error=0.01))
    assert "has 0.01, which is more, with all in float32 that may be (--no-tf32" in beyond


def test_a_function_that_makes_others_each_time_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = saved_net(PLAIN, tmp_path), tmp_path / "made.py"
    data.write_text(
        "import numpy\nrandom = numpy.random.default_rng()\n"
        "def make(shapes, seed): return {'x': random.standard_normal(shapes['x']).astype('f')}\n"
    )
    monkeypatch.setattr(tensorrt, "load", lambda target: Gpu({}, net))
    report = build(BuildRequest(net, precision="auto", tolerance=0.01, data=f"{data}:make", prove="none"))
    assert report.mix is not None
    assert (report.mix.precision, report.mix.engine_error) == ("fp16", 0.0)


@pytest.mark.parametrize("asked", [True, False])
def test_the_engine_that_is_run_has_its_weights(asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = saved_net(PLAIN, tmp_path)
    fake = Gpu({}, net)
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    options = BuilderOptions(strip_weights=asked, version_compatible=asked, optimization_level=2)
    build(BuildRequest(net, precision="auto", tolerance=float(TIGHT), prove="none", options=options))
    built = [plan.options for plan in fake.network.built]
    assert [each.strip_weights for each in built] == [False, False, False, asked]
    assert {(each.version_compatible, each.optimization_level) for each in built} == {(asked, 2)}
    assert fake.host_code == [asked] * 3


def test_no_engine_is_built_that_nothing_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = saved_net(PLAIN, tmp_path)
    fake = Gpu({}, net)
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    monkeypatch.setattr(fake, "engines", _fails)
    report = build(BuildRequest(net, precision="auto", tolerance=float(TIGHT), prove="none"))
    assert report.mix is not None
    assert (report.mix.untimed, report.mix.engine_missing) == ("the engine does not load",) * 2
    assert len(fake.network.built) == 1


def _fails(*_: object, **__: object) -> Any:
    raise EngineFailed("the engine does not load")


def test_samples_are_for_auto_alone(call: Call, net: Path) -> None:
    with pytest.raises(InputError, match="precision auto"):
        build(BuildRequest(net, target=Target("rtx"), data="samples", precision="fp16"))
    ended = call("build", str(net), "--target", "rtx", "-q", "--data", "samples")
    assert ended.code == 2
    assert "--data goes with --precision auto" in ended.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--tune --no-rewrite", "--tune is about what the rewrite does, and --no-rewrite leaves it out"),
        ("--requantize --no-rewrite", "--requantize is about what the rewrite does"),
        ("--tolerance 0.5", "--tolerance goes with --precision auto, or with int8 and --data"),
        (
            "--precision auto --error-budget 0.1",
            "--error-budget goes with --precision int8 and --data; the precision",
        ),
        ("--precision int8 --error-budget 0.1", "--error-budget goes with --precision int8 and --data"),
        ("--precision int8 --attention", "--attention goes with --precision int8 and --data"),
        ("--precision auto --tolerance 0 --cast-io", "no types within a tolerance of 0, so that --cast-io has none"),
    ],
)
def test_flags_that_would_do_nothing_are_refused(call: Call, net: Path, flags: str, said: str) -> None:
    ended = call("build", str(net), "--target", "rtx", "-q", *flags.split())
    assert ended.code == 2, ended.err
    assert said in " ".join(ended.err.split())
    assert not net.with_suffix(".engine").exists()


def test_check_refuses_passes_that_do_not_run(call: Call, net: Path) -> None:
    ended = call("check", str(net), "--target", "rtx", "-q", "--requantize", "--no-rewrite")
    assert ended.code == 2, ended.err
    assert "--requantize is about what the rewrite does" in ended.err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tolerance": 0.5}, "--tolerance goes with --precision auto"),
        ({"precision": "auto", "preprocess": "size=8x8"}, "--preprocess goes with --data"),
        ({"tune": True, "rewrite": False}, "--tune is about"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(net: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build(BuildRequest(net, target=Target("rtx"), **settings))


DEFAULTS = (
    ('tolerance = 0.01\ndata = "samples"\npreprocess = "size=8x8"\n', 'precision = "fp16"\n', ""),
    ("tolerance = 0.01\n", 'precision = "auto"\n', ""),
    ("", 'precision = "auto"\ntolerance = 0.01\ndata = "samples"\n', "--precision fp16"),
    ("requantize = true\ntune = true\n", "rewrite = false\n", ""),
    ("", "tune = true\nrequantize = true\n", "--no-rewrite"),
    ('precision = "auto"\ntolerance = 0.01\n', "", "--precision int8 --data samples"),
    ("tolerance = 0.01\n", 'precision = "int8"\n', "--data samples"),
)


@pytest.mark.parametrize(("defaults", "own", "flags"), DEFAULTS)
def test_defaults_that_do_not_apply_say_nothing(
    call: Call, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defaults: str, own: str, flags: str
) -> None:
    entry = f'[[models]]\npath = "{net.name}"\n{own}'
    (tmp_path / "trtconv.toml").write_text(f'targets = ["rtx"]\nprove = "none"\n{defaults}{entry}')
    monkeypatch.chdir(tmp_path)
    document = built(call, net, *flags.split())
    plan = document["plan"]
    measured = plan["precision"] == "auto"
    assert (plan["tolerance"], plan["tune"], plan["requantize"]) == (0.01 if measured else 1e-3, False, False)
    if flags:
        return
    (job,) = json.loads(call("plan", "--format", "json").out)["jobs"]
    assert (job["state"], job["error"]) == ("up-to-date", None)
    for command in (("check", "-q"), ("check", net.name, "-q"), ("build", "-q")):
        ended = call(*command)
        assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("own", "flags", "said", "hint"),
    [
        ('precision = "fp16"\ntolerance = 0.01\n', "", "--tolerance goes with --precision auto", "say --precision"),
        ("tune = true\nrewrite = false\n", "", "--tune is about what", "(in trtconv.toml: tune = true or rewrite = f"),
        ("rewrite = false\n", "--requantize", "--requantize is about what", "Leave out --requantize or --no-rewrite"),
        ("tune = true\n", "--tune --no-rewrite", "--tune is about what", "Leave out --tune or --no-rewrite"),
        ('precision = "auto"\n', "--precision fp16 --tolerance 0.1", "--tolerance goes with", "Leave out --tolerance"),
    ],
)
def test_what_one_model_or_one_call_asks_for_must_apply(
    call: Call, net: Path, tmp_path: Path, own: str, flags: str, said: str, hint: str
) -> None:
    (tmp_path / "trtconv.toml").write_text(f'targets = ["rtx"]\n[[models]]\npath = "{net.name}"\n{own}')
    ended = call("build", str(net), "--config", str(tmp_path / "trtconv.toml"), "-q", *flags.split())
    assert ended.code == 2, ended.err
    told = " ".join(ended.err.split())
    assert (said in told, hint in told) == (True, True), told


def test_what_the_command_line_makes_apply_again_holds(call: Call, net: Path, tmp_path: Path) -> None:
    (tmp_path / "trtconv.toml").write_text(
        f'targets = ["rtx"]\ntolerance = 0.01\n[[models]]\npath = "{net.name}"\nprecision = "fp16"\n'
    )
    document = built(call, net, "--config", str(tmp_path / "trtconv.toml"), "--precision", "auto")
    assert document["plan"]["tolerance"] == 0.01


def test_what_is_measured_on_samples_is_planned_here_and_travels_nowhere(
    call: Call, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = 'precision = "auto"\ntolerance = 0.1\ndata = "samples"\ntargets = ["rtx"]\nprove = "none"\n'
    (tmp_path / "trtconv.toml").write_text(f'[[models]]\npath = "{net.name}"\n{settings}')
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)

    def planned(*flags: str) -> tuple[int, str, str | None, str | None]:
        ended = call("plan", *flags, "--format", "json")
        (job,) = json.loads(ended.out)["jobs"]
        return ended.code, job["state"], job["key"], job["error"]

    refused = "samples: the samples of precision auto are on this machine alone"
    assert planned() == (0, "to-build", None, None)
    assert planned("--write", "jobs") == (2, "error", None, refused)
    assert call("collect", "out", "-q").code == 2
    assert call("build", "-q").code == 0
    assert planned() == planned("--write", "jobs") == (0, "up-to-date", None, None)
    assert call("collect", "out", "-q").code == 0
    assert not list(tmp_path.glob("jobs/*"))
    # A build that can only fail is none that is to be done, with an engine there and without.
    (tmp_path / "samples").rename(tmp_path / "moved")
    for engine in ("there", "gone"):
        code, state, _, error = planned()
        assert (code, state, "samples" in str(error)) == (2, "error", True), engine
        net.with_suffix(".engine.json").unlink(missing_ok=True)


def test_patterns_pin_the_nearest_nodes_and_are_counted(call: Call, tmp_path: Path) -> None:
    net = saved_net(PLAIN, tmp_path)
    flags = [f"--node-precision={each}" for each in ("type:*=fp32", "c*=fp16", "c3=fp32")]
    document = built(call, net, "--precision", "fp16", *flags)
    pinned = {each["pattern"]: each["nodes"] for each in document["pinned"]}
    assert (pinned["c*"], pinned["c3"], len(pinned["type:*"])) == (["c1", "c2"], ["c3"], 1)
    ended = call("build", str(net), "--target", "rtx", "-q", *flags, "--node-precision=type:Conv=fp32")
    assert (ended.code, "a nearer one has each" in ended.err) == (2, True)


def test_patterns_are_told_and_replayed(call: Call, tmp_path: Path) -> None:
    net = saved_net(PLAIN, tmp_path)
    common = ("build", str(net), "--target", "rtx", "-q", "--precision", "fp16", "--node-precision")
    ended = call(*common, "c[*=fp32")
    assert (ended.code, "means no node" in ended.err) == (2, True)
    ended = call(*common, "type:Covn=fp32")
    assert (ended.code, "Conv" in ended.err) == (2, True)
    ended = call(*common, "c?=fp32")
    assert (ended.code, "--node-precision c?=fp32: 3 nodes" in ended.out) == (0, True)
    saved = load_report(net.with_suffix(".engine.json"))
    recipe = Recipe.of(saved)
    assert recipe.types.nodes == dict.fromkeys(("c1", "c2", "c3"), "fp32")
    rebuilt, _ = as_built(OnnxModel.load(net), recipe)
    assert saved.report.cast is not None and saved.report.cast.nodes == 1
    kinds = {node.op_type: rebuilt.main.types.get(node.output[0]) for node in rebuilt.proto.graph.node}
    assert (kinds["Conv"], kinds["Relu"]) == (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)


def test_a_pattern_leaves_out_what_computes_no_floats(call: Call, tmp_path: Path) -> None:
    text = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,4,8,8] y, int64[4] s) {{
        [c1] y = Conv <pads = [1,1,1,1]> (x, w_4_4_3_3)
        [size] s = Shape (y) }}"""
    net = saved_net(text, tmp_path)
    document = built(call, net, "--precision", "fp16", "--node-precision", "*=fp32")
    assert [(each["nodes"], each["idle"]) for each in document["pinned"]] == [(["c1"], 1)]
    ended = call("build", str(net), "--target", "rtx", "-q", "--node-precision", "s*=fp16")
    assert (ended.code, "none of its 1 nodes can have that type" in ended.err) == (2, True)
    ended = call("build", str(net), "--target", "rtx", "-q", "--node-precision", "size=fp16")
    assert (ended.code, "the Shape computes no floats" in ended.err) == (2, True)


def test_eight_is_told_the_nodes_of_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRuntime(family="tensorrt", version="8.6.0", gpu="GPU", capabilities=TENSORRT_8)
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    request = BuildRequest(saved_net(PLAIN, tmp_path), node_precisions={"c*": "fp16", "c2": "fp32"}, prove="none")
    report = build(request)
    assert fake.network.built[-1].node_precisions == {"c1": "fp16", "c3": "fp16", "c2": "fp32"}
    assert [str(each) for each in report.pinned] == [
        "--node-precision c*=fp16: 2 nodes",
        "--node-precision c2=fp32: 1 node",
    ]


def test_a_report_of_a_network_that_16_bits_break_is_read_again(call: Call, tmp_path: Path) -> None:
    """log (1e-6) in float16 is -inf, and so the error of all in 16 bits infinite."""
    pytest.importorskip("tensorrt_rtx")
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) <float e = {1e-9}>
    { a = Abs (x)  b = Mul (a, e)  y = Log (b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "log.onnx")
    args = ("--dim", "n=2", "--precision", "auto", "--target", "rtx", "-q", "--format", "json")
    built = json.loads(call("build", str(tmp_path / "log.onnx"), *args).out)
    assert built["mix"]["error_of_all"] == "inf"
    assert json.loads(call("build", str(tmp_path / "log.onnx"), *args).out)["up_to_date"]
    ended = call("verify", str(tmp_path / "log.onnx"), "-q")
    assert ended.code == 0, ended.err
