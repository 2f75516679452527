# Every target makes its own virtual environment on first use, with pip and pinned versions.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VENV39 := .venv-tl39

# Compiling every file of every package takes longer than compiling, on import, those that are used.
PIP_FLAGS := --quiet --no-compile --disable-pip-version-check

# Bytecode is kept, even where Python is told to write none: dozens of tests start a process, and each would compile what
# it imports, which takes longer than to run it. It lies where Python looks for it without make, too, so that a command
# that is started by hand finds it.
export PYTHONDONTWRITEBYTECODE :=

# Tests run one process a core; threads on top of that only get in each other's way. Neighbours stay with one process
# until another has nothing left to do: what a module prepares (a page, a site, a circuit) is mostly prepared once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help report check test test-some test-all test-tl39 lab docs notebooks bench gpu lint clean

help:
	@echo "make report     train nothing, probe the stored models, write report.html"
	@echo "make check      ruff, and the tests that mirror the files you changed: a minute at most for one file"
	@echo "make test       the tests, without the slow ones"
	@echo "make test-some  one slow test of each function, drawn with SEED=0: about an hour on two cores"
	@echo "make test-all   all tests"
	@echo "make test-tl39  the tests that depend on TransformerLens' version, against 3.9"
	@echo "make lab        open the notebooks in JupyterLab"
	@echo "make docs       build site/: guide, how-to pages, API reference, every model, study and notebook"
	@echo "make notebooks  execute the notebooks and store what they show, for docs/notebooks and the site"
	@echo "make bench      measure speed: training, scoring, decoding, patching"
	@echo "make gpu        on a machine with a GPU: the tests that need one, and how fast it trains"
	@echo "make lint       ruff, pyright and the rule of imports"

report: $(VENV)/.runtime
	$(BIN)/interp report

# What mirrors the files that differ from the last commit: tests/interp/core/test_stats.py for interp/core/stats.py.
check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mirrored_tests

test: $(VENV)/.dev
	$(PYTEST) -m "not slow"

test-some: $(VENV)/.cluster
	$(PYTEST) --one-of-each $${SEED:-0}

test-all: $(VENV)/.cluster
	$(PYTEST)

test-tl39: $(VENV39)/.dev
	OMP_NUM_THREADS=1 $(VENV39)/bin/python -m pytest -n auto --dist worksteal -m "transformer_lens and not slow" \
		tests/conformance tests/models/importers/test_stock.py

# The notebooks are kept as scripts; this makes or updates the .ipynb files next to them. The renderer keeps plotly.js in
# a saved notebook, so that its figures are not blank after `jupyter nbconvert --to html`.
lab: $(VENV)/.lab
	$(BIN)/jupytext --quiet --sync notebooks/*.py
	PLOTLY_RENDERER=$${PLOTLY_RENDERER:-plotly_mimetype+notebook} $(BIN)/jupyter lab notebooks

# The API reference comes first: the site's pages link to it. The hooks in mkdocs.yml write what is stored.
docs: $(VENV)/.docs
	$(BIN)/python docs/api.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote site/index.html"

notebooks: $(VENV)/.dev
	$(BIN)/python docs/notebooks.py

bench: $(VENV)/.runtime
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

gpu: $(VENV)/.gpu
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cuda
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks gpu

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) $(VENV39)

# ---- environments; a stamp says what is installed, and is older than the pins if they change

define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 2; }
	@echo "Setting up $(1) (once; a few minutes)"
	@$(PYTHON) -m venv $(1)
endef

$(VENV)/.runtime: pyproject.toml constraints.txt
	$(call make_venv,$(VENV))
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Adding what the tests need to $(VENV)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.cluster: $(VENV)/.dev
	@echo "Adding Ray, eai-sparsify and devinterp to $(VENV)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[cluster,sae,llc]'
	@touch $@

# A wheel that computes without CUDA, or for a newer driver, gives way to PyTorch's own: make gpu CUDA=cu126
CUDA ?= cu126
CUDA_HERE := import sys, torch; sys.exit(not torch.cuda.is_available())

$(VENV)/.gpu: $(VENV)/.dev
	@$(BIN)/python -c '$(CUDA_HERE)' || { echo "Adding a wheel of PyTorch for $(CUDA) to $(VENV)"; \
		$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt --force-reinstall torch \
			--index-url https://download.pytorch.org/whl/$(CUDA) --extra-index-url https://pypi.org/simple; }
	@$(BIN)/python -c '$(CUDA_HERE)' || { echo "PyTorch finds no CUDA device here."; exit 2; }
	@touch $@

$(VENV)/.lab: $(VENV)/.runtime
	@echo "Adding JupyterLab to $(VENV)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[lab]'
	@touch $@

$(VENV)/.docs: $(VENV)/.runtime
	@echo "Adding MkDocs and pdoc to $(VENV)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV39)/.dev: pyproject.toml constraints-tl39.txt
	$(call make_venv,$(VENV39))
	@$(VENV39)/bin/python -m pip install $(PIP_FLAGS) -c constraints-tl39.txt -e '.[dev]'
	@touch $@
