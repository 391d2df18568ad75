"""Files of passes, rules and operators of a user's own (`--extend`): what they must have, and how they are run."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from trtconv.core.agreement import AgreedCode
from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES
from trtconv.passes.base import BrokenContract, Pass, PassResult, complaint, fingerprint, run_one
from trtconv.plugins.registry import OperatorReference, entering, hold
from trtconv.rules import RULES
from trtconv.rules.base import ModelView, Rule
from trtconv.shapes.lattice.registry import OPERATORS

_OWNER = re.compile(r"[A-Z][A-Z0-9]{1,11}")
_HINT = "docs/extending.md shows an extension; trtconv extension test FILE.py says what one lacks."
_SAFE = ("exact", "within tolerance")
Kind = TypeVar("Kind")


@frozen
class Extension:
    """What one file adds.

    Args:
        code: The file.
        owner: Whose it is, in capitals, as codes of its findings begin.
        passes: Its passes, in the order of the file.
        rules: Its rules.
        operators: Names of the operators whose shapes it tells.
        references: Those that say what an operator computes.
    """

    code: AgreedCode
    owner: str
    passes: tuple[AddedPass, ...]
    rules: tuple[AddedRule, ...]
    operators: tuple[str, ...]
    references: tuple[OperatorReference, ...]


@functools.lru_cache(maxsize=64)
def load(code: AgreedCode) -> Extension:
    """Runs a file that was agreed to, once a process, and returns what it adds.

    Raises:
        InputError: It was changed since, fails, or what it adds is not as docs/extending.md says.
    """
    before = dict(OPERATORS)
    try:
        with entering() as entered:
            module = _run(code)
        owner = getattr(module, "owner", None)
        if not isinstance(owner, str) or not _OWNER.fullmatch(owner) or owner.startswith("TC"):
            raise InputError('it does not say whose it is, as owner = "ACME" does', _HINT)
        passes = [AddedPass(pass_, code) for pass_ in _instances(module, Pass, "name")]
        rules = [AddedRule(rule, code) for rule in _instances(module, Rule, "code")]
        references = tuple(entered.values())
        operators = tuple(name for name, function in OPERATORS.items() if before.get(name) is not function)
        for fault in _faults(owner, passes, rules, operators, references):
            raise InputError(fault, _HINT)
    except InputError as error:
        OPERATORS.clear()
        OPERATORS.update(before)
        raise InputError(f"{code.path}: {error.message}", error.hint) from error
    hold(code, entered)
    return Extension(code, owner, tuple(passes), tuple(rules), operators, references)


def _run(code: AgreedCode) -> types.ModuleType:
    module = types.ModuleType(f"trtconv_extension_{code.sha256[:16]}")
    module.__file__ = str(code.path)
    # Dataclasses and pickles look a class's module up.
    sys.modules[module.__name__] = module
    source = code.read()
    with users_code("it does not run"):
        exec(compile(source, str(code.path), "exec"), vars(module))
    return module


@contextlib.contextmanager
def users_code(failing: str) -> Iterator[None]:
    """Runs what a user wrote: what it prints is not on stdout, and what it raises is told as what failed.

    Raises:
        InputError: It raised something; the message begins with `failing`.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except TrtconvError:
        raise
    except (Exception, SystemExit) as error:
        line = _line_of(error)
        message = str(error).strip().partition("\n")[0][:300]
        raise InputError(f"{failing}: {type(error).__name__}: {message}{line}", _HINT) from error


def _line_of(error: BaseException) -> str:
    """Returns the last line of an extension that an error came through."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("trtconv_extension_"):
            line = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return line


def _instances(module: types.ModuleType, base: type[Kind], attribute: str) -> list[Kind]:
    """Returns one instance of each class of a module that is meant to be used: those that have a name of their own."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    instances = []
    for kind in dict.fromkeys(kinds):
        if issubclass(kind, base) and attribute in vars(kind):
            with users_code(f"{kind.__name__} cannot be made"):
                instances.append(kind())
    return instances


def _faults(
    owner: str,
    passes: Sequence[AddedPass],
    rules: Sequence[AddedRule],
    operators: Sequence[str],
    references: Sequence[OperatorReference],
) -> Iterator[str]:
    """Yields what is not as it must be."""
    if not passes and not rules and not operators and not references:
        yield "it adds nothing: no class with a 'name' or a 'code', no operator, and no reference"
    names, codes = {pass_.name for pass_ in PASSES}, {rule.code for rule in RULES}
    own = codes | {rule.code for rule in rules}
    for pass_ in passes:
        yield from _faults_of_pass(pass_, owner, own)
        if pass_.name in names:
            yield f"pass {pass_.name!r} has the name of another"
        names.add(pass_.name)
    for rule in rules:
        if not isinstance(rule.code, str) or not re.fullmatch(rf"{owner}\d{{3}}", rule.code) or rule.code in codes:
            yield f"rule {rule.code!r} has not a code of its own: {owner} and three digits, as {owner}101"
        if not isinstance(rule.name, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name):
            yield f"rule {rule.code} has a name that is not words joined by hyphens: {rule.name!r}"
        codes.add(rule.code)
    for name in operators:
        if "::" not in name:
            yield f"operator {name!r} is ONNX's own; write @operator('domain::{name}')"


