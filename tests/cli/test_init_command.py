"""`trtconv init`: a configuration that lists what is there, with bounds that the networks accept."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import onnx

from support.paths import ROOT
from support.sizes import parse, save
from trtconv.core import config


def test_init_writes_what_build_reads(call, tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    shutil.copy(ROOT / "models" / "super_resolution.onnx", tmp_path / "nets" / "sr.onnx")
    shutil.copy(ROOT / "models" / "gan_generator.onnx", tmp_path)
    (tmp_path / "broken.onnx").write_bytes(b"\x08 no model")
    (tmp_path / ".venv").mkdir()
    shutil.copy(ROOT / "models" / "unet.onnx", tmp_path / ".venv")
    ended = call("init", str(tmp_path), "--format", "json")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert [each["path"] for each in told["models"]] == ["gan_generator.onnx", "nets/sr.onnx"]
    assert [each["path"] for each in told["left_out"]] == ["broken.onnx"]
    loaded = config.load(tmp_path / "trtconv.toml")
    builds = [entry.build for entry in loaded.entries if entry.build is not None]
    assert [build.model.name for build in builds] == ["gan_generator.onnx", "sr.onnx"]
    assert {name: str(bounds) for name, bounds in builds[0].dims.items()} == {"batch": "1:1:8"}
    assert all(bounds.min % 8 == 0 for name, bounds in builds[1].dims.items() if name != "batch")


def test_init_proposes_bounds_at_which_no_tensor_is_too_large(call, tmp_path: Path) -> None:
    # At 512 by 512 every pixel has a product with every pixel, of eight images.
    save(
        """g (float[n,4,h,w] x) => (float[n,t,t] y)
        <int64[3] s = {0,4,-1}> { r = Reshape (x, s) q = Transpose <perm = [0,2,1]> (r) y = MatMul (q, r) }""",
        tmp_path / "attention.onnx",
    )
    assert call("init", str(tmp_path)).code == 0
    (entry,) = config.load(tmp_path / "trtconv.toml").entries
    assert entry.build is not None
    assert {name: str(bounds) for name, bounds in entry.build.dims.items()} == {
        "n": "1:1:2",
        "h": "16:64:128",
        "w": "16:64:128",
    }


def test_init_says_where_a_network_was_run(call, tmp_path: Path) -> None:
    row = ", ".join(["1"] * 300)
    save(
        f"""g (float[1,h] x) => (float[a,b] y)
        <float[300] row = {{{row}}}, int64 zero = {{0}}, int64 one = {{1}}, int64[2] s = {{1,-1}}> {{
          p = NonZero (x)  m = ReduceMax <keepdims = 0> (p)  n = Add (m, one)  at = Range (zero, n, one)
          g = Gather (row, at)  w = Reshape (g, s)  y = Add (x, w)
        }}""",
        tmp_path / "row.onnx",
    )
    assert call("init", str(tmp_path)).code == 0
    written = (tmp_path / "trtconv.toml").read_text()
    assert '"h" = "32:128:256"  # accepted: these, at which ONNX Runtime ran it' in written


def test_init_gives_bounds_of_what_can_be_chosen_alone(call, tmp_path: Path) -> None:
    proto = parse("g (float[n,h] x, float[n,k] u) => (float[n,h] y, float[n,k] z) { y = Relu (x) z = Relu (u) }").proto
    for value in (proto.graph.input[1], proto.graph.output[1]):
        value.type.tensor_type.shape.dim[1].dim_param = "2*h"
    onnx.save(proto, tmp_path / "twice.onnx")
    assert call("init", str(tmp_path)).code == 0
    ended = call("check", "--config", str(tmp_path / "trtconv.toml"))
    assert ended.code == 0, ended.err
    assert "2*h" not in (tmp_path / "trtconv.toml").read_text()


def test_init_replaces_nothing_unasked(call, tmp_path: Path) -> None:
    assert call("init", str(tmp_path)).code == 2
    shutil.copy(ROOT / "models" / "gan_generator.onnx", tmp_path)
    assert call("init", str(tmp_path)).code == 0
    ended = call("init", str(tmp_path))
    assert ended.code == 2
    assert "trtconv.toml exists" in ended.err
    assert call("init", str(tmp_path), "--force").code == 0
    assert call("init", str(tmp_path / "none")).code == 2


def test_what_init_proposes_runs_where_the_user_stands(call, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "unet.onnx").write_bytes((ROOT / "models" / "unet.onnx").read_bytes())
    for place, words in ((tmp_path, ["--config", "my models/trtconv.toml"]), (folder, [])):
        monkeypatch.chdir(place)
        said = call("init", str(folder.relative_to(place)), "--force").out
        proposed = shlex.split(said.rpartition("then run ")[2])
        assert proposed == ["trtconv", "build", *words]
        assert "no trtconv.toml" not in call("check", *words, "--target", "tensorrt-8.6").err


def test_init_into_what_cannot_be_written_proposes_no_other_output(call, tmp_path: Path) -> None:
    shutil.copy(ROOT / "models" / "gan_generator.onnx", tmp_path)
    (tmp_path / "trtconv.toml").mkdir()
    ended = call("init", str(tmp_path), "--force")
    assert ended.code == 2
    assert "cannot be written" in ended.err
    assert "output path" not in ended.err
