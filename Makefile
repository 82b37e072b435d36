# `make demo` and `make test` do everything on a fresh Debian 12 as root. Elsewhere, or without root: see README.md.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
APT := python3-venv mmdebstrap openssh-client openssh-server iproute2 gcc libc6-dev strace zstd fish tcsh
SOURCES := $(shell git ls-files ddtool profiles diag_patches pyproject.toml README.md LICENSE 2>/dev/null)
WHEEL := $(VENV)/.wheel
TORCH := $(VENV)/.torch
PYTEST := $(BIN)/pytest
# Most tests wait for a host or a server, so two run at once; a file's tests share them. The long ones come first.
TWO := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test lint unit patches host engine slow setup clean

demo: setup
	$(BIN)/ddtool sandbox up demo
	$(BIN)/ddtool deploy demo --yes
	$(BIN)/ddtool generate -p demo $$'import os\n\ndef walk(path):\n    for '

test: setup $(TORCH) lint
	$(PYTEST) tests $(TWO) --durations=25

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit patches host engine: setup $(TORCH)
	$(PYTEST) tests/$@

slow: setup
	$(PYTEST) tests -m slow

setup: $(WHEEL)

# Tests run against the installed wheel, so that a file it lacks is noticed.
$(WHEEL): $(SOURCES) | $(VENV)
	rm -rf dist
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(BIN)/pip install --quiet --force-reinstall --no-deps dist/*.whl
	$(BIN)/pip install --quiet "$$(ls dist/*.whl)[test]"
	touch $@

# For the tests of the engine's own tensor code. `+cpu` can never match a CUDA build of gigabytes.
$(TORCH): | $(WHEEL)
	$(BIN)/pip install --quiet torch==2.13.0+cpu || { echo "the tests need a CPU build of torch: see README, torch"; exit 4; }
	touch $@

$(VENV):
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  dpkg -s $(APT) > /dev/null 2>&1 || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(APT) > /dev/null; }; fi
	python3 -m venv $(VENV)

clean:
	rm -rf $(VENV) dist
