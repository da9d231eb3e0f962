// What a reduction is to its driver: chunk functions over one block of the reduction order, for one element type.
#pragma once

#include <cstdint>

#include "tenor/dtype.h"

namespace tenor::reduce {

/// The reductions that have kernels; the operators are made of one, two or three of these passes.
enum class Pass : uint8_t {
  kSum,
  kProd,
  kMax,
  kMin,    ///< of x, any dtype
  kCount,  ///< of x != 0, any dtype; int64
  kSumSquares,
  kSumAbs,
  kSumPowers,  ///< float32 and float64 from here on; powers: |x|^p
  kMaxAbs,
  kMinAbs,
  kSumShifted,
  kSumShiftedSquares,  ///< x - shift, (x - shift)^2, with one shift an output
  kSumExp,             ///< exp(x - shift)
};

/// Blocks hold at most core::kReductionBlock elements. "Lanes" are the kReductionLanes accumulators of every column of
/// a tile, lane by lane, `pitch` apart. A pointer to shifts holds one accumulator an output, and is null for other
/// passes.
struct Kernels {
  DType accumulator;
  /// results[r] = one block of n contiguous elements at x + r * stride.
  void (*rows)(const void* x, int64_t stride, int64_t rows, int64_t n, const void* shifts, double power, void* results);
  /// Folds `rows` elements of each of `width` adjacent columns into the lanes; the first one is element `first` of its
  /// block.
  void (*columns)(const void* x, int64_t stride, int64_t rows, int64_t first, int64_t width, const void* shifts,
                  double power, void* lanes, int64_t pitch);
  /// Fills n accumulators with the identity.
  void (*start)(void* accumulators, int64_t n);
  /// The lanes' tree for a block of `rows` elements a column: leaves the results in lane 0.
  void (*finish)(void* lanes, int64_t rows, int64_t width, int64_t pitch);
  /// a[i] = combine(a[i], b[i]).
  void (*combine)(void* a, const void* b, int64_t n);
  /// As rows, for many rows of 2 to core::kReductionLanes elements, stride >= n, and no shifts; null where no kernel is
  /// made for them.
  void (*short_rows)(const void* x, int64_t stride, int64_t rows, int64_t n, double power, void* results) = nullptr;
  /// Folds n elements, whole sets of lanes, of each output r from x + r * stride on into its lanes, which lie side by
  /// side: lanes[r * core::kReductionLanes + l]. Null where no kernel is made for them.
  void (*runs)(const void* x, int64_t stride, int64_t outputs, int64_t n, double power, void* lanes) = nullptr;
};

/// The kernels that read x of this dtype as it lies; nullptr where it must be converted to its accumulator's dtype
/// first.
const Kernels* kernels(Pass pass, DType dtype);

/// Passes kSumShifted and kSumShiftedSquares of whole dense rows of floats in one reading, with their bits.
using DeviationsFn = void (*)(const void* x, int64_t stride, int64_t rows, int64_t n, const void* shifts, void* sums,
                              void* squares);
DeviationsFn deviations(DType dtype);

/// Kernels of argmax and argmin. `value` is an extreme of the dtype's compute type.
struct ArgKernels {
  /// The index of the first of n contiguous elements that equals value (a NaN where value is NaN), or n.
  int64_t (*find)(const void* x, int64_t n, const void* value);
  /// Of floats: the place of the first NaN of n contiguous elements, else of the first extreme. nullptr of others.
  int64_t (*largest)(const void* x, int64_t n);
  int64_t (*smallest)(const void* x, int64_t n);
};
const ArgKernels& arg_kernels(DType dtype);

/// Folds rows of a tile of float32, float64, int64 or uint64, the first one having index `first`, into running extremes
/// and their indices, one a column; the first row ever starts with first == 0. The first NaN wins, else the first of
/// equals.
using ArgColumnsFn = void (*)(const void* x, int64_t stride, int64_t rows, int64_t first, int64_t width, void* values,
                              int64_t* indices);
ArgColumnsFn arg_columns(bool largest, DType dtype);

}  // namespace tenor::reduce
