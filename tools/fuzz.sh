#!/usr/bin/env bash
# The fuzzer over the module built with AddressSanitizer and UBSan, one process a core:
#   fuzz.sh [--draws N] [--seed S] [--jobs N] [FAMILY ...]     10^5 draws unless told otherwise
# It builds build/asan-ubsan for .venv's Python. BUILD=folder takes a build that was configured elsewhere instead (cmake
# -DTENOR_SANITIZE="address;undefined" -DTENOR_CUDA=OFF -DTENOR_PYTHON=ON -DPython_EXECUTABLE=...), PYTHON=... its interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
if [ -z "${BUILD:-}" ]; then
  BUILD=build/asan-ubsan
  cmake --preset asan-ubsan -DTENOR_NATIVE=ON -DTENOR_PYTHON=ON -DPython_EXECUTABLE="$python" \
    -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" >/dev/null
fi
cmake --build "$BUILD" --target _tenor --parallel "${JOBS:-$(nproc)}"
package=$(cd "$BUILD" && pwd)/package
rm -rf "$package"
mkdir -p "$package"
cp -r python/tenor "$package"/
rm -f "$package"/tenor/_tenor*.so
cp "$BUILD"/python/_tenor*.so "$package"/tenor/
# The sanitizer's library comes first, and the C++ library with it, so that it sees exceptions being thrown.
preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
[[ " $* " == *" --draws"* ]] || set -- --draws 100000 "$@"
[[ " $* " == *" --jobs"* ]] || set -- --jobs 0 "$@"
PYTHONPATH=$package LD_PRELOAD=$preload exec "$python" tests/fuzz/fuzz.py "$@"
