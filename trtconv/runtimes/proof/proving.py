"""Proof that the network which TensorRT parsed computes what the model means, by running both without a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trtconv.core import budget, codes
from trtconv.core.background import Background
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.layers import LayerTable
from trtconv.core.documents.proof import BuildProof, Lack
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.named_sizes import KnownSizes
from trtconv.core.requests.common import PROOFS
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.sizes import proof_sizes
from trtconv.runtimes.proof.subject import ProofSubject, allowed_error, precision_of
from trtconv.runtimes.proof.weighing import FileSide, Weighing
from trtconv.runtimes.tensorrt import ParsedNetwork, Runtime

if TYPE_CHECKING:
    from trtconv.runtimes.proof.meaning import Meaning
    from trtconv.runtimes.proof.prove import Prover
    from trtconv.runtimes.proof.result import ProofResult
    from trtconv.runtimes.proof.whole import Size
    from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

LEAST_SECONDS = 2.0
"""How long a quick proof may take, however fast the build was."""
MOST_SECONDS = 600.0
"""How long a full one may take."""
_MULTIPLIED = 2e-2
"""What a deep network may make, at random inputs, of sums in another order."""
_OTHER = 50.0
"""Magnitude of the inputs that a network is run on besides: of images, of which ordinary ones show nothing."""
_OTHER_NARROW = 4.0
"""The same, where it holds types that overflow."""
_MANY_LAYERS = 2000
"""Layers from which on a process more is worth what it costs."""
_FIX = "Build with the passes on (no --no-rewrite); if they were, please report this model. --prove none builds it."

_VERIFY_FIX = "Compare the engine with the model: trtconv verify."
_TIME_FIX = "Allow more time (--prove-time), or compare the engine with the model: trtconv verify."
_FIX_OF_PASSES = (
    "Please report this model; trtconv rewrite names the passes, and --no-rewrite or --skip leaves them out."
)


class ModelSide(contextlib.AbstractContextManager["ModelSide"]):
    """What a proof needs to know of the model and its file alone, found out while a parser is at work beside it.

    Args:
        subject: What the network should be; it must not change inside the context.
        profiles: Where its sizes lie; none where they are not known.
        level: One of `PROOFS`.
    """

    def __init__(self, subject: ProofSubject, profiles: Sequence[ShapeProfile], level: str) -> None:
        self._model = Background(lambda: _of_model(subject, profiles, level))
        self._file: Background[FileSide] | None = Background(lambda: FileSide.of(subject.parsed))

    def __exit__(self, *_: object) -> None:
        # Whoever takes it from here may change the model, and forks only where no other thread is.
        self._model.wait()
        if self._file is not None:
            self._file.wait()

    def of_model(self) -> tuple[Meaning, Sequence[Size]]:
        """Returns what the network should compute, and the sizes at which that is shown."""
        return self._model.result()

    def take_file(self) -> FileSide:
        """Returns what is known of the file, which may be all its weights: once, and keeps nothing of it."""
        assert self._file is not None
        file, self._file = self._file, None
        return file.result()


class NetworkProof(contextlib.AbstractContextManager["NetworkProof"]):
    """A proof, under way once it is begun: the model is run in a process of its own while the network is built.

    Args:
        network: What TensorRT's parser made; read now, since a builder may leave it in any state.
        subject: What it should be.
        profiles: Where its sizes lie; none where they are not known.
        level: One of `PROOFS`.
        seconds: How long the proof may take once the build is done.
        known_sizes: The shapes of the model's tensors; None: nobody wants the network's layers.
        side: What is known of the model, once its context is over; the proof then has the processors for itself, since
            nobody builds.
    """

    def __init__(
        self,
        network: ParsedNetwork,
        subject: ProofSubject,
        profiles: Sequence[ShapeProfile],
        level: str,
        seconds: float,
        known_sizes: KnownSizes | None = None,
        side: ModelSide | None = None,
    ) -> None:
        self.layers: LayerTable | None = None
        self._read: ReadNetwork | None = None
        self._side = side
        self._known_sizes = known_sizes
        self._seconds = seconds
        self._subject = subject
        self._profiles = profiles
        self._level = level
        self._prover: Prover | None = None
        self._weighing: Weighing | None = None
        self._why = ""
        if level == "none":
            return
        self._why = _why_not(subject.rewritten, network)
        if not self._why:
            self._read = network.read_back()

    def begin(self) -> None:
        """Begins, beside a builder; what nobody begins begins with `finish`."""
        if self._read is None:
            return
        # Loaded only here: an engine that another process builds is on its way by now.
        from trtconv.runtimes.layer_table import layer_table
        from trtconv.runtimes.plugin_layers import with_meanings
        from trtconv.runtimes.proof.prove import Prover

        subject, profiles, level = self._subject, self._profiles, self._level
        read, self._read = with_meanings(self._read, subject.parsed), None
        side, self._side = self._side, None
        meaning, sizes = _of_model(subject, profiles, level) if side is None else side.of_model()
        if side is None:
            self._weighing = Weighing(read, subject.parsed, subject.claimed)
        else:
            apart = len(read.layers) >= _MANY_LAYERS
            self._weighing = Weighing(read, subject.parsed, subject.claimed, side.take_file, apart=apart)
        # Read before somebody gives back the weights.
        self.layers = None if self._known_sizes is None else layer_table(read, self._known_sizes)
        self._prover = Prover(read, meaning, sizes, MOST_SECONDS, thorough=level != "quick", changes=self._weighing)

    def __exit__(self, *_: object) -> None:
        if self._prover is not None:
            self._prover.close()
        if self._weighing is not None:
            self._weighing.close()

    def finish(self, clock: Stopwatch, engine: Runtime | None = None) -> tuple[BuildProof | None, tuple[Finding, ...]]:
        """Waits for the proof: no longer than the build took, or `LEAST_SECONDS`, unless all is asked for.

        Args:
            engine: Runs each plugin of the model by itself; None: they are not run.

        Returns:
            The proof (None where nothing was to be proven); a TC402 where the network is not what the model says, a
            TC410 where that could not be shown of all of it.
        """
        if self._level == "none":
            return None, ()
        from trtconv.runtimes.proof.plugin_trial import PluginTrial, try_plugins
        from trtconv.runtimes.proof.result import ProofResult

        self.begin()
        plugins = PluginTrial() if engine is None else try_plugins(self._subject.parsed, engine, self._profiles)
        quick = max(clock.spent(Stage.BUILD), LEAST_SECONDS)
        with clock.stage(Stage.PROVE):
            proof = ProofResult(why=self._why)
            if self._prover is not None:
                proof = self._prover.finish(quick if self._level == "quick" else MOST_SECONDS, self._seconds)
            weights, findings = (None, ()) if self._weighing is None else self._weighing.finish()
            if self._weighing is not None:
                proof = dataclasses.replace(proof, missing=(*proof.missing, *self._weighing.missing))
            proof = dataclasses.replace(proof, missing=(*proof.missing, *plugins.missing))
        record = proof.record(weights, self._level)
        record = dataclasses.replace(record, agrees=False) if findings else record
        return record, (*self._findings(proof), *findings, *plugins.findings)

    def _findings(self, proof: ProofResult) -> Iterator[Finding]:
        if proof.divergence is not None:
            yield _finding(self._subject.rewritten, proof.divergence)
        elif proof.missing:
            severity = Severity.ERROR if self._level == PROOFS[-1] else Severity.INFO
            # More time shows nothing of what could not be run.
            more = any(unshown.what is Lack.TIME for unshown in proof.missing)
            yield codes.PROOF_INCOMPLETE.finding(_not_shown(proof), severity, fix=_TIME_FIX if more else _VERIFY_FIX)
        elif proof.agrees is None and self._level == PROOFS[-1]:
            why = proof.why or "nothing was compared"
            yield codes.PROOF_INCOMPLETE.finding(f"nothing is shown: {why}", Severity.ERROR, fix=_VERIFY_FIX)


def _why_not(model: OnnxModel, network: ParsedNetwork) -> str:
    """Says why nothing of a network can be held to its model; "": it can."""
    for spec in model.inputs:
        if spec.dtype == "undefined":
            return f"input {spec.name!r} is not a tensor"
        if spec.name in model.outputs:
            # The parser gives the input another name (TC003).
            return f"input {spec.name!r} is an output too"
    return "" if network.layer_count else "the network has no layers"


def _of_model(subject: ProofSubject, profiles: Sequence[ShapeProfile], level: str) -> tuple[Meaning, Sequence[Size]]:
    meaning = _meaning(subject, profiles)
    plain = precision_of(subject.parsed, subject.precision) == "float32"
    other = _OTHER if plain else _OTHER_NARROW
    return meaning, proof_sizes(subject.rewritten, profiles, level, subject.sample or {}, other)


def _meaning(subject: ProofSubject, profiles: Sequence[ShapeProfile]) -> Meaning:
    """Returns what a network should compute."""
    from trtconv.runtimes.compare import TOLERANCES
    from trtconv.runtimes.onnxruntime import output_steps
    from trtconv.runtimes.proof.meaning import Meaning

    model = subject.rewritten
    return Meaning(
        path=str(model.path),
        original=subject.original,
        serialize=model.serialize,
        makers=lambda: {
            name: str(scope.location(i)) for scope in model.scopes[:1] for name, i in scope.producers.items()
        },
        tolerance=TOLERANCES[precision_of(subject.parsed, subject.precision)],
        megabytes=budget.allowance(model.nbytes)[1],
        inputs=model.inputs,
        steps=functools.partial(output_steps, model),
        parsed=subject.parsed,
        edited=None if subject.parsed_as_is else subject.parsed.serialize(),
        same_numbers=subject.precision == "as-is" and not subject.parsed.interface,
        batch=_largest_batch(profiles),
        typical={name: tuple(bounds.opt) for name, bounds in profiles[0].inputs.items()} if profiles else {},
        rewritten_error=max(allowed_error(model, subject.promise), _MULTIPLIED),
    )


def _largest_batch(profiles: Sequence[ShapeProfile]) -> int:
    """Returns the largest first axis that all inputs of a profile may have together; any where nothing bounds it."""
    firsts = [[bounds.max[0] for bounds in profile.inputs.values() if bounds.max] for profile in profiles]
    return max((min(batches, default=1) for batches in firsts), default=_ANY_BATCH)


_ANY_BATCH = 8


def _not_shown(proof: ProofResult) -> str:
    """Says what was not shown: how many of each kind, and the first of them."""
    counts = Counter(lack.what.value for lack in proof.missing)
    first = proof.missing[0]
    causes = ", ".join(f"{number} by {what}" for what, number in counts.items())
    pieces = f"{proof.pieces.proven} of {proof.pieces.of} pieces are proven"
    return f"{pieces}; not shown ({causes}), first {first.where!r}: {first.reason}"


def _finding(model: OnnxModel, divergence: Any) -> Finding:
    index = model.main.producers.get(divergence.tensor)
    place = Location() if index is None else model.main.location(index, divergence.tensor)
    layer = f" (layer {divergence.layer!r}, {divergence.kind})" if divergence.layer else ""
    sizes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in divergence.shapes.items())
    what = "the passes changed" if divergence.by_passes else "what TensorRT parsed differs at"
    message = f"{what} tensor {divergence.tensor!r}{layer}: {divergence.why}, for {sizes}"
    return codes.NETWORK_DIFFERS.finding(message, place=place, fix=_FIX_OF_PASSES if divergence.by_passes else _FIX)
