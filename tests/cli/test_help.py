"""Help, version, the table of commands, and what starting costs."""

from __future__ import annotations

import importlib
import inspect
import json

import click
import pytest

import trtconv
from trtconv.cli.group import COMMANDS
from trtconv.cli.help import EVERYDAY, GROUPS, MANY

HEAVY = ("onnx", "torch", "tensorrt", "tensorrt_rtx", "numpy", "onnxruntime", "polygraphy", "onnx_graphsurgeon")

FLAGS = {
    "build": "-o --output --dim --input --profile --minShapes --optShapes --maxShapes --value --split --round --target "
    "--precision --prove --prove-time --report --format --no-rewrite --requantize --fail-on --force --config --jobs -q "
    "--rewrite-rules --substitute --extend --agree --no-mend --as --best-of --keep-tactics "
    "--error-on-timing-cache-miss --quiet "
    "-v --verbose --workspace --optimization-level --timing-cache --version-compatible --hardware-compatibility "
    "--strip-weights --exclude-lean-runtime --debug-tensor "
    "--max-aux-streams --share-profiles --refittable --weight-streaming --sparsity --tf32 --profiling-verbosity "
    "--compute-capability "
    "--io --inputIOFormats --outputIOFormats --direct-io --images --postprocess "
    "--cast-io --node-precision --tune --data --preprocess --error-budget --attention --metric --tolerance --page "
    "--sign --on --keys --insecure --store --reconnect --then --retries --job-timeout --sbatch --budget --follow-links "
    "--partition --leave --plugin --staticPlugins --dynamicPlugins --setPluginsToSerialize --reference --agree",
    "check": "--dim --input --profile --minShapes --optShapes --maxShapes --value --target --no-rewrite --requantize "
    "--rewrite-rules --substitute --extend --agree "
    "--prove --prove-time --format --fail-on --select --ignore --thorough --gpu-memory --config --jobs -q --quiet "
    "-v --verbose --partition --leave "
    "--budget --follow-links --plugin --staticPlugins --dynamicPlugins --reference --agree",
    "export": "-o --output --input --dynamic --dim --static --arg --weights --output-name --exporter --accept-branch "
    "--no-proof --no-check --trust --build --target --format --fail-on -q --quiet --time-limit --translate "
    "--split-branches --plugin --staticPlugins --dynamicPlugins --reference",
    "verify": "--dim --report --against --inputs --generator --seed --random --tolerance --cosine --mismatches "
    "--save-tensors --tensor "
    "--bisect --trust --key --extend --prove --prove-time --require-engine --self-check "
    "--time-limit --format -q --quiet --budget --follow-links "
    "--lean-runtime --plugin --staticPlugins --dynamicPlugins --reference",
    "bench": "--dim --shapes --vs --report --weights --warmup --seconds --duration --streams --contexts --beside "
    "--arrivals --no-copies --nvtx --plot --runtime-cache --trust --key "
    "--time-limit --format -q --quiet --lean-runtime --plugin --staticPlugins --dynamicPlugins",
    "inspect": "--report --no-times --weights --trust --key --time-limit --format -q --quiet --budget --follow-links "
    "--lean-runtime --plugin --staticPlugins --dynamicPlugins",
    "run": "-o --output --inputs --preprocess --engines --report --weights --trust --key --time-limit --format -q "
    "--quiet --lean-runtime --tensor --trace --plugin --staticPlugins --dynamicPlugins --reference",
    "refit": "-o --output --report --sign --prove --prove-time --extend --trust --key --time-limit --format -q --quiet "
    "--plugin --staticPlugins --dynamicPlugins --reference",
    "report": "-o --output --with --gpu --format -q --quiet --budget --follow-links",
    "diff": "--tolerance --format -q --quiet",
    "upgrade": "--from --to -o --output --dim --input --profile --minShapes --optShapes --maxShapes --value "
    "--precision --no-rewrite --requantize --target --fail-on --prove --prove-time --tolerance --slower --time-limit "
    "--format --config --jobs -q --quiet -v --verbose --budget --follow-links",
    "rewrite": "-o --output --only --skip --rewrite-rules --substitute --extend --requantize --target --format -q "
    "--quiet --budget --follow-links",
    "quantize": "-o --output --data --cache --random --preprocess --samples --held-out --method --percentile --float "
    "--attention --budget --error-budget --metric --tolerance --kind --seed --no-cache --dim --target --format -q "
    "--quiet --resources --follow-links",
    "reduce": "-o --output --dim --input --profile --minShapes --optShapes --maxShapes --value --precision "
    "--no-rewrite --requantize --target --trials --timeout --format -q --quiet --budget --follow-links "
    "--plugin --staticPlugins --dynamicPlugins --reference --agree",
    "share": "-o --output --dim --input --profile --minShapes --optShapes --maxShapes --value --precision "
    "--no-rewrite --requantize --target --trials --timeout --format -q --quiet --budget --follow-links "
    "--plugin --staticPlugins --dynamicPlugins --reference --agree",
    "explain": "--target --format -q --quiet --budget --follow-links",
    "sizes": "--dim --input --format -q --quiet --budget --follow-links",
    "plan-profiles": "-o --output --dim --profiles --gpu-memory --keep --measured --format -q --quiet --budget "
    "--follow-links",
    "plan": "--on --keys --insecure --store --reconnect --then --retries --job-timeout --sbatch --write --config "
    "--agree --format -q --quiet",
    "worker": "--keys --insecure --store --reconnect --gpu --extend --plugin --reference --name -q --quiet",
    "farm": "--keys --insecure --store --reconnect --prune --unused-days --most-gb --page --format -q --quiet",
    "run-job": "--gpu --extend --plugin --reference --format -q --quiet",
    "collect": "--agree --format --config --jobs -q --quiet -v --verbose",
    "triton": "--version --plugin --weights --force --format -q --quiet",
    "warm": "-o --output --dim --report --trust --key --time-limit --format -q --quiet "
    "--plugin --staticPlugins --dynamicPlugins",
    "init": "--force --format -q --quiet --budget --follow-links",
    "extension": "--format -q --quiet",
    "completion": "-q --quiet",
    "doctor": "--format -q --quiet",
    "passes": "--format -q --quiet",
    "rule": "--format -q --quiet",
}