def _faults_of_pass(pass_: AddedPass, owner: str, codes: set[str]) -> Iterator[str]:
    prefix = owner.lower()
    if not isinstance(pass_.name, str) or not re.fullmatch(rf"{prefix}(-[a-z0-9]+)+", pass_.name):
        yield f"pass {pass_.name!r} is not named as {prefix}-fold-scale is"
    if unknown := [code for code in pass_.fixes if code not in codes]:
        yield f"pass {pass_.name!r} fixes {unknown[0]!r}, which is not the code of a rule"
    inner = pass_.inner
    if inner.safety not in _SAFE:
        yield f"pass {pass_.name!r}: safety is one of {', '.join(_SAFE)}"
    # With these it would be judged by what it claims.
    if inner.on_request or inner.frees_sizes or inner.requantizes or inner.flag:
        yield f"pass {pass_.name!r} asks to change numbers or sizes, which only trtconv's own passes do"


class AddedPass(Pass):
    """A pass of a user's, held to the contract of passes: what it breaks is told of its file.

    Args:
        inner: The pass.
        code: The file that it is from.
    """

    def __init__(self, inner: Pass, code: AgreedCode) -> None:
        self.inner = inner
        self.code = code
        self.name = inner.name  # type: ignore[misc]
        self.fixes = tuple(inner.fixes)  # type: ignore[misc]
        self.safety = inner.safety  # type: ignore[misc]

    @property
    def page(self) -> str:
        """The docstring of the user's class."""
        return self.inner.page

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        """Asks the user's pass; see `Pass`."""
        with self._guard():
            return bool(self.inner.may_act(model, target))

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        """Runs the user's pass, and checks what it left.

        Raises:
            InputError: It failed, or broke the contract.
        """
        was_valid, weights = complaint(model.without_weights()) is None, _weights(model)
        with self._guard():
            try:
                result, _ = run_one(model, self.inner, target, fingerprint(model))
            except BrokenContract as broken:
                raise InputError(f"{self.code.path}: {broken}", _HINT) from broken
        after = _weights(model)
        if changes := [name for name in weights.keys() & after.keys() if weights[name] != after[name]]:
            raise InputError(
                f"{self.code.path}: pass {self.name} wrote into weight {changes[0]!r}, which others may use",
                "Make a new one: field.constant(name, values).",
            )
        wrong = complaint(model.without_weights()) if was_valid and result.edits else None
        if wrong is not None:
            raise InputError(f"{self.code.path}: pass {self.name} made an invalid model: {wrong}", _HINT)
        return result

    def _guard(self) -> contextlib.AbstractContextManager[None]:
        return users_code(f"{self.code.path}: pass {self.name} failed")


def _weights(model: OnnxModel) -> dict[str, int]:
    """Returns a hash of each initializer, without what lies in other files."""
    return {
        tensor.name: hash((tensor.SerializeToString(), scope.path))
        for scope in model.scopes
        for tensor in scope.graph.initializer
    }


class AddedRule(Rule):
    """A rule of a user's.

    Args:
        inner: The rule.
        code_file: The file that it is from.
    """

    def __init__(self, inner: Rule, code_file: AgreedCode) -> None:
        self.inner = inner
        self._file = code_file
        self.code = inner.code  # type: ignore[misc]
        self.name = inner.name  # type: ignore[misc]
        self.severity = inner.severity  # type: ignore[misc]
        self.fix = inner.fix  # type: ignore[misc]
        self.by_hand = inner.by_hand  # type: ignore[misc]

    @property
    def page(self) -> str:
        """The docstring of the user's class."""
        return self.inner.page

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        """Yields what the user's rule finds; see `Rule`.

        Raises:
            InputError: It failed, or gave a code out that is not its own.
        """
        with users_code(f"{self._file.path}: rule {self.code} failed"):
            findings: Sequence[Any] = list(self.inner.check(view, target))
        for finding in findings:
            if not isinstance(finding, Finding) or finding.code != self.code:
                raise InputError(f"{self._file.path}: rule {self.code} found {finding!r}, which is not its own", _HINT)
            yield finding
