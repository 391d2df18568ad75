"""What `plan-profiles` is asked."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.builder_options import parse_bytes
from trtconv.core.dim_flags import parse_dims
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import Bounds, Request


@frozen
class PlanProfilesRequest(Request):
    """A call of `trtconv plan-profiles`.

    Args:
        traffic: A CSV file: a column `count`, and dimensions by name.
        model: The .onnx file.
        dims: Sizes of dimensions that are no columns.
        memory: Bytes of GPU memory for the model and a context of each profile.
        measured: Documents of `trtconv bench --format json`, whose times replace the estimate.
    """

    traffic: Path
    model: Path
    dims: Bounds = option(
        "--dim",
        "The size of a dimension that is no column of TRAFFIC.csv. Repeatable.",
        metavar="NAME=N",
        many=True,
        default={},
        read=parse_dims,
    )
    profiles: int = option(
        "--profiles",
        "At most so many profiles; fewer where a further one would save less than 1 %.",
        metavar="N",
        takes=int,
        least=1,
        most=64,
        default=4,
    )
    memory: int | None = option(
        "--gpu-memory",
        "Memory of the GPU for the model and a context of each profile, such as 8G.",
        metavar="SIZE",
        least=1,
        default=None,
        read=parse_bytes,
    )
    keep: tuple[str, ...] = option(
        "--keep", "Never pad this dimension. Repeatable.", metavar="NAME", many=True, default=(), read=tuple
    )
    measured: tuple[Path, ...] = option(
        "--measured",
        "Take times from what bench --format json wrote, of engines of this model, at min, opt and max. Repeatable.",
        metavar="BENCH.json",
        many=True,
        default=(),
        read=lambda paths: tuple(map(Path, paths)),
        reads="what bench measured",
    )
    output: Path | None = option(
        "-o --output",
        "Write profiles.toml, dispatch.py and dispatch.hpp into this folder.",
        metavar="FOLDER",
        default=None,
        writes=True,
    )
