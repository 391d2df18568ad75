"""Work beside other work: what it makes, what it raises, and what is left of it."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

import pytest

from trtconv.core.background import Apart, Background

ASKED = ContextVar("ASKED", default="nobody")
ON_LINUX = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def test_work_in_a_thread_has_the_context_of_whoever_began_it() -> None:
    token = ASKED.set("somebody")
    work = Background(lambda: (ASKED.get(), threading.current_thread() is threading.main_thread()))
    ASKED.reset(token)
    assert work.result() == ("somebody", False)
    assert work.result() == ("somebody", False)


def test_what_the_work_raises_is_raised_where_it_is_asked_for() -> None:
    def fails() -> int:
        raise KeyError("odd")

    work = Background(fails)
    work.wait()
    for _ in range(2):
        with pytest.raises(KeyError, match="odd"):
            work.result()


def test_nobody_waits_longer_than_for_the_end() -> None:
    goes_on = threading.Event()
    work = Background(lambda: goes_on.wait(10))
    threading.Timer(0.05, goes_on.set).start()
    work.wait()
    assert work.result() is True


class TestApart:
    """Work in a fork."""

    pytestmark = ON_LINUX

    def test_it_is_done_by_another_process_with_all_that_this_one_has(self) -> None:
        here = {"a": [1, 2]}
        number, what = Apart(lambda: (os.getpid(), here)).result() or (0, None)
        assert number not in (0, os.getpid())
        assert what == here and what is not here

    def test_it_has_the_context_of_whoever_began_it(self) -> None:
        token = ASKED.set("somebody")
        work = Apart(ASKED.get)
        ASKED.reset(token)
        assert work.result() == "somebody"

    def test_what_the_parent_has_may_be_collected_later(self) -> None:
        class Held:
            pass

        held = Held()
        held.itself = held  # type: ignore[attr-defined]
        seen, before = weakref.ref(held), gc.get_freeze_count()
        assert Apart(lambda: seen() is not None).result() is True
        assert gc.get_freeze_count() == before
        del held
        gc.collect()
        assert seen() is None

    def test_what_it_prints_is_no_result(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert Apart(lambda: os.write(1, b"a library speaks")).result() == 16
        assert capfd.readouterr() == ("", "a library speaks")

    @pytest.mark.parametrize(
        "work", [lambda: 1 // 0, lambda: threading.Lock(), lambda: os._exit(3), lambda: os.abort()]
    )
    def test_there_is_no_result_where_it_fails(
        self, work: Callable[[], object], capfd: pytest.CaptureFixture[str]
    ) -> None:
        apart = Apart(work)
        assert apart.result() is None
        apart.close()
        # It is done again, by whoever says then what is wrong.
        assert capfd.readouterr() == ("", "")

    def test_what_is_closed_ends(self) -> None:
        apart = Apart(lambda: time.sleep(60))
        begun = time.monotonic()
        apart.close()
        assert apart.result() is None
        assert time.monotonic() - begun < 30
        apart.close()

    def test_it_ends_with_its_parent(self) -> None:
        def work() -> list[int]:
            inner = Apart(lambda: time.sleep(60))
            return [inner._fork.pid]

        (pid,) = Apart(work).result() or [0]
        for _ in range(300):
            if _is_gone(pid):
                return
            time.sleep(0.05)
        pytest.fail("it goes on without its parent")


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
