"""Casts the float32 part of a graph to float16 or bfloat16, for runtimes that compute in the types of the graph.

ONNX's own operator schemas say which inputs and outputs of a node share a type, and which types they may have. So a
node is cast as a whole - activations, kernel and bias of a ConvTranspose alike - or not at all, what ONNX defines in
float32 alone (a Resize's scales, the boxes of NonMaxSuppression) stays so, and operators that are new tomorrow need no
table here.

Every tensor keeps its name, type and values; a cast node writes a new tensor of the lower precision, and a Cast makes
the old one of it only where something still reads it. So graph inputs and outputs, subgraphs that read a tensor from
outside, and nodes that were not cast find what they found before.

What is not cast:

- nodes that read or write a tensor in `hot`: the values do not fit;
- nodes that do not depend on an input's values: sizes, position tables and constants that are folded anyway;
- quantised layers, between DequantizeLinear and QuantizeLinear: TensorRT takes them for int8 as they are;
- operators of `KEPT`, and those of other domains.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import graphlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from trtconv.frozen import frozen
from trtconv.model import OnnxModel, Scope

FLOAT = TensorProto.FLOAT
KEPT = frozenset(
    # Positions and sums in which each step counts.
    {"Range", "CumSum", "GridSample", "RoiAlign", "AffineGrid"}
    # Their result has a type by attribute.
    | {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "EyeLike"}
    | {"ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"}
    # They hold graphs, whose nodes are cast one by one.
    | {"If", "Loop", "Scan", "SequenceMap"}
    | {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
    # Defined by other operators with constants in float32, which readers put in as they are.
    | {"Celu", "MeanVarianceNormalization"}
    # Its first input must be the network's own.
    | {"TensorScatter"}
)
"""Operators that stay in float32 though ONNX allows others."""
_MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_EXACT = frozenset({TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4})
"""Types whose values float16 and bfloat16 hold all."""
_STANDARD = ("", "ai.onnx")


@frozen
class Kind:
    """What is cast to.

    Args:
        name: As `--precision` has it.
        code: The ONNX element type.
        type_string: The same as schemas name it.
        largest: Largest finite value.
        smallest: Smallest positive value.
    """

    name: str
    code: int
    type_string: str
    largest: float
    smallest: float


HALF = Kind("fp16", TensorProto.FLOAT16, "tensor(float16)", 65504.0, 2.0**-24)
BFLOAT = Kind("bf16", TensorProto.BFLOAT16, "tensor(bfloat16)", 3.3895e38, 2.0**-133)
KINDS = {kind.name: kind for kind in (HALF, BFLOAT)}


@frozen
class Casting:
    """What was done to a model.

    Args:
        cast: Number of nodes that compute in the lower precision now.
        kept: Of the others that have float32 outputs, how many for each reason.
        hot: Names of those that were kept because of their values.
        lowered: Tensors of the main graph that cast nodes make, by the name that they had before.
    """

    cast: int
    kept: Mapping[str, int]
    hot: tuple[str, ...]
    lowered: Mapping[str, str] = dataclasses.field(default_factory=dict)


def cast(
    model: OnnxModel,
    kind: Kind,
    hot: frozenset[str] = frozenset(),
    kept: frozenset[str] = KEPT,
    *,
    stored: bool = True,
    emulated: bool = False,
) -> Casting:
    """Casts what can be cast, in place.

    Args:
        model: The model, its functions inlined.
        kind: What to cast to.
        hot: Tensors of the main graph whose values do not fit.
        kept: Operators that stay in float32.
        stored: Store weights in the lower precision; otherwise they stay as they are, with a Cast behind each.
        emulated: Compute in float32 and round what every node returns: the same numbers as far as they depend on the
            cast, on runtimes that have no kernels for the type.
    """
    sort(model)
    return _Caster(model, kind, hot, kept, stored, emulated).run()


class _Caster:
    """One cast of one model.

    Casts that are needed behind a tensor are collected by the graph that the tensor is of, and put in at the end.
    """

    def __init__(
        self, model: OnnxModel, kind: Kind, hot: frozenset[str], kept: frozenset[str], stored: bool, emulated: bool
    ) -> None:
        self.model = model
        self.kind = kind
        self.hot = hot
        self.kept_ops = kept
        self.stored = stored
        self.emulated = emulated
        self.opset = model.opset
        self.data = _data_names(model)
        self.quantized = _quantized_nodes(model)
        self.graphs: dict[int, _Graph] = {}
        self.cast = 0
        self.kept: dict[str, int] = {}
        self.hot_nodes: list[str] = []

    def run(self) -> Casting:
        """Does it all."""
        model = self.model
        self.graphs = {scope.position: _Graph(self, scope) for scope in model.scopes}
        # A graph inside another may ask for casts in it, so outer ones are written last.
        for scope in model.scopes:
            self._visit(self.graphs[scope.position])
        graphs = list(self.graphs.values())
        read = {name for graph in graphs for name in graph.reads()}
        for graph in reversed(graphs):
            graph.write(read)
        model.proto.ir_version = max(model.proto.ir_version, 4)
        model.touch()
        return Casting(self.cast, self.kept, tuple(self.hot_nodes), self.graphs[model.main.position].raised())

    def _visit(self, graph: _Graph) -> None:
        for index, node in enumerate(graph.nodes):
            why = self._cast_node(graph, index, node)
            if why:
                self.kept[why] = self.kept.get(why, 0) + 1
                if why == _HOT:
                    self.hot_nodes.append(node.name or next(iter(node.output), ""))

    def _cast_node(self, graph: _Graph, index: int, node: onnx.NodeProto) -> str:
        """Casts a node if it can be. Returns why not, for a node with a float32 output."""
        slots = _slots(node.op_type, self.opset, self.kind) if node.domain in _STANDARD else None
        outputs = [i for i, name in enumerate(node.output) if name and graph.element(name) == FLOAT]
        if slots is None:
            return FOREIGN if outputs else ""
        if not outputs:
            self._lower_inputs(graph, node, slots)
            return ""
        why = self._refusal(graph, index, node)
        cast = [i for i in outputs if slots.output(i)]
        if why or not cast:
            return why or UNDEFINED
        if node.op_type == "Cast":
            _set_to(node, self.kind.code)
        # Emulated, a Cast to the type is one to float32 that is rounded behind.
        if node.op_type == "Cast" and self.emulated:
            _set_to(node, FLOAT)
        for i, name in enumerate(node.input):
            if name and slots.input(i) and graph.element(name) == FLOAT:
                node.input[i] = graph.lower(name)
        for i in cast:
            graph.write_lower(index, node, i)
        self.cast += 1
        return ""

    def _refusal(self, graph: _Graph, index: int, node: onnx.NodeProto) -> str:
        names = [name for name in (*node.input, *node.output) if name]
        if node.op_type in self.kept_ops or node.op_type == "Constant" or _accumulates(node):
            return "operators that are kept"
        if graph.repeated:
            return "in a loop"
        if (graph.scope.position, index) in self.quantized:
            return "computed in int8"
        if not any((graph.scope.position, name) in self.data for name in node.output):
            return "independent of the inputs' values"
        if node.op_type == "Cast" and graph.element(node.input[0]) not in (*_EXACT, FLOAT, TensorProto.DOUBLE):
            return "converted integers"
        if graph.scope.parent is None and not self.hot.isdisjoint(names):
            return _HOT
        if any(graph.overflows(name) for name in node.input):
            return _HOT
        return "" if all(graph.element(name) for name in names) else UNKNOWN

    def _lower_inputs(self, graph: _Graph, node: onnx.NodeProto, slots: _Slots) -> None:
        """Lets a node without float32 outputs (a comparison, a Shape) read the lower precision where that is there."""
        floats = [i for i, name in enumerate(node.input) if name and graph.element(name) == FLOAT]
        computed = [i for i in floats if not graph.is_constant(node.input[i])]
        ready = all(graph.is_lower(node.input[i]) and slots.input(i) for i in computed)
        fits = all(slots.input(i) and not graph.overflows(node.input[i]) for i in floats)
        if computed and ready and fits and node.op_type not in self.kept_ops:
            for i in floats:
                node.input[i] = graph.lower(node.input[i])


_HOT = "values that do not fit"
FOREIGN, UNDEFINED, UNKNOWN = "no operators of ONNX", "defined in float32 alone", "types not known"
"""Reasons for which a node cannot be cast whatever its values are."""


class _Graph:
    """One graph while it is cast: which of its tensors exist in the lower precision, under which name."""

    def __init__(self, caster: _Caster, scope: Scope) -> None:
        self.caster = caster
        self.scope = scope
        self.nodes = list(scope.graph.node)
        self._lower: dict[str, str] = {}
        self._behind: dict[int, list[onnx.NodeProto]] = {}
        self._raised: dict[str, onnx.NodeProto] = {}
        self._weights: dict[str, onnx.TensorProto] = {}
        self._raised_by: dict[int, list[str]] = {}
        self._overflows: dict[str, bool] = {}
        self._given = {value.name for value in scope.graph.input}
        self.repeated = _is_repeated(scope)

    def owner(self, name: str) -> _Graph | None:
        """Returns the graph that a tensor is of."""
        scope: Scope | None = self.scope
        while scope is not None:
            graph = self.caster.graphs.get(scope.position)
            if graph is not None and graph.has(name):
                return graph
            scope = scope.parent
        return None

    @functools.cached_property
    def _own(self) -> dict[str, int]:
        """Tensor name to the position of its node; -1 for inputs and initializers."""
        own = dict.fromkeys([*self._given, *self.scope.initializers], -1)
        own.update({name: i for i, node in enumerate(self.nodes) for name in node.output if name})
        return own

    def has(self, name: str) -> bool:
        """Whether a tensor is of this graph."""
        return name in self._own

    def element(self, name: str) -> int:
        """Returns the element type of a tensor as it was before, 0 where it is not known."""
        scope: Scope | None = self.scope
        types = self.caster.model.inferred_types
        while scope is not None:
            tensor = scope.initializers.get(name)
            if tensor is not None:
                return int(tensor.data_type)
            if types[scope.position].get(name):
                return types[scope.position][name]
            scope = scope.parent
        return 0

    def is_lower(self, name: str) -> bool:
        """Whether a node that was cast makes this tensor."""
        owner = self.owner(name)
        return owner is not None and name in owner._raised

    def raised(self) -> dict[str, str]:
        """Returns the tensors that nodes which were cast make: the name before, and the one in the lower precision."""
        return {name: self._lower[name] for name in self._raised}

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is an initializer that no caller can replace, or what a Constant node holds."""
        owner = self.owner(name)
        return owner is not None and owner._constant(name) is not None

    def _constant(self, name: str) -> onnx.TensorProto | None:
        """Returns this graph's own constant of that name."""
        if name in self._given:
            return None
        tensor = self.scope.initializers.get(name)
        if tensor is not None:
            return tensor
        index = self._own.get(name, -1)
        if index < 0 or self.nodes[index].op_type != "Constant":
            return None
        return next((a.t for a in self.nodes[index].attribute if a.name == "value"), None)

    def overflows(self, name: str) -> bool:
        """Whether a tensor is a constant with finite values that are too large."""
        owner = self.owner(name) if name else None
        if owner is None:
            return False
        if name not in owner._overflows:
            owner._overflows[name] = owner._too_large(name)
        return owner._overflows[name]

    def _too_large(self, name: str) -> bool:
        tensor = self._constant(name)
        if tensor is None or tensor.data_type != FLOAT:
            return False
        values, largest = self.caster.model.array(tensor), self.caster.kind.largest
        # Two passes without a copy say it of nearly all weights.
        if values.size == 0 or (values.max() <= largest and values.min() >= -largest):
            return False
        return bool(np.any((np.abs(values) > largest) & np.isfinite(values)))

    def lower(self, name: str) -> str:
        """Returns the name of a tensor in the lower precision, and sees to it that it exists."""
        owner = self.owner(name)
        if owner is None:
            return name
        if name not in owner._lower:
            owner._lower[name] = owner._make_lower(name)
        return owner._lower[name]

    def _fresh(self, name: str) -> str:
        return self.caster.model.fresh_name(f"{name}_{self.caster.kind.name}")

    def _make_lower(self, name: str) -> str:
        constant = self._constant(name)
        made = self._fresh(name)
        if constant is not None and self.caster.stored:
            self._weights[made] = self._stored(constant, made)
        else:
            self._behind.setdefault(self._own[name], []).extend(self._casts(name, made))
        return made

    def _casts(self, name: str, made: str) -> list[onnx.NodeProto]:
        """Makes what rounds a float32 tensor."""
        fresh = self.caster.model.fresh_name
        code = self.caster.kind.code
        if not self.caster.emulated:
            return [helper.make_node("Cast", [name], [made], to=code, name=fresh(f"{made}_cast"))]
        between = fresh(f"{made}_rounded")
        return [
            helper.make_node("Cast", [name], [between], to=code, name=fresh(f"{made}_round")),
            helper.make_node("Cast", [between], [made], to=FLOAT, name=fresh(f"{made}_cast")),
        ]

    def _stored(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        """Returns a weight in the lower precision. Values too small to be told from zero become the smallest ones.

        Zero is what a divisor's epsilon must not become.
        """
        kind = self.caster.kind
        values = self.caster.model.array(tensor)
        tiny = (np.abs(values) < kind.smallest) & (values != 0)
        if tiny.any():
            values = np.where(tiny, np.copysign(np.float32(kind.smallest), values), values)
        dtype = helper.tensor_dtype_to_np_dtype(kind.code)
        lowered = values.astype(dtype)
        return numpy_helper.from_array(lowered.astype(np.float32) if self.caster.emulated else lowered, name)

    def write_lower(self, index: int, node: onnx.NodeProto, position: int) -> None:
        """Makes an output of a node one of the lower precision; the old name is made of it where it is still read."""
        name = node.output[position]
        made = self._lower[name] = self._fresh(name)
        self._raised_by.setdefault(index, []).append(name)
        node.output[position] = made
        if self.caster.emulated:
            exact = self.caster.model.fresh_name(f"{made}_exact")
            node.output[position] = exact
            self._behind.setdefault(index, []).extend(self._casts(exact, made))
        fresh = self.caster.model.fresh_name(f"{name}_cast")
        self._raised[name] = helper.make_node("Cast", [made], [name], to=FLOAT, name=fresh)

    def write(self, read: set[str]) -> None:
        """Writes the nodes with their casts, and drops constants that nothing reads any more.

        Args:
            read: Names that are read anywhere in the model.
        """
        graph = self.scope.graph
        nodes = list(self._behind.get(-1, ()))
        for index, node in enumerate(self.nodes):
            if node.op_type == "Constant" and read.isdisjoint(node.output) and index not in self._behind:
                continue
            nodes.append(node)
            # In emulation what rounds comes first: the old tensor is made of the rounded one.
            nodes += self._behind.get(index, ())
            nodes += [self._raised[name] for name in self._raised_by.get(index, ()) if name in read]
        del graph.node[:]
        graph.node.extend(nodes)
        self._drop_unread(read)
        graph.initializer.extend(self._weights.values())
        made = {name for node in nodes for name in node.output}
        for index in reversed(range(len(graph.value_info))):
            if graph.value_info[index].name not in made:
                del graph.value_info[index]

    def _drop_unread(self, read: set[str]) -> None:
        initializers = self.scope.graph.initializer
        for index in reversed(range(len(initializers))):
            tensor = initializers[index]
            if tensor.data_type == FLOAT and tensor.name not in read and tensor.name not in self._given:
                del initializers[index]

    def reads(self) -> Iterator[str]:
        """Yields what this graph's nodes read, their casts included, and what it returns."""
        for nodes in (self.nodes, *self._behind.values()):
            for node in nodes:
                yield from node.input
        yield from (value.name for value in self.scope.graph.output)


class _Slots:
    """Which inputs and outputs of an operator may have the lower precision."""

    def __init__(self, schemas: Sequence[Any], type_string: str) -> None:
        pairs = [_allowing(schema, type_string) for schema in schemas]
        self._inputs = [inputs for inputs, _ in pairs]
        self._outputs = [outputs for _, outputs in pairs]

    def input(self, index: int) -> bool:
        """Whether the input may; the last one of a schema stands for all further ones."""
        return any(slots and slots[min(index, len(slots) - 1)] for slots in self._inputs)

    def output(self, index: int) -> bool:
        """Whether the output may."""
        return any(slots and slots[min(index, len(slots) - 1)] for slots in self._outputs)


def _allowing(schema: Any, type_string: str) -> tuple[list[bool], list[bool]]:
    """Returns for every input and output of a schema whether it may have float32 and a type alike."""
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    both = {name for name, types in allowed.items() if {type_string, "tensor(float)"} <= types}
    return [f.type_str in both for f in schema.inputs], [f.type_str in both for f in schema.outputs]


@functools.cache
def _slots(op: str, opset: int, kind: Kind) -> _Slots | None:
    """Returns what may be cast of a standard operator; None where there is no such operator."""
    try:
        schemas = [onnx.defs.get_schema(op, opset)]
    except onnx.defs.SchemaError:
        return None
    if kind is BFLOAT:
        # Convolutions have it since opset 22 only; TensorRT has it whatever the opset is, and so has the meaning.
        with contextlib.suppress(onnx.defs.SchemaError):
            schemas.append(onnx.defs.get_schema(op))
    return _Slots(schemas, kind.type_string)


def _accumulates(node: onnx.NodeProto) -> bool:
    """Whether a node sums up step by step: a scatter with a reduction, or a recurrent layer with lengths.

    Neither ONNX Runtime nor TensorRT-RTX 1.7 has these in float16.
    """
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return len(node.input) > 4 and bool(node.input[4])
    reduces = any(a.name == "reduction" and a.s != b"none" for a in node.attribute)
    return node.op_type.startswith("Scatter") and reduces


def _set_to(node: onnx.NodeProto, code: int) -> None:
    for attribute in node.attribute:
        if attribute.name == "to":
            attribute.i = code


def cast_interface(model: OnnxModel, kind: Kind) -> None:
    """Gives the float32 inputs and outputs of a model that was cast the lower precision too."""
    graph = model.proto.graph
    given = {tensor.name for tensor in graph.initializer}
    inputs = [v for v in graph.input if v.type.tensor_type.elem_type == FLOAT and v.name not in given]
    names = {value.name: model.fresh_name(f"{value.name}_fp32") for value in inputs}
    # An initializer that is returned as it is keeps its type: no node makes it.
    outputs = [v for v in graph.output if v.type.tensor_type.elem_type == FLOAT and v.name not in {*names, *given}]
    names |= {value.name: model.fresh_name(f"{value.name}_fp32") for value in outputs}
    for scope in model.scopes:
        for node in scope.graph.node:
            _replace(node.input, names)
            _replace(node.output, names)
        if scope.parent is not None:
            for value in scope.graph.output:
                value.name = names.get(value.name, value.name)
    before = [_cast_node(model, v.name, names[v.name], FLOAT) for v in inputs]
    after = [_cast_node(model, names[v.name], v.name, kind.code) for v in outputs]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*inputs, *outputs):
        value.type.tensor_type.elem_type = kind.code
    model.touch()


