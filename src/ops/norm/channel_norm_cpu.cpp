// group_norm and batch_norm.
#include "src/core/visit.h"
#include "src/ops/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/norm/channel_norm_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/norm/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// `places` elements of each of the group's channels, one scale and offset a channel.
template <class T, class C = core::Compute<T>>
HWY_INLINE void apply_by_channel(const T* x, T* y, size_t places, size_t channels, const Moments<C>& moments,
                                 int64_t ahead, const C* gamma, const C* beta) {
  const ComputeTag<T> d;
  for (size_t c = 0; c < channels; ++c, x += places, y += places) {
    const auto scale = hn::Set(d, gamma ? gamma[c] : C(1)), offset = hn::Set(d, beta ? beta[c] : C(-0.0));
    apply_moments(
        x, y, places, moments, ahead, [=](auto, size_t) HWY_ATTR { return scale; },
        [=](auto, size_t) HWY_ATTR { return offset; });
  }
}

void group_norm_block(const RowBlock& block, const GroupParameters& p) {
  core::visit_float(p.norm.dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const size_t n = static_cast<size_t>(block.length), channels = static_cast<size_t>(p.channels),
                 places = n / channels;
    const int64_t ahead = block.ahead<T>(0);
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t first = (block.first + r) % p.groups * p.channels;
      const C* gamma = p.norm.gamma ? static_cast<const C*>(p.norm.gamma) + first : nullptr;
      const C* beta = p.norm.beta ? static_cast<const C*>(p.norm.beta) + first : nullptr;
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      const Moments<C> moments = row_moments(x, n, p.norm.epsilon);
      if (places == 1 && gamma) {
        apply_moments(x, y, n, moments, ahead, gamma, beta);
      } else {
        apply_by_channel(x, y, places, channels, moments, ahead, gamma, beta);
      }
    }
  });
}

void batch_norm_planes_block(const RowBlock& block, const BatchParameters& p) {
  core::visit_float(p.dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const ComputeTag<T> d;
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t c = (block.first + r) % p.channels;
      const auto mean = hn::Set(d, static_cast<const C*>(p.mean)[c]),
                 scale = hn::Set(d, static_cast<const C*>(p.scale)[c]);
      const auto offset = hn::Set(d, static_cast<const C*>(p.beta)[c]);
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      for_lanes(d, static_cast<size_t>(block.length), [&](size_t i, auto io) HWY_ATTR {
        io.store(d, hn::Add(hn::Mul(hn::Sub(io.load(d, x + i), mean), scale), offset), y + i);
      });
    }
  });
}

void batch_norm_channels_block(const RowBlock& block, const BatchParameters& p) {
  core::visit_float(p.dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const ComputeTag<T> d;
    const C *mean = static_cast<const C*>(p.mean), *scale = static_cast<const C*>(p.scale),
            *offset = static_cast<const C*>(p.beta);
    for (int64_t r = 0; r < block.count; ++r) {
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      for_lanes(d, static_cast<size_t>(block.length), [&](size_t i, auto io) HWY_ATTR {
        const auto e = hn::Mul(hn::Sub(io.load(d, x + i), io.load(d, mean + i)), io.load(d, scale + i));
        io.store(d, hn::Add(e, io.load(d, offset + i)), y + i);
      });
    }
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(group_norm_block);
HWY_EXPORT(batch_norm_planes_block);
HWY_EXPORT(batch_norm_channels_block);

void group_norm_rows(const RowBlock& block, const GroupParameters& p) {
  HWY_DYNAMIC_DISPATCH(group_norm_block)(block, p);
}
void batch_norm_planes(const RowBlock& block, const BatchParameters& p) {
  HWY_DYNAMIC_DISPATCH(batch_norm_planes_block)(block, p);
}
void batch_norm_channels(const RowBlock& block, const BatchParameters& p) {
  HWY_DYNAMIC_DISPATCH(batch_norm_channels_block)(block, p);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
