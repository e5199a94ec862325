# CONTRIBUTING.md has a table of the targets.
# Each target sets up .venv first, and again only when pyproject.toml or constraints.txt changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The tests start many processes; each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo browser test soak lint format docs linkcheck clean

demo: $(STAMP)
	$(BIN)/gtrl demo

# The page of a report is tested in Debian's Chromium. Without it, those tests fail and the others still run.
browser:
	@if command -v chromium > /dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=$$(command -v sudo) || sudo=none; fi; \
	if [ "$$sudo" = none ] || ! command -v apt-get > /dev/null; then \
	echo "Chromium is missing, which tests of the page need; install Debian's package chromium." >&2; exit 0; fi; \
	echo "Installing Chromium for the tests of the page."; export DEBIAN_FRONTEND=noninteractive; \
	{ $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends chromium > /dev/null; } || \
	echo "Chromium could not be installed, which tests of the page need." >&2

# Pyright needs one core for half a minute, so it runs at the same time as pytest. Its report is printed at the end.
test: $(STAMP) browser
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
