// The products of 16-bit operands by mma.sync.
#pragma once

#include "src/ops/attention/flash_walk.cuh"

namespace tenor::attn {

/// Everything that a kernel is compiled for.
template <class T_, int kDim_, int kGroups_, bool kGeneral_>
struct FlashSm80Config {
  using T = T_;
  static constexpr int kDim = kDim_;           ///< columns of q, k and v, as they lie in shared memory
  static constexpr int kKeys = 64;             ///< of a tile
  static constexpr int kGroups = kGroups_;     ///< times 64 rows
  static constexpr int kStreams = 1;           ///< of tiles of keys, each four warps'
  static constexpr bool kGeneral = kGeneral_;  ///< mask, bias or softcap
  static constexpr bool kScaled = kGeneral;    ///< scores come to the softmax with their scale
  static constexpr bool kBiasTiles = false;
  static constexpr int kRows = 64 * kGroups, kBlocks = kDim / 64;
};

/// The shared memory of a block. Tiles lie in blocks of 64 columns, of whose 16-byte pieces each line is turned by its
/// number, so that ldmatrix meets no bank twice.
template <class Config>
struct alignas(128) FlashSm80Shared {
  typename Config::T q[Config::kBlocks][Config::kRows * 64];
  typename Config::T k[Config::kBlocks][Config::kKeys * 64];
  typename Config::T v[Config::kBlocks][Config::kKeys * 64];
  FlashScratch<Config> scratch;
};

template <class Config_>
class FlashSm80 {
 public:
  using Config = Config_;
  using Shared = FlashSm80Shared<Config>;

 protected:
  using T = typename Config::T;
  static constexpr int kGroups = Config::kGroups, kKeys = Config::kKeys;
  static constexpr bool kChecksAll = false;  ///< only values beside hidden keys
  struct Weights {
    uint32_t p[kGroups][kKeys / 4];
  };

  explicit __device__ FlashSm80(Shared& shared) : shared_(shared) {}
  __device__ __forceinline__ Shared& shared() { return shared_; }
  __device__ __forceinline__ auto& keys() { return shared_.k; }
  __device__ __forceinline__ auto& values_there() { return shared_.v; }

  /// Starts copying `kLines` lines; line i lies at row(i), nullptr for one of zeros. Columns from `columns` on are
  /// zeros.
  template <int kLines, class Row>
  static __device__ __forceinline__ void copy(T (&to)[Config::kBlocks][kLines * 64], int columns, const void* readable,
                                              Row row) {
    const int piece = threadIdx.x % 8;
#pragma unroll 4
    for (int line = threadIdx.x / 8; line < kLines; line += 16) {
      const T* from = row(line);
#pragma unroll
      for (int b = 0; b < Config::kBlocks; ++b) {
        const int column = b * 64 + piece * 8, count = from ? min(max(columns - column, 0), 8) : 0;
        ptx::async_copy_part(to[b] + place(line, piece), count ? from + column : readable, 2 * count);
      }
    }
  }
  template <class Meet>
  __device__ __forceinline__ void meet_keys(bool, Meet) const {
    __syncthreads();
  }

  /// s = q times the tile of keys.
  __device__ __forceinline__ void scores(float (&s)[kGroups][kKeys / 2]) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane % 16;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (float& x : s[g]) x = 0;
#pragma unroll
    for (int step = 0; step < Config::kDim / 16; ++step) {
      const int b = step / 4, piece = step % 4 * 2;
      uint32_t q[kGroups][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        ptx::ldmatrix_x4(q[g], ptx::shared_address(shared_.q[b] + place(g * 64 + first, piece + lane / 16)));
#pragma unroll
      for (int j = 0; j < kKeys / 8; j += 2) {
        uint32_t k[4];
        ptx::ldmatrix_x4(
            k, ptx::shared_address(shared_.k[b] + place(j * 8 + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2)));
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply(s[g] + 4 * j, q[g], k[0], k[1]);
          multiply(s[g] + 4 * j + 4, q[g], k[2], k[3]);
        }
      }
    }
  }
  static __device__ __forceinline__ Weights weights(const float (&s)[kGroups][kKeys / 2]) {
    Weights w;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) flash_pack<T>(w.p[g], s[g]);
    return w;
  }
  /// o += weights times the tile of values.
  __device__ __forceinline__ void values(float (&o)[kGroups][Config::kDim / 2], const Weights& w) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
#pragma unroll
      for (int j = 0; j < Config::kDim / 8; j += 2) {
        uint32_t v[4];
        ptx::ldmatrix_x4_transposed(
            v, ptx::shared_address(shared_.v[j / 8] + place(step * 16 + lane % 16, j % 8 + lane / 16)));
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const auto& p = reinterpret_cast<const uint32_t(&)[4]>(w.p[g][4 * step]);
          multiply(o[g] + 4 * j, p, v[0], v[1]);
          multiply(o[g] + 4 * j + 4, p, v[2], v[3]);
        }
      }
  }
  /// Of the values that this thread has copied, what is not finite gives way to 0. Returns whether there was any.
  __device__ __forceinline__ bool check_values() const {
    uint32_t odd = 0;
    const auto each = [&](auto visit) {
#pragma unroll 4
      for (int line = threadIdx.x / 8; line < kKeys; line += 16)
#pragma unroll
        for (int b = 0; b < Config::kBlocks; ++b)
          visit(*reinterpret_cast<uint4*>(shared_.v[b] + place(line, threadIdx.x % 8)));
    };
    each([&](const uint4& x) { odd |= flash_odd<T>(x); });
    if ((odd & kNotSigns) == 0) return false;
    each([](uint4& x) { x = finite_only<T>(x); });
    return true;
  }
  static __device__ __forceinline__ bool store(const float (&o)[Config::kDim / 2], float2 inverse,
                                               const FlashShape& shape, const FlashTask& t, int first) {
    return flash_store<Config>(o, inverse, shape, t, first);
  }

 private:
  /// Where the 16-byte piece `piece` of a line lies in its block of 64 columns.
  static __device__ __forceinline__ int place(int line, int piece) { return line * 64 + (piece ^ (line & 7)) * 8; }
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16<T>(*reinterpret_cast<float(*)[4]>(d), a[0], a[1], a[2], a[3], b0, b1);
  }

  Shared& shared_;
};

}  // namespace tenor::attn
