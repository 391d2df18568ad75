"""What a farm does and what its store has, for people."""

from __future__ import annotations

from trtconv.cli.formats.wording import byte_size, count, table
from trtconv.core.documents.farm import FarmStatus, StorePruned, WorkerStatus
from trtconv.core.text import clean

_MOST_LINES = 20


def status_text(status: FarmStatus) -> str:
    """Renders what a farm does: its workers, then what waits."""
    rows: list[tuple[str, ...]] = [("worker", "GPU", "TensorRT", "state", "job", "s", "next", "done", "failed")]
    rows += [_row(worker) for worker in status.workers]
    lines = table(rows, "") if status.workers else ["no worker at all: start trtconv worker where the GPUs are"]
    lines += [clean(f"{worker.name}: {worker.why}") for worker in status.workers if worker.why]
    versions = sorted({f"{worker.version} ({worker.source})" for worker in status.workers if worker.version})
    if len(versions) > 1:
        lines.append(clean(f"the workers have {len(versions)} versions of trtconv: {', '.join(versions)}"))
    lines += ["", f"{count(status.waiting, 'job')} waiting, {count(status.clients, 'client')}"]
    lines += [clean(f"  {job.job}, for {job.seconds:.0f} s") for job in status.queue[:_MOST_LINES]]
    if status.waiting > _MOST_LINES:
        lines.append(f"  and {status.waiting - _MOST_LINES} more")
    return "\n".join(lines)


def _row(worker: WorkerStatus) -> tuple[str, ...]:
    gpu, runtimes = " or ".join(worker.gpus[:1]) or "-", " ".join(worker.runtimes) or "-"
    seconds = "-" if worker.seconds is None else f"{worker.seconds:.0f}"
    cells = (worker.name, gpu, runtimes, worker.state, worker.job or "-", seconds)
    return (*map(clean, cells), str(worker.waiting), str(worker.done), str(worker.failed))


def pruned_text(pruned: StorePruned, was_removed: bool) -> str:
    """Renders what was taken out of a store, or would be, and what is left."""
    verb = "removed" if was_removed else "--prune would remove"
    removed = sum(entry.bytes for entry in pruned.removed)
    lines = [clean(f"{verb} {entry.file}: {entry.why}") for entry in pruned.removed]
    summary = (
        f"{verb} {count(len(pruned.removed), 'file')} ({byte_size(removed)})" if pruned.removed else "nothing to remove"
    )
    return "\n".join([*lines, f"{summary}; {count(pruned.files, 'file')} ({byte_size(pruned.bytes)}) left"])
