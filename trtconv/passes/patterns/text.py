"""The two ONNX texts of a rule of rewriting, read and held to what a rule may say."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs, helper, numpy_helper

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.rewrite_rules import RewriteRule
from trtconv.graph.chance import RANDOM
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import KNOWN_DOMAINS, MICROSOFT, ONNX_DOMAINS
from trtconv.graph.walk import BODIES, constant_of, tensors

_CHANGING = RANDOM | {"Dropout"}
_MOST_NODES = 64
_MOST_DEPTH = 12
_MOST_ELEMENTS = 1 << 14
_IR_VERSION = 8
TYPE = "T"
"""An attribute that stands for the number of the rule's type: `Cast <to: int = @T>`."""
_HINT = "docs/extending.md shows a rule of rewriting."
_LISTED = (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS)
_NUMBERS = (AttributeProto.INT, AttributeProto.FLOAT)
_MOST_CHOICES = 256

Attributes = Mapping[str, Any]
"""Name of a bound attribute to its value."""


@frozen
class Texts:
    """A rule whose texts were read.

    Args:
        rule: The rule.
        pattern: What it replaces.
        replacement: What takes its place.
        kinds: Name of a bound attribute to its ONNX type.
    """

    rule: RewriteRule
    pattern: onnx.FunctionProto
    replacement: onnx.FunctionProto
    kinds: Mapping[str, int]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the pattern's inputs."""
        return tuple(self.pattern.input)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the pattern's outputs."""
        return tuple(self.pattern.output)

    def nodes(self, side: onnx.FunctionProto, kind: str, attributes: Attributes) -> list[onnx.NodeProto]:
        """Returns the nodes of a text for one type and values of the bound attributes."""
        return [_bound(node, kind, attributes) for node in side.node]

    def model(
        self, side: onnx.FunctionProto, types: Mapping[str, str], kind: str, attributes: Attributes, opset: int = 0
    ) -> OnnxModel:
        """Returns a model that computes one text, for inputs of any shape.

        Args:
            side: The text.
            types: Input to its type.
            kind: The type of the rule.
            attributes: The bound attributes.
            opset: The version of ONNX's operators; 0: the rule's.
        """
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.DataType.Value(types[name].upper()), None)
            for name in self.inputs
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes(side, kind, attributes), self.rule.name, inputs, outputs)
        opsets = [helper.make_opsetid("", opset or self.rule.opset), helper.make_opsetid(MICROSOFT, 1)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        return OnnxModel(proto, Path(f"{self.rule.name}.onnx"))

    def means_the_same(self, opset: int) -> bool:
        """Whether the operators of both texts are at another version what they are at the rule's."""
        used = {node.op_type for node in (*self.pattern.node, *self.replacement.node) if node.domain in ONNX_DOMAINS}
        return all(_since(op, opset) == _since(op, self.rule.opset) for op in used)

    def choices(self) -> list[dict[str, object]]:
        """Returns every combination of the bound attributes that have a few values."""
        values = {name: self._values(name) for name in self.kinds if name != TYPE}
        counted = {name: values for name, values in values.items() if values}
        return [dict(zip(counted, combination, strict=True)) for combination in itertools.product(*counted.values())]

    def _values(self, name: str) -> tuple[Any, ...]:
        """Returns the values that a bound attribute may have; none for a float, which may have any in a range."""
        condition = self.rule.attributes.get(name)
        if condition is not None and condition.values:
            return tuple(tuple(value) if isinstance(value, list) else value for value in condition.values)
        if condition is not None and self.kinds[name] == AttributeProto.INT:
            assert condition.least is not None
            assert condition.most is not None
            return tuple(range(int(condition.least), int(condition.most) + 1))
        return ()

    def range(self, name: str) -> tuple[float, float]:
        """Returns the range of a float that is bound to a name."""
        condition = self.rule.attributes.get(name)
        least = None if condition is None else condition.least
        most = None if condition is None else condition.most
        return (-_WIDEST if least is None else least), (_WIDEST if most is None else most)


_WIDEST = 1000.0


def read(rule: RewriteRule) -> Texts:
    """Reads the texts of a rule.

    Raises:
        InputError: They are not ONNX, do not fit each other, or are nothing that can be matched.
    """
    try:
        pattern, replacement = (_parsed(getattr(rule, key), key, rule.opset) for key in ("pattern", "replacement"))
        kinds = _checked(rule, pattern, replacement)
    except InputError as error:
        raise InputError(f"rule of rewriting {rule.name!r}: {error.message}", error.hint) from error
    texts = Texts(rule, pattern, replacement, kinds)
    if len(list(itertools.islice(_combinations(texts), _MOST_CHOICES + 1))) > _MOST_CHOICES:
        raise InputError(f"rule of rewriting {rule.name!r}: its attributes allow over {_MOST_CHOICES} combinations")
    return texts


def _combinations(texts: Texts) -> Iterator[Any]:
    return itertools.product(*(texts._values(name) or ((),) for name in texts.kinds))


def _parsed(text: str, key: str, opset: int) -> onnx.FunctionProto:
    # The parser is native code, which calls itself for each graph inside a node.
    if _depth(text) > _MOST_DEPTH:
        raise InputError(f"{key!r} has brackets inside each other, more than {_MOST_DEPTH} deep", _HINT)
    body = text.strip()
    header = f'<domain: "rule", opset_import: ["": {opset}, "{MICROSOFT}": 1]>\n'
    try:
        function = onnx.parser.parse_function(header + body)
    # The parser has errors of its own, and protobuf, which reads what it made, has others.
    except Exception as error:
        message = " ".join(str(error).split())[-200:]
        raise InputError(
            f"{key!r} is not an ONNX function, as 'f <a> (x) => (y) {{ y = Elu <alpha: float = @a> (x) }}': {message}",
            _HINT,
        ) from error
    if not 1 <= len(function.node) <= _MOST_NODES:
        raise InputError(f"{key!r} has {len(function.node)} nodes; 1 to {_MOST_NODES} can be matched", _HINT)
    for node in function.node:
        _check_node(node, key, opset)
    return function


def _depth(text: str) -> int:
    """Returns how deep brackets lie inside each other; quotes are not looked at, so it may be too many."""
    steps = (1 if letter in "{([<" else -1 for letter in text if letter in "{([<>])}")
    return max(itertools.accumulate(steps), default=0)


def _check_node(node: onnx.NodeProto, key: str, opset: int) -> None:
    for attribute in node.attribute:
        for tensor in tensors([attribute]):
            _check_tensor(tensor, key)
    if node.domain not in KNOWN_DOMAINS:
        raise InputError(f"{key!r} has {node.domain}::{node.op_type}, which is not ONNX's", _HINT)
    if node.op_type in _CHANGING or any(attribute.type in BODIES for attribute in node.attribute):
        raise InputError(f"{key!r} has {node.op_type}, with random numbers or graphs inside", _HINT)
    if node.domain in ONNX_DOMAINS and _since(node.op_type, opset) is None:
        raise InputError(f"{key!r}: opset {opset} has no operator {node.op_type}", _HINT)


def _check_tensor(tensor: TensorProto, key: str) -> None:
    """Refuses a constant that cannot be read, or says that it is larger than its text."""
    if math.prod(tensor.dims) > _MOST_ELEMENTS or any(size < 0 for size in tensor.dims):
        raise InputError(
            f"{key!r} has a constant of {list(tensor.dims)}; {_MOST_ELEMENTS} elements are the most", _HINT
        )
    try:
        numpy_helper.to_array(tensor)
    except Exception as error:  # NumPy's own, and those of types that are packed.
        message = str(error).partition("\n")[0][:200]
        raise InputError(f"{key!r} has a constant that cannot be read: {message}", _HINT) from error


def _checked(rule: RewriteRule, pattern: onnx.FunctionProto, replacement: onnx.FunctionProto) -> dict[str, int]:
    """Returns the types of the bound attributes."""
    for key in ("input", "output", "attribute"):
        if list(getattr(pattern, key)) != list(getattr(replacement, key)):
            raise InputError(f"pattern and replacement have not the same {key}s in the same order", _HINT)
    for side, key in ((pattern, "pattern"), (replacement, "replacement")):
        _check_names(side, key)
    _check_ends(pattern)
    if unknown := [name for name in rule.inputs if name not in pattern.input]:
        raise InputError(f"inputs has {unknown[0]!r}, which is not an input of the pattern", _HINT)
    kinds = dict(_references(pattern))
    for name, kind in _references(replacement):
        if kinds.get(name, kind if name == TYPE else None) != kind:
            raise InputError(f"attribute {name!r} is not bound in the pattern, or to another type", _HINT)
    if unknown := [name for name in rule.attributes if name not in kinds or name == TYPE]:
        raise InputError(f"attributes has {unknown[0]!r}, which the pattern does not bind", _HINT)
    for name, kind in kinds.items():
        _check_attribute(rule, name, kind)
    return kinds


def _check_ends(pattern: onnx.FunctionProto) -> None:
    makers = [node for node in pattern.node if constant_of(node) is None]
    names = {name for node in makers for name in node.input}
    if missing := [name for name in pattern.input if name not in names]:
        raise InputError(f"input {missing[0]!r} is not used in the pattern", _HINT)
    if missing := [name for name in pattern.output if all(name not in node.output for node in makers)]:
        raise InputError(f"output {missing[0]!r} is not made by a node of the pattern", _HINT)


def _check_names(side: onnx.FunctionProto, key: str) -> None:
    names = set(side.input)
    for node in side.node:
        if missing := [name for name in node.input if name and name not in names]:
            raise InputError(f"{key!r}: {missing[0]!r} is used before a node makes it", _HINT)
        if doubled := [name for name in node.output if name in names]:
            raise InputError(f"{key!r}: {doubled[0]!r} is made twice", _HINT)
        names.update(name for name in node.output if name)
    if missing := [name for name in side.output if name not in names]:
        raise InputError(f"{key!r}: output {missing[0]!r} is not made", _HINT)


def _check_attribute(rule: RewriteRule, name: str, kind: int) -> None:
    if name == TYPE:
        return
    condition = rule.attributes.get(name)
    values = () if condition is None else condition.values
    ranged = condition is not None and condition.least is not None and condition.most is not None
    if values:
        kinds: Any = {AttributeProto.INT: int, AttributeProto.FLOAT: (int, float), AttributeProto.STRING: str}
        of = list if kind in _LISTED else kinds.get(kind, ())
        if not all(isinstance(value, of) and not isinstance(value, bool) for value in values):
            raise InputError(f"attribute {name!r} has a value of another type than in the pattern", _HINT)
    elif kind == AttributeProto.INT and ranged:
        assert condition is not None
        if (condition.most or 0) - (condition.least or 0) > _MOST_CHOICES:
            raise InputError(f"attribute {name!r} may have too many values", "Narrow least and most.")
    elif kind != AttributeProto.FLOAT:
        raise InputError(
            f"what attribute {name!r} may be is not said", f"Write attributes.{name}.values = [...] into the rule."
        )


def _references(side: onnx.FunctionProto) -> Iterator[tuple[str, int]]:
    for node in side.node:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                yield attribute.ref_attr_name, attribute.type


@functools.lru_cache(maxsize=4096)
def _since(op: str, opset: int) -> int | None:
    try:
        return int(defs.get_schema(op, opset, "").since_version)
    except defs.SchemaError:
        return None


def _bound(node: onnx.NodeProto, kind: str, attributes: Attributes) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    constant = constant_of(node)
    if constant is not None and constant.data_type == TensorProto.FLOAT:
        del copy.attribute[:]
        copy.attribute.append(helper.make_attribute("value", typed(constant, kind)))
        return copy
    del copy.attribute[:]
    for attribute in node.attribute:
        name = attribute.ref_attr_name
        if not name:
            copy.attribute.append(attribute)
            continue
        value = TensorProto.DataType.Value(kind.upper()) if name == TYPE else attributes[name]
        copy.attribute.append(valued(attribute.name, value, attribute.type))
    return copy


def valued(name: str, value: Any, kind: int) -> AttributeProto:
    """Returns an attribute of a type, of a value as TOML has it."""
    if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS):
        value = float(value) if kind == AttributeProto.FLOAT else [float(number) for number in value]
    return helper.make_attribute(name, list(value) if kind in _LISTED else value, attr_type=kind)


