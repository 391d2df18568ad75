"""A model in parts: engines, and what ONNX Runtime runs between them (`MODEL.pipeline.json`)."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core import budget
from trtconv.core.decode import Fault, decoded, fields_of, parsed
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.encode import Document
from trtconv.core.errors import InputError
from trtconv.core.files import report_beside
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, read_plain, sha256_of
from trtconv.core.version import __version__

ENDING = ".pipeline.json"
"""How the name of such a document ends."""
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_BUILD_AGAIN = "Make it again: trtconv build MODEL --partition, or trtconv export of its parts."


class PartKind(enum.Enum):
    """Who runs a part."""

    ENGINE = "engine"
    ONNX = "onnx"


@frozen
class PartTensor(Document):
    """A tensor that goes into or out of a part.

    Args:
        name: Its name.
        dtype: Its type, as ONNX names it in lower case; empty where it is not known.
        shape: Its sizes, or names of dynamic ones; "?" is one that only the values tell; None where the rank is not
            known.
    """

    name: str
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None


@frozen
class PartFile(Document):
    """A file in the folder of the document.

    Args:
        file: Its name, relative to that folder and inside it.
        sha256: Of its content, in hexadecimal.

    Raises:
        InputError: The name leads out of the folder, or the SHA-256 is none.
    """

    file: str
    sha256: str

    def __post_init__(self) -> None:
        steps = self.file.split("/")
        # What other systems take for a path, or a drive, is no name either.
        if not self.file or set(self.file) & set("\\:\0") or any(step in ("", ".", "..") for step in steps):
            raise InputError(f"{self.file!r} is not a name of a file inside the folder of the document", _BUILD_AGAIN)
        if not _SHA256.fullmatch(self.sha256):
            raise InputError(f"{self.sha256[:80]!r} is not a SHA-256 in hexadecimal", _BUILD_AGAIN)


@frozen
class PartRecord(Document, keys="kind file sha256 onnx- inputs outputs nodes"):
    """A part of a model.

    Args:
        kind: Who runs it.
        file: Its engine, whose report lies beside it, or its ONNX file; as in `PartFile`.
        sha256: Of that file.
        inputs: What it reads.
        outputs: What it makes.
        onnx: An engine's part of the model as ONNX; None for others.
        nodes: How many nodes it runs.
    """

    kind: PartKind
    file: str
    sha256: str
    inputs: tuple[PartTensor, ...]
    outputs: tuple[PartTensor, ...]
    onnx: PartFile | None = None
    nodes: int = 0

    @property
    def runs(self) -> PartFile:
        """The file that runs."""
        return PartFile(self.file, self.sha256)

    @property
    def model(self) -> PartFile:
        """Its part of the model as ONNX."""
        return self.onnx or self.runs

    @classmethod
    def from_json(cls, value: Any) -> PartRecord:
        """Reads a part.

        Raises:
            Fault: A file is outside of the folder, or an engine has no ONNX file.
        """
        part = cls(**fields_of(cls, value))
        decoded(PartFile, {"file": part.file, "sha256": part.sha256})
        if (part.onnx is None) == (part.kind is PartKind.ENGINE):
            raise Fault("an engine has its part of the model as ONNX, and no other part has", ["onnx"])
        return part


@frozen
class LeftNode(Document):
    """A node that no engine takes.

    Args:
        node: Its name.
        op: Its operator.
        reason: Why; a sentence for people.
    """

    node: str
    op: str
    reason: str


@frozen
class CrossingTensor(Document, keys="name dtype shape from=source to=target"):
    """A tensor that goes from one part into another.

    Args:
        source: Number of the part that makes it, from 1.
        target: Number of the part that reads it.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    source: int
    target: int


@frozen
class PlannedPart(Document):
    """A part that would be built; fields as in `PartRecord`."""

    kind: PartKind
    inputs: tuple[PartTensor, ...]
    outputs: tuple[PartTensor, ...]
    nodes: int


