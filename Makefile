# `make serve` and `make test` install everything they need; python3, make and git must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
# Checks that an interpreter is new enough. If that of .venv is not, or is missing, .venv is replaced.
FITS := -c "import sys; sys.exit(sys.version_info < (3, 11))"

.PHONY: serve test check format torture e2e bench bench-gateway eval floway images reference models clean

serve: $(RUNS)
	$(BIN)/weft serve $(ARGS)

# Failed tests run a second time, one by one: a test that was only too slow on a busy machine passes
# then, and a fault fails again. Both runs are printed; a test that needs the second one must be fixed.
test: $(STAMP)
	$(BIN)/python tests/browser.py || true
	$(BIN)/pytest -rs $(ARGS) || $(BIN)/pytest -n 0 -rfEp --maxfail=1 --last-failed --last-failed-no-failures=none

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

torture: $(STAMP)
	WEFT_TORTURE=1 $(BIN)/pytest -n 0 tests/torture tests/salvage tests/agent/test_resume.py tests/gateway/test_journal.py tests/gateway/test_leaks.py tests/gateway/test_living_sessions.py tests/gateway/test_stateless.py $(ARGS)
	WEFT_TORTURE=1 $(BIN)/pytest -n 0 tests/laws tests/codec
	WEFT_TORTURE=1 $(BIN)/pytest -n 0 --hypothesis-profile=torture tests/laws/test_history_laws.py

# Tests with the real clients, if they are installed. The variables name other programs.
e2e: $(STAMP)
	WEFT_CLAUDE="$${WEFT_CLAUDE-$$(command -v claude)}" WEFT_CODEX="$${WEFT_CODEX-$$(command -v codex)}" \
	WEFT_GEMINI="$${WEFT_GEMINI-$$(command -v gemini)}" \
	WEFT_OPENCODE="$${WEFT_OPENCODE-$$(command -v opencode)}" \
		$(BIN)/pytest -n 0 -rs tests/e2e $(ARGS)

bench: $(STAMP)
	$(BIN)/python bench/wire.py --peer
	$(BIN)/python bench/compact.py
	$(BIN)/python bench/history.py --long $(ARGS)
	$(BIN)/python bench/cli.py

bench-gateway: $(STAMP)
	$(BIN)/python bench/gateway.py $(ARGS)

# Measures what compaction keeps. WEFT_CORPUS names a folder of recorded sessions.
eval: $(STAMP)
	$(BIN)/python bench/memory.py $(ARGS)

reference: $(STAMP)
	$(BIN)/python docs/reference/make.py

# The prices and limits of models, from the newest genai-prices.
models: $(STAMP)
	$(BIN)/python -m pip install --quiet --upgrade genai-prices
	$(BIN)/python tools/models.py $(ARGS)

images: $(STAMP)
	$(BIN)/python tests/browser.py
	$(BIN)/python docs/images/make.py

$(RUNS): pyproject.toml
	@$(BIN)/python $(FITS) 2>/dev/null || $(PYTHON) $(FITS) || \
		{ echo "Weft needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python $(FITS) 2>/dev/null && $(BIN)/python -m pip --version >/dev/null 2>&1 || \
		$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[serve]"
	touch $(RUNS)

$(STAMP): $(RUNS)
	$(BIN)/python -m pip install --quiet --group dev
	touch $(STAMP)

floway: $(STAMP)
	$(BIN)/python bench/floway.py $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
