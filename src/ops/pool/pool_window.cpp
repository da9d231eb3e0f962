#include "src/ops/pool/pool_window.h"

namespace tenor::pool {
namespace {

/// The divisor that all windows of a dim have, or 0. Windows are cut at the ends of a dim, the outermost the most.
int64_t uniform_count(const PoolDim& dim, bool padding_too) {
  if (dim.bins) return dim.output == 1 ? dim.input : 0;
  const bool whole = dim.count(0, padding_too) == dim.kernel && dim.count(dim.output - 1, padding_too) == dim.kernel;
  return whole ? dim.kernel : 0;
}

}  // namespace

Gather gather_of(const PoolSpace& space, const PoolGrid& image, const PoolGrid& windows, const PoolDivisor& divisor,
                 bool back) {
  Gather g{space, back ? windows : image, back ? image : windows, divisor, static_cast<double>(divisor.fixed)};
  if (divisor.is_fixed()) return g;
  g.uniform = 1;
  for (const PoolDim& dim : space.dim) g.uniform *= static_cast<double>(uniform_count(dim, divisor.padding_too));
  return g;
}

}  // namespace tenor::pool
