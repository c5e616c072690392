# Every command a contributor needs. PYTHON is the interpreter that the environment is made with.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.PHONY: demo test tools lint format bench bench-export fuzz corpus clean

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

demo: $(INSTALLED)
	$(BIN)/vllm-logpipe normalize examples/kv-cache-too-small.log --to text

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

# The servers that the tests talk to, built with Go into a cache outside the tree.
tools:
	.ci/tools

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/vllm-logpipe catalogue check

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.throughput
	$(BIN)/python -m benchmarks.signals
	$(BIN)/python -m benchmarks.growth

# The ways to encode logs, against the Collector that `make tools` built.
bench-export: $(INSTALLED)
	$(BIN)/python -m benchmarks.export

# Mutated streams; faults are written to tests/fuzz/recorded, which the tests replay.
MINUTES ?= 60
fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

corpus: $(INSTALLED)
	$(BIN)/python -m pytest tests/conformance/test_corpus.py --regenerate

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
