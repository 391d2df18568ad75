"""`trtconv plan-profiles` on the command line, and bench's flags about load."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from support.paths import ROOT

UNET = str(ROOT / "models" / "unet.onnx")


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    path = tmp_path / "traffic.csv"
    path.write_text("count,batch,height,width\n1000,1,64,64\n100,1,250,250\n10,4,512,512\n")
    return path


def test_a_plan_as_text_and_json(call, traffic: Path, tmp_path: Path) -> None:
    ended = call("plan-profiles", str(traffic), UNET, "--profiles", "3", "-o", str(tmp_path / "plan"))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1].startswith(f"trtconv build {UNET} --profile ")
    ended = call("plan-profiles", str(traffic), UNET, "--profiles", "1", "--keep", "batch", "--format", "json")
    document = json.loads(ended.out)
    assert (document["exit_code"], document["cost"]["one"], document["requests"]) == (0, 1, 1110)
    assert len(document["profiles"]) == 1
    assert document["written"] == []


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--profiles", "0"), "--profiles"),
        (("--gpu-memory", "1K"), "one profile takes about"),
        (("--keep", "depth"), "--keep depth"),
        (("--dim", "batch=2"), "has a column 'batch'"),
        (("--measured", "nowhere.json"), "nowhere.json"),
        (("-o", "traffic.csv/plan"), "plan"),
    ],
)
def test_bad_calls(call, traffic: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], what: str) -> None:
    monkeypatch.chdir(traffic.parent)
    ended = call("plan-profiles", str(traffic), UNET, *flags)
    assert ended.code == 2
    assert what in ended.err
    assert [path.name for path in traffic.parent.iterdir()] == ["traffic.csv"]


def test_a_name_that_no_toml_file_can_hold(call, traffic: Path, tmp_path: Path) -> None:
    model = os.fsdecode(os.fsencode(tmp_path) + b"/u\xffnet.onnx")
    shutil.copy(UNET, model)
    ended = call("plan-profiles", str(traffic), model, "-o", str(tmp_path / "plan"))
    assert ended.code == 2
    assert "no TOML file can hold" in ended.err
    assert not (tmp_path / "plan").exists()
    assert call("plan-profiles", str(traffic), model).code == 0


def test_bad_tables(call, traffic: Path) -> None:
    traffic.write_text("count,batch,height,width\n1000,1,64,x\n")
    ended = call("plan-profiles", str(traffic), UNET)
    assert ended.code == 2
    assert f"{traffic}:2: width 'x'" in ended.err
    assert call("plan-profiles", "nowhere.csv", UNET).code == 2


def test_flags_of_bench_about_load(call, tmp_path: Path) -> None:
    engine = tmp_path / "m.engine"
    engine.write_bytes(b"\xff\x00\x01" * 99)
    for flags, what in (
        (("--beside", "a.engine", "--beside", "b.engine", "--trust"), "a.engine cannot be read"),
        (("--arrivals", "nowhere.csv", "--trust"), "nowhere.csv cannot be read"),
        (("--arrivals", "nowhere.csv", "--seconds", "2"), "--seconds has no effect"),
        (("--contexts", "2", "--vs", "a.engine"), "--vs"),
        (("--streams", "2", "--plot", "a.svg"), "--plot"),
        (("--contexts", "0"), "--contexts"),
        (("--nvtx",), "--nvtx"),
    ):
        ended = call("bench", str(engine), *flags)
        assert ended.code == 2, flags
        assert what in ended.err
