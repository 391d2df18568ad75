"""What `check` finds out of the model beside the parser: nobody changes the model before that has come to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trtconv.pipeline import checking


@pytest.mark.parametrize("prove", ["none", "quick"])
def test_the_model_is_nobodys_again_where_the_parser_refuses_it(monkeypatch: pytest.MonkeyPatch, prove: str) -> None:
    steps: list[str] = []

    @contextlib.contextmanager
    def side(*_: object) -> Iterator[None]:
        steps.append("begins")
        yield
        steps.append("ends")

    def refuse(*_: object) -> tuple[None, tuple[()]]:
        steps.append("parses")
        return None, ()

    monkeypatch.setattr(checking, "hand_over", lambda model: steps.append("is handed over"))
    monkeypatch.setattr(checking, "ModelSide", side)
    monkeypatch.setattr(checking, "parse_model", refuse)
    engine: Any = SimpleNamespace(info=SimpleNamespace(family="rtx", version="1.7"))
    subject: Any = SimpleNamespace(parsed=None)
    plan: Any = SimpleNamespace(profiles=())
    request: Any = SimpleNamespace(prove=prove)
    checking._try_out(subject, engine, plan, request, None)  # type: ignore[arg-type]
    assert steps == ["is handed over", *(["parses"] if prove == "none" else ["begins", "parses", "ends"])]
