# Thin front of CMake, pip and the runners. `make demo` and `make test` work on a fresh Debian or Ubuntu machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD ?= build/release

.PHONY: demo test build package setup bench gpu sanitize fuzz clean

# One tree, $(BUILD), serves the Python package in $(VENV) and the C++ tests; building again compiles what changed.
INSTALL = $(BIN)/python -m pip install -v --disable-pip-version-check --no-deps --no-build-isolation \
  -C build-dir=$(BUILD) -C cmake.define.TENOR_TESTS=ON -C cmake.define.TENOR_INSTALL=ON

build: setup
	$(INSTALL) -C build.targets=all .

setup:
	bash tools/setup.sh $(PYTHON) $(VENV)

# The library and the Python package alone, without the tests.
package: setup
	bash tools/quiet.sh build/build.log "building the library and the Python package (the first time up to half an hour on two cores)" $(INSTALL) .

demo: package
	$(BIN)/python examples/sentence_embedding/main.py --check
	@echo
	$(BIN)/python examples/ocr/main.py --check --demo
	@echo
	$(BIN)/tenor demo
	@echo
	@echo "That was Tenor. The package is in $(VENV): $(BIN)/python -c 'import tenor'; $(BIN)/tenor --help; README.md goes on from here."

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
	cmake --build build/asan-ubsan --target fusion_test --parallel
	TENOR_FUSE_PROGRAMS=10000 build/asan-ubsan/tests/fusion_test --gtest_filter='FuseRandom.*'

clean:
	rm -rf build
