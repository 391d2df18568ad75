# make demo    from a fresh clone to a TensorRT engine; needs Python >= 3.10, no GPU
# make test    the tests; no GPU either
# make check   format, lint, types, tests
# make bench   side-by-side benchmarks on the CPU, into bench/results/cpu.json
# make venv    just the virtual environment, with everything that developers need
# make clean   removes what the others made, the virtual environment too
#
# Everything is set up in .venv, once; again only when pyproject.toml has changed.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
SIZES := --dim batch=1:1:4 --dim height=64:256:512 --dim width=64:256:512

.PHONY: demo test check lint types bench venv clean
.DELETE_ON_ERROR:

demo: $(VENV)/run.stamp
	$(BIN)/trtconv check models/unet.onnx $(SIZES) --target rtx
	@echo
	$(BIN)/trtconv build models/unet.onnx $(SIZES) --target rtx -o out/unet.engine --force
	@echo
	@ls -l out/unet.engine out/unet.engine.json

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

check: lint types test

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

bench: $(VENV)/dev.stamp
	$(BIN)/python bench/run.py

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

clean:
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find trtconv tests models bench -name __pycache__ -type d -prune -exec rm -rf {} +