def _command(name: str) -> click.Command:
    module = {entry: module for entry, module, _ in COMMANDS}[name]
    command: click.Command = importlib.import_module(module).command
    return command


def test_every_command_has_its_flags_pinned() -> None:
    assert list(FLAGS) == [name for name, _, _ in COMMANDS]


@pytest.mark.parametrize(("name", "module", "short_help"), COMMANDS)
def test_table_agrees_with_command(name: str, module: str, short_help: str) -> None:
    command = _command(name)
    assert command.name == name
    assert command.get_short_help_str(limit=200) == short_help
    assert inspect.cleandoc(command.help or "").splitlines()[0] == short_help


@pytest.mark.parametrize("name", FLAGS)
def test_command_takes_the_flags_of_the_contract(name: str) -> None:
    options = [p for p in _command(name).params if isinstance(p, click.Option)]
    flags, pinned = {flag for option in options for flag in option.opts}, set(FLAGS[name].split())
    assert not flags - pinned, f"name in FLAGS[{name!r}] of tests/cli/test_help.py: {sorted(flags - pinned)}"
    assert not pinned - flags, f"{name} has lost flags, which breaks whoever uses them: {sorted(pinned - flags)}"


@pytest.mark.parametrize("name", FLAGS)
def test_help_explains_every_flag_and_has_examples(call, name: str) -> None:
    ended = call(name, "--help-all")
    assert (ended.code, ended.err) == (0, "")
    # Where one page has all, scripts need not know that.
    assert name in EVERYDAY or ended.out == call(name, "--help").out
    for flag in FLAGS[name].split():
        assert flag in ended.out
    assert f"trtconv {name}" in ended.out
    assert "Examples:" in ended.out
    assert all(option.help for option in _command(name).params if isinstance(option, click.Option))
    assert ended.out.isascii()


