// The implicit GEMM's tiles: one operand as rows whose elements are broadcast, the other in panels of whole vectors.
//
// Those of pixels are conv_panels_cpu.cpp's, of a forward or data direction; here vectors run over output channels.
//
// An output is one chain of FMAs over the taps and, within one, the channels, whatever the tile: a slice starts from
// the sums that the slice before left in the workspace. So tiles may be cut to suit the machine.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/conv/conv_gemm_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/register_tile-inl.h"
#include "src/ops/conv/conv_patches-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace conv = tenor::conv;

inline constexpr int64_t kDepth = 192;
inline constexpr int64_t kPitch = kDepth + 16;  // rows a power of two apart would meet in the same lines of the cache

template <class T>
HWY_INLINE int64_t panel_width() {
  return kVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

/// acc [Rows, panel] += rows [Rows][kPitch] x panel [depth][panel].
template <int Rows, class T>
void multiply_rows(const T* rows, const T* panel, T* acc, int64_t depth, bool first) {
  multiply_tile<Rows, kPitch, 1>(rows, panel, acc, depth, first);
}

/// By the smallest kernel that holds them; rows past the last are in memory and count for nothing.
template <class T>
void multiply(int64_t rows, const T* a, const T* b, T* acc, int64_t depth, bool first) {
  if (rows == 1) return multiply_rows<1>(a, b, acc, depth, first);
  if (rows == 2) return multiply_rows<2>(a, b, acc, depth, first);
  if (rows <= 4) return multiply_rows<4>(a, b, acc, depth, first);
  if (kRows > 8 && rows <= 8) return multiply_rows<8>(a, b, acc, depth, first);
  return multiply_rows<kRows>(a, b, acc, depth, first);
}

/// The workspace of a tile of rows x cols, in whole register tiles.
template <class T>
struct Workspace {
  T *rows, *panels, *sums;
  int64_t row_count, col_count;

  Workspace(void* memory, int64_t row_count, int64_t col_count) : row_count(row_count), col_count(col_count) {
    rows = static_cast<T*>(memory);
    panels = rows + conv::round_up(row_count, kRows) * kPitch;
    sums = panels + conv::round_up(col_count, panel_width<T>()) * kDepth;
  }
  /// Rows past the last and columns past the last are multiplied too; what stands there matters to nobody, but is
  /// defined.
  void clear_ends() {
    for (int64_t r = row_count; r < conv::round_up(row_count, kRows); ++r) std::fill_n(rows + r * kPitch, kPitch, T(0));
  }
  void clear_last_panel(int64_t depth) {
    const int64_t width = panel_width<T>();
    if (col_count % width != 0) std::fill_n(panels + col_count / width * width * depth, width * depth, T(0));
  }
  template <class F>
  HWY_INLINE void each_tile(F&& fn) const {
    T* at = sums;
    for (int64_t j = 0; j < col_count; j += panel_width<T>())
      for (int64_t i = 0; i < row_count; i += kRows, at += kRows * panel_width<T>()) fn(i, j, at);
  }
};

/// Gathers patches as rows: each pixel's columns.
template <class T>
void gather_rows(const conv::Patches& p, int64_t row, int64_t rows, int64_t k, int64_t depth, T* to) {
  gather_patches(p, row, rows, k, depth, PatchTarget<T>{to, kPitch, 1});
}

/// Outputs [first, first + count) of a group as [panel][column][width], zeros past the last output.
template <class S, class T>
void pack_panels(const conv::TapProblem& p, const conv::Pass& pass, const S* weight, int64_t count, T* to) {
  const int64_t width = panel_width<T>(), cols = static_cast<int64_t>(pass.taps.size()) * p.in;
  for (int64_t o = 0; o < conv::round_up(count, width); ++o) {
    T* place = to + o / width * width * cols + o % width;
    for (const conv::Tap& tap : pass.taps)
      for (int64_t c = 0; c < p.in; ++c, place += width)
        *place = o < count ? core::cast<T>(weight[o * p.weight_out + c * p.weight_in + tap.weight]) : T(0);
  }
}

void pack_filter_of(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, int64_t first, int64_t count,
                    void* to) {
  const int64_t cols = static_cast<int64_t>(pass.taps.size()) * p.in;
  with_compute(p.dtype, [&]<class T>() {
    with_storage<T>(p.dtype, [&]<class S>() {
      const S* weight = reinterpret_cast<const S*>(p.weight) + group * p.weight_group + first * p.weight_out;
      pack_panels(p, pass, weight, count, static_cast<T*>(to) + first * cols);
    });
  });
}

/// Elements of a target, `cols` of them from `rounded`, to data[j * step].
template <class S>
HWY_INLINE void scatter(const S* rounded, int64_t cols, S* data, int64_t step) {
  if (step == 1) {
    std::copy_n(rounded, cols, data);
  } else {
    for (int64_t j = 0; j < cols; ++j) data[j * step] = rounded[j];
  }
}

/// A register tile of sums, whose rows are pixels, to the target. Whether one is not a finite number.
template <class S, class T>
bool store_forward(const conv::ForwardTile& t, int64_t i, int64_t rows, int64_t j, int64_t cols, const T* sums) {
  const conv::TapProblem& p = *t.problem;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = panel_width<T>();
  const S* bias = reinterpret_cast<const S*>(p.bias);
  HWY_ALIGN T added[kVectors * HWY_MAX_BYTES / sizeof(T)] = {};
  HWY_ALIGN S rounded[kVectors * HWY_MAX_BYTES / sizeof(T)];
  const int64_t channel = t.group * p.out + t.col + j;
  for (int64_t o = 0; o < cols && bias; ++o) added[o] = core::cast<T>(bias[(channel + o) * p.bias_stride]);
  auto odd = hn::Zero(d);  // NaN once such a one was met
  for_each_run(t.joint[0], t.row + i, rows, [&](const PixelRun& run, int64_t r) HWY_ATTR {
    S* to = reinterpret_cast<S*>(p.target.data) + channel * p.target.channel + place_of(run, t.joint[0], p.target);
    for (int64_t w = 0; w < run.count; ++w, to += t.joint[0].step[2] * p.target.spatial[2]) {
      for (int64_t v = 0; v < width; v += lanes) {
        const auto sum = hn::Load(d, sums + (r + w) * width + v);
        odd = hn::MulAdd(sum, hn::Zero(d), odd);
        store(d, hn::Add(sum, hn::Load(d, added + v)), rounded + v);
      }
      scatter(rounded, cols, to, p.target.channel);
    }
  });
  return !hn::AllTrue(d, hn::Eq(odd, odd));
}

template <class T>
bool forward_tile(const conv::ForwardTile& t, void* memory) {
  const conv::Patches patches = conv::patches_of(*t.problem, t.joint[0], t.group);
  const int64_t width = panel_width<T>(), depth_total = patches.cols();
  Workspace<T> w(memory, t.rows, t.cols);
  w.clear_ends();
  const T* weight = static_cast<const T*>(t.weight);
  for (int64_t k = 0; k < depth_total; k += kDepth) {
    const int64_t depth = std::min(kDepth, depth_total - k);
    gather_rows(patches, t.row, t.rows, k, depth, w.rows);
    w.each_tile([&](int64_t i, int64_t j, T* sums) {
      multiply(std::min(kRows, w.row_count - i), w.rows + i * kPitch,
               weight + ((t.col + j) / width * depth_total + k) * width, sums, depth, k == 0);
    });
  }
  bool odd = false;
  w.each_tile([&](int64_t i, int64_t j, T* sums) {
    if (depth_total == 0) std::fill_n(sums, kRows * width, T(0));
    with_storage<T>(t.problem->dtype, [&]<class S>() {
      odd |= store_forward<S>(t, i, std::min(kRows, w.row_count - i), j, std::min(width, w.col_count - j), sums);
    });
  });
  return odd;
}

bool forward_tile_of(const conv::ForwardTile& t, void* workspace) {
  if (t.problem->dtype == DType::kFloat64) return forward_tile<double>(t, workspace);
  return forward_tile<float>(t, workspace);
}

template <class T>
void weight_tile(const conv::WeightTile& t, void* memory) {
  const bool outputs = t.along == conv::Along::kOutputs;
  const int64_t width = panel_width<T>();
  // The rows' matrix and the panels': their first column here, how many.
  const conv::Patches &row_matrix = outputs ? t.patches : t.grads, &panel_matrix = outputs ? t.grads : t.patches;
  const int64_t row_first = outputs ? t.col : t.out, panel_first = outputs ? t.out : t.col;
  Workspace<T> w(memory, outputs ? t.cols : t.outs, outputs ? t.outs : t.cols);
  w.clear_ends();
  for (int64_t k = 0; k < t.rows; k += kDepth) {
    const int64_t depth = std::min(kDepth, t.rows - k);
    gather_patches(row_matrix, t.row + k, depth, row_first, w.row_count, PatchTarget<T>{w.rows, 1, kPitch});
    w.clear_last_panel(depth);
    for (int64_t j = 0; j < w.col_count; j += width)
      gather_patches(panel_matrix, t.row + k, depth, panel_first + j, std::min(width, w.col_count - j),
                     PatchTarget<T>{w.panels + j * depth, width, 1});
    w.each_tile([&](int64_t i, int64_t j, T* sums) {
      multiply(std::min(kRows, w.row_count - i), w.rows + i * kPitch, w.panels + j * depth, sums, depth, k == 0);
    });
  }
  T* to = static_cast<T*>(t.sums) + t.out * t.pitch + t.col;
  w.each_tile([&](int64_t i, int64_t j, const T* sums) {
    const int64_t rows = std::min(kRows, w.row_count - i), cols = std::min(width, w.col_count - j);
    for (int64_t r = 0; r < rows; ++r)
      scatter(sums + r * width, cols, outputs ? to + j * t.pitch + i + r : to + (i + r) * t.pitch + j,
              outputs ? t.pitch : 1);
  });
}

void weight_tile_of(const conv::WeightTile& t, void* workspace) {
  if (t.patches.dtype == DType::kFloat64) return weight_tile<double>(t, workspace);
  weight_tile<float>(t, workspace);
}

conv::GemmShape gemm_shape_of(DType compute) {
  return {kRows, compute == DType::kFloat64 ? panel_width<double>() : panel_width<float>(), kDepth, kPitch};
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(gemm_shape_of);
HWY_EXPORT(pack_filter_of);
HWY_EXPORT(forward_tile_of);
HWY_EXPORT(weight_tile_of);

conv::GemmShape conv_gemm_shape(DType compute) { return HWY_DYNAMIC_DISPATCH(gemm_shape_of)(compute); }
void conv_pack_filter(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, int64_t first, int64_t count,
                      void* to) {
  HWY_DYNAMIC_DISPATCH(pack_filter_of)(p, pass, group, first, count, to);
}
bool conv_forward_tile(const conv::ForwardTile& tile, void* workspace) {
  return HWY_DYNAMIC_DISPATCH(forward_tile_of)(tile, workspace);
}
void conv_weight_tile(const conv::WeightTile& tile, void* workspace) {
  HWY_DYNAMIC_DISPATCH(weight_tile_of)(tile, workspace);
}

}  // namespace tenor::cpu
#endif