@frozen
class PlannedCut(Document, keys="parts crossings left unbounded why?"):
    """Where a model would be cut.

    Args:
        parts: The parts; empty where it cannot be told.
        left: The nodes that no engine takes.
        unbounded: Names of sizes that only values tell, for want of whose bounds nodes are left.
        why: Why there are no parts; empty where there are.
    """

    parts: tuple[PlannedPart, ...] = ()
    left: tuple[LeftNode, ...] = ()
    unbounded: tuple[str, ...] = ()
    why: str = ""

    @property
    def crossings(self) -> tuple[CrossingTensor, ...]:
        """What would go from part to part."""
        return _crossings(self.parts)

    @property
    def has_engine(self) -> bool:
        """Whether an engine would be built."""
        return any(part.kind is PartKind.ENGINE for part in self.parts)


def _crossings(parts: Sequence[PartRecord | PlannedPart]) -> tuple[CrossingTensor, ...]:
    makers = {tensor.name: number for number, part in enumerate(parts, 1) for tensor in part.outputs}
    return tuple(
        CrossingTensor(tensor.name, tensor.dtype, tensor.shape, makers[tensor.name], number)
        for number, part in enumerate(parts, 1)
        for tensor in part.inputs
        if tensor.name in makers
    )


@frozen
class PipelineDocument(
    Document,
    keys="schema trtconv source model runtime plan leave bounds profiles parts data- inputs outputs crossings left "
    "notes exit_code",
):
    """How a model is run in parts, one after the other.

    Args:
        model: The whole model, as a path from where it was built, and its SHA-256.
        parts: The parts, in the order in which they run.
        inputs: What the model reads.
        outputs: What it returns.
        runtime: The TensorRT that built the engines.
        plan: What was asked of all engines.
        leave: What was asked to be left to ONNX Runtime besides.
        bounds: What was asked of sizes that only values tell.
        profiles: The ranges of the model's dimensions, one mapping an optimization profile.
        left: The nodes that no engine takes.
        notes: What else is to be known, in sentences.
        source: Checksum of trtconv's code.
        data: Weights that the parts share, which lie beside them.
    """

    model: FileIdentity
    parts: tuple[PartRecord, ...]
    inputs: tuple[PartTensor, ...]
    outputs: tuple[PartTensor, ...]
    runtime: RuntimeIdentity | None = None
    plan: BuildPlan | None = None
    leave: tuple[str, ...] = ()
    bounds: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    profiles: tuple[Mapping[str, Range], ...] = ()
    left: tuple[LeftNode, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    data: PartFile | None = None
    trtconv: str = __version__  # type: ignore[misc]
    exit_code: int = 0

    @property
    def crossings(self) -> tuple[CrossingTensor, ...]:
        """What goes from part to part."""
        return _crossings(self.parts)

    @classmethod
    def from_json(cls, value: Any) -> PipelineDocument:
        """Reads a pipeline.

        Raises:
            Fault: Its parts do not fit together.
        """
        document = cls(**fields_of(cls, value))
        budget.spend("nodes", len(document.parts), "the pipeline has more parts than that; it")
        require_joined(document)
        return document


def require_joined(document: PipelineDocument) -> None:
    """Checks that every part reads what is there when it runs.

    Raises:
        Fault: A tensor is read before it is made, or made twice, or an output is not made; or a file has two parts.
    """
    if not document.parts:
        raise Fault("it has no part", ["parts"])
    ready = set(_distinct(document.inputs, "inputs"))
    for number, part in enumerate(document.parts):
        for tensor in part.inputs:
            if tensor.name not in ready:
                raise Fault(f"nothing before it makes {tensor.name[:80]!r}", ["inputs", number, "parts"])
        for name in _distinct(part.outputs, "outputs"):
            if name in ready:
                raise Fault(f"{name[:80]!r} is there already", ["outputs", number, "parts"])
            ready.add(name)
    for name in _distinct(document.outputs, "outputs"):
        if name not in ready:
            raise Fault(f"no part makes {name[:80]!r}", ["outputs"])
    files = [file.file for part in document.parts for file in filter(None, (part.runs, part.onnx))]
    if len(set(files)) < len(files):
        raise Fault("two parts have the same file", ["parts"])


def _distinct(tensors: tuple[PartTensor, ...], key: str) -> Iterator[str]:
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise Fault(f"{tensor.name[:80]!r} is there twice", [key])
        names.add(tensor.name)
        yield tensor.name


@frozen
class SavedPipeline:
    """A pipeline that was read back.

    Args:
        path: The document.
        document: What it says.
    """

    path: Path
    document: PipelineDocument

    def file(self, file: PartFile) -> Path:
        """Returns the path of one of its files, once it was seen to be the one that was written.

        Raises:
            InputError: It cannot be read, lies outside of the folder, or is another one.
        """
        path = self.path.parent / file.file
        try:
            if not path.resolve(strict=True).is_relative_to(self.path.parent.resolve()):
                raise InputError(f"{path} leads out of the folder of {self.path.name}", _BUILD_AGAIN)
            digest = sha256_of(path)
        except (OSError, RuntimeError) as error:
            message = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{path}, a part of {self.path.name}, cannot be read: {message}", _BUILD_AGAIN) from error
        if digest != file.sha256:
            raise InputError(f"{path} is not the file that {self.path.name} tells of", _BUILD_AGAIN)
        return path

    def require_data(self) -> None:
        """Raises InputError where the weights that the parts share are not those that were written."""
        if self.document.data is not None:
            self.file(self.document.data)

    def engines(self) -> list[tuple[Path, Path]]:
        """Returns the ONNX file and the engine of each part that has one; raises as `file`."""
        return [(self.file(part.model), self.file(part.runs)) for part in self.document.parts if part.onnx is not None]

    def files(self) -> list[Path]:
        """Returns the paths of the document and of all that it tells of, whether they are there or not."""
        parts = [file for part in self.document.parts for file in (part.runs, part.onnx) if file is not None]
        parts += [self.document.data] if self.document.data is not None else []
        paths = [self.path.parent / file.file for file in parts]
        return [self.path, self.model(), *paths, *map(report_beside, paths)]

    def model(self) -> Path:
        """Returns the path of the whole model: as it was built, or beside the document."""
        path = Path(self.document.model.path)
        return path if path.exists() else self.path.parent / path.name


def load_document(path: Path) -> SavedPipeline:
    """Reads a `MODEL.pipeline.json`.

    Raises:
        InputError: It cannot be read, or is not what `trtconv build --partition` wrote; the message names the key.
    """
    try:
        return SavedPipeline(path, parsed(PipelineDocument, read_plain(path, DOCUMENT_BYTES)))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", _BUILD_AGAIN) from error
    except Fault as fault:
        raise InputError(f"{path} is not a pipeline: {fault}", _BUILD_AGAIN) from fault


def is_pipeline(path: Path | str) -> bool:
    """Whether a path is named as a pipeline is."""
    return str(path).endswith(ENDING)


@frozen
class PipelineReport(Document, keys="schema pipeline path engines findings seconds up_to_date exit_code"):
    """What `trtconv build --partition` did, or what `trtconv check --partition` says that it would do.

    Args:
        pipeline: The document; None where the model failed.
        path: Where it was written; None where nothing was.
        engines: The reports of the builds of its engines, in their order.
        findings: Verdicts about the whole model.
        seconds: Wall time by stage.
        up_to_date: Whether what was there was kept.
        exit_code: As the command line would end.
    """

    pipeline: PipelineDocument | None
    path: str | None = None
    engines: tuple[BuildReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    up_to_date: bool = False
    exit_code: int = 0
