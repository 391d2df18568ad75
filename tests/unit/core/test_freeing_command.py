"""The command that exports a model again, with sizes that vary."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.core.bounds import bounds_by_name
from trtconv.core.dims import InputSpec, Range
from trtconv.core.errors import InputError
from trtconv.core.export_command import freeing_command

IMAGE = InputSpec("x", "float", (1, 3, 256, 320))
TOKENS = InputSpec("ids", "int64", (1, 16))
WIDE = "256:320:640"
BATCHES = InputSpec("x", "float", ("batch", 3, 256, 320))


@pytest.mark.parametrize(
    ("inputs", "wanted", "said"),
    [
        ([IMAGE], {"batch": "1:1:4", "h": "128:256:512"}, ["x=batch=1:1:4,3,h=128:256:512,320"]),
        ([IMAGE], {"batch": "1:2:4", "h": "128:192:512"}, ["x=batch=1:2:4,3,h=128:192:512,320"]),
        # The one that is tuned for the size, though another could be it.
        ([IMAGE], {"w": "128:320:512"}, ["x=1,3,256,w=128:320:512"]),
        ([IMAGE], {"x:3": "64:128:512"}, ["x=1,3,256,x_3=64:128:512"]),
        # Axes first: what is left is for the names.
        ([IMAGE], {"h": "64:100:512", "x:2": "64:128:512"}, ["x=1,3,x_2=64:128:512,h=64:100:512"]),
        ([IMAGE, TOKENS], {"length": "4:16:64"}, ["x=1,3,256,320", "ids=1,length=4:16:64:int64"]),
        ([BATCHES], {"batch": "1:1:4", "h": "64:256:512"}, ["x=batch=1:1:4,3,h=64:256:512,320"]),
        # Beside axes that vary, a fixed one of another size may be channels.
        ([BATCHES], {"size": "64:128:512"}, None),
        # What a size is called says more than which axis has the size that it is tuned for.
        ([BATCHES], {"h": "64:128:512"}, ["x=batch,3,h=64:128:512,320"]),
        ([IMAGE], {"height": "256:320:640", "width": "256:320:640"}, [f"x=1,3,height={WIDE},width={WIDE}"]),
        ([IMAGE], {"width": "256:320:640", "height": "256:320:640"}, [f"x=1,3,height={WIDE},width={WIDE}"]),
        ([IMAGE], {"H": "256:320:640", "W": "256:256:640"}, [f"x=1,3,H={WIDE},W=256:256:640"]),
        ([TOKENS], {"Batch": "1:2:4"}, ["ids=Batch=1:2:4,16:int64"]),
        # A size that two are tuned for tells nothing: they are taken in their order.
        ([IMAGE], {"a": "256:320:640", "b": "256:320:640"}, [f"x=1,3,a={WIDE},b={WIDE}"]),
        ([IMAGE], {"h": "512:600:700"}, None),
        # Nothing would vary.
        ([IMAGE], {"h": "256:256:256"}, None),
    ],
)
def test_what_was_asked_for_is_in_it(
    inputs: list[InputSpec], wanted: Mapping[str, str], said: list[str] | None
) -> None:
    command = freeing_command(inputs, {name: Range.parse(text) for name, text in wanted.items()})
    if said is None:
        assert command is None
        return
    assert command is not None
    words = shlex.split(command)
    assert words[:2] == ["trtconv", "export"]
    assert [words[place + 1] for place, word in enumerate(words) if word == "--input"] == said


@pytest.mark.parametrize("wanted", [{"height": "64:256:512"}, {"x:2": "64:256:512"}])
def test_a_fixed_size_has_a_way_out(wanted: Mapping[str, str]) -> None:
    with pytest.raises(InputError) as refused:
        bounds_by_name([IMAGE], {name: Range.parse(text) for name, text in wanted.items()})
    assert "trtconv export FILE.py:NETWORK" in refused.value.hint and "=64:256:512" in refused.value.hint


def test_a_slip_of_the_pen_is_no_fixed_size() -> None:
    with pytest.raises(InputError) as refused:
        bounds_by_name([BATCHES], {"bacth": Range(1, 1, 4)})
    assert "Did you mean batch?" in refused.value.hint and "export" not in refused.value.hint


@pytest.mark.parametrize(
    ("dims", "asked", "said"),
    [
        ((1, 3, "s99", "s4"), ("height", "width"), "--dim s99=256:320:640 --dim s4=256:320:640"),
        (("n", 3, "s99", "s4"), ("width", "n"), "--dim s4=256:320:640 --dim n=256:320:640"),
        # Not known to be meant: another word, and a size that is on no axis of its own.
        ((1, 3, "s99", "s4"), ("height", "depth"), None),
        ((1, 3, "s", "s"), ("height", "width"), None),
    ],
)
def test_names_that_an_exporter_made_up_are_told(
    dims: tuple[int | str, ...], asked: Sequence[str], said: str | None
) -> None:
    with pytest.raises(InputError) as refused:
        bounds_by_name([InputSpec("x", "float", dims)], {name: Range.parse(WIDE) for name in asked})
    assert (said in refused.value.hint) if said else "--dim s" not in refused.value.hint


@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=5),
    st.dictionaries(st.sampled_from("abcde"), st.tuples(*[st.integers(1, 64)] * 3).map(sorted), min_size=1),
)
def test_every_bound_has_one_axis_of_its_own(sizes: list[int], wanted: Mapping[str, list[int]]) -> None:
    ranges = {name: Range(*bounds) for name, bounds in wanted.items()}
    command = freeing_command([InputSpec("x", "float", tuple(sizes))], ranges)
    if command is None:
        return
    axes = shlex.split(command)[-1].partition("=")[2].split(",")
    assert len(axes) == len(sizes)
    for size, axis in zip(sizes, axes, strict=True):
        name, equals, bounds = axis.partition("=")
        assert (
            str(ranges[name]) == bounds and ranges[name].min <= size <= ranges[name].max
            if equals
            else axis == str(size)
        )
    named = [axis.partition("=")[0] for axis in axes if "=" in axis]
    assert len(named) == len(set(named))
    # One that is fixed at the axis' own size is left out.
    assert {name for name, bound in ranges.items() if bound.min != bound.max} <= set(named)
