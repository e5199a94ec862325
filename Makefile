# demo: collect, train and evaluate; test: lint and tests; docs: check the documentation and build it in build/docs.
# Each target sets up .venv first, and again only when pyproject.toml or constraints.txt changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint format docs linkcheck clean

demo: $(STAMP)
	$(BIN)/gtrl demo

test: lint
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --doctree-dir build/doctrees docs build/docs
	@echo "open build/docs/index.html"

linkcheck: $(STAMP) # needs a network
	$(BIN)/python -m sphinx --quiet --builder linkcheck --doctree-dir build/doctrees docs build/linkcheck

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist
