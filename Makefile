# Thin front of CMake, pip and the runners. `make demo` and `make test` work on a fresh Debian or Ubuntu machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD ?= build/release

.PHONY: demo test build setup bench gpu sanitize fuzz clean

# One tree, $(BUILD), serves the Python package in $(VENV) and the C++ tests; building again compiles what changed.
build: setup
	$(BIN)/python -m pip install -v --disable-pip-version-check --no-deps --no-build-isolation \
	  -C build-dir=$(BUILD) -C build.targets=all -C cmake.define.TENOR_TESTS=ON -C cmake.define.TENOR_INSTALL=ON .

setup:
	bash tools/setup.sh $(PYTHON) $(VENV)

demo: build
	$(BIN)/python examples/sentence_embedding/main.py
	$(BIN)/tenor demo

test: build
	bash tools/test.sh $(BUILD)

bench: build
	$(BIN)/tenor bench

gpu: setup
	bash tools/gpu.sh

sanitize: setup
	bash tools/sanitize.sh

fuzz: setup
	bash tools/fuzz.sh

clean:
	rm -rf build
