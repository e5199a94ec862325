# CONTRIBUTING.md has a table of the targets.
# Each target sets up .venv first, and again only when pyproject.toml or constraints.txt changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test soak lint format docs linkcheck clean

demo: $(STAMP)
	$(BIN)/gtrl demo

# Pyright needs one core for half a minute, so it runs at the same time as pytest. Its report is printed at the end.
test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/pyright > $(VENV)/pyright.txt 2>&1 & pyright=$$!; \
	$(BIN)/python -m pytest; tests=$$?; \
	wait $$pyright; types=$$?; \
	cat $(VENV)/pyright.txt; exit $$((tests + types))

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak

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
