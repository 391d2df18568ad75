"""How the house is built: who may import whom, by the table of docs/architecture.md, and how large things may be."""

from __future__ import annotations

import ast
import fnmatch
import graphlib
import re
import statistics
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from support.paths import ROOT

PACKAGE = ROOT / "trtconv"

MAY_IMPORT = {
    "core": "",
    "graph": "core",
    "shapes": "core graph",
    "plugins": "core",
    "rules": "core graph shapes plugins",
    "passes": "core graph shapes",
    "runtimes": "core graph shapes plugins",
    "precision": "core graph runtimes",
    "pipeline": "core graph shapes plugins rules passes precision runtimes",
    "engine": "core graph shapes passes precision runtimes pipeline",
    "exporter": "core graph shapes runtimes pipeline",
    "explainer": "core graph rules passes runtimes pipeline",
    "cli": "core graph shapes rules passes runtimes pipeline engine exporter explainer",
}
"""Room of trtconv to the others that it may import."""

DOORS = {
    "click": ["cli/*"],
    "cryptography": ["core/signatures.py", "engine/farm/keys.py"],
    "typing_extensions": ["core/frozen.py"],
    "tomli": ["core/toml.py"],
    "tomllib": ["core/toml.py"],
    "google": ["graph/*"],
    "jinja2": ["cli/formats/page/__init__.py"],
    "markupsafe": ["cli/formats/page/*"],
    "onnx": [
        "explainer/changes.py",
        "pipeline/extending/*",
        "pipeline/substituting/*",
        "explainer/isolate.py",
        "exporter/file/finish.py",
        "exporter/file/running.py",
        "exporter/job.py",
        "exporter/file/judging.py",
        "exporter/run.py",
        "exporter/file/join.py",
        "exporter/file/write.py",
        "exporter/pipelines.py",
        "exporter/translations.py",
        "graph/*",
        "passes/*",
        "pipeline/reduce.py",
        "pipeline/trials.py",
        "pipeline/disguise.py",
        "pipeline/share_page.py",
        "precision/*",
        "rules/*",
        "runtimes/assumed.py",
        "runtimes/definition/*",
        "runtimes/evaluator.py",
        "runtimes/observed.py",
        "runtimes/foreign_nodes.py",
        "runtimes/hybrid.py",
        "runtimes/hybrid_bodies.py",
        "runtimes/light_session.py",
        "runtimes/onnxruntime.py",
        "runtimes/proof/*",
        "runtimes/tensorrt/readback/grid_sample.py",
        "runtimes/tensorrt/refusals.py",
        "shapes/lattice/program.py",
    ],
    "onnx_graphsurgeon": ["graph/*", "passes/*"],
    "onnxruntime": [
        "precision/quantize/cache.py",
        "precision/quantize/calibrate.py",
        "runtimes/onnxruntime.py",
        "runtimes/tensorrt/readback/grid_sample.py",
    ],
    "PIL": ["precision/quantize/images.py"],
    "polygraphy": ["engine/bisecting.py"],
    "cuda": ["runtimes/tensorrt/device.py"],
    "ml_dtypes": [
        "precision/quantize/kinds.py",
        "runtimes/proof/*",
        "runtimes/tensorrt/engine_in_memory.py",
        "runtimes/tensorrt/readback/types.py",
    ],
    "matplotlib": ["cli/formats/plot.py"],
    "numpy": [
        "engine/*",
        "exporter/file/proof.py",
        "exporter/file/running.py",
        "exporter/sizing/*",
        "graph/*",
        "passes/*",
        "pipeline/extending/*",
        "pipeline/substituting/*",
        "plugins/*",
        "precision/*",
        "rules/*",
        "runtimes/*",
        "shapes/*",
    ],
    "torch": ["exporter/*"],
    "sympy": ["exporter/sizing/guards.py"],
    "ultralytics": ["exporter/module/libraries.py"],
    "safetensors": ["exporter/module/weights.py"],
    "onnxscript": [
        "exporter/file/writers.py",
        "exporter/translations.py",
        "exporter/patches/output_size.py",
        "exporter/patches/onnxscript_costs.py",
    ],
    "tensorrt": ["runtimes/tensorrt/*"],
    "tensorrt_rtx": ["runtimes/tensorrt/*"],
    "subprocess": ["core/process.py"],
    "multiprocessing": [],
    "runpy": [],
    "importlib": [
        "__init__.py",
        "cli/group.py",
        "cli/process/ahead.py",
        "cli/process/loading.py",
        "passes/later.py",
        "cli/versions.py",
        "core/serving.py",
        "pipeline/extending/installed.py",
        "exporter/library_names.py",
        "exporter/module/libraries.py",
        "runtimes/inputs.py",
        "exporter/module/spec.py",
        "exporter/patches/torch_quiet.py",
        "exporter/module/weights.py",
        "plugins/registry.py",
        "precision/apply.py",
        "runtimes/tensorrt/loader.py",
    ],
}
"""Library to the files that may import it; no other library outside Python's own may be imported at all."""

FACADE = ("__init__", "__main__")
"""They only hand on what others make."""

SOURCES = sorted(PACKAGE.rglob("*.py"))


class Nodes(dict[Path, list[ast.AST]]):
    """The nodes of each file, parsed when they are first asked for: each worker imports this module."""

    def __missing__(self, path: Path) -> list[ast.AST]:
        self[path] = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        return self[path]