def _cast_node(model: OnnxModel, name: str, made: str, code: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [made], to=code, name=model.fresh_name(f"{made}_cast"))


def _replace(names: Any, by: Mapping[str, str]) -> None:
    for index, name in enumerate(names):
        if name in by:
            names[index] = by[name]


def _is_repeated(scope: Scope) -> bool:
    """Whether a graph is, or is in, the body of a Loop or Scan, where every round adds its own rounding."""
    # The attribute that holds it is "body"; an If has branches.
    inside: Scope | None = scope
    while inside is not None:
        if inside.path.endswith("/body"):
            return True
        inside = inside.parent
    return False


def sort(model: OnnxModel) -> None:
    """Puts the nodes of every graph behind those whose results they read, as ONNX wants them."""
    moved = [_sort(scope.graph) for scope in reversed(model.scopes)]
    if any(moved):
        model.touch()


def _sort(graph: onnx.GraphProto) -> bool:
    """Sorts one graph. Returns whether it was not."""
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producers[n] for n in reads(node) if n in producers} - {i} for i, node in enumerate(graph.node)]
    if all(max(each, default=-1) < index for index, each in enumerate(needs)):
        return False
    try:
        order = list(graphlib.TopologicalSorter(dict(enumerate(needs))).static_order())
    except graphlib.CycleError:
        return False
    nodes = [graph.node[index] for index in order]
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the tensors that a node reads, those that its graphs take from outside too."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from reads(inner)


