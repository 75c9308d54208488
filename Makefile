# Every command of the project. Needs make and Python >= 3.11; the rest is fetched into .venv.

# Without bytecode each process compiles all that it imports: it is written and read, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock (make lock UPGRADE=--upgrade for newer versions)"

WIRE := src/headrace/wire
PROTOS := kdb/wal/v1/wal.proto headrace/log/v1/log.proto

# Two more processes than cores, 6 at most: tests wait now and then. tests/scheduler.py says which of them take Spark.
TESTERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((cores < 4 ? cores + 2 : 6)))

BENCH := $(basename $(notdir $(wildcard bench/*.py)))

.DEFAULT_GOAL := help
.PHONY: help demo test soak bench check check-types check-rules format generate setup jars venv lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## Run the whole flow on this machine and compare what came out
	@$(BIN)/headrace demo

test: setup ## Run every test but those of the house rules, which are make check's
	@scripts/test --ignore tests/tidy --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder

soak: setup ## Run what needs long, longer: make soak, or make soak SOAK=tests/fault (one folder or file)
	@HEADRACE_SOAK=1 scripts/test --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder --timeout 7200 $(SOAK)

bench: venv ## Measure: make bench, or make bench BENCH=pgbench_attached ARGS="--rounds 3"
	@for bench in $(BENCH); do $(BIN)/python -m bench.$$bench $(ARGS) || exit; done

check: venv ## Check format, lint, types, imports and house rules, as CI does
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-rules

check-types:
	$(BIN)/mypy

check-rules:
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/tidy

format: venv ## Format the code and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

generate: venv ## Make the protobuf code from wire/proto
	$(BIN)/python -m grpc_tools.protoc -I$(WIRE)/proto --python_out=$(WIRE)/generated --pyi_out=$(WIRE)/generated $(PROTOS)
	mv $(addprefix $(WIRE)/generated/,$(PROTOS:.proto=_pb2.py) $(PROTOS:.proto=_pb2.pyi)) $(WIRE)/generated/
	find $(WIRE)/generated -type d -empty -delete

setup: venv jars ## Make .venv from the lock, find a Java, fetch Spark's jars

venv:
	@scripts/setup

jars: venv
	@$(BIN)/headrace pipeline setup

lock: venv ## Remake the lock files after a change of dependencies
	$(COMPILE) $(UPGRADE) --all-extras --group dev -o requirements.lock pyproject.toml
	$(COMPILE) $(UPGRADE) --group jvm -o requirements-jvm.lock
	$(COMPILE) --extra postgres --extra mysql --extra backup --extra s3 --group build \
		--constraint requirements.lock -o deploy/container/requirements.lock pyproject.toml

clean: ## Remove .venv, caches and build output
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
