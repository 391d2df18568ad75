"""Whether a network fits into the memory of a GPU at the max of every profile, by an estimate on shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trtconv.core import codes
from trtconv.core.dims import sizes_text
from trtconv.core.findings import Finding
from trtconv.graph.model import OnnxModel

if TYPE_CHECKING:
    from trtconv.pipeline.profiles import Sized


def short_of_memory(model: OnnxModel, sized: Sized, limit: int) -> Iterator[Finding]:
    """Yields a TC208 for each profile at whose max the network takes more memory than there is.

    Args:
        model: The model as it will be parsed.
        sized: Its profiles.
        limit: Bytes of the GPU's memory.
    """
    # Loaded only here: it is on request.
    from trtconv.shapes.lattice import sizes_of
    from trtconv.shapes.memory import largest_that_fits

    for profile, need in zip(sized.profiles, sized.memory, strict=True):
        total = model.nbytes + need.bytes
        if total <= limit:
            continue
        point = sizes_text(need.sizes)
        message = (
            f"the network takes about {_mib(total)}{f' at {point}' if point else ''} ({_mib(model.nbytes)} of the"
            f" model, {_mib(need.bytes)} of activations), and the GPU has {_mib(limit)} (--gpu-memory)"
        )
        least = {name: profile.dims[name].min for name in need.sizes}
        fitting = largest_that_fits(sizes_of(model), sized.lattice, least, need.sizes, limit - model.nbytes)
        texts = [" and ".join(f"{name} {size}" for name, size in sizes.items()) for sizes in fitting]
        fix = f"What fits is a max of {', or of '.join(texts)}." if texts else "Nothing in range that it accepts fits."
        yield codes.GPU_MEMORY_SHORT.finding(message, place=need.node, fix=fix)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.1f} MiB"
