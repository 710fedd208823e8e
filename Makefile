# Every target sets up ./.venv first, and only when something changed. Start with `make help`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PYTHON_BIN := $(VENV)/bin/python
READY := $(VENV)/.ready
KERNELS := src/gapless/content/matching src/gapless/content/plain src/gapless/packed/scan
KERNEL_SOURCES := $(foreach kind,pyx pxi h,$(wildcard $(KERNELS:%=%/*.$(kind))))

WORKERS ?= 2
TEST_WORKERS ?= 3
CASES ?= 200000
SEEDS ?= 5000
DIGESTS ?= 600
START ?= 0
MINUTES ?= 60
SEED ?= 1
FRAMES ?= 500000
COVERED_SEEDS ?= 120
COMPONENTS ?=
CHAOS ?=
TESTS ?=
LAB ?=
BUGS ?=
DEMO ?=
FUZZ ?=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml setup.py scripts/setup $(KERNEL_SOURCES)
	@scripts/setup
	@touch $@

.PHONY: setup
setup: $(READY) ## Make ./.venv with everything that is needed
	@echo "$(VENV) is ready"

.PHONY: demo
demo: $(READY) ## Run brokers under traffic, kill some of them, audit every delivery (a minute)
	@$(VENV)/bin/gapless demo --spark $(DEMO)

.PHONY: chaos
chaos: $(READY) ## Kill, freeze and cut off brokers under traffic, then audit (MINUTES=60, SEED=1, CHAOS=options)
	@$(VENV)/bin/gapless chaos --minutes $(MINUTES) --seed $(SEED) $(CHAOS)

.PHONY: fuzz
fuzz: $(READY) ## Attack brokers as clients and as a neighbour, beside a healthy pair (FRAMES=500000, SEED=1, FUZZ=options)
	@$(VENV)/bin/gapless fuzz --frames $(FRAMES) --seed $(SEED) $(FUZZ)

.PHONY: tour
tour: $(READY) ## Show filters, their algebra and the matching index
	@$(PYTHON_BIN) examples/filters_and_matching.py

.PHONY: spark-tour
spark-tour: $(READY) ## Show streams as DataFrames, exactly-once writes, archive, backtest and audit
	@$(PYTHON_BIN) examples/spark_tour.py

.PHONY: test
test: $(READY) ## Run all tests (TESTS=path picks some, TEST_WORKERS=n processes)
	@$(PYTHON_BIN) -m pytest -n $(TEST_WORKERS) --dist worksteal $(TESTS)

.PHONY: campaigns
campaigns: $(READY) ## Run the tests that take too long for `make test`: chaos in all networks, bugs with long runs
	@$(PYTHON_BIN) -m pytest -n $(WORKERS) -m campaign $(TESTS)

.PHONY: property
property: $(READY) ## Run the long property campaign (CASES=n, 20,000 in `make test`)
	@GAPLESS_CASES=$(CASES) $(PYTHON_BIN) -m pytest -n $(WORKERS) tests/content

.PHONY: seeds
seeds: $(READY) ## Run the broker under faults (SEEDS=5000, START=0, WORKERS=n processes)
	@$(VENV)/bin/gapless sim run --seeds $(SEEDS) --start $(START) --workers $(WORKERS)

.PHONY: digests
digests: $(READY) ## Compare what brokers decide with the recorded runs (DIGESTS=600)
	@$(VENV)/bin/gapless sim digest tests/lab/sim/digests.txt --seeds $(DIGESTS) --workers $(WORKERS)

.PHONY: planted-bugs
planted-bugs: $(READY) ## Plant known bugs and show the seed that detects each (BUGS=--record notes the seeds)
	@$(PYTHON_BIN) -m gapless_lab.sim.bug_hunt $(BUGS)

.PHONY: lab
lab: $(READY) ## Run the papers' experiments at a small size (LAB="pt-9 --runs 10" picks one)
	@$(VENV)/bin/gapless lab run $(or $(LAB),all --quick)

.PHONY: coverage
coverage: $(READY) ## Run all tests and report branch coverage by file
	@$(PYTHON_BIN) -m pytest -n $(WORKERS) --cov --cov-report=term $(TESTS)

.PHONY: coverage-components
coverage-components: $(READY) ## Report branch coverage by component, of its tests and of seeds together (COMPONENTS="overlay broker", COVERED_SEEDS=120)
	@$(PYTHON_BIN) scripts/coverage_by_component.py --workers $(WORKERS) --seeds $(COVERED_SEEDS) $(COMPONENTS)

.PHONY: check
check: $(READY) ## Check style and types (ruff, mypy --strict)
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy

.PHONY: format
format: $(READY) ## Format the code and mend what can be mended
	@$(VENV)/bin/ruff check --fix-only --exit-zero
	@$(VENV)/bin/ruff format

.PHONY: bench
bench: bench-matching bench-streams bench-spark ## Run all benchmarks

.PHONY: bench-matching
bench-matching: $(READY) ## Measure the matching index against its rivals
	@$(PYTHON_BIN) -m benchmarks.matching

.PHONY: bench-streams
bench-streams: $(READY) ## Measure brokers: throughput, latency, memory, subscribing [BESIDE=commit]
	@$(PYTHON_BIN) -m benchmarks.streams $(if $(BESIDE),--beside $(BESIDE))

.PHONY: bench-spark
bench-spark: $(READY) ## Measure the Spark source against batches made beforehand
	@$(PYTHON_BIN) -m benchmarks.spark

.PHONY: lock
lock: ## Write requirements.lock anew from pyproject.toml
	@scripts/lock

.PHONY: clean
clean: ## Remove the environment, builds and caches
	@rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .coverage .coverage.* htmlcov $(KERNELS:%=%/_*.so)
	@find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
