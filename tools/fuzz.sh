#!/usr/bin/env bash
# The fuzzer over the module built with AddressSanitizer and UBSan: `fuzz.sh [--draws N] [--seed S] [FAMILY ...]`.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/asan-ubsan package=build/asan-ubsan/package python=$PWD/.venv/bin/python
cmake --preset asan-ubsan -DTENOR_NATIVE=ON -DTENOR_PYTHON=ON -DPython_EXECUTABLE="$python" \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" >/dev/null
cmake --build $build --target _tenor
mkdir -p $package
cp -r python/tenor $package/
cp $build/python/_tenor*.so $package/tenor/
# The sanitizer's library comes first, and the C++ library with it, so that it sees exceptions being thrown.
preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
[ $# -gt 0 ] || set -- --draws 100000
PYTHONPATH=$package LD_PRELOAD=$preload exec "$python" tests/fuzz/fuzz.py "$@"
