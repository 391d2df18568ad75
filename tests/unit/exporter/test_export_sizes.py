"""Sizes found by trying a module."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from support import export_nets as nets  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.torch_module import prepare  # noqa: E402
from trtconv.exporter.request import plan_axes  # noqa: E402
from trtconv.exporter.sizing import trials as sizing_trials  # noqa: E402
from trtconv.exporter.sizing.sizes import find_rules, joint_failure, output_dims  # noqa: E402
from trtconv.exporter.sizing.trials import Trials  # noqa: E402

ALL = ("batch", None, "height", "width")


def _trials(module, shape, dims=None, axes=ALL):
    inputs = (InputDecl("x", shape),)
    subject = prepare(module.eval(), inputs, (), None)
    return Trials(subject, plan_axes(inputs, {"x": axes}, dims or {}))


def _rules(module, shape, dims=None):
    return {rule.name: rule for rule in find_rules(_trials(module, shape, dims))}


def test_multiples() -> None:
    rules = _rules(nets.Skip(), (1, 3, 32, 32), {"height": Range(15, 32, 70)})
    assert (rules["batch"].step, rules["batch"].min) == (1, 1)
    height = rules["height"]
    assert (height.step, height.offset, height.min, height.max) == (2, 0, 16, 70)
    assert (rules["width"].step, rules["width"].min, rules["width"].max) == (2, 2, None)
    assert height.blame is not None
    assert height.blame.code == "return torch.cat([self.up(self.down(x)), x], dim=1)"
    assert height.blame.file.endswith("export_nets.py")


def test_the_line_that_asks_for_the_whole_multiple_is_named() -> None:
    class Two(torch.nn.Module):
        def forward(self, x):
            y = x.reshape(x.shape[0], 3, x.shape[2] // 2 * 2, x.shape[3])
            return y.reshape(x.shape[0], 3, x.shape[2] // 4 * 4, x.shape[3])

    rule = _rules(Two(), (1, 3, 36, 8))["height"]
    assert rule.step == 4
    assert "// 4 * 4" in rule.blame.code


def test_odd_sizes() -> None:
    rule = _rules(nets.Odd(), (1, 3, 33, 33))["height"]
    assert (rule.step, rule.offset, rule.min) == (2, 1, 3)


def test_sizes_of_several_remainders() -> None:
    rule = _rules(nets.Padded(), (1, 1, 32, 32))["height"]
    assert (rule.step, rule.offset, rule.offsets) == (4, 0, (3,))
    assert "must leave a remainder of 0 or 3 when divided by 4" in rule.sentence()
    assert list(rule.sizes(31, 40)) == [31, 32, 35, 36, 39, 40]


def test_equal_sizes() -> None:
    rules = _rules(nets.Square(), (1, 3, 32, 32), {"height": Range(16, 32, 64)})
    assert (rules["height"].tied, rules["width"].tied) == ("width", "height")
    assert (rules["height"].min, rules["height"].max) == (16, 64)


def test_an_upper_limit() -> None:
    rule = _rules(nets.Limited(), (1, 3, 32, 32), {"height": Range(16, 32, 64)})["height"]
    assert (rule.step, rule.min, rule.max) == (1, 16, 48)
    assert rule.narrowed is not None
    assert _rules(nets.Limited(), (1, 3, 41, 41))["width"].max == 48


def test_one_size_only() -> None:
    rules = _rules(nets.Fixed(), (2, 3, 32, 32))
    assert rules["height"].baked
    assert rules["width"].baked
    assert rules["batch"].step == 1
    assert "32 * 32" in rules["height"].blame.code


def test_a_size_of_one_that_broadcasts_is_not_valid() -> None:
    class Added(torch.nn.Module):
        def forward(self, x):
            return x + torch.zeros(1, 3, 32, 32, device=x.device)

    assert _rules(Added(), (1, 3, 32, 32))["height"].baked


def test_output_names() -> None:
    trials = _trials(nets.Skip(), (1, 3, 32, 32))
    assert output_dims(trials, find_rules(trials), ["y"]) == (("batch", 6, "height", "width"),)

    class Shuffled(torch.nn.Module):
        def forward(self, x):
            return (
                torch.nn.functional.pixel_shuffle(x, 2),
                x[:, :, ::2, 1:],
                x.flatten(1),
                torch.nn.functional.max_pool2d(x, 2),
            )

    trials = _trials(Shuffled(), (1, 4, 8, 8))
    assert output_dims(trials, find_rules(trials), ["a", "b", "c", "d"]) == (
        ("batch", 1, "2*height", "2*width"),
        ("batch", 4, "b_2", "width - 1"),
        ("batch", "c_1"),
        ("batch", 4, "d_2", "d_3"),
    )


def test_dimensions_that_are_refused_together() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x):
            return x.reshape(-1, 4)[: x.shape[2] * 0 + 2] if x.shape[2] + x.shape[3] < 50 else x.reshape(-1, 7)

    trials = _trials(Sum(), (1, 4, 20, 20))
    assert joint_failure(trials, find_rules(trials)) is not None


def test_the_module_is_left_as_it_was() -> None:
    class Caching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, 1, 1))
            self.cache = {}
            self.plain = torch.ones(3, 1, 1)

        def forward(self, x):
            self.last = x * self.weight + self.plain
            self.cache[x.shape] = self.last
            return self.last

    module = Caching()
    trials = _trials(module, (1, 3, 8, 8))
    find_rules(trials)
    assert trials.meta
    assert not hasattr(module, "last")
    assert not module.cache
    assert module.weight.device.type == "cpu"


def test_a_module_that_needs_values_is_tried_in_eager() -> None:
    class Reads(torch.nn.Module):
        def forward(self, x):
            scale = float(x.abs().max())
            return x.reshape(x.shape[0], 3, x.shape[2] // 2, -1) * scale

    trials = _trials(Reads(), (1, 3, 8, 7), axes=(None, None, "height", None))
    assert not trials.meta
    assert find_rules(trials)[0].step == 2


def test_large_weights_are_not_read_for_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(torch.nn.Linear):
        runs = 0

        def forward(self, x):
            Counts.runs += not x.is_meta
            return super().forward(x)

    monkeypatch.setattr(sizing_trials, "_HEAVY", 90)
    for width, runs in ((4, 2), (5, 1)):  # the first is that of the example, before all trials
        Counts.runs = 0
        trials = _trials(Counts(width, 5, bias=False), (2, width), axes=("n", None))
        assert (Counts.runs, trials.meta) == (runs, True)


def test_fake_quantised_modules_are_tried_without_values() -> None:
    trials = _trials(nets.FakeQuantized(), (1, 6, 8, 8))
    assert trials.meta
    assert trials.subject.fake_quantized
    assert not trials.subject.symbolic


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_torchscript_is_tried_too() -> None:
    trials = _trials(torch.jit.script(nets.Skip()), (1, 3, 16, 16))
    assert trials.meta
    rule = find_rules(trials)[1]
    assert rule.step == 2
    assert "torch.cat" in rule.blame.code
