#!/usr/bin/env bash
# fat_binary.sh CUOBJDUMP LIBRARY ARCHITECTURES: the library holds what TENOR_CUDA_ARCHITECTURES ("90a-real;80-virtual") asks for, once
# for every file of kernels, and nothing else.
set -euo pipefail
cuobjdump=$1 library=$2 status=0
elf=$("$cuobjdump" --list-elf "$library" 2>/dev/null | grep -o 'sm_[0-9a-z]*\.cubin' | sort | uniq -c || true)
ptx=$("$cuobjdump" --list-ptx "$library" 2>/dev/null | grep -o 'sm_[0-9a-z]*\.ptx' | sort | uniq -c || true)
wanted_elf="" wanted_ptx=""
for architecture in ${3//;/ }; do
  case $architecture in
    *-real) wanted_elf+=" sm_${architecture%-real}.cubin" ;;
    *-virtual) wanted_ptx+=" sm_${architecture%-virtual}.ptx" ;;
    *) wanted_elf+=" sm_$architecture.cubin" wanted_ptx+=" sm_$architecture.ptx" ;;
  esac
done
compare() {  # compare WHAT FOUND WANTED
  local kinds
  kinds=$(awk '{print $2}' <<<"$2" | tr '\n' ' ')
  if [ "$(tr ' ' '\n' <<<"$kinds" | sed '/^$/d' | sort | xargs)" != "$(tr ' ' '\n' <<<"$3" | sed '/^$/d' | sort | xargs)" ]; then
    echo "$1: found $kinds, wanted $3"
    status=1
  fi
}
compare "code" "$elf" "$wanted_elf"
compare "PTX" "$ptx" "$wanted_ptx"
if [ "$(awk 'NF {print $1}' <<<"$elf"$'\n'"$ptx" | sort -u | wc -l)" -gt 1 ]; then
  printf 'some files lack one of them:\n%s\n%s\n' "$elf" "$ptx"
  status=1
fi
printf '%s\n%s\n' "$elf" "$ptx"
exit $status
