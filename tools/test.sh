#!/usr/bin/env bash
# Every test of the build tree given (default build/release) and of the package installed in .venv. Each runner prints
# its own closing line; the exit status is 1 when any of them failed.
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
python=.venv/bin/python
cases=../shared/cases
export OMP_WAIT_POLICY=passive  # test programs run side by side on the same cores

failed=()
suite() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  local start=$SECONDS
  "$@" || failed+=("$name")
  printf '   (%s: %d s)\n' "$name" $((SECONDS - start))
}

cpp_tests() {  # the lines of passed tests would bury the others
  ctest --test-dir "$build" -j 2 --output-on-failure --no-tests=error | grep -vE '^ +Start |Passed +[0-9.]+ sec$'
}

suite "C++ tests" cpp_tests
suite "Python tests" "$python" -m pytest python/tests tests
if [ -f "$cases/run_cases.py" ]; then
  suite "shared cases" env PYTHONDONTWRITEBYTECODE=1 "$python" "$cases/run_cases.py" view elementwise reduce index contract row sampling attention paged moe \
    gated_delta conv pool interpolate grid_sample ctc fuse explain
fi
suite "ONNX node suite" "$python" tests/onnx/run.py
suite "fuzz" "$python" tests/fuzz/fuzz.py --draws 10000
suite "install tests" bash tests/install/run.sh "$build"

echo
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "all suites passed"
