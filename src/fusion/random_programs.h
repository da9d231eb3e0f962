// Random programs of all classes, with views, in-place writes and aliases, for the tests that fused equals unfused.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/testing.h"
#include "tenor/tenor.h"

namespace tenor::random_programs {

/// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  uint64_t state_;
};

inline bool broadcasts(const Tensor& a, const Tensor& b) {
  for (int d = 1; d <= std::min(a.ndim(), b.ndim()); ++d)
    if (a.shape(-d) != b.shape(-d) && a.shape(-d) != 1 && b.shape(-d) != 1) return false;
  return true;
}

inline constexpr int64_t kPlaces = 2;  // that entries of an index among the inputs name

/// A program made of what it is given: the same for tensors of the same shapes and dtypes, with data or without.
class Maker {
 public:
  Maker(uint64_t seed, std::vector<Tensor> inputs) : random_(seed), pool_(std::move(inputs)) {}

  std::vector<Tensor> run(int steps) {
    for (int i = 0; i < steps; ++i) keep(step());
    std::vector<Tensor> out;
    const int64_t results = 1 + random_.below(3);
    for (int64_t i = 0; i < results; ++i) out.push_back(random_.one_in(4) ? any() : pool_.back());
    return out;
  }

 private:
  void keep(const Tensor& x) {
    if (x.defined() && x.ndim() <= 4 && x.numel() <= 1 << 18) pool_.push_back(x);
  }
  Tensor any() {
    return random_.one_in(3)
               ? random_.pick(pool_)
               : pool_[pool_.size() - 1 -
                       static_cast<size_t>(random_.below(std::min<int64_t>(4, static_cast<int64_t>(pool_.size()))))];
  }
  Tensor floating() {
    const Tensor x = any();
    return is_float(x.dtype()) ? x : x.to(float32);
  }
  Tensor partner(const Tensor& x) {
    for (int tries = 0; tries < 8; ++tries)
      if (const Tensor y = any(); broadcasts(x, y)) return y;
    return x;
  }
  Dims some_dims(const Tensor& x) {
    Dims dims;
    for (int d = 0; d < x.ndim(); ++d)
      if (random_.one_in(2)) dims.push_back(d);
    if (dims.empty() && x.ndim() > 0) dims.push_back(random_.below(x.ndim()));
    return dims;
  }

  Tensor step() {
    switch (random_.below(13)) {
      case 12:
        return gathered();
      case 0:
      case 1:
      case 2:
        return unary(floating());
      case 3:
      case 4:
      case 5:
        return binary();
      case 6:
      case 7:
        return reduction();
      case 8:
      case 9:
        return view(any());
      case 10:
        return random_.one_in(2) ? in_place() : conversion();
      default:
        return other();
    }
  }

  Tensor unary(const Tensor& x) {
    switch (random_.below(16)) {
      case 0:
        return tanh(x);
      case 1:
        return sigmoid(x);
      case 2:
        return relu(x);
      case 3:
        return exp(x);
      case 4:
        return abs(x);
      case 5:
        return sqrt(x);
      case 6:
        return neg(x);
      case 7:
        return gelu(x);
      case 8:
        return silu(x);
      case 9:
        return rsqrt(x);
      case 10:
        return floor(x);
      case 11:
        return log(x);
      case 12:
        return add(x, 1e-5);
      case 13:
        return mul(x, random_.one_in(2) ? Scalar(-0.0) : Scalar(3));
      case 14:
        return clamp(x, Operand(-1), Operand(2.5));
      default:
        return leaky_relu(x);
    }
  }

  Tensor binary() {
    const Tensor x = any(), y = partner(x);
    if (x.dtype() == boolean || y.dtype() == boolean) {
      const Tensor z = floating();
      const Tensor& mask = x.dtype() == boolean ? x : y;
      return broadcasts(mask, z) ? where(mask, z, 0.5) : neg(z);
    }
    switch (random_.below(9)) {
      case 0:
      case 1:
        return add(x, y);
      case 2:
        return sub(x, y);
      case 3:
      case 4:
        return mul(x, y);
      case 5:
        return div(x, y);
      case 6:
        return maximum(x, y);
      case 7:
        return lt(x, y);
      default:
        return random_.one_in(2) ? remainder(x, y) : pow(x, 2);
    }
  }