def typed(constant: TensorProto, kind: str) -> TensorProto:
    """Returns a float constant of a text in the rule's type."""
    values = numpy_helper.to_array(constant)
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind.upper()))
    return numpy_helper.from_array(np.asarray(values).astype(dtype), constant.name)


def default_of(op: str, domain: str, opset: int, name: str) -> AttributeProto | None:
    """Returns what an attribute is where a node leaves it out; None: it has no default."""
    try:
        schema = defs.get_schema(op, opset, "") if domain in ONNX_DOMAINS else defs.get_schema(op, 1, domain)
    except defs.SchemaError:
        return None
    attribute = schema.attributes.get(name)
    default = None if attribute is None else attribute.default_value
    return default if default is not None and default.type != AttributeProto.UNDEFINED else None


def same_value(one: Any, two: Any) -> bool:
    """Whether two values of attributes are equal, as float32 where they are floats."""
    first, second = _plain(one), _plain(two)
    if first == second:
        return True
    floats = any(isinstance(value, float) for values in (first, second) if isinstance(values, list) for value in values)
    return floats and np.array_equal(np.asarray(first, np.float32), np.asarray(second, np.float32))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [value] if isinstance(value, int | float) else list(map(_plain_item, value)) if _is_list(value) else value


def _plain_item(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
