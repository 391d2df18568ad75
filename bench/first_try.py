"""Fifteen defects that a new user met at his first try, each by a command: is it there, in this code and in another?

    python bench/first_try.py [--only N] [--code FOLDER] [-o bench/results/first-try.json]

A row has the commands, what they said and their exit status. A defect is gone where all that its row wants was said,
and nothing that it must not say. --code names a checkout of another commit; its answers go into the same file under
its name. Ends with 1 where a defect is there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Defect(NamedTuple):
    """What hurt a new user.

    Args:
        title: What was wrong.
        commands: What he typed, for a shell in a folder with models/ and the files of `_FILES`.
        wanted: What has to be said, each a regular expression.
        unwanted: What must not be said.
    """

    title: str
    commands: tuple[str, ...]
    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()


_FILES = {
    "baked.py": """import torch
class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = torch.nn.Conv2d(3, 8, 32, 32)
        self.attention = torch.nn.MultiheadAttention(8, 2)
    def forward(self, x):
        y = self.patch(x).flatten(2).permute(2, 0, 1)
        return self.attention(y, y, y, need_weights=False)[0]
def build():
    torch.manual_seed(0)
    return Tokens().eval()
class Found(torch.nn.Module):
    def forward(self, x):
        return (x[0, 0] > 0).nonzero()[:100]
def found():
    return Found().eval()
if __name__ == "__main__":
    torch.onnx.export(build(), (torch.randn(1, 3, 256, 320),), "baked.onnx", dynamo=False, input_names=["x"],
        dynamic_axes={"x": {0: "batch", 2: "height", 3: "width"}})
""",
    "nms.py": """import onnx
from onnx import helper as h
value = h.make_tensor_value_info
# More layers than check builds by itself.
nodes = [h.make_node("Tanh", [f"s{i}" if i else "scores"], [f"s{i + 1}"]) for i in range(80)]
nodes += [h.make_node("NonMaxSuppression", ["boxes", "s80", "most"], ["y"], name="/head/Nms")]
graph = h.make_graph(nodes, "g", [value("boxes", 1, [1, "n", 4]), value("scores", 1, [1, 2, "n"])],
    [value("y", 7, ["m", 3])], [h.make_tensor("most", 7, [1], [5])])
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), "nms.onnx")
""",
    "text.py": """import trtconv
trtconv.BuildRequest("models/unet.onnx", "api.engine", dims={"batch": "1", "height": "64:256:512", "width": (64, 256)})
print("taken")
try:
    trtconv.build(trtconv.BuildRequest("models/unet.onnx", "api.engine", dims={"batch": 1}))
except trtconv.TrtconvError as error:
    print("\\n".join(getattr(error, "__notes__", [error.hint])))
""",
    "many/trtconv.toml": """[[models]]