@pytest.mark.parametrize("name", FLAGS)
def test_help_is_one_screen(call, name: str) -> None:
    ended = call(name, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert len(ended.out.splitlines()) <= 60
    command = _command(name)
    assert (name in EVERYDAY) == (len(command.params) + 1 > MANY), (
        f"EVERYDAY of trtconv/cli/help.py has the commands of more than {MANY} options, with those of most calls"
    )
    if name in EVERYDAY:
        assert len(EVERYDAY[name].split()) <= 10
        assert set(EVERYDAY[name].split()) <= {option.opts[-1] for option in command.params}
        assert all(flag in ended.out for flag in EVERYDAY[name].split())
        assert f"trtconv {name} --help-all" in ended.out
        assert ended.out.count("    trtconv ") >= 2 and "Exit status" in ended.out
        # Parentheses are not cut through.
        assert ended.out.count("(") == ended.out.count(")")


def test_every_option_of_a_long_page_is_in_a_group() -> None:
    grouped = {option for options in GROUPS.values() for option in options.split()}
    params = [param for name in EVERYDAY for param in _command(name).params if isinstance(param, click.Option)]
    options = {param.opts[-1] for param in params}
    assert not options - grouped, f"name in a group of GROUPS (trtconv/cli/help.py): {sorted(options - grouped)}"
    assert not grouped - options, f"no command has these, which GROUPS names: {sorted(grouped - options)}"


def test_group_help_lists_commands(call) -> None:
    ended = call("-h")
    assert (ended.code, ended.err) == (0, "")
    for name, _, short_help in COMMANDS:
        assert f"  {name} " in ended.out
        assert short_help in " ".join(ended.out.split())
    assert "Exit status:" in ended.out


def test_version(call) -> None:
    ended = call("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"trtconv {trtconv.__version__}\n", "")


_LOADED = """
import json, sys
{action}
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""


def _modules_after(spawn, action: str) -> set[str]:
    _, err = spawn(_LOADED.format(action=action)).communicate(timeout=60)
    return set(json.loads(err))


@pytest.mark.parametrize(
    "action",
    [
        "import trtconv",
        "from trtconv.cli import main; main(['--help'])",
        "from trtconv.cli import main; main(['--version'])",
        *(f"from trtconv.cli import main; main([{name!r}, '--help'])" for name in FLAGS),
    ],
)
def test_starting_loads_nothing_heavy(spawn, action: str) -> None:
    assert not _modules_after(spawn, action) & set(HEAVY)


def test_help_and_version_load_no_command_and_no_core(spawn) -> None:
    for flag in ("--help", "--version"):
        loaded = _modules_after(spawn, f"from trtconv.cli import main; main([{flag!r}])")
        ours = {name for name in loaded if name.startswith("trtconv")}
        small = {
            "trtconv",
            "trtconv.core",
            "trtconv.core.version",
            "trtconv.core.errors",
            "trtconv.core.text",
            "trtconv.cli",
        }
        small |= {"trtconv.cli.group", "trtconv.cli.process"}
        process = ("ahead", "boundary", "command", "outcome", "signals", "status")
        assert ours == small | {f"trtconv.cli.process.{name}" for name in process}


def test_import_loads_only_the_package(spawn) -> None:
    loaded = _modules_after(spawn, "import trtconv")
    ours = {name for name in loaded if name.startswith("trtconv")}
    assert ours == {"trtconv", "trtconv.core", "trtconv.core.version"}
    assert "click" not in loaded


def test_public_names_resolve() -> None:
    homes = {name for names in trtconv._HOMES.values() for name in names}
    assert homes | {"__version__"} == set(trtconv.__all__)
    for module, names in trtconv._HOMES.items():
        for name in names:
            assert getattr(trtconv, name) is getattr(importlib.import_module(module), name)
    assert set(trtconv.__all__) <= set(dir(trtconv))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trtconv.nothing


def test_unknown_command_suggests(call) -> None:
    ended = call("biuld")
    assert ended.code == 2
    assert ended.out == ""
    assert "Did you mean build?" in ended.err


def test_no_command_is_a_usage_error(call) -> None:
    ended = call()
    assert (ended.code, ended.out) == (2, "")
    assert "Missing command" in ended.err
