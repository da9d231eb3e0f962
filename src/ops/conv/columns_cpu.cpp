// im2col on the CPU: a row of outputs at a time.
#include <algorithm>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/conv/columns_kernels.h"

namespace tenor::conv {
namespace {

/// The outputs of one tap along the last dim; `inside`: whether the tap lies on the image in the others.
template <class T>
void copy_row(const Columns& c, int64_t tap, bool inside, const T* from, T* to) {
  const core::WindowDim& w = c.window[2];
  const int64_t step = c.to_output[2], source_step = w.stride * c.image.spatial[2];
  core::WindowRange in = inside ? w.outputs(tap) : core::WindowRange{};
  if (in.empty()) in = {w.output, w.output};
  for (int64_t i = 0; i < in.first; ++i) to[i * step] = T{};
  if (!in.empty()) from += w.position(in.first, tap) * c.image.spatial[2];
  if (step == 1 && source_step == 1) {
    std::copy_n(from, in.count(), to + in.first);
  } else {
    for (int64_t i = in.first; i < in.last; ++i, from += source_step) to[i * step] = *from;
  }
  for (int64_t i = in.last; i < w.output; ++i) to[i * step] = T{};
}

template <class T>
void copy_all(const Columns& c) {
  const core::WindowDim &D = c.window[0], &H = c.window[1], &W = c.window[2];
  const int64_t rows = c.batch * c.channels * c.taps() * D.output * H.output;
  cpu::parallel_for(rows, cpu::grain_of(W.output * static_cast<int64_t>(sizeof(T))), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      int64_t rest = i;
      const auto next = [&](int64_t size) {
        const int64_t at = rest % size;
        rest /= size;
        return at;
      };
      const int64_t oh = next(H.output), od = next(D.output), kw = next(W.kernel), kh = next(H.kernel),
                    kd = next(D.kernel), channel = next(c.channels), n = rest;
      const int64_t z = D.position(od, kd), y = H.position(oh, kh);
      const bool inside = z >= 0 && z < D.input && y >= 0 && y < H.input;
      const int64_t from = n * c.image.batch + channel * c.image.channel +
                           (inside ? z * c.image.spatial[0] + y * c.image.spatial[1] : 0);
      const int64_t to = n * c.to_batch + channel * c.to_channel + kd * c.to_tap[0] + kh * c.to_tap[1] +
                         kw * c.to_tap[2] + od * c.to_output[0] + oh * c.to_output[1];
      copy_row(c, kw, inside, reinterpret_cast<const T*>(c.image.data) + from, reinterpret_cast<T*>(c.columns) + to);
    }
  });
}

}  // namespace

void im2col_cpu(const Columns& c) {
  core::visit_size(c.dtype, [&]<class T>() { copy_all<T>(c); });
}

}  // namespace tenor::conv
