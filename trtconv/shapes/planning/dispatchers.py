"""Code that picks the profile of a request and pads it, in Python and in C++, without anything of trtconv."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trtconv.core.dims import InputSpec
from trtconv.core.documents.traffic import PlannedRun

_PYTHON = '''"""Which optimization profile takes a request, and what it is padded to. From trtconv plan-profiles."""

MODEL = {model}
DIMS = {dims}
KEPT = {kept}  # never padded
AXES = {axes}
# Profile, sizes in the order of DIMS, shapes of the inputs; the cheapest first.
RUNS = (
{runs}
)


def choose(sizes):
    """Returns the profile, the padded sizes and the shapes of the inputs for {{dimension: size}}.

    Raises:
        ValueError: No profile is large enough.
    """
    wanted = [sizes[name] for name in DIMS]
    for profile, run, shapes in RUNS:
        if all(n == m if name in KEPT else n <= m for name, n, m in zip(DIMS, wanted, run)):
            return profile, dict(zip(DIMS, run)), shapes
    raise ValueError("no profile takes " + ", ".join(f"{{name}} {{size}}" for name, size in zip(DIMS, wanted)))


def sizes_of(inputs):
    """Returns {{dimension: size}} of {{input: array}}."""
    return {{
        dim: inputs[name].shape[axis]
        for name, dims in AXES.items()
        for axis, dim in enumerate(dims)
        if isinstance(dim, str)
    }}


def pad(inputs):
    """Returns the profile, and {{input: array}} with zeros behind the values, as large as the run that is chosen."""
    import numpy as np

    profile, _, shapes = choose(sizes_of(inputs))
    padded = {{}}
    for name, array in inputs.items():
        padded[name] = np.zeros(shapes[name], array.dtype)
        padded[name][tuple(slice(size) for size in array.shape)] = array
    return profile, padded
'''

_CPP = """// Which optimization profile takes a request, and what it is padded to. From trtconv plan-profiles; C++17.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trtconv_dispatch {{

constexpr std::size_t dim_count = {dim_count}, input_count = {input_count}, run_count = {run_count};
constexpr std::array<const char*, dim_count> dims{{{{{dims}}}}};
constexpr std::array<bool, dim_count> kept{{{{{kept}}}}};  // never padded
constexpr std::array<const char*, input_count> inputs{{{{{inputs}}}}};
constexpr std::array<std::size_t, input_count> ranks{{{{{ranks}}}}};

struct Run {{
  std::int32_t profile;
  std::array<std::int64_t, dim_count> sizes;  // in the order of dims
  std::array<std::array<std::int64_t, {most_axes}>, input_count> shapes;  // in the order of inputs, by their ranks
}};

// The cheapest first.
constexpr std::array<Run, run_count> runs{{{{
{runs}
}}}};

// Returns what a request of these sizes, in the order of dims, runs at; nullptr where no profile is large enough.
inline const Run* choose(const std::array<std::int64_t, dim_count>& sizes) {{
  for (const Run& run : runs) {{
    bool fits = true;
    for (std::size_t i = 0; i < dim_count; ++i)
      fits = fits && (kept[i] ? sizes[i] == run.sizes[i] : sizes[i] <= run.sizes[i]);
    if (fits) return &run;
  }}
  return nullptr;
}}

inline std::vector<std::int64_t> shape_of(const Run& run, std::size_t input) {{
  return {{run.shapes[input].begin(), run.shapes[input].begin() + static_cast<std::ptrdiff_t>(ranks[input])}};
}}

// Copies a dense tensor into a larger one, with zeros behind its values. Both shapes have the same number of axes.
template <class T>
void pad(const T* from, const std::vector<std::int64_t>& shape, T* to, const std::vector<std::int64_t>& padded) {{
  std::int64_t rows = 1, total = 1;
  const std::size_t last = shape.empty() ? 0 : shape.size() - 1;
  for (std::size_t i = 0; i < last; ++i) rows *= shape[i];
  for (std::int64_t size : padded) total *= size;
  std::fill(to, to + total, T{{}});
  const std::int64_t row = shape.empty() ? 1 : shape[last];
  for (std::int64_t number = 0; number < rows; ++number) {{
    std::int64_t rest = number, offset = 0, step = padded.empty() ? 1 : padded[last];
    for (std::size_t i = last; i-- > 0;) {{
      offset += rest % shape[i] * step;
      rest /= shape[i];
      step *= padded[i];
    }}
    std::copy(from + number * row, from + (number + 1) * row, to + offset);
  }}
}}

}}  // namespace trtconv_dispatch
"""


def python_dispatcher(
    model: str, inputs: Sequence[InputSpec], dims: Sequence[str], fixed: Collection[str], runs: Sequence[PlannedRun]
) -> str:
    """Returns a module with `choose`, `sizes_of` and `pad`.

    Args:
        model: Name of the model.
        inputs: Its inputs.
        dims: Its free dimensions.
        fixed: Those that are never padded.
        runs: Sizes at which requests run, the cheapest first.
    """
    free = set(dims)
    axes = {spec.name: tuple(d if isinstance(d, int) or d in free else 0 for d in spec.dims) for spec in inputs}
    lines = [f"    ({run.profile}, {tuple(run.sizes[n] for n in dims)!r}, {dict(run.shapes)!a})," for run in runs]
    return _PYTHON.format(
        model=ascii(model),
        dims=ascii(tuple(dims)),
        kept=ascii(tuple(name for name in dims if name in fixed)),
        axes=ascii(axes),
        runs="\n".join(lines),
    )


def cpp_dispatcher(
    inputs: Sequence[InputSpec], dims: Sequence[str], fixed: Collection[str], runs: Sequence[PlannedRun]
) -> str:
    """Returns a header with `choose`, `shape_of` and `pad`; as `python_dispatcher`."""
    most = max(1, *(len(spec.dims) for spec in inputs))
    lines = []
    for run in runs:
        sizes = ", ".join(str(run.sizes[name]) for name in dims)
        shapes = ", ".join("{{" + ", ".join(map(str, run.shapes[spec.name])) + "}}" for spec in inputs)
        lines.append(f"    Run{{{run.profile}, {{{{{sizes}}}}}, {{{{{shapes}}}}}}},")
    return _CPP.format(
        dim_count=len(dims),
        input_count=len(inputs),
        run_count=len(runs),
        dims=", ".join(map(_literal, dims)),
        kept=", ".join("true" if name in fixed else "false" for name in dims),
        inputs=", ".join(_literal(spec.name) for spec in inputs),
        ranks=", ".join(str(len(spec.dims)) for spec in inputs),
        most_axes=most,
        runs="\n".join(lines),
    )


def _literal(text: str) -> str:
    """Returns a text as a C++ literal; what is not plain ASCII as octal bytes."""
    plain = {ord(c) for c in "!#$%&'()*+,-./:;<=>@[]^_`{|}~ "}
    return (
        '"'
        + "".join(chr(b) if (chr(b).isalnum() and b < 128) or b in plain else f"\\{b:03o}" for b in text.encode())
        + '"'
    )