  Tensor reduction() {
    const Tensor x = any();
    const Dims dims = some_dims(x);
    const bool keepdim = !random_.one_in(3);
    if (x.numel() == 0) return sum(x, {.dim = dims, .keepdim = keepdim});
    switch (random_.below(9)) {
      case 0:
      case 1:
        return sum(x, {.dim = dims, .keepdim = keepdim});
      case 2:
        return mean(x, {.dim = dims, .keepdim = keepdim});
      case 3:
        return amax(x, {.dim = dims, .keepdim = keepdim});
      case 4:
        return amin(x, {.dim = dims, .keepdim = keepdim});
      case 5:
        return var(x, {.dim = dims, .keepdim = keepdim});
      case 6:
        return norm(x, {.dim = dims, .keepdim = keepdim});
      case 7:
        return random_.one_in(2) ? tenor::any(x, {.dim = dims, .keepdim = keepdim}) : count_nonzero(x, {.dim = dims});
      default:
        return logsumexp(x, {.dim = dims, .keepdim = keepdim});
    }
  }

  Tensor view(const Tensor& x) {
    if (x.ndim() == 0) return unsqueeze(x, 0);
    const int64_t d = random_.below(x.ndim());
    switch (random_.below(7)) {
      case 0:
        return transpose(x, d, random_.below(x.ndim()));
      case 1:
        return unsqueeze(x, d);
      case 2: {
        const int64_t n = x.shape(static_cast<int>(d)), first = n > 0 ? random_.below(n) : 0;
        return narrow(x, d, first, n > first ? 1 + random_.below(n - first) : 0);
      }
      case 3:
        return reshape(x, {x.numel()});
      case 4:
        return x.shape(0) % 2 == 0 && x.shape(0) > 0 ? reshape(x, {2, x.numel() / 2}) : x;
      case 5: {
        Dims shape = x.shape();
        for (int64_t& n : shape)
          if (n == 1) n = 1 + random_.below(5);
        return expand(x, shape);
      }
      default:
        return x.contiguous();
    }
  }

  Tensor in_place() {
    const Tensor x = any();
    if (!is_float(x.dtype()) || !may_write(x)) return neg(floating());
    switch (random_.below(4)) {
      case 0:
        return tanh_(x);
      case 1:
        return mul_(x, 0.75);
      case 2:
        return fill_(x, 0.25);
      default: {
        const Tensor y = partner(x);
        return y.dtype() != boolean && is_float(y.dtype()) && y.ndim() <= x.ndim() &&
                       core::broadcast_shapes("test", x.shape(), y.shape()) == x.shape()
                   ? add_(x, y)
                   : mul_(x, 2);
      }
    }
  }
  static bool may_write(const Tensor& x) {
    for (int d = 0; d < x.ndim(); ++d)
      if (x.shape(d) > 1 && x.stride(d) == 0) return false;
    return true;
  }

  Tensor conversion() {
    static const std::vector<DType> kTo{float32, float16, bfloat16, float64, int32, int8, uint8, boolean};
    return any().to(random_.pick(kTo));
  }