path = "../models/vocoder.onnx"
engine = "vocoder.engine"
dims = { batch = 1, frames = "32:64:128" }
[[models]]
path = "../models/gan_generator.onnx"
engine = "gan.engine"
dims = { batch = 1 }
""",
}
_D = "--dim batch=1 --dim height=64 --dim width=64"
_BAKED = "--dim batch=1:1:4 --dim height=128:256:512 --dim width=128:320:640"

DEFECTS = {
    1: Defect(
        "export --input with names and bounds failed",
        ("trtconv export models/unet.py:build -o u.onnx --input x=batch=1:1:4,3,height=64:96:128,width=64:96:128 -q",),
        (r"exit 0",),
        ("is no dimension",),
    ),
    2: Defect(
        "baked tokens: --round advised --round",
        (f"trtconv build baked.onnx {_BAKED} -q", f"trtconv build baked.onnx {_BAKED} --round -q"),
        (r"trtconv export [\s\S]*exit 1", r"exit 0\Z"),
        ("add --round",),
    ),
    3: Defect(
        "check without bounds had nothing to report", ("trtconv check baked.onnx -q",), ("TC2",), ("nothing to",)
    ),
    4: Defect(
        "check ended with 0 where build ends with 1",
        ("trtconv check nms.onnx --dim n=8 -q", "trtconv build nms.onnx --dim n=8 -q"),
        (r"exit 1[\s\S]*exit 1",),
    ),
    5: Defect(
        "findings about baked sizes did not name the way out",
        (f"trtconv check baked.onnx {_BAKED} -q",),
        (
            r"trtconv export FILE\.py:NETWORK -o baked\.onnx --input x=batch",
            "an example of batch 1, height 256, width 320",
        ),
        ("or export with dynamic shapes",),
    ),
    6: Defect(
        "export declared a fixed size for what is cut to 100",
        ("trtconv export baked.py:found -o f.onnx --input x=1,3,height=8:16:64,width=8:16:64 -q",),
        (r"output\s+\S+\s+\(\D",),
        (r"output\s+\S+\s+\(100",),
    ),
    7: Defect(
        "hints named a package that is not published",
        ('grep -rnE --include=*.py --include=*.md "install .?trtconv" "$CODE/trtconv" "$CODE/docs" "$CODE/README.md"',),
        ("exit 1",),
    ),
    8: Defect("dims as text raised AttributeError", ("python text.py",), ("taken",), ("AttributeError",)),
    9: Defect(
        "the page told of the wrong comparison",
        (
            f"trtconv build models/unet.onnx {_D} -o u.engine -q",
            "trtconv verify models/unet.onnx u.engine --format json -q > u.engine.verify.json",
            "trtconv report u.engine -o u.html && sed 's/<[^>]*>/ /g' u.html | grep -iE 'parsed|as rewritten'",
        ),
        ("parsed",),
        ("as rewritten beside the original",),
    ),
    10: Defect(
        "what the builder refuses stood at the graph",
        ("trtconv build nms.onnx --dim n=8 -q",),
        (r"node\[80\] NonMaxSuppression \"/head/Nms\"\n  error TC",),
        (r"onnx: graph\n",),
    ),
    11: Defect(
        "make wheel replaced the plain install",
        ('make -n -C "$CODE" wheel | grep -E "install|build"',),
        ("venv-wheel",),
    ),
    12: Defect(
        "several models: no proof, no reason for a build",
        (
            "cd many && trtconv build -q",
            "cd many && sed -i 's/128/96/' trtconv.toml && trtconv build",
        ),
        ("proven", "built again", r"\[\d/2\]"),
    ),
    13: Defect(
        "Progress stood nowhere, hints in Python named flags, pages imported from the inside",
        (
            'grep -c "def stage" "$CODE/docs/python.md"',
            'grep -rn "from trtconv.core" "$CODE/docs/running.md" "$CODE/docs/python.md" || echo "public names alone"',
            "python text.py",
        ),
        (r"^1\n", "public names alone", 'dims={"height"'),
        ("--dim",),
    ),
    14: Defect(
        "the help was of 207 lines",
        ("trtconv build --help | wc -l | sed 's/$/ lines/'", "trtconv build --help | head -60"),
        (r"^\s*[1-6]?\d lines", "MODEL"),
    ),
    15: Defect(
        "slips of the pen got no proposal",
        (
            "trtconv build models/unet.onnx --dim batch 1",
            "trtconv build models/unet.onnx --dim heigth=64 -q",
            "trtconv build models/unet.onnx --precision half -q",
            "trtconv build models/unet.onnx --target trt10 -q",
        ),
        ("batch=1", "Did you mean height", "fp16", "tensorrt-10"),
        ("goes behind -o",),
    ),
}


def judged(defect: Defect, code: Path, folder: Path) -> dict[str, Any]:
    """Runs the commands of a defect with a checkout's code; returns what was said, and whether it is gone."""
    said = []
    for command in defect.commands:
        ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=_words(code, folder),
            capture_output=True, text=True, timeout=600)  # fmt: skip
        text = f"{ended.stdout}{ended.stderr}".replace(str(code), "CODE").replace(str(folder), ".")
        said.append(f"{text}exit {ended.returncode}")
    every = "\n".join(said)
    missing = [each for each in defect.wanted if not re.search(each, every, re.MULTILINE)]
    there = [each for each in defect.unwanted if re.search(each, every, re.MULTILINE)]
    return {"gone": not missing and not there, "lacks": missing, "says": there, "said": [_ends(each) for each in said]}


def _ends(text: str) -> str:
    """Returns what was said without the middle of what is long."""
    return text if len(text) <= 1200 else f"{text[:600]}\n...\n{text[-600:]}"


def _words(code: Path, folder: Path) -> dict[str, str]:
    """Returns an environment in which `trtconv` and `python` are those of the code."""
    own = folder / "bin"
    own.mkdir(exist_ok=True)
    for name, words in (("trtconv", "-m trtconv"), ("python", "")):
        (own / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (own / name).chmod(0o755)
    return {**os.environ, "PATH": f"{own}:{os.environ['PATH']}", "PYTHONPATH": str(code), "CODE": str(code)}


def main() -> int:
    """Prints a line for each defect; returns 1 where one is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int)
    parser.add_argument("--code", type=Path, default=ROOT, help="a checkout; this one unless given")
    parser.add_argument("--name", default="today", help="what the code is called in the file")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    output = args.output
    rows: dict[str, Any] = json.loads(output.read_text()) if output and output.exists() else {}
    all_gone = True
    for number, defect in DEFECTS.items():
        if args.only not in (None, number):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            shutil.copytree(ROOT / "models", folder / "models")
            for name, text in _FILES.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text)
            for script in ("baked.py", "nms.py"):
                subprocess.run([sys.executable, script], cwd=folder, check=True, capture_output=True)
            found = judged(defect, args.code.resolve(), folder)
        all_gone &= found["gone"]
        row = rows.setdefault(str(number), {"defect": defect.title, "commands": defect.commands})
        row["commands"], row[args.name] = defect.commands, found
        sys.stdout.write(
            f"{number:2} {'gone' if found['gone'] else 'THERE'}  {defect.title} {found['lacks']} {found['says']}\n"
        )
        sys.stdout.flush()
        if output:
            output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all_gone else 1


if __name__ == "__main__":
    sys.exit(main())
