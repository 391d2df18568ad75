"""`trtconv refit`: the weights of another model in an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.refittable import give_refitter, net, refittable


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch) -> Any:
    return give_refitter(monkeypatch)[1]


def test_refit_tells_what_it_did(call: Any, trt: Any, tmp_path: Path) -> None:
    built = refittable(tmp_path, net(1))
    new = refittable(tmp_path, net(2), "new").model
    (tmp_path / "new.engine").unlink()
    (tmp_path / "new.engine.json").unlink()
    ended = call("refit", str(built.engine), str(new), "--format", "json", "-q", "--prove", "none")
    document = json.loads(ended.out)
    assert (ended.code, document["before"]["changed"], len(document["weights"])) == (0, 4, 4)
    assert {"layer", "role", "from", "changed"} == set(document["weights"][0])
    ended = call("refit", str(built.engine), str(new), "-q")
    assert (ended.code, ended.out.splitlines()[0].partition("): ")[2]) == (0, "4 of 4 weights changed")
    ended = call("refit", str(built.engine), str(built.engine), "-q")
    assert ended.code == 2