  /// x's places as index entries of some integer dtype, below 0 as well: computed, so stored before they are read.
  Tensor places(const Tensor& x, int64_t size) {
    const Tensor entries = remainder(x.to(int32), size);
    return (random_.one_in(2) ? sub(entries, size) : entries).to(random_.one_in(2) ? int64 : int32);
  }
  /// The index that the program is given, whose entries are -kPlaces..kPlaces-1.
  bool has_index(int64_t size) const { return !pool_.empty() && size >= kPlaces && pool_[0].dtype() == int64; }
  Tensor some_of(const Tensor& x) const {
    return narrow(reshape(x, {x.numel()}), 0, 0, std::min<int64_t>(x.numel(), 50));
  }
  Tensor gathered() {
    const Tensor x = any();
    if (x.ndim() == 0 || x.numel() == 0) return neg(floating());
    const int64_t d = random_.below(x.ndim()), n = x.shape(static_cast<int>(d));
    switch (random_.below(4)) {
      case 0:
        return gather(x, d, places(x, n));
      case 1:
        return take_along_dim(x, places(narrow(x, random_.below(x.ndim()), 0, 1), n), d);
      case 2:
        if (has_index(x.shape(0))) return embedding(pool_[0], x);
        [[fallthrough]];
      default:
        return index_select(x, d, has_index(n) ? pool_[0] : places(some_of(x), n));
    }
  }

  Tensor other() {
    const Tensor x = floating();
    if (x.ndim() == 0 || x.numel() == 0) return clone(x);
    switch (random_.below(4)) {
      case 0:
        return softmax(x, {.dim = -1});
      case 1:
        return cumsum(x, 0);
      case 2:
        return x.ndim() == 2 ? matmul(x, transpose(x, 0, 1)) : zeros_like(x);
      default:
        return random_.one_in(2) ? cat({x, x}, 0) : joined(x);
    }
  }
  /// Pieces of one shape, or of several.
  Tensor joined(const Tensor& x) {
    const int64_t d = random_.below(x.ndim()), n = x.shape(static_cast<int>(d));
    const Tensor y = random_.one_in(2) ? floating() : mul(x, 2), half = narrow(x, d, 0, n / 2),
                 rest = narrow(x, d, n / 2, n - n / 2);
    if (n > 1 && random_.one_in(2)) return cat({add(half, 1), neg(rest)}, d);
    return y.shape() != x.shape() ? stack({x, neg(x)}, d) : random_.one_in(2) ? stack({x, y}, d) : cat({y, x}, d);
  }
  static Tensor clone(const Tensor& x) { return x.clone(); }

  Random random_;
  std::vector<Tensor> pool_;
};

inline Tensor filled(Random& random, const Dims& shape, DType dtype) {
  Tensor x = Tensor::empty(shape, float32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(random.below(1 << 16) - (1 << 15)) / (1 << 13);
    if (random.one_in(300)) x.data<float>()[i] = random.one_in(2) ? NAN : INFINITY;
  }
  return x.to(dtype);
}

/// Inputs of shapes that broadcast to each other, some of them transposed, cut out of something larger, or views of
/// one.
inline std::vector<Tensor> inputs_of(uint64_t seed) {
  Random random(seed);
  static const std::vector<int64_t> kSizes{1, 2, 3, 5, 8, 17, 32, 64, 100};
  static const std::vector<DType> kDTypes{float32, float32, bfloat16, bfloat16, float16, float64, int32, boolean};
  Dims full;
  for (int64_t d = random.below(4); d > 0; --d) full.push_back(random.one_in(40) ? 0 : random.pick(kSizes));
  const DType common = random.pick(kDTypes);
  std::vector<Tensor> inputs;
  if (random.one_in(3)) {  // an index
    const Tensor entries = Tensor::empty({1 + random.below(9)}, int64);
    for (int64_t i = 0; i < entries.numel(); ++i) entries.data<int64_t>()[i] = random.below(2 * kPlaces) - kPlaces;
    inputs.push_back(entries);
  }
  for (int64_t i = 1 + random.below(4); i > 0; --i) {
    Dims shape = full;
    for (int64_t& n : shape)
      if (random.one_in(5)) n = 1;
    Tensor x = filled(random, shape, random.one_in(3) ? random.pick(kDTypes) : common);
    if (random.one_in(4) && x.ndim() >= 2) {
      std::swap(shape[0], shape[shape.size() - 1]);
      x = transpose(filled(random, shape, x.dtype()), 0, -1);
    } else if (random.one_in(4) && x.ndim() >= 1) {
      shape[0] = shape[0] + 3;
      x = narrow(filled(random, shape, x.dtype()), 0, 2, shape[0] - 3);
    }
    inputs.push_back(x);
  }
  return inputs;
}

