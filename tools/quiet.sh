#!/usr/bin/env bash
# quiet.sh LOG WHAT COMMAND...: runs the command, says what it is and every half minute how far Ninja is; its output goes to
# LOG, the end of which is shown where it fails.
set -uo pipefail
log=$1 what=$2
shift 2
mkdir -p "$(dirname "$log")"
echo "$what; output in $log"
"$@" >"$log" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null' INT TERM
start=$SECONDS said=$SECONDS
while kill -0 $pid 2>/dev/null; do
  sleep 1
  if [ $((SECONDS - said)) -ge 30 ]; then
    said=$SECONDS
    echo "  $((SECONDS - start)) s $(grep -aoE '^ *\[[0-9]+/[0-9]+\]' "$log" | tail -n 1)"
  fi
done
wait $pid
status=$?
if [ $status != 0 ]; then
  echo "failed after $((SECONDS - start)) s; the end of $log:" >&2
  tail -n 25 "$log" >&2
  exit $status
fi
echo "  done in $((SECONDS - start)) s"
