"""What trtconv needs of an engine in the memory of a GPU, whichever TensorRT made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from trtconv.core.dims import InputRange, Shape
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import EngineFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

Launch = Callable[[], None]
"""Puts work on the GPU's queue and returns."""

WeightKey = tuple[str, str]
"""Name of a layer, and the role of weights in it: ("up", "KERNEL")."""


class ProfileTaken(EngineFailed):
    """An execution context has no optimization profile: others have them, and this TensorRT does not share."""


class RangeNames(Protocol):
    """Names spans of time for NVIDIA's profilers (NVTX)."""

    def begin(self, name: str) -> int:
        """Begins a span; returns its number."""

    def end(self, number: int) -> None:
        """Ends a span."""


class Execution(Protocol):
    """An engine made ready to run with one of its optimization profiles. NumPy arrays go in and come out."""

    def feed(self, values: Mapping[str, Any]) -> None:
        """Sets the inputs, and makes room for the outputs.

        Args:
            values: Input name to its values; converted where the engine has a narrower or wider type of the same kind.

        Raises:
            InputError: An input is missing, or of another kind of type.
            EngineFailed: The engine refuses the shapes; `ProfileTaken` where the context has no profile.
            EnvironmentMissing: The GPU's memory does not suffice.
        """

    def resize(self, shapes: Mapping[str, Shape]) -> None:
        """Runs at other sizes from now on, in the memory that is there, which grows where it does not suffice.

        What the inputs hold then is of no meaning; those that hold shapes keep their values.

        Args:
            shapes: Input name to its shape.

        Raises:
            EngineFailed: The engine refuses the shapes.
            EnvironmentMissing: The GPU's memory does not suffice.
        """

    def run(self) -> dict[str, NDArray[Any]]:
        """Runs once, and returns the outputs by name.

        Raises:
            EngineFailed: The engine does not run.
        """

    def watch(self, selects: Callable[[str], bool]) -> Mapping[str, NDArray[Any]]:
        """Keeps the values of tensors inside the network, of an engine that was built with --debug-tensor.

        Args:
            selects: Which, by name.

        Returns:
            The values of the last run, by name; empty where this TensorRT, or the engine, shows none.
        """

    def launcher(self, *, graph: bool, copies: bool) -> Launch | None:
        """Returns what launches one inference; None where the engine cannot be captured in a CUDA graph.

        Args:
            graph: As a CUDA graph.
            copies: With the inputs copied from the host, and the outputs to it.
        """

    def mark(self) -> None:
        """Marks the end of what was launched; see `passed`."""

    def passed(self) -> bool:
        """Whether everything before the last mark has run, without waiting for it.

        Raises:
            EngineFailed: It broke down.
        """

    def microseconds(self, launch: Launch, times: int = 1) -> float:
        """Returns how long the GPU takes for what is launched so many times, one after the other, in all."""

    def layer_times(self, times: int = 10) -> list[tuple[str, float]]:
        """Returns each layer's name and time in microseconds, the mean of some runs."""

    def information(self) -> dict[str, object]:
        """Returns what TensorRT's inspector says of the engine at the shapes that were fed, in its own words."""

    def runtime_cache(self) -> bytes | None:
        """Returns the content of the runtime cache that it was opened with; None without one."""

    def close(self) -> None:
        """Gives the memory back."""


class Engine(Protocol):
    """An engine in the memory of the GPU."""

    @property
    def tensors(self) -> Sequence[TensorInfo]:
        """Inputs and outputs, in the engine's order."""

    @property
    def profiles(self) -> Sequence[Mapping[str, InputRange]]:
        """For each optimization profile the shapes of every input."""

    @property
    def layer_count(self) -> int:
        """Number of layers after fusion."""

    @property
    def memory_bytes(self) -> int:
        """Memory of the GPU that activations take, beside the weights, inputs and outputs."""

    @property
    def profile_memory_bytes(self) -> Sequence[int]:
        """The same with each optimization profile; empty where this TensorRT does not say."""

    def information(self) -> dict[str, object]:
        """Returns what TensorRT's inspector says, in its own words."""

    def open(self, profile: int = 0, cache: bytes | None = None) -> Execution:
        """Makes ready to run with an optimization profile.

        Args:
            cache: Content of a runtime cache (TensorRT-RTX), b"" for a new one; None for none.

        Raises:
            EnvironmentMissing: The GPU's memory does not suffice.
        """

    def refitter(self) -> Refitter:
        """Returns what puts new weights into it.

        Raises:
            EngineFailed: It was not built for that.
        """


class Refitter(Protocol):
    """Puts new weights into an engine that was built for that."""

    @property
    def weights(self) -> Sequence[WeightKey]:
        """All weights that the engine can be given."""

    def put(self, weights: Mapping[WeightKey, NDArray[Any]]) -> None:
        """Gives the engine weights, all at once.

        Args:
            weights: Layer and role to values, of the type and number that the engine was built with.

        Raises:
            EngineFailed: TensorRT refuses one, misses another that belongs to it, or does not refit.
        """

    def serialized(self) -> memoryview:
        """Returns the content of an engine file with the weights in it, which can be refitted again.

        Raises:
            EngineFailed: TensorRT does not serialize it.
        """


class EngineLoader(Protocol):
    """A TensorRT that runs engines here: there is a GPU, and a binding to it."""

    @property
    def family(self) -> str:
        """ "rtx" or "tensorrt"."""

    @property
    def version(self) -> str:
        """Full version string."""

    @property
    def gpu_name(self) -> str | None:
        """Name of the GPU that engines run on."""

    @property
    def driver_version(self) -> str:
        """Newest CUDA version that the driver knows, for example "12.4"."""

    def memory(self) -> tuple[int, int]:
        """Returns the bytes of GPU memory that are free, and all."""

    def joules(self) -> float | None:
        """Returns the energy that the whole GPU has taken so far; None where its driver does not tell."""

    def ranges(self) -> RangeNames:
        """Returns what names spans of time for NVIDIA's profilers.

        Raises:
            EnvironmentMissing: The library for it is not there.
        """

    def load(self, data: bytes, *, host_code: bool = False) -> Engine:
        """Loads an engine, which runs code that is in it.

        Args:
            data: Content of the engine file.
            host_code: Allow code for the host in it too, as engines have that run on other versions of TensorRT.

        Raises:
            EngineFailed: TensorRT does not take it: made by another version or for another GPU or platform, or cut
                short.
            EnvironmentMissing: It says that this machine is the reason.
        """
