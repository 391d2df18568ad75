"""A build as data: JSON that names its files by their SHA-256, and is itself named by that of what it says."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from trtconv.core.config import settings_fault
from trtconv.core.decode import Fault, decoded, json_of
from trtconv.core.documents.before import BuiltBefore
from trtconv.core.documents.farm import FileSum
from trtconv.core.encode import Document
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.files import source_checksum
from trtconv.core.frozen import frozen
from trtconv.core.options import of_settings, to_settings
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import AFTERWARDS
from trtconv.core.samples import function_of
from trtconv.core.target import Target
from trtconv.core.version import __version__
from trtconv.engine.farm.code import JobCode, without_code
from trtconv.engine.farm.store import intact
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.tactics import built_before

MOST_BYTES = 1 << 22
"""Length of a job, without its files."""
_MOST_FILES = 1 << 12
_MOST_FOLDERS = 16
_MOST_LETTERS = 200
_STAYING = frozenset({"data", "extend", "plugins", "plugins-to-serialize", "references"})
"""Settings that name samples or code of the machine that asks."""


@frozen
class BuildJob(Document, keys="schema trtconv source model data code build version then before-"):
    """A build that any machine can do that has the GPU.

    Args:
        model: SHA-256 and bytes of the .onnx file.
        data: Path of each file of external data, from the model's folder, to its SHA-256 and bytes.
        build: What is asked, in the words of trtconv.toml.
        code: Plugins, references and passes of the user's own; they do not travel, who builds has them.
        version: Full version of the TensorRT that builds; None: whichever of the target is there.
        then: What of verify and bench follows; no part of what the job is named by.
        before: The engine whose tactics are taken.
        trtconv: Version of trtconv that made the job.
        source: Checksum of its code.
    """

    model: FileSum
    data: Mapping[str, FileSum]
    build: Mapping[str, Any]
    version: str | None = None
    code: JobCode = JobCode()
    then: tuple[str, ...] = ()
    before: BuiltBefore | None = None
    trtconv: str = __version__  # type: ignore[misc]
    source: str = dataclasses.field(default_factory=source_checksum)

    @classmethod
    def of(cls, request: BuildRequest, model: OnnxModel, version: str | None, then: tuple[str, ...] = ()) -> BuildJob:
        """Returns a request as data.

        Args:
            request: What to build.
            model: Its model, as it was loaded.
            version: Full version of the TensorRT that is to build, where it is known.
            then: What is done with the engine.

        Raises:
            InputError: It is measured on samples, which do not travel; or the report of --as tells of no tactics.
        """
        if request.data is not None:
            raise InputError(
                f"{request.data}: the samples of precision auto are on this machine alone",
                "Build it here once, and pin the types that it finds: node-precisions in trtconv.toml.",
            )
        if request.metric is not None and function_of(request.metric) is not None:
            raise InputError(
                f"--metric {request.metric}: code of this machine is not sent to others",
                "Build it here once, and pin the types that it finds: node-precisions in trtconv.toml.",
            )
        folder = model.path.parent
        data = {file.relative_to(folder).as_posix(): _file(file) for file in model.external_files}
        if fault := _path_fault(data):
            raise InputError(
                f"{model.path}: {fault}", "Keep its weights in fewer files, beside it, to build it elsewhere."
            )
        own = FileSum(model.digest(alone=True), model.path.stat().st_size)
        code, settings = JobCode.of(request), to_settings(without_code(request), BuildRequest)
        before = None if request.tactics_of is None else built_before(request.tactics_of)
        job = cls(own, data, settings, before.version if before else version, code, then, before)
        if before is not None and len(json.dumps(job.to_json())) > MOST_BYTES:
            raise InputError(
                f"{request.tactics_of} tells of more tactics than a job holds ({MOST_BYTES} bytes)",
                "Build with --as on the machine that has the GPU: the report goes with the engine.",
            )
        return job

    @classmethod
    def read(cls, text: str | bytes) -> BuildJob:
        """Reads a job; nothing of it is believed.

        Raises:
            InputError: It is none.
            EnvironmentMissing: Another version of trtconv made it.
        """
        hint = "Take jobs as trtconv plan --write made them."
        try:
            if len(text) > MOST_BYTES:
                raise Fault(f"it is longer than {MOST_BYTES} bytes")
            job = decoded(cls, document := json_of(text))
        except Fault as error:
            raise InputError(f"it is no job: {error}", hint) from error
        if document != job.to_json() or not set(job.then) <= set(AFTERWARDS):
            raise InputError("it is no job: it has something else in it", hint)
        if fields := sorted(_STAYING & job.build.keys()):
            # Not even whether such a file is here is told.
            raise InputError(f"it is no job: it names {fields[0]}, and samples and code do not travel", hint)
        if fault := settings_fault(job.build) or _path_fault(job.data):
            raise InputError(f"it is no job: {fault}", hint)
        try:
            job.request(Path("engine"))
        except (InputError, ValueError) as error:
            raise InputError(f"it is no job: {str(error)[:200]}", hint) from error
        if (job.trtconv, job.source) != (__version__, source_checksum()):
            raise EnvironmentMissing(
                f"the job was made by trtconv {job.trtconv} ({job.source}), and this is {__version__} "
                f"({source_checksum()})",
                "Install the same version of trtconv on all machines.",
            )
        return job

    @property
    def name(self) -> str:
        """SHA-256 of all that determines the engine and how it is judged."""
        fields = {key: value for key, value in self.to_json().items() if key != "then"}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    @property
    def files(self) -> dict[str, int]:
        """SHA-256 of each file to its bytes."""
        return {file.sha256: file.bytes for file in (self.model, *self.data.values())}

    @property
    def target(self) -> Target | None:
        """What it is built for."""
        return Target.parse(self.build.get("targets", ["auto"])[0])

    @property
    def model_name(self) -> str:
        """What the model's file is called in the folder where it is built: not as anybody chose."""
        name = "model.onnx"
        while any(PurePosixPath(file).parts[0] == name for file in self.data):
            name = f"_{name}"
        return name

    def request(self, engine: Path, **others: Any) -> BuildRequest:
        """Returns the request, for the model in the working directory; any GPU there is the one that is meant.

        Args:
            engine: Where the engine goes.
            others: Fields that do not belong to the job.
        """
        request = BuildRequest(
            Path(self.model_name), engine, **of_settings(BuildRequest, self.build), before=self.before, **others
        )
        return dataclasses.replace(request, target=request.target and dataclasses.replace(request.target, gpu=None))

    def unpack(self, folder: Path, fetch: Callable[[str, int], bytes]) -> None:
        """Writes the model and its data into a folder.

        Args:
            folder: An empty one.
            fetch: Returns the file with a SHA-256 and a size in bytes.

        Raises:
            InputError: A file is not what the job names.
        """
        for name, file in {**self.data, self.model_name: self.model}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(intact(fetch(file.sha256, file.bytes), file.sha256, "the job"))


def contents(job: BuildJob, model: Path) -> dict[str, Path]:
    """Returns the SHA-256 of each file of a job to where it lies here, with the model at `model`."""
    paths = {file.sha256: model.parent / name for name, file in job.data.items()}
    return {**paths, job.model.sha256: model}


def _file(path: Path) -> FileSum:
    from trtconv.core.reading import sha256_of

    return FileSum(sha256_of(path), path.stat().st_size)


def _path_fault(names: Mapping[str, Any]) -> str:
    if len(names) > _MOST_FILES:
        return f"it has {len(names)} files of data, and {_MOST_FILES} are the most"
    for name in names:
        path = PurePosixPath(name)
        parts = path.parts
        if not parts or name.startswith("/") or {"..", "."} & set(parts) or "\\" in name or "\0" in name or ":" in name:
            return f"{name[:_MOST_LETTERS]!r} is no path inside a folder"
        if len(parts) > _MOST_FOLDERS or max(map(len, parts)) > _MOST_LETTERS:
            return f"{name[:_MOST_LETTERS]!r} is too long a path"
        if any(str(parent) in names for parent in path.parents):
            return f"{name!r} lies in what is a file itself"
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            return f"{name!r} is no name of a file"
    return ""
