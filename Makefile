# Headwater: every task of a clone. Each target sets up what it needs; nothing else has to be typed.

PYTHON ?= python3
BIN := .venv/bin
# Two at a time: tests wait for processes as often as for a core. Those of a file stay together.
AT_ONCE := -n 2 --dist loadfile
.DEFAULT_GOAL := help
.PHONY: help setup demo test check stack test-stack bench bench-quality bench-peers soak clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install everything into .venv, fetch the jars, record Spark's classes (once)
	@$(PYTHON) scripts/setup

demo: setup ## Run the main job end to end on real media, in about a minute
	@$(BIN)/headwater demo

test: check ## Check, then run every test that needs no servers
	@$(BIN)/pytest $(AT_ONCE) -m "not soak and not kills"

check: setup ## Lint, format, types (strict) and import contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --cache-dir .cache/imports

stack: setup ## Start Kafka, S3, Postgres and a Spark cluster on this machine, data in ./stack
	@$(BIN)/headwater up

test-stack: setup ## Run the tests that need those servers; fetches, builds and starts them by itself
	@$(BIN)/python -m headwater.stack.prepare
	@$(BIN)/python tests/stack/chromium.py
	@$(BIN)/pytest -m kills
	@$(BIN)/pytest $(AT_ONCE) -m "not soak" tests/stack

bench: setup ## Measure start, framework, search, models, replay and upgrade beside plain arms (an hour)
	@for name in start framework search models replay upgrade; do $(BIN)/python benchmarks/$$name.py || exit 1; done

bench-quality: setup ## Measure how right speech, pictures and search are, new models beside old (some minutes)
	@cd benchmarks && ../$(BIN)/python -m quality $(ARGS)

bench-peers: setup ## Measure beside Daft, DataChain, Pixeltable and PySpark, each in an environment of its own (half an hour)
	@cd benchmarks && ../$(BIN)/python -m peers $(ARGS)

soak: setup ## The same promises for longer: every fault, hundreds of kills (hours)
	@$(BIN)/pytest -m "soak"
	@$(BIN)/pytest -m "soak" tests/stack

clean: ## Remove what set-up and the tools made in this clone; lakes and the user's cache stay
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/headwater.egg-info
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
