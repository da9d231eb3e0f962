#!/usr/bin/env bash
# The C++ tests under AddressSanitizer with UBSan, and under ThreadSanitizer. `sanitize.sh PRESET ...` runs those alone.
# One instruction set (TENOR_NATIVE) keeps the build short: what differs between them is Highway's, not ours.
set -euo pipefail
cd "$(dirname "$0")/.."
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1
export TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1:suppressions=$PWD/tools/tsan.supp

presets=("$@")
[ $# -gt 0 ] || presets=(asan-ubsan tsan)
status=0
for preset in "${presets[@]}"; do
  cmake --preset "$preset" -DTENOR_NATIVE=ON -DTENOR_TESTS=ON -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" >/dev/null
  cmake --build "build/$preset"
  echo "== C++ tests under $preset"
  ctest --test-dir "build/$preset" -j 2 --output-on-failure --no-tests=error | grep -vE '^ +Start |Passed +[0-9.]+ sec$' || status=1
done
exit $status
