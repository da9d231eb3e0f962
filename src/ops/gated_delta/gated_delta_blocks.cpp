// How the CPU kernels divide their work.
#include "src/ops/gated_delta/gated_delta_operands.h"

namespace tenor::cpu {

std::vector<DeltaBlock> delta_blocks(const delta::Problem& p, int64_t width) {
  std::vector<DeltaBlock> all;
  for (const delta::Sequence& s : p.on_cpu) {
    if (s.slot < 0) continue;
    for (int64_t head = 0; head < p.value_heads; ++head)
      for (int64_t first = 0; first < p.value_dim; first += width)
        all.push_back({&s, head, first, std::min(width, p.value_dim - first)});
  }
  return all;
}

}  // namespace tenor::cpu
