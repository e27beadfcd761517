.DEFAULT_GOAL := help
.PHONY: help demo test again faults soak kafka papers lint format types contracts audit check clean setup java

BIN := .venv/bin

# Python keeps the bytecode of what it imports, whatever the shell says: each worker, and each process that a test starts, would
# compile all of plait and of the tests anew.
test again faults soak kafka: export PYTHONDONTWRITEBYTECODE :=

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup java ## Run a small join and an aggregate, and show the results
	@$(BIN)/plait demo

test: setup java ## Run every test but the long ones, on three workers: the one that has Spark waits for it half of its time
	@$(BIN)/pytest -q -n 3 --dist loadgroup -m "not slow and not again" --durations 15 --durations-min 0

again: setup java ## Run what CI runs besides: second looks, on Spark or at length, at what other tests hold
	@$(BIN)/pytest -q -n 2 --dist loadgroup -m "again and not slow"

faults: setup java ## Inject faults into running pipelines for three minutes, and compare every byte (CONTRIBUTING.md has the long form)
	@PYTHONPATH=.:benchmarks $(BIN)/python -m tests.faults --seed $${PLAIT_FAULTS:-7}

soak: setup java ## Run what takes long: every property with many more examples, deeper interleavings, fuzzing
	@PLAIT_SOAK=$${PLAIT_SOAK:-1} $(BIN)/pytest -q -n 2 --dist loadgroup -m "slow or again or hypothesis or sampled"

kafka: setup java ## Run the tests that start a Kafka broker (soak runs them too)
	@$(BIN)/pytest -q -n 0 -m slow tests/spark/test_kafka.py

papers: setup ## Measure the papers' figures in two minutes, and fail where a shape that they claim does not hold
	@$(BIN)/plait bench papers --quick

lint: setup ## Check style and formatting (ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup ## Check types (mypy, strict)
	@$(BIN)/mypy

contracts: setup ## Check who imports whom (import-linter)
	@$(BIN)/lint-imports --no-logo

audit: setup ## Ask PyPI for known vulnerabilities of what plait depends on
	@$(BIN)/python tools/audit.py

check: lint types contracts ## Lint, types and contracts

clean: ## Remove .venv and everything else that was generated
	@rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@rm -rf artifacts metastore_db spark-warehouse derby.log
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@sh tools/setup.sh

# One line on stderr if there is no Java for Spark; the rest runs without.
java: setup
	@$(BIN)/python -I src/plait/java.py
