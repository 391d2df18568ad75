"""Runs commands on files as told on stdin; one line of JSON out for each. A process of its own, because it may die."""

from __future__ import annotations

import json
import os
import resource
import sys
import time

ADDRESS_SPACE_BYTES = 24 << 30
"""Keeps a blow-up from taking the machine along."""


def main() -> None:
    """Serves until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    errors = os.memfd_create("stderr")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    from trtconv.cli import main as trtconv

    for line in sys.stdin:
        os.ftruncate(errors, 0)
        os.lseek(errors, 0, os.SEEK_SET)
        saved = os.dup(2)
        os.dup2(errors, 2)
        started, before = time.monotonic(), _peak_megabytes()
        try:
            code = trtconv(json.loads(line))
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        said = os.pread(errors, 1 << 16, 0).decode(errors="replace")
        spent = {"seconds": time.monotonic() - started, "megabytes": _peak_megabytes() - before}
        answers.write(json.dumps({"code": code, "stderr": said, **spent}) + "\n")
        answers.flush()


def _peak_megabytes() -> float:
    """Peak resident memory so far: what it grows by is what a command took beyond all before it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
