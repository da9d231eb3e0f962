#include "src/core/window.h"

#include "src/core/text.h"
#include "tenor/error.h"

namespace tenor::core {
namespace {

constexpr int64_t kLargest = int64_t{1} << 40;  // of any option: sums and products of two with a size fit 64 bits
constexpr int64_t kLargestSpan = int64_t{1} << 31;

}  // namespace

int64_t window_outputs(const WindowDim& dim, bool ceil_mode) {
  const int64_t room = dim.input + dim.before + dim.after - dim.span();
  if (room < 0) return ceil_mode && room > -dim.stride ? int64_t{dim.input + dim.before > 0} : 0;
  const int64_t full = room / dim.stride + 1;
  if (!ceil_mode || room % dim.stride == 0) return full;
  return full * dim.stride < dim.input + dim.before ? full + 1 : full;
}

Dims values_per_dim(const char* op, const char* argument, const Dims& given, int dims, int64_t least) {
  if (given.size() != 1 && given.size() != static_cast<size_t>(dims))
    fail<ValueError>("{}: {} must be one number or {}, one a spatial dim, got {}", op, argument, dims, given);
  for (const int64_t value : given) {
    if (value < least) fail<ValueError>("{}: {} must be at least {} in every dim, got {}", op, argument, least, given);
    if (value > kLargest) fail<ValueError>("{}: {} must be at most 2^40 in every dim, got {}", op, argument, given);
  }
  return given.size() == 1 ? Dims(static_cast<size_t>(dims), given[0]) : given;
}

void check_span(const char* op, const char* argument, int64_t kernel, int64_t dilation) {
  if (kernel > 1 && dilation > (kLargestSpan - 1) / (kernel - 1))
    fail<ValueError>("{}: {} makes a window of ({} - 1) * {} + 1 inputs, more than 2^31", op, argument, kernel,
                     dilation);
}

}  // namespace tenor::core
