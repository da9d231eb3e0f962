#!/usr/bin/env bash
# The C++ tests under AddressSanitizer with UBSan, and under ThreadSanitizer, on all cores: `sanitize.sh [TREE ...]`.
# A TREE is a preset (asan-ubsan, tsan; both by default), which is configured and built here, or the folder of a build that was
# configured elsewhere (cmake -DTENOR_SANITIZE="address;undefined" or thread, -DTENOR_CUDA=OFF, -DTENOR_TESTS=ON), which is built.
# One instruction set (TENOR_NATIVE) keeps the build short: what differs between them is Highway's, not ours.
# The last lines say how each tree ended; the exit status is 1 when one of them did not pass.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=${JOBS:-$(nproc)}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1
export TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1:suppressions=$root/tools/tsan.supp
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}  # test programs run side by side on the same cores

build() {  # sets $tree
  if [ -f "$1/CMakeCache.txt" ]; then
    tree=$(cd "$1" && pwd)
  else
    tree=$root/build/$1
    (cd "$root" && cmake --preset "$1" -DTENOR_NATIVE=ON -DTENOR_TESTS=ON -DTENOR_PYTHON=OFF \
      -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1") >/dev/null || return 1
  fi
  cmake --build "$tree" --parallel "$jobs" || return 1
}

ends=() status=0
end() {
  ends+=("$1: $2")
  [ "$2" = passed ] || status=1
}
[ $# -gt 0 ] || set -- asan-ubsan tsan
for name in "$@"; do
  printf '\n== %s: build\n' "$name"
  build "$name" || { end "$name" "did not build"; continue; }
  printf '\n== %s: C++ tests\n' "$name"
  ctest --test-dir "$tree" -j "$jobs" --timeout 3600 --output-on-failure --no-tests=error | grep -vE '^ +Start |Passed +[0-9.]+ sec$'
  if [ "${PIPESTATUS[0]}" -eq 0 ]; then end "$name" passed; else end "$name" "tests failed"; fi
done
printf '\n'
printf 'sanitize: %s\n' "${ends[@]}"
exit $status
