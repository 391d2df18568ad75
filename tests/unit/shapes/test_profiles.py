"""Profiles on the size lattice: findings, rounding, splitting, and choosing one when the engine runs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.paths import MODELS
from support.sizes import parse
from trtconv.core.bounds import make_profile
from trtconv.core.dim_flags import parse_dims, parse_profile, parse_values
from trtconv.core.dims import InputRange, InputSpec, Range, dynamic_dims
from trtconv.core.documents.saved import load_report
from trtconv.core.encode import plain
from trtconv.core.errors import InputError
from trtconv.core.findings import Location, Severity
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.profiles import Sized, settle
from trtconv.rules.baked_sizes import BakedReshape
from trtconv.shapes.profiles import narrower

POSITIONS = ",".join(map(str, range(16)))
TOKENS = f"""g (float[1,h,w] x, float[n] k) => (float[1,16] y, float[n] m)
    <int64[2] s = {{1,-1}}, float[1,16] p = {{{POSITIONS}}}>
    {{ t = Reshape (x, s) y = Add (t, p) m = Relu (k) }}"""
"""Positions of 16 tokens, which height times width has to be."""
UNET = OnnxModel.load(MODELS / "unet.onnx")
SQUARE = "g (float[1,h,w] x) => (float[1,a,b] y) { t = Transpose <perm = [0,2,1]> (x) y = Add (x, t) }"


def sized(model: OnnxModel, *dims: str, **options: object) -> Sized:
    return settle(model, [make_profile(model.inputs, parse_dims(dims))], **options)  # type: ignore[arg-type]


class TestFindings:
    def test_off_the_lattice(self) -> None:
        model = OnnxModel.load(MODELS / "super_resolution.onnx")
        done = sized(model, "batch=1", "height=200:300:400", "width=200:304:400")
        assert [f.code for f in done.findings] == ["TC201"]
        message, fix = done.findings[0].message, done.findings[0].fix
        assert "multiples of 8" in message
        assert done.findings[0].location.op == "Add"
        assert "296 and 304" in fix
        assert "use --dim height=200:296:400 or --dim height=200:304:400, or add --round" in fix

    def test_baked_sizes_are_harmless_where_all_sizes_that_were_asked_for_are_accepted(self) -> None:
        baked = BakedReshape().finding("keeps the sizes of the example", Location())
        (harmless,) = sized(UNET, "batch=1:2:4", "height=64", "width=128").milder([baked])
        assert (harmless.severity, harmless.message) == (Severity.INFO, baked.message)
        assert sized(UNET, "batch=1", "height=64", "width=64:128:256").milder([baked]) == (baked,)

    def test_each_dimension_has_its_own_evidence(self) -> None:
        done = sized(UNET, "batch=1", "height=64:100:128", "width=64:100:128")
        assert ["axis 2" in f.message for f in done.findings] == [True, False]

    def test_tied(self) -> None:
        done = sized(parse(SQUARE), "h=8:16:32", "w=8:24:32")
        assert [f.code for f in done.findings] == ["TC202"]
        assert "h == w" in done.findings[0].message
        assert "--round" in done.findings[0].fix

    def test_ends_that_never_go_together_have_one_size(self) -> None:
        model = parse(TOKENS)
        done = sized(model, "h=2:4:8", "w=2:4:8", "n=1:2:3")
        assert done.findings
        assert all("use one size, --dim h=4 --dim w=4," in f.fix for f in done.findings)
        assert not sized(model, "h=4", "w=4", "n=1:2:3").findings
        rounded = sized(model, "h=2:4:8", "w=2:4:8", "n=1:2:3", rounded=True)
        (profile,) = rounded.profiles
        assert not rounded.findings
        assert (profile.dims["h"], profile.dims["n"]) == (Range(4, 4, 4), Range(1, 2, 3))
        assert any(note.startswith("h=2:4:8 rounded to 4") for note in rounded.notes)

    def test_no_size_alone_is_named_where_the_best_one_does_not_fit(self) -> None:
        done = sized(parse(TOKENS), "h=2:4:8", "w=2:5:8", "n=1:2:3")
        assert done.findings
        assert not any("use one size" in f.fix for f in done.findings)

    def test_ends_that_go_together_when_moved_keep_their_range(self) -> None:
        done = sized(parse(SQUARE), "h=8:16:32", "w=8:24:32", rounded=True)
        assert done.profiles[0].dims["h"].min < done.profiles[0].dims["h"].max
        off = sized(UNET, "batch=1", "height=65:128:257", "width=64:128:257")
        assert not any("use one size" in f.fix for f in off.findings)

    def test_no_valid_size(self) -> None:
        done = sized(UNET, "batch=1", "height=65:66:71", "width=64")
        assert [f.code for f in done.findings] == ["TC203"]
        assert "64 and 72" in done.findings[0].fix

    def test_one_size_is_said_once(self) -> None:
        done = sized(UNET, "batch=1", "height=100", "width=64")
        assert [f.code for f in done.findings] == ["TC203"] or [f.code for f in done.findings] == ["TC201"]
        done = sized(UNET, "batch=1", "height=100", "width=64:72:80")
        assert len(done.findings) == 1

    def test_static_shapes_are_left_to_the_parser(self) -> None:
        done = sized(parse("g (float[1,2] x, float[1,3] z) => (float[1,2] y) { y = Add (x, z) }"))
        assert [(f.code, f.severity.value) for f in done.findings] == [("TC203", "warning")]

    def test_nothing_wrong(self) -> None:
        done = sized(UNET, "batch=1:1:4", "height=64:256:512", "width=64:256:512")
        assert done.findings == ()
        assert done.lattice.dims["height"].step == 8


class TestRounding:
    def test_outwards(self) -> None:
        done = sized(UNET, "batch=1", "height=65:100:127", "width=64:64:64", rounded=True)
        assert done.findings == ()
        assert done.profiles[0].dims["height"] == Range(64, 104, 128)
        assert done.profiles[0].dims["width"] == Range(64, 64, 64)
        assert done.notes

    def test_tied_dimensions_move_together(self) -> None:
        done = sized(parse(SQUARE), "h=8:16:32", "w=8:24:32", rounded=True)
        assert done.findings == ()
        assert done.profiles[0].dims["h"] == done.profiles[0].dims["w"]

    def test_what_is_tied_to_a_fixed_dimension_follows_it(self) -> None:
        done = sized(parse(SQUARE), "h=16", "w=8:12:32", rounded=True)
        assert done.findings == ()
        # An Add takes a 1 beside anything.
        assert done.profiles[0].dims == {"h": Range(16, 16, 16), "w": Range(1, 16, 16)}

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(8, 500), min_size=6, max_size=6))
    def test_the_result_is_valid_and_covers_what_was_asked(self, sizes: list[int]) -> None:
        height, width = (":".join(map(str, sorted(part))) for part in (sizes[:3], sizes[3:]))
        done = sized(UNET, "batch=1", f"height={height}", f"width={width}", rounded=True)
        assert done.findings == ()
        if len(set(sizes[:3])) == 1:
            return  # fixed: at the next size above
        assert done.profiles[0].dims["height"].min <= min(sizes[:3])
        assert done.profiles[0].dims["height"].max >= max(sizes[:3])


class TestSplitting:
    def test_one_dimension(self) -> None:
        done = sized(UNET, "batch=1:2:4", "height=64:512:1024", "width=64", split="3")
        assert [p.dims["height"] for p in done.profiles] == [
            Range(64, 64, 104),
            Range(104, 184, 304),
            Range(304, 512, 1024),
        ]
        assert all(p.dims["batch"] == Range(1, 2, 4) and p.dims["width"] == Range(64, 64, 64) for p in done.profiles)
        assert "build time" in done.notes[0]

    def test_auto_halves_and_doubles_the_opt(self) -> None:
        done = sized(UNET, "batch=1", "height=64:256:1024", "width=64", split="auto")
        assert [p.dims["height"].opt for p in done.profiles] == [64, 128, 256, 512]
        done = sized(UNET, "batch=1", "height=64:1024", "width=64", split="auto")
        assert [p.dims["height"].opt for p in done.profiles] == [64, 128, 256, 512, 1024]
        done = sized(UNET, "batch=1", "height=80:320:1024", "width=64", split="auto")
        assert [p.dims["height"].opt for p in done.profiles] == [80, 160, 320, 640]

    def test_several_cover_every_combination(self) -> None:
        done = sized(UNET, "batch=1", "height=64:512:1024", "width=64:512:1024", split="auto")
        assert [p.dims["height"].max for p in done.profiles] == [88, 184, 360, 1024]
        assert [p.dims["height"].opt for p in done.profiles] == [64, 128, 256, 512]
        assert {p.dims["width"].min for p in done.profiles} == {64}

    def test_a_narrower_range_waits_at_its_end(self) -> None:
        done = sized(UNET, "batch=1", "height=256:256:512", "width=64:256:1024", split="auto")
        assert [p.dims["width"].opt for p in done.profiles] == [64, 128, 256, 512]
        assert [p.dims["height"] for p in done.profiles] == [Range(256, 256, 360)] * 3 + [Range(256, 512, 512)]

    def test_the_opt_is_among_those_of_the_profiles_in_every_range(self) -> None:
        asked = {"height": Range(64, 128, 1024), "width": Range(64, 512, 1024)}
        for split in ("auto", "2", "3", "5"):
            dims = [f"{name}={bound}" for name, bound in asked.items()]
            done = sized(UNET, "batch=1", *dims, split=split)
            assert any(all(p.dims[name].opt == b.opt for name, b in asked.items()) for p in done.profiles), split
        done = sized(UNET, "batch=1", "height=64:512:512", "width=64", split="3")
        assert [p.dims["height"].opt for p in done.profiles] == [64, 184, 512]

    def test_as_many_profiles_as_there_are_steps_and_no_more(self) -> None:
        for height, opts in (
            ("64:72:72", [72]),
            ("8:16:16", [16]),
            ("8:16:24", [8, 16]),
            ("8:24:24", [16, 24]),
            ("8:32:32", [8, 16, 32]),
            ("8:64:256", [8, 16, 32, 64, 128]),
        ):
            done = sized(UNET, "batch=1", f"height={height}", "width=64", split="auto")
            assert [p.dims["height"].opt for p in done.profiles] == opts, height

    def test_a_range_of_two_sizes_does_not_keep_the_others_whole(self) -> None:
        done = sized(UNET, "batch=1", "height=64:64:72", "width=64:256:1024", split="auto")
        assert [p.dims["width"].opt for p in done.profiles] == [64, 128, 256, 512]
        done = sized(UNET, "batch=1", "height=64:64:72", "width=64:256:1024", split="3")
        assert len(done.profiles) == 3

    def test_ties_of_several_to_several_leave_no_gap(self) -> None:
        model = parse(
            """g (float[1,1,h,8] x, float[1,1,w,8] z) => (float[1,2,a,b] y)
            { s = AveragePool <kernel_shape = [8,1], strides = [8,1]> (x)
              t = AveragePool <kernel_shape = [8,1], strides = [8,1]> (z)
              y = Concat <axis = 1> (s, t) }"""
        )
        for split in ("auto", "2", "4", "7"):
            done = sized(model, "h=59:110:134", "w=59:106:129", split=split)
            accepted = {(h, w) for h in range(59, 135) for w in range(59, 130) if h // 8 == w // 8}
            boxes = [(profile.dims["h"], profile.dims["w"]) for profile in done.profiles]
            assert {(getattr(h, end), getattr(w, end)) for h, w in boxes for end in ("min", "opt", "max")} <= accepted
            assert (110, 106) in {(h.opt, w.opt) for h, w in boxes}
            lost = [
                (a, b) for a, b in accepted if not any(h.min <= a <= h.max and w.min <= b <= w.max for h, w in boxes)
            ]
            assert lost == []

    def test_auto_makes_no_more_than_six(self) -> None:
        done = sized(UNET, "batch=1", "height=8:64:4096", "width=64", split="auto")
        assert len(done.profiles) == 6
        assert 64 in [p.dims["height"].opt for p in done.profiles]
        done = sized(UNET, "batch=1", "height=8:8:24", "width=64", split="auto")
        assert [p.dims["height"] for p in done.profiles] == [Range(8, 8, 16), Range(16, 16, 24)]

    def test_tied_dimensions_are_divided_together(self) -> None:
        done = sized(parse(SQUARE), "h=8:16:64", "w=8:16:64", split="2")
        assert [(p.dims["h"], p.dims["w"]) for p in done.profiles] == [
            (p.dims["h"], p.dims["h"]) for p in done.profiles
        ]
        assert done.profiles[0].dims["h"].max == done.profiles[1].dims["h"].min

    @pytest.mark.parametrize("split", ["auto", "2", "3", "5"])
    def test_every_bound_of_tied_dimensions_is_accepted(self, split: str) -> None:
        model = parse(
            """g (float[1,h,w] x) => (float[1,a,b] y)
            { t = Concat <axis = 1> (x, x) u = Transpose <perm = [0,2,1]> (t) y = Add (t, u) }"""
        )
        done = sized(model, "h=9:17:65", "w=18:34:130", split=split)
        assert len(done.profiles) == (2 if split == "auto" else int(split))
        for profile in done.profiles:
            h, w = profile.dims["h"], profile.dims["w"]
            assert (w.min, w.opt, w.max) == (2 * h.min, 2 * h.opt, 2 * h.max)
        assert 17 in [p.dims["h"].opt for p in done.profiles]

    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 60), st.integers(1, 120), st.integers(1, 8))
    def test_parts_meet_and_are_on_the_lattice(self, low: int, more: int, count: int) -> None:
        low, high = 8 * low, 8 * (low + more)
        try:
            done = sized(UNET, "batch=1", f"height={low}:{high}", "width=64", split=str(count))
        except InputError as error:
            assert more < count
            assert "finer" in error.message or "nothing to divide" in error.message
            return
        parts = [p.dims["height"] for p in done.profiles]
        assert len(parts) == count
        assert parts[0].min == low
        assert parts[-1].max == high
        assert all(a.max == b.min for a, b in itertools.pairwise(parts))
        assert all(n % 8 == 0 for p in parts for n in (p.min, p.opt, p.max))
        assert all(p.min < p.max for p in parts)

    @pytest.mark.parametrize(
        ("dims", "split", "message"),
        [
            (("batch=1", "height=64:64:80", "width=64"), "3", "finer than the sizes"),
            (("batch=1", "height=64", "width=64"), "2", "nothing to divide"),
        ],
    )
    def test_mistakes(self, dims: tuple[str, ...], split: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            sized(UNET, *dims, split=split)
        assert message in caught.value.message
        assert caught.value.hint

    @pytest.mark.parametrize(("high", "most"), [(64, 1), (72, 1), (80, 2), (128, 8)])
    def test_the_finest_split_is_named(self, high: int, most: int) -> None:
        dims = ("batch=1", f"height=64:64:{high}" if high > 64 else "height=64", f"width=64:64:{max(high, 72)}")
        with pytest.raises(InputError) as caught:
            sized(UNET, *dims, split="50")
        assert f"--split {most} " in caught.value.hint
        assert len(sized(UNET, *dims, split=str(most)).profiles) == most

    def test_several_profiles(self) -> None:
        profile = make_profile(UNET.inputs, parse_dims(["batch=1", "height=64:128", "width=64"]))
        with pytest.raises(InputError, match="2 are given"):
            settle(UNET, [profile, profile], split="2")

    def test_auto_leaves_a_narrow_range_whole(self) -> None:
        done = sized(UNET, "batch=1", "height=64:96:128", "width=64", split="auto")
        assert len(done.profiles) == 1


class TestExpressions:
    INPUTS = (InputSpec("x", "float", ("n", "8*s", "2*w + 1")), InputSpec("z", "float", ("n", "w")))

    def test_by_the_expression_or_its_symbol(self) -> None:
        one = make_profile(self.INPUTS, parse_dims(["n=1", "8*s=64:128:256", "w=3:4:5"]))
        two = make_profile(self.INPUTS, parse_dims(["n=1", "s=8:16:32", "x:2=7:9:11"]))
        assert one.to_json() == two.to_json()
        assert one.inputs["x"] == InputRange((1, 64, 7), (1, 128, 9), (1, 256, 11))

    @pytest.mark.parametrize(
        ("dims", "message", "hint"),
        [
            (["n=1", "8*s=100", "w=3"], "8*s cannot be 100", "96 and 104"),
            (["n=1", "8*s=64", "s=9", "w=3"], "means s=8:8:8, but s is given as 9:9:9", "alone"),
            (["n=1", "s=8"], "2 dynamic dimension(s) without bounds", "--dim w=MIN:OPT:MAX"),
            (["n=1", "s=8", "w=3", "2*w + 1=9"], "means w=4:4:4, but w is given", "alone"),
        ],
    )
    def test_mistakes(self, dims: list[str], message: str, hint: str) -> None:
        with pytest.raises(InputError) as caught:
            make_profile(self.INPUTS, parse_dims(dims))
        assert message in caught.value.message
        assert hint in caught.value.hint

    def test_names_that_look_like_arithmetic_stay_names(self) -> None:
        profile = make_profile(
            [InputSpec("x", "float", ("input-0-dim-1", "a.b"))], parse_dims(["input-0-dim-1=4", "a.b=2"])
        )
        assert profile.inputs["x"].max == (4, 2)


class TestValues:
    INPUTS = (InputSpec("x", "float", (4,)), InputSpec("size", "int64", (2,)), InputSpec("count", "int64", ()))

    def test_vectors_and_scalars(self) -> None:
        values = parse_values(["size=8x8:16x16:32x32", "count=3"])
        profile = make_profile(self.INPUTS, {}, values)
        assert profile.values == {"size": InputRange((8, 8), (16, 16), (32, 32)), "count": InputRange((3,), (3,), (3,))}
        assert profile.to_json()["size"]["values"]["max"] == [32, 32]

    @pytest.mark.parametrize(
        "item", ["size", "size=", "size=a", "size=1:2:3:4", "=4", "size=4:2:8", "size=1x2:3", "size=1.5"]
    )
    def test_nonsense(self, item: str) -> None:
        with pytest.raises(InputError) as caught:
            parse_values([item])
        assert caught.value.hint

    @pytest.mark.parametrize(
        ("item", "message"), [("x=4", "no shape or count"), ("y=4", "no input"), ("size=4", "has 1 element")]
    )
    def test_inputs_that_cannot(self, item: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            make_profile(self.INPUTS, {}, parse_values([item]))
        assert message in caught.value.message


HEAD = {
    "schema": 1,
    "model": {"path": "u.onnx", "sha256": "0"},
    "plan": {"target": "rtx-1.7"},
    "runtime": {"family": "rtx", "version": "1.7.1", "gpu": None},
}
"""What every report has besides what these tests are about."""


class TestSavedReport:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        done = sized(UNET, "batch=1:1:4", "height=64:512:1024", "width=64:512:1024", split="3")
        document = {
            **HEAD,
            "profiles": [p.to_json() for p in done.profiles],
            "dims": [{name: str(bound) for name, bound in p.dims.items()} for p in done.profiles],
            "lattice": plain(done.lattice.record()),
        }
        path = tmp_path / "u.engine.json"
        path.write_text(json.dumps(document))
        return path

    @pytest.mark.parametrize(
        "change",
        [
            lambda document: document["profiles"][1]["x"]["min"].append(1),
            lambda document: document["profiles"][0]["x"]["opt"].pop(),
            lambda document: document["profiles"][2].update(y=document["profiles"][2].pop("x")),
            lambda document: document.update(runtime={"family": "rtx"}),
            lambda document: document.update(engine={"sha256": "0"}),
        ],
    )
    def test_what_build_does_not_write_is_refused(self, path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))
        with pytest.raises(InputError, match=r"is not the report of a build: key '(profiles|runtime|engine)"):
            load_report(path)

    @pytest.mark.parametrize(
        ("shape", "index"),
        [
            ((1, 3, 64, 64), 0),
            ((1, 3, 104, 104), 0),
            ((1, 3, 136, 120), 1),
            ((1, 3, 200, 200), 1),
            ((1, 3, 256, 264), 1),
            ((4, 3, 1024, 1024), 2),
            ((1, 3, 64, 1024), 2),
        ],
    )
    def test_profile_for(self, path: Path, shape: tuple[int, ...], index: int) -> None:
        assert load_report(path).profile_for({"x": shape}) == index

    def test_every_valid_shape_has_a_profile(self, path: Path) -> None:
        report = load_report(path)
        for height in range(64, 1025, 96):
            for width in range(64, 1025, 96):
                index = report.profile_for({"x": (1, 3, height, width)})
                best = report.profiles[index].inputs["x"].opt
                assert abs(math.log(max(height, width) / best[2])) < 2.5

    @pytest.mark.parametrize(
        ("shapes", "message"),
        [
            ({"x": (1, 3, 32, 64)}, "no profile contains x 1x3x32x64"),
            ({"y": (1,)}, "no input 'y'"),
            ({"x": (1, 3, 64)}, "has 4 dimensions"),
        ],
    )
    def test_mistakes(self, path: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
        with pytest.raises(InputError) as caught:
            load_report(path).profile_for(shapes)
        assert message in caught.value.message
        assert caught.value.hint

    def test_padding(self, path: Path) -> None:
        report = load_report(path)
        assert (report.padded("height", 65), report.padded("height", 72), report.padded("batch", 3)) == (72, 72, 3)
        with pytest.raises(InputError, match="beyond what the engine takes"):
            report.padded("height", 1025)
        with pytest.raises(InputError, match="no dimension 'depth'"):
            report.padded("depth", 1)

    @pytest.mark.parametrize(
        ("model", "valid"),
        [(UNET, 512), (parse("g (float[n,3,height,8] x) => (float[n,3,height,8] y) { y = Relu (x) }"), 500)],
    )
    def test_padding_goes_into_a_profile(self, model: OnnxModel, valid: int, tmp_path: Path) -> None:
        base = parse_dims([f"{name}=8" for name in ("n", "batch", "width") if name in dynamic_dims(model.inputs)])
        made = [
            make_profile(model.inputs, {**base, **parse_profile(text)})
            for text in ("height=64:256", f"height={valid}:1024")
        ]
        done = settle(model, made)
        document = {
            **HEAD,
            "profiles": [p.to_json() for p in done.profiles],
            "dims": [{name: str(bound) for name, bound in p.dims.items()} for p in done.profiles],
            "lattice": plain(done.lattice.record()),
        }
        (tmp_path / "r.json").write_text(json.dumps(document))
        report = load_report(tmp_path / "r.json")
        assert [report.padded("height", n) for n in (1, 256, 257, 1024)] == [64, 256, valid, 1024]

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "profiles": [{"x": 1}], "dims": [{}]}']
    )
    def test_no_report(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "r.json"
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            load_report(path)
        assert str(path) in caught.value.message

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot be read"):
            load_report(tmp_path / "none.json")


class TestCoverage:
    DIMS = ("batch=1", "height=64:512", "width=64:512")

    def settled(self, *profiles: str, model: OnnxModel = UNET, dims: tuple[str, ...] = DIMS) -> Sized:
        base = parse_dims(dims)
        made = [make_profile(model.inputs, {**base, **parse_profile(text)}) for text in profiles]
        return settle(model, made, covered=base)

    @pytest.mark.parametrize(
        "profiles",
        [
            ("height=64:256", "height=256:512"),
            # No size between 256 and 264 is accepted.
            ("height=64:256", "height=264:512"),
            ("height=64:256,width=64:256", "height=64:512,width=64:512"),
            ("height=64:256,width=64:256", "height=256:512,width=64:256", "width=256:512"),
        ],
    )
    def test_covered(self, profiles: tuple[str, ...]) -> None:
        assert len(self.settled(*profiles).profiles) == len(profiles)

    @pytest.mark.parametrize(
        ("profiles", "message"),
        [
            (("height=64:256", "height=272:512"), "height 264, width 64"),
            (("height=64:256", "height=256:504"), "height 512, width 64"),
            (("height=72:256", "height=256:512"), "height 64, width 64"),
            (("height=64:256,width=64:256", "height=256:512,width=256:512"), "height 64, width 264"),
        ],
    )
    def test_gaps(self, profiles: tuple[str, ...], message: str) -> None:
        with pytest.raises(InputError) as caught:
            self.settled(*profiles)
        assert f"{message} is in none of the {len(profiles)}" in caught.value.message
        assert "--profile" in caught.value.hint

    def test_a_single_profile_has_to_cover_what_is_asked_too(self) -> None:
        with pytest.raises(InputError, match="none of the 1"):
            self.settled("height=64:256")

    def test_gaps_are_found_among_many_dimensions(self) -> None:
        names = "abcdefghijkl"
        model = parse(
            f"g (float[{','.join(names[:6])}] x, float[{','.join(names[6:])}] z) => (float[{','.join(names[:6])}] y)"
            " { y = Relu (x)  v = Relu (z) }"
        )
        wider = ",".join(f"{name}=1:{20 if name in 'cdef' else 16}" for name in names[2:])
        boxes = tuple(f"{box},{wider}" for box in ("a=1:8,b=1:8", "a=1:8,b=8:16", "a=8:16,b=1:8"))
        dims = tuple(f"{name}=1:16" for name in names)
        with pytest.raises(InputError, match="a 9, b 9"):
            self.settled(*boxes, model=model, dims=dims)
        assert len(self.settled(*boxes, f"a=8:16,b=8:16,{wider}", model=model, dims=dims).profiles) == 4

    def test_nothing_is_asked_of_a_dimension_that_only_profiles_bound(self) -> None:
        done = self.settled("height=64:128", "height=256:512", dims=("batch=1", "width=64:512"))
        assert len(done.profiles) == 2

    def test_tied_dimensions_need_no_mixed_profiles(self) -> None:
        model = parse(SQUARE)
        done = self.settled("h=8:16,w=8:16", "h=17:32,w=17:32", model=model, dims=("h=8:32", "w=8:32"))
        assert len(done.profiles) == 2

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.integers(8, 20), st.integers(8, 20)), min_size=2, max_size=4))
    def test_against_every_size(self, parts: list[tuple[int, int]]) -> None:
        texts = [f"height={8 * min(part)}:{8 * max(part)}" for part in parts]
        held = {n for part in parts for n in range(min(part), max(part) + 1)}
        try:
            self.settled(*texts, dims=("batch=1", "height=64:160", "width=64"))
        except InputError:
            assert held < set(range(8, 21))
        else:
            assert held == set(range(8, 21))


class TestNarrower:
    def test_two_dimensions(self) -> None:
        done = sized(UNET, "batch=1:1:4", "height=64:256:512", "width=64:128:512")
        tries = narrower(UNET.inputs, done.profiles, done.lattice)
        assert [each.flags for each in tries] == [
            "--dim height=256 --dim width=128",
            "--dim height=64:256:512 --dim width=128",
            "--dim height=256 --dim width=64:128:512",
            "--dim height=128:256:360 --dim width=96:128:256",
        ]
        assert all(p.dims["batch"] == Range(1, 1, 4) for each in tries for p in each.profiles)

    def test_one_dimension(self) -> None:
        done = sized(UNET, "batch=1", "height=64:256:512", "width=64")
        flags = [each.flags for each in narrower(UNET.inputs, done.profiles, done.lattice)]
        assert flags == [
            "--dim height=256",
            "--dim height=64:256:512 --split 2",
            "--dim height=64:256:512 --split 4",
            "--dim height=128:256:360",
        ]

    def test_one_dimension_in_several_profiles_is_never_one_wider_than_each(self) -> None:
        done = sized(UNET, "batch=1", "height=64:256:512", "width=64", split="2")
        assert len(done.profiles) == 2
        flags = [each.flags for each in narrower(UNET.inputs, done.profiles, done.lattice)]
        best = done.profiles[0].dims["height"].opt
        assert flags[0] == f"--dim height={best}"
        assert f"--dim height=64:{best}:512" not in flags

    def test_tied_dimensions_stay_together(self) -> None:
        model = parse(SQUARE)
        done = sized(model, "h=8:16:64", "w=8:16:64")
        tries = narrower(model.inputs, done.profiles, done.lattice)
        assert tries
        assert all(p.dims["h"] == p.dims["w"] for each in tries for p in each.profiles)

    def test_nothing_ranges(self) -> None:
        done = sized(UNET, "batch=1", "height=64", "width=64")
        assert narrower(UNET.inputs, done.profiles, done.lattice) == []
