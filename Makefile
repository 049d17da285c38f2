# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help test fast lint types unit core cov fuzz docs tutorials examples site soak demo results bench peers dist compat clean

help:            ## Say what each target does
	@grep -E '^[a-z]+: .*## |^[a-z]+:  +## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

test: $(READY)   ## Lint, type-check, build the docs, run the tests
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory --jobs=3 types site unit

lint: $(READY)   ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy --strict on src
	$(BIN)/mypy --strict src

unit: $(READY)   ## pytest on two cores, warnings are errors
	$(BIN)/python -m pytest -n 2

CORE := tests/loss tests/optim tests/metrics tests/stages tests/data tests/models \
  tests/test_reference.py tests/test_checks.py
fast: $(READY)   ## Lint, type-check and test the core in about a minute
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory --jobs=2 types core

core: $(READY)   ## pytest on losses, optimizers, metrics, stages, data and models
	$(BIN)/python -m pytest -q -n 2 $(CORE)

cov: $(READY)    ## The tests' coverage, line by line in htmlcov
	$(BIN)/python -m pytest -n 2 --cov=aucmax --cov-branch --cov-report=term:skip-covered --cov-report=html

MINUTES ?= 10
fuzz: $(READY)   ## The hypothesis tests on random examples for MINUTES=10; prints how to repeat a failure
	$(BIN)/python tests/soak/fuzz.py --minutes $(MINUTES)

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
soak: $(READY)   ## Stop runs at random for MINUTES=10 and commands at MOMENTS=20, compare with ones left alone; files of official size
	$(BIN)/python tests/soak/interrupts.py --moments $(MOMENTS)
	$(BIN)/python tests/soak/resume.py --minutes $(MINUTES)
	$(BIN)/python tests/soak/official_files.py

demo: $(READY)   ## Fit a model on a table that comes along, and show what it made
	$(BIN)/aucmax demo

results: $(READY)  ## The site's results from the JSON files of the experiments
	$(BIN)/python experiments/publish.py

LIBAUC := .venv-libauc
$(LIBAUC)/.ready:
	$(PYTHON) -m venv $(LIBAUC)
	$(LIBAUC)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch numpy scipy scikit-learn tqdm
	$(LIBAUC)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps libauc==2.0.1
	@touch $@

bench: $(READY) $(LIBAUC)/.ready  ## Time the library against its peers; writes benchmarks/results
	$(BIN)/python benchmarks/run.py --libauc $(LIBAUC)/bin/python

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
compat: $(READY) ## The core's tests on the oldest versions allowed and on the newest; takes 15 GB
	$(BIN)/python tests/release/compat.py oldest
	$(BIN)/python tests/release/compat.py newest --python $(NEWEST)

clean:           ## Remove what the other targets made
	rm -rf $(VENV) $(LIBAUC) $(PEERS) .venv-oldest .venv-newest docs/_build build dist .mypy_cache .ruff_cache .pytest_cache .coverage htmlcov
