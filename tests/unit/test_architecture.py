"""Who may import whom. The table is the one of docs/architecture.md; each module may use only modules above it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "trtconv"

MAY_IMPORT = {
    "_version": "",
    "frozen": "",
    "progress": "",
    "errors": "",
    "files": "errors",
    "metrics": "",
    "worker": "errors",
    "findings": "errors",
    "expressions": "",
    "shapes": "errors expressions",
    "selection": "errors findings",
    "tuning": "errors",
    "plan": "_version errors findings selection shapes tuning",
    "saved": "errors plan shapes",
    "proven": "plan shapes",
    "columns": "",
    "validity": "columns",
    "deconv": "",
    "quant": "",
    "explanation": "findings plan",
    "axes": "deconv explanation",
    "model": "columns deconv errors files findings shapes validity",
    "lattice": "deconv expressions findings model shapes",
    "readings": "lattice",
    "baked": "lattice model readings shapes",
    "skips": "deconv lattice model",
    "origin": "findings model",
    "passes": "baked deconv errors findings model plan quant readings skips",
    "rules": "baked deconv findings lattice model plan quant readings shapes",
    "split": "errors lattice shapes",
    "profiles": "errors findings lattice model rules shapes split",
    "sizing": "errors expressions lattice model plan shapes",
    "runtime": "errors files findings plan shapes tuning validity",
    "exported": "_version plan shapes",
    "report": "_version errors explanation exported findings plan shapes",
    "audit": "deconv findings model rules runtime",
    "reference": "model shapes worker",
    "casting": "model",
    "castcheck": "model reference shapes worker",
    "precision": "castcheck casting errors findings model plan reference runtime shapes",
    "isolate": "audit explanation model rules runtime",
    "explain": "axes deconv errors explanation findings isolate model passes plan rules runtime",
    "pipeline": (
        "audit baked errors files findings model origin passes plan precision profiles progress reference rules "
        "runtime shapes"
    ),
    "engine": (
        "errors files findings lattice metrics model passes plan precision profiles progress proven reference runtime "
        "saved shapes tuning worker"
    ),
    "config": "errors findings plan selection shapes tuning",
    "batch": "errors pipeline plan progress worker",
    "subgraph": "columns model shapes",
    "reduce": "batch errors files findings model plan progress shapes subgraph",
    "exporter": "_version errors exported files findings lattice model pipeline plan progress reference shapes",
    "cli": (
        "_version batch config engine errors explain explanation exporter files findings model passes pipeline plan "
        "progress proven reduce report rules runtime selection shapes sizing tuning worker"
    ),
}
"""Module or subpackage of trtconv to the others that it may import."""

DOORS = {
    "click": ["cli/*"],
    "typing_extensions": ["frozen.py"],
    "tomli": ["config.py"],
    "google": ["model.py"],
    "onnx": [
        "castcheck.py",
        "casting.py",
        "columns.py",
        "explain.py",
        "exporter/finish.py",
        "exporter/pieces.py",
        "exporter/run.py",
        "isolate.py",
        "lattice/program.py",
        "model.py",
        "passes/*",
        "reduce.py",
        "rules/*",
        "runtime/refusals.py",
        "reference.py",
        "subgraph.py",
        "validity.py",
    ],
    "onnx_graphsurgeon": ["model.py", "passes/*"],
    "onnxruntime": ["exporter/proof.py", "reference.py"],
    "polygraphy": ["engine/bisecting.py"],
    "cuda": ["runtime/device.py"],
    "ml_dtypes": ["runtime/execution.py"],
    "matplotlib": ["report/plot.py"],
    "numpy": [
        "baked.py",
        "castcheck.py",
        "casting.py",
        "deconv.py",
        "engine/*",
        "exporter/proof.py",
        "lattice/*",
        "metrics.py",
        "model.py",
        "passes/*",
        "quant.py",
        "readings.py",
        "reference.py",
        "rules/*",
        "skips.py",
        "runtime/device.py",
        "runtime/execution.py",
    ],
    "torch": ["exporter/*"],
    "safetensors": ["exporter/weights.py"],
    "onnxscript": ["exporter/writers.py", "exporter/output_size.py"],
    "tensorrt": ["runtime/*"],
    "tensorrt_rtx": ["runtime/*"],
    "importlib": [
        "__init__.py",
        "cli/group.py",
        "cli/versions.py",
        "engine/cases.py",
        "exporter/spec.py",
        "exporter/torch_door.py",
        "exporter/weights.py",
        "precision.py",
        "runtime/loader.py",
        "worker.py",
    ],
    "tomllib": ["config.py"],
}
"""Library to the files that may import it; no other library outside Python's own may be imported at all."""

FACADE = ("__init__", "__main__")
"""They only hand on what others make."""

EVERYWHERE = ("frozen",)
"""Every module may import them."""

SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> Iterator[str]:
    """Yields every imported module, also those imported in functions and for types alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "trtconv":
                yield from (f"trtconv.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def test_the_table_has_every_module_and_no_other() -> None:
    assert {module_of(path) for path in SOURCES} - set(FACADE) == set(MAY_IMPORT)


def test_the_table_goes_downwards_only() -> None:
    above: set[str] = set()
    for name, allowed in MAY_IMPORT.items():
        assert set(allowed.split()) <= above, f"{name} imports what stands below it"
        above.add(name)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_what_the_table_allows(path: Path) -> None:
    name = module_of(path)
    if name in FACADE:
        return
    used = {each.split(".")[1] for each in imports(path) if each.startswith("trtconv.")} - {name, *EVERYWHERE}
    assert used <= set(MAY_IMPORT[name].split())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_libraries_come_in_through_their_doors(path: Path) -> None:
    place = path.relative_to(PACKAGE)
    for library in {each.partition(".")[0] for each in imports(path)} - {"trtconv"}:
        if library in DOORS:
            assert any(place.match(pattern) for pattern in DOORS[library]), f"{place} imports {library}"
        else:
            assert library in sys.stdlib_module_names, f"{place} imports {library}"


LIBRARY = [path for path in SOURCES if module_of(path) not in ("cli", "__main__")]
FORBIDDEN = {"sys.exit", "os._exit", "os.environ", "os.getenv", "logging.basicConfig", "logging.getLogger", "sys.argv"}


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_library_neither_prints_nor_exits_nor_reads_the_environment(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "input", "SystemExit", "exit", "quit"), f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and path.name != "torch_door.py":  # it quiets torch's loggers for a while
            assert ast.unparse(node) not in FORBIDDEN, f"line {node.lineno}"


def test_docs_have_the_same_table() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:\.py|/)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
    assert {name: set(re.findall(r"\w+", allowed)) for name, allowed in rows} == {
        name: set(allowed.split()) for name, allowed in MAY_IMPORT.items()
    }


def test_import_trtconv_loads_nothing_heavy() -> None:
    heavy = {"onnx", "onnx_graphsurgeon", "onnxruntime", "numpy", "tensorrt", "tensorrt_rtx", "torch", "polygraphy"}
    code = "import sys, trtconv, trtconv.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())