def _data_names(model: OnnxModel) -> set[tuple[int, str]]:
    """Returns the tensors, with the position of their graph, that depend on the values of an input."""
    found: set[tuple[int, str]] = set()
    for scope in model.scopes:
        chain = [scope.position]
        parent = scope.parent
        while parent is not None:
            chain.append(parent.position)
            parent = parent.parent
        found.update((scope.position, value.name) for value in scope.graph.input)
        for node in scope.graph.node:
            if node.op_type in ("Shape", "Size") or not any((p, n) in found for n in reads(node) for p in chain):
                continue
            found.update((scope.position, name) for name in node.output if name)
    return found


_LAYOUT = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


def _quantized_nodes(model: OnnxModel) -> set[tuple[int, int]]:
    """Returns the nodes that TensorRT fuses into int8 layers: graph's position, node's position."""
    if not model.has(("DequantizeLinear",)):
        return set()
    return {(scope.position, index) for scope in model.scopes for index in _quantized_in(scope)}


def _quantized_in(scope: Scope) -> Iterator[int]:
    nodes = scope.graph.node
    fed: dict[str, bool] = {}
    for index, node in enumerate(nodes):
        if node.op_type == "DequantizeLinear":
            fed.update(dict.fromkeys(node.output, True))
        elif node.op_type in _LAYOUT and fed.get(node.input[0]):
            fed[node.output[0]] = True
        elif node.op_type in _MATRIX and all(fed.get(name) for name in node.input[:2]):
            yield index
    # What stands between int8 layers, such as an activation: before a quantiser only, and behind dequantisers only.
    behind = _reached(nodes, lambda node: node.op_type == "DequantizeLinear", scope)
    outputs = {value.name for value in scope.graph.output}
    before: set[str] = set()
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        read = [consumer for name in node.output for consumer in scope.consumers.get(name, ())]
        ends = read and all(c.op_type == "QuantizeLinear" or before.issuperset(filter(None, c.output)) for c in read)
        inner = any(scope.model.uses[n] != len(scope.consumers.get(n, ())) for n in node.output if n)
        if ends and not inner and outputs.isdisjoint(node.output):
            before.update(name for name in node.output if name)
            if index in behind:
                yield index


def _reached(nodes: Sequence[onnx.NodeProto], is_source: Callable[[onnx.NodeProto], bool], scope: Scope) -> set[int]:
    """Returns the nodes all of whose computed inputs come from sources."""
    names: set[str] = set()
    found: set[int] = set()
    for index, node in enumerate(nodes):
        computed = [n for n in node.input if n and scope.values(n) is None] if names else []
        if is_source(node) or (computed and names.issuperset(computed)):
            names.update(node.output)
            found.add(index)
    return found
