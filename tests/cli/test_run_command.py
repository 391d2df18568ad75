"""`trtconv run` and `trtconv completion` on the command line."""

from __future__ import annotations

import pytest


def test_both_files_have_to_be_named(call) -> None:
    ended = call("run", "a.engine", "-o", "y.npz")
    assert ended.code == 2
    assert "error: a run lacks its inputs" in ended.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_what_click_makes(call, shell: str) -> None:
    ended = call("completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert f"_TRTCONV_COMPLETE={shell}_complete" in ended.out


def test_other_shells_have_none(call) -> None:
    assert call("completion", "tcsh").code == 2