NODES = Nodes()


@pytest.fixture(scope="module", autouse=True)
def _release() -> Iterator[None]:
    """Millions of objects make each later collection of garbage slow."""
    yield
    NODES.clear()


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> Iterator[str]:
    """Yields every imported module, also those imported in functions and for types alone."""
    for node in NODES[path]:
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


def dotted(node: ast.expr) -> str:
    """Returns a name with its attributes, "os.path.join"; what they are attributes of is left out where it has none."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_imports_only_what_the_table_allows() -> None:
    faults = {}
    for path in SOURCES:
        name = module_of(path)
        used = {each.split(".")[1] for each in imports(path) if each.startswith("trtconv.")} - {name}
        if name not in FACADE and not used <= set(MAY_IMPORT[name].split()):
            faults[str(path.relative_to(PACKAGE))] = used - set(MAY_IMPORT[name].split())
    assert faults == {}


def test_libraries_come_in_through_their_doors() -> None:
    faults = []
    for path in SOURCES:
        place = path.relative_to(PACKAGE).as_posix()
        for library in {each.partition(".")[0] for each in imports(path)} - {"trtconv"}:
            doors = DOORS.get(library)
            through = doors is not None and any(fnmatch.fnmatchcase(place, pattern) for pattern in doors)
            if not through and (doors is not None or library not in sys.stdlib_module_names):
                faults.append(f"{place} imports {library}")
    assert faults == []


LIBRARY = [path for path in SOURCES if module_of(path) not in ("cli", "__main__")]
PRINTING = {"print", "input", "SystemExit", "exit", "quit"}
FORBIDDEN = {"sys.exit", "os._exit", "os.environ", "os.getenv", "logging.basicConfig", "logging.getLogger", "sys.argv"}


ALLOWED = {"torch_quiet.py": {"logging.getLogger"}, "forking.py": {"os._exit"}}
"""One file quiets torch's loggers for a while; one ends the process that it forked."""


def test_the_library_neither_prints_nor_exits_nor_reads_the_environment() -> None:
    faults = []
    for path in LIBRARY:
        for node in NODES[path]:
            printed = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PRINTING
            called = dotted(node) if isinstance(node, ast.Attribute) else ""
            if printed or (called in FORBIDDEN and called not in ALLOWED.get(path.name, ())):
                faults.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert faults == []


READERS = {
    "core/reading.py": "the door itself",
    "core/leftovers.py": "/proc, and what others may have put there",
    "core/scratch.py": "a folder of its own",
    "core/files.py": "folders, and the package's own code",
    "core/budget.py": "/proc",
    "core/rations.py": "/proc",
    "core/serving.py": "/proc",
    "core/forking.py": "/proc and /dev/null",
    "cli/formats/page/__init__.py": "the package's own style",
    "cli/process/boundary.py": "/dev/null",
    "cli/process/child.py": "stderr",
    "cli/process/outcome.py": "/dev/null",
    "cli/process/watching.py": "/proc",
    "engine/farm/keys.py": "writes new files alone",
    "engine/memory.py": "/proc",
    "pipeline/batch.py": "/proc",
    "runtimes/proof/models.py": "arrays that its own process wrote",
    "runtimes/tensorrt/early/memory.py": "memory that its own process made",
}
"""Files that read by themselves, and what; every other path goes through the door, `core/reading.py`."""
OPENING = {"open", "os.open", "io.open", "shutil.copyfile", "shutil.copy", "shutil.copy2", "np.fromfile", "np.memmap"}


READING = (".read_text", ".read_bytes", "path.open", "file.open")


def test_files_are_read_through_their_door() -> None:
    faults = {}
    for path in SOURCES:
        names = [dotted(node.func) for node in NODES[path] if isinstance(node, ast.Call)]
        own = [name for name in names if name in OPENING or name.endswith(READING)]
        if own and path.relative_to(PACKAGE).as_posix() not in READERS:
            faults[str(path.relative_to(PACKAGE))] = own
    assert faults == {}


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


MOST_ENTRIES = 15
MOST_LINES_OF_A_MODULE = 400
MOST_LINES_OF_A_FUNCTION = 50
MEDIAN_LINES_OF_A_FUNCTION = 7


def test_few_entries_stand_at_the_top() -> None:
    assert len({module_of(path) for path in SOURCES}) <= MOST_ENTRIES


def test_functions_are_short() -> None:
    lengths = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        for node in NODES[path]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert [name for name, lines in lengths.items() if lines > MOST_LINES_OF_A_FUNCTION] == []
    assert statistics.median(lengths.values()) <= MEDIAN_LINES_OF_A_FUNCTION


def test_modules_are_short() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path: count for path, count in lines.items() if count > MOST_LINES_OF_A_MODULE} == {}


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in NODES[path]:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_modules_import_each_other() -> None:
    """Through others neither, and not for types alone."""
    names = {".".join(("trtconv", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in SOURCES}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {name: used_by(path, modules) - {name} for name, path in modules.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(SOURCES)


def used_by(path: Path, modules: Collection[str]) -> set[str]:
    """Returns the modules that a file imports, or imports something of."""
    used = set()
    for node in NODES[path]:
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            used |= whole & set(modules) or {str(node.module)}
    return used & set(modules)
