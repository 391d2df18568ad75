# make demo    from a fresh clone to a TensorRT engine; needs Python >= 3.10, no GPU
# make test    the tests of minutes; no GPU either. On another Python: make test PYTHON=python3.12 VENV=.venv-3.12
# make test-all   these and make test-slow: end to end, exhaustive, hostile (tests/conftest.py has the list)
# make test-oldest   make test on Python 3.10 with the oldest of each dependency that pyproject.toml allows; for a part of
#                    it: make test-oldest PYTEST_ARGS=tests/unit/passes
# make check   format, lint, types, all tests
# make bench   side-by-side benchmarks on the CPU, into bench/results/cpu.json
# make docs    docs/rules/, docs/passes/, docs/trtconv.schema.json, docs/cli.md, docs/cli/ and docs/api.md, from the sources
# make wheel   the wheel and the source distribution, checked, in dist/
# make fuzz    ten minutes of hostile files, and of sequences of commands over hostile folders, against every command:
#              make fuzz MINUTES=60 SEED=1
# make mutants ROOM=graph   whether the tests of a room notice changes of its code (docs/mutation.md); a sample, drawn with
#              a seed: make mutants ROOM=passes NUMBER=100 SEED=2
# make venv    just the virtual environment, with everything that developers need
# make clean   removes what the others made, the virtual environment too
#
# make test-export          installs torch too, runs the tests of trtconv export
# make test-architectures   installs public packages of networks too, exports some of them
# make bench-gpu     deconvolutions on TensorRT 8.6, into bench/results/; needs a GPU, and a
#                    CPython 3.10 with tensorrt 8.6, cuda-bindings, trtconv's dependencies: make bench-gpu GPU_PYTHON=...
# make suite-gpu     every network of models/ built, verified and timed on the GPU, beside raw TensorRT, into
#                    bench/results/; the same Python
# make test-gpu      the tests that need a GPU; the same Python, with pytest and hypothesis
#
# Everything but the last three is set up in .venv, once; again only when pyproject.toml has changed.

PYTHON ?= python3
GPU_PYTHON ?= python3.10
JOBS ?= 2
OLDEST_PYTHON ?= python3.10
VENV := .venv
OLDEST := .venv-oldest
WHEEL := .venv-wheel
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
SIZES := --dim batch=1:1:4 --dim height=64:256:512 --dim width=64:256:512

PACKAGES := timm segmentation-models-pytorch monai diffusers transformers spandrel torchvision
NEEDED := einops safetensors huggingface_hub tokenizers regex pyyaml requests pillow scipy importlib_metadata

# Without compiled modules on disk, each of the thousands of processes that the tests start compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-all test-oldest test-export test-architectures check lint types bench bench-gpu suite-gpu test-gpu docs wheel fuzz mutants venv clean
.DELETE_ON_ERROR:

demo: $(VENV)/run.stamp
	$(BIN)/trtconv check models/unet.onnx $(SIZES) --target rtx
	@echo
	$(BIN)/trtconv build models/unet.onnx $(SIZES) --target rtx -o out/unet.engine --force
	@echo
	@ls -l out/unet.engine out/unet.engine.json

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) -m slow $(PYTEST_ARGS)

test-all: test test-slow

test-oldest: $(OLDEST)/dev.stamp
	$(OLDEST)/bin/python -m pytest -n $(JOBS) -m "not slow" $(PYTEST_ARGS)

test-export: $(VENV)/export.stamp
	$(BIN)/python -m pytest -n $(JOBS) tests/unit/exporter tests/cli/test_export_*.py $(PYTEST_ARGS)

test-architectures: $(VENV)/architectures.stamp
	$(BIN)/python -m pytest -m architectures -n $(JOBS) tests/unit/exporter/test_export_architectures.py $(PYTEST_ARGS)

check: lint types test-all

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

# EXPORT_PYTHON: another Python that has the packages.
bench: $(if $(EXPORT_PYTHON),$(VENV)/dev.stamp,$(VENV)/architectures.stamp)
	$(BIN)/python bench/run.py

bench-gpu:
	@$(GPU_PYTHON) -c 'import tensorrt, sys; sys.exit(None if tensorrt.__version__.startswith("8.6") else "bench-gpu needs TensorRT 8.6: make bench-gpu GPU_PYTHON=...")'
	$(GPU_PYTHON) bench/gpu/deconv.py

suite-gpu:
	$(GPU_PYTHON) bench/gpu/suite.py --require-gpu $(SUITE_ARGS)

test-gpu:
	$(GPU_PYTHON) -m pytest tests/gpu --require-gpu $(PYTEST_ARGS)

docs: $(VENV)/dev.stamp
	$(BIN)/python docs/make_pages.py
	$(BIN)/python docs/make_schema.py
	$(BIN)/python docs/make_cli.py

# In an environment of its own: whoever wants a wheel has his trtconv installed as he likes it.
wheel: $(WHEEL)/stamp
	rm -rf dist
	$(WHEEL)/bin/python -m build --quiet
	$(WHEEL)/bin/python -m twine check --strict dist/*

$(WHEEL)/stamp:
	@$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip install -qq --disable-pip-version-check 'build>=1' 'twine>=6.1'
	@touch $@

MINUTES ?= 10
SEED ?= $(shell date +%s)

fuzz: $(VENV)/dev.stamp
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(MINUTES) --seed $(SEED) & \
	$(BIN)/python tests/fuzz/sequences.py --minutes $(MINUTES) --seed $(SEED); one=$$?; wait $$! && exit $$one

NUMBER ?= 40

mutants: $(VENV)/dev.stamp
	$(BIN)/python tests/mutation/score.py $(ROOM) --number $(NUMBER) --seed $(if $(filter command line,$(origin SEED)),$(SEED),1)

venv: $(VENV)/dev.stamp

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "trtconv needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml | $(BIN)/python
	@echo 'Installing trtconv and TensorRT-RTX into $(VENV)'
	$(PIP) --editable .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@echo 'Installing trtconv, TensorRT-RTX and the tools for development into $(VENV)'
	$(PIP) --editable '.[dev]'
	@touch $(VENV)/run.stamp $@

$(OLDEST)/dev.stamp: pyproject.toml tests/oldest.py
	@$(OLDEST_PYTHON) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 10) else "make test-oldest needs Python 3.10: OLDEST_PYTHON=...")'
	@echo 'Installing trtconv with the oldest of what it needs into $(OLDEST)'
	$(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST_PYTHON) tests/oldest.py > $(OLDEST)/oldest.txt
	$(OLDEST)/bin/python -m pip install -qq --disable-pip-version-check --constraint $(OLDEST)/oldest.txt --editable '.[dev]'
	@touch $@

$(VENV)/export.stamp: pyproject.toml | $(BIN)/python
	@echo 'Installing the tools for development and torch into $(VENV)'
	$(PIP) --editable '.[export-tests,dev]'
	@touch $(VENV)/run.stamp $(VENV)/dev.stamp $@

# Without their own dependencies, which would bring another torch; what else they need is listed.
$(VENV)/architectures.stamp: $(VENV)/export.stamp
	@echo 'Installing public packages of networks into $(VENV)'
	$(PIP) $(NEEDED)
	$(PIP) --no-deps $(PACKAGES)
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(WHEEL) out build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find trtconv tests models bench -name __pycache__ -type d -prune -exec rm -rf {} +
