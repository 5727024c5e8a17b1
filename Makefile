# Two commands do all the set-up on a fresh machine with Python 3.11 or newer: `make demo` and `make test`. Tests of pages
# need a headless browser and are skipped without one: `make browser` brings it (apt-get as root, else playwright).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test browser check format bench clean

demo: $(VENV)/.demo
	$(BIN)/python -m tuner demo

test: $(VENV)/.test
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/checks $(BIN)/python

browser: $(VENV)/.test
	.ci/browser $(BIN)/python

format: $(VENV)/.test
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(VENV)/.test
	$(BIN)/python benchmarks/overhead.py

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	touch $@

$(VENV)/.test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
