"""What calibration found, kept by the content of the model and of the samples."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trtconv.core.decode import Fault, decoded, json_of
from trtconv.core.documents.calibration import KeptRanges, KeptSizes
from trtconv.core.documents.signed import CHECKSUM, checksum
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write
from trtconv.core.reading import CACHE_BYTES, read_plain
from trtconv.core.version import __version__

Kept = TypeVar("Kept", KeptRanges, KeptSizes)


def key_of(model: str, samples: str, tensors: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Returns the name under which ranges are kept: the same for the same content, wherever it lies.

    Args:
        model: Digest of the float model.
        samples: Digest of the samples.
        tensors: Whose ranges they are.
        settings: Whatever else decides them.
    """
    import onnxruntime

    parts = [__version__, onnxruntime.__version__, model, samples, list(tensors), dict(settings)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def load(folder: Path, key: str, kind: type[Kept], tensors: Sequence[str]) -> Kept | None:
    """Returns what was kept of some tensors, as `store` got it; None where there is nothing, or something else."""
    with contextlib.suppress(OSError, Fault):
        document = json_of(read_plain(folder / f"{key}.json", CACHE_BYTES))
        # A number that was changed may be one still: a range of 0 is that of a tensor of zeros.
        if isinstance(document, dict) and document.pop(CHECKSUM, None) == checksum(document):
            entry = decoded(kind, document)
            return entry if entry.is_of(tensors) else None
    return None


def store(folder: Path | None, key: str, record: KeptRanges | KeptSizes) -> None:
    """Keeps what was found; where the folder cannot be written nothing is kept."""
    if folder is None:
        return
    with contextlib.suppress(InputError):
        document = {**record.to_json(), CHECKSUM: checksum(record.to_json())}
        atomic_write(folder / f"{key}.json", json.dumps(document, sort_keys=True).encode())
