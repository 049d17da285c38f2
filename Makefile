# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help test fast lint types unit core cov fuzz mutants docs tutorials examples site soak demo paper bench peers dist \
  compat oldest newest clean

help:            ## Say what each target does
	@grep -E '^[a-z]+: .*## |^[a-z]+:  +## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort

$(READY): pyproject.toml constraints.txt src/aucmax/version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

test: $(READY)   ## Lint, type-check, build the docs, run the tests
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory --jobs=3 types site unit

OURS := $(wildcard src tests docs examples experiments benchmarks)
lint: $(READY)   ## ruff: style and formatting
	$(BIN)/ruff check $(OURS)
	$(BIN)/ruff format --check $(OURS)

types: $(READY)  ## mypy --strict on src
	$(BIN)/mypy --strict src

unit: $(READY)   ## pytest on two cores, warnings are errors
	$(BIN)/python -m pytest -n 2

CORE := tests/loss tests/optim tests/metrics tests/stages tests/data tests/models \
  tests/test_reference.py tests/test_checks.py
fast: $(READY)   ## Lint, type-check and test the core in one or two minutes
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory --jobs=2 types core

core: $(READY)   ## pytest on losses, optimizers, metrics, stages, data and models
	$(BIN)/python -m pytest -q -n 2 $(CORE)

cov: $(READY)    ## The tests' coverage, line by line in htmlcov
	$(BIN)/python -m pytest -n 2 --cov=aucmax --cov-branch --cov-report=term:skip-covered --cov-report=html

MINUTES ?= 10
fuzz: $(READY)   ## The hypothesis tests on random examples for MINUTES=10; prints how to repeat a failure
	$(BIN)/python tests/soak/fuzz.py --minutes $(MINUTES)

mutants: $(READY)  ## What share of mutated lines the tests notice, package by package; resumes; hours
	$(BIN)/python tests/mutants.py --out build/mutants

docs: $(READY)   ## Run the tutorials and the examples of the API, then build the site in docs/_build/html
	$(MAKE) --no-print-directory --jobs=2 tutorials examples
	$(MAKE) --no-print-directory site

tutorials: $(READY)  ## Run the tutorials and keep what they print
	$(BIN)/python docs/run_tutorials.py

examples: $(READY)  ## Run the examples on the page of the API
	$(BIN)/python -m doctest docs/api.rst

site: $(READY)   ## Build the site from the tutorials' stored outputs; warnings and broken links are errors
	rm -rf docs/_build/html
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check.py docs/_build/html

MOMENTS ?= 20
soak: $(READY)   ## Stop runs for MINUTES=10, commands at MOMENTS=20 and a queue; compare with ones left alone
	$(BIN)/python tests/soak/interrupts.py --moments $(MOMENTS)
	$(BIN)/python tests/soak/resume.py --minutes $(MINUTES)
	$(BIN)/python tests/soak/stops.py

demo: $(READY)   ## Fit a model on a table that comes along, and show what it made
	$(BIN)/aucmax demo

paper: $(READY)   ## Figure 1 on digits, trained now, beside the frozen CIFAR-10; 3 minutes
	$(BIN)/python -m experiments.run experiments/paper.toml figure1-digits --processes 2
	$(BIN)/python -m experiments.figures experiments/paper.toml figure1-digits --records runs/paper.jsonl --frozen

BENCH := .venv-bench
$(BENCH)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[images,bench]' tqdm
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps libauc==2.0.1
	@touch $@

TIMINGS := imports loss optim metric fit growth boosting reading pictures tables_predict
bench: $(BENCH)/.ready  ## Time the library against its peers; writes benchmarks/results
	for name in $(TIMINGS); do $(BENCH)/bin/python benchmarks/$$name.py || exit 1; done

PEERS := .venv-peers
$(PEERS)/.ready:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 pyarrow \
	  'autogluon.tabular[catboost,fastai,lightgbm,xgboost]==1.6.3'
	@touch $@

peers: $(PEERS)/.ready  ## Make the environment of benchmarks/tables.py's peers

dist: $(READY)   ## Build wheel and sdist, check them, use the wheel in fresh environments; writes dist/
	$(BIN)/python tests/release/dist.py

NEWEST ?= $(or $(shell command -v python3.13),$(PYTHON))
compat: oldest newest ## The core's tests on the oldest versions allowed and on the newest; takes 15 GB

oldest: $(READY) ## The core's tests on the oldest versions that pyproject.toml allows
	$(BIN)/python tests/release/compat.py oldest

newest: $(READY) ## The core's tests on the newest versions there are
	$(BIN)/python tests/release/compat.py newest --python $(NEWEST)

clean:           ## Remove what the other targets made
	rm -rf $(VENV) $(BENCH) $(PEERS) .venv-oldest .venv-newest docs/_build build dist .mypy_cache .ruff_cache .pytest_cache \
	  .coverage htmlcov
