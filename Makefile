# Thin front of CMake and pip. `make demo` and `make test` work on a fresh Debian or Ubuntu machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD ?= build/release

.PHONY: demo test build setup bench sanitize fuzz clean

# One build tree serves the Python package and the C++ tests.
build: setup
	$(BIN)/python tools/build.py --build-dir $(BUILD)

setup:
	bash tools/setup.sh $(PYTHON) $(VENV)

demo: build
	$(BIN)/python examples/sentence_embedding/main.py

test: build
	bash tools/test.sh $(BUILD)

clean:
	rm -rf build
