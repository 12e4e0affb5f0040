# fleetpulse: everything a developer or a first-time user runs. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PYTHONSAFEPATH := 1

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# make demo ARGS="--seconds 150", or make demo SECONDS=150; make test ARGS="-k chunk".
ARGS ?=
SECONDS_GIVEN := $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS))

.PHONY: help demo test lint bench fuzz conformance format clean install

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "fleetpulse needs Python 3.11 or newer: set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 14) else 1)' || { echo "fleetpulse needs Python 3.11 to 3.14; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=/path/to/python3.12, say." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment: on Debian, apt install python3-venv" >&2; exit 1; }
	@echo "Installing fleetpulse and what it needs into $(VENV) (once; a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@echo "Compiling kernels (once; a minute or two) ..."
	@$(BIN)/fleetpulse warmup
	@touch $@

install: $(STAMP) ## Create or refresh the virtual environment

demo: $(STAMP) ## The whole job on embedded services, until Ctrl-C (ARGS="--seconds 150" ends by itself)
	@$(BIN)/fleetpulse demo $(if $(SECONDS_GIVEN),--seconds $(SECONDS_GIVEN)) $(ARGS)

test: $(STAMP) ## All tests, on an embedded broker and Redis
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile $(ARGS)

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@mkdir -p .cache/typed/fleetpulse && for d in ingest features anomaly compression store; do ln -sfn $(CURDIR)/$$d .cache/typed/fleetpulse/$$d; done
	@MYPYPATH=.cache/typed $(BIN)/mypy --cache-dir .cache/mypy $(foreach p,ingest features anomaly compression store,-p fleetpulse.$(p))

format: $(STAMP) ## Let ruff format and fix
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(STAMP) ## Speed and size, side by side with what they are compared to (ARGS="store": only that)
	@PYTHONPATH=tests $(BIN)/python -m bench $(ARGS)

fuzz: $(STAMP) ## Decoder and router: a million damaged records, twice, and 2,000 made ones (ARGS="--rounds 10000 --seed 5")
	@PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)
	@$(BIN)/python -m pytest -q tests/test_otlp_oracle.py -k made --hypothesis-profile=long

conformance: $(STAMP) ## Tests against real Apache Kafka and OpenTelemetry Collector (needs Java 17, Maven, Go)
	@$(BIN)/python -m pytest -q tests/conformance $(ARGS)

clean: ## Remove the virtual environment and caches
	@rm -rf $(VENV) .cache build *.egg-info