/// A NaN is a NaN: its sign and payload follow the order of operands, which no contract fixes.
inline Tensor without_nan(const Tensor& x) { return is_float(x.dtype()) ? masked_fill(x, isnan(x), 0) : x; }

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  for (int d = 0; d < a.ndim(); ++d)
    if (a.shape(d) > 1 && a.stride(d) != b.stride(d)) return false;
  const auto equal = [](const Tensor& on, const Tensor& other) {
    const Tensor x = on.to(kCpu), y = other.to(kCpu);
    return std::memcmp(x.contiguous().raw(), y.contiguous().raw(),
                       static_cast<size_t>(x.numel()) * item_size(x.dtype())) == 0;
  };
  if (is_float(a.dtype()) && !equal(isnan(a), isnan(b))) return false;
  return equal(without_nan(a), without_nan(b));
}

inline std::vector<Tensor> copies(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> made;
  for (const Tensor& x : inputs) {  // with the same strides
    int64_t span = 1;
    for (int d = 0; d < x.ndim(); ++d) span += x.numel() ? (x.shape(d) - 1) * x.stride(d) : 0;
    const Tensor memory = Tensor::empty({span}, x.dtype());
    Tensor view = memory.with_layout(x.shape(), x.strides(), 0);
    if (x.numel()) core::copy_into(x, view);
    made.push_back(view);
  }
  return made;
}

inline int from_environment(const char* name, int otherwise) {
  const char* asked = std::getenv(name);
  return asked ? std::atoi(asked) : otherwise;
}

/// The function that seed names. Its steps are 3 to 30.
inline auto program_of(int seed) {
  return [seed](const std::vector<Tensor>& in) { return Maker(static_cast<uint64_t>(seed), in).run(3 + seed % 28); };
}

/// Its inputs, put by `place` where they run.
template <class Place>
std::vector<Tensor> placed_inputs(int seed, Place place) {
  std::vector<Tensor> made;
  for (const Tensor& x : copies(inputs_of(static_cast<uint64_t>(seed) * 7919))) made.push_back(place(x));
  return made;
}

/// Those of a small tensor, for messages.
inline std::string elements(const Tensor& x) {
  std::string out;
  for (double v : x.numel() <= 32 ? testing::values(x.to(kCpu)) : std::vector<double>()) out += " " + std::to_string(v);
  return out.empty() ? out : "\n " + out;
}

/// Runs it as it is written and fused, on tensors that `place` puts where they run: false where it is no program, such
/// as an integer where floats are needed. `kernels`: of several steps, added to.
template <class Place>
bool expect_same(int seed, Place place, int& kernels) {
  const auto fn = program_of(seed);
  try {  // on the CPU, which says so before another step runs
    fn(placed_inputs(seed, [](const Tensor& x) { return x; }));
  } catch (const Error&) {
    return false;
  }
  const std::vector<Tensor> a = placed_inputs(seed, place), b = placed_inputs(seed, place), want = fn(a);
  const FusedFunction fused(fn);
  EXPECT_EQ(fused.why_not(b), "") << "seed " << seed;
  kernels += fused.kernels(b);
  const std::vector<Tensor> got = fused(b);
  EXPECT_EQ(got.size(), want.size());
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    EXPECT_TRUE(same_bits(got[i], want[i])) << "seed " << seed << " result " << i << " " << describe(got[i]) << " "
                                            << describe(want[i]) << elements(got[i]) << elements(want[i]);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(same_bits(a[i], b[i])) << "seed " << seed << " input " << i << elements(b[i]) << elements(a[i]);
  return true;
}

}  // namespace tenor::random_programs
