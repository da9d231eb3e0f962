// Reductions of integers and bool, and counts of what is not zero. Their order does not show, so these are plain loops,
// which the compiler vectorises for each instruction set.
#include <limits>

#include "src/core/visit.h"
#include "src/ops/reduce/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/reduce/reduce_cpu_int.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::reduce::HWY_NAMESPACE {
namespace {

struct Add {
  template <class A>
  static constexpr A identity() {
    return 0;
  }
  template <class A>
  static A combine(A a, A b) {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps
  }
};
struct Multiply {
  template <class A>
  static constexpr A identity() {
    return 1;
  }
  template <class A>
  static A combine(A a, A b) {
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct Larger {
  template <class A>
  static constexpr A identity() {
    return std::numeric_limits<A>::lowest();
  }
  template <class A>
  static A combine(A a, A b) {
    return a > b ? a : b;
  }
};
struct Smaller {
  template <class A>
  static constexpr A identity() {
    return std::numeric_limits<A>::max();
  }
  template <class A>
  static A combine(A a, A b) {
    return a < b ? a : b;
  }
};

template <class A>
struct Value {
  template <class T>
  static A map(T x) {
    return static_cast<A>(x);
  }
};
/// Whether x, by its bits, is not zero; for floats without the sign.
template <uint64_t kMask>
struct NotZero {
  template <class T>
  static int64_t map(T x) {
    return (x & static_cast<T>(kMask)) != 0;
  }
};

/// T in, A accumulated.
template <class T, class A, class Map, class Combine, DType kAccumulator>
struct IntKernels {
  static void rows(const void* data, int64_t stride, int64_t rows, int64_t n, const void*, double, void* results) {
    for (int64_t r = 0; r < rows; ++r) {
      const T* HWY_RESTRICT x = static_cast<const T*>(data) + r * stride;
      A a = Combine::template identity<A>();
      for (int64_t i = 0; i < n; ++i) a = Combine::template combine<A>(a, Map::map(x[i]));
      static_cast<A*>(results)[r] = a;
    }
  }
  static void columns(const void* data, int64_t stride, int64_t rows, int64_t, int64_t width, const void*, double,
                      void* lanes, int64_t) {
    A* HWY_RESTRICT a = static_cast<A*>(lanes);  // one lane will do
    for (int64_t r = 0; r < rows; ++r) {
      const T* HWY_RESTRICT x = static_cast<const T*>(data) + r * stride;
      for (int64_t c = 0; c < width; ++c) a[c] = Combine::template combine<A>(a[c], Map::map(x[c]));
    }
  }
  static void start(void* accumulators, int64_t n) {
    for (int64_t i = 0; i < n; ++i) static_cast<A*>(accumulators)[i] = Combine::template identity<A>();
  }
  static void finish(void*, int64_t, int64_t, int64_t) {}
  static void combine(void* into, const void* from, int64_t n) {
    A* a = static_cast<A*>(into);
    const A* b = static_cast<const A*>(from);
    for (int64_t i = 0; i < n; ++i) a[i] = Combine::template combine<A>(a[i], b[i]);
  }
  static constexpr Kernels kTable{kAccumulator, rows, columns, start, finish, combine};
};

template <class T, DType kType>
const Kernels* find(Pass pass) {
  switch (pass) {
    case Pass::kSum:
      return &IntKernels<T, int64_t, Value<int64_t>, Add, DType::kInt64>::kTable;
    case Pass::kProd:
      return &IntKernels<T, int64_t, Value<int64_t>, Multiply, DType::kInt64>::kTable;
    case Pass::kMax:
      return &IntKernels<T, T, Value<T>, Larger, kType>::kTable;
    case Pass::kMin:
      return &IntKernels<T, T, Value<T>, Smaller, kType>::kTable;
    default:
      return nullptr;
  }
}

template <class T, uint64_t kMask>
const Kernels* counts() {
  return &IntKernels<T, int64_t, NotZero<kMask>, Add, DType::kInt64>::kTable;
}

const Kernels* find_count_kernels(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return counts<uint16_t, 0x7FFF>();
    case DType::kFloat32:
      return counts<uint32_t, 0x7FFFFFFF>();
    case DType::kFloat64:
      return counts<uint64_t, 0x7FFFFFFFFFFFFFFF>();
    default:
      break;
  }
  switch (item_size(dtype)) {
    case 1:
      return counts<uint8_t, 0xFF>();
    case 2:
      return counts<uint16_t, 0xFFFF>();
    case 4:
      return counts<uint32_t, 0xFFFFFFFF>();
    default:
      return counts<uint64_t, ~uint64_t{0}>();
  }
}

const Kernels* find_int_kernels(Pass pass, DType dtype) {
  if (pass == Pass::kCount) return find_count_kernels(dtype);
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return find<uint8_t, DType::kUInt8>(pass);
    case DType::kInt8:
      return find<int8_t, DType::kInt8>(pass);
    case DType::kInt16:
      return find<int16_t, DType::kInt16>(pass);
    case DType::kInt32:
      return find<int32_t, DType::kInt32>(pass);
    case DType::kInt64:
      return find<int64_t, DType::kInt64>(pass);
    case DType::kUInt16:
      return find<uint16_t, DType::kUInt16>(pass);
    case DType::kUInt32:
      return find<uint32_t, DType::kUInt32>(pass);
    case DType::kUInt64:
      return find<uint64_t, DType::kUInt64>(pass);
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tenor::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::reduce {

HWY_EXPORT(find_int_kernels);
const Kernels* sum_kernels(Pass pass, DType dtype);
const Kernels* extreme_kernels(Pass pass, DType dtype);
const Kernels* shifted_kernels(Pass pass, DType dtype);

const Kernels* kernels(Pass pass, DType dtype) {
  if (!is_float(dtype) || pass == Pass::kCount) return HWY_DYNAMIC_DISPATCH(find_int_kernels)(pass, dtype);
  switch (pass) {
    case Pass::kSum:
    case Pass::kProd:
    case Pass::kSumSquares:
    case Pass::kSumAbs:
      return sum_kernels(pass, dtype);
    case Pass::kMax:
    case Pass::kMin:
    case Pass::kMaxAbs:
    case Pass::kMinAbs:
      return extreme_kernels(pass, dtype);
    default:
      return shifted_kernels(pass, dtype);
  }
}

}  // namespace tenor::reduce
#endif
