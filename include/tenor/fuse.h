// fuse: a function of tensors whose chains of operators run as one kernel each.
//
//     const auto softmax = fuse([](Tensor x) {
//       const Tensor e = exp(sub(x, amax(x, {.dim = Dims{-1}, .keepdim = true})));
//       return div(e, sum(e, {.dim = Dims{-1}, .keepdim = true}));
//     });
//     Tensor y = softmax(x);  // reads x once, writes y once; the same bits as the function itself
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

struct FuseOptions {
  /// Lifts bit-equality: matmul, bmm and linear take as an epilogue the one chain of elementwise steps that reads their
  /// result: +, -, *, / with numbers and arrays, max, min, neg, relu, sigmoid, tanh, silu, gelu of either kind. The
  /// sum stays in float32 from step to step, without the steps' own roundings, and is rounded once, to the dtype of the
  /// chain's result. All else runs as without. explain() says which kernels do so, and why others do not.
  ///
  /// On the CPU operands, arrays and the result are of float32, bfloat16 and float16 in any mix; while it runs a call
  /// holds the sums of a block: 4 MiB, with more than 4 threads 1 MiB for each (128 MiB with 128).
  ///
  /// On CUDA, which has to be a Hopper GPU: operands of bfloat16 or float16, a result of the same dtype with more than
  /// 64 rows and columns and at least 64 tiles of 128 x 256; gelu behind linear with a bias only; at most 6 steps, and
  /// 3 arrays beside linear's bias, of the operands' dtype or float32; of the result's size one of them at most, and
  /// not beside sigmoid, tanh, silu or gelu, where a kernel of its own is faster; no max and min; divisors that are
  /// numbers (not such whose reciprocal is subnormal or overflows), by whose reciprocal the sum is multiplied, so that
  /// y / s may differ from the quotient in the last bit of float32; not under batch_invariant(), where a row has to
  /// have the bits that it has among 64 or fewer.
  bool fast = false;
};

/// A function that was made by fuse(). Its first call with inputs of some shapes, strides, dtypes, devices and
/// alignments traces it on shapes alone (it is called with tensors of the meta device) and compiles what explain()
/// would plan: chains of views, elementwise steps and reductions run as one kernel, which may read at places that an
/// index names and join its results; contractions, sorts, attention and norms run as the operators they are. Later
/// calls of that kind run the kernels. Results, and what it writes to its inputs, are those of the function itself, bit
/// for bit (but for FuseOptions::fast).
///
/// The function runs as it is written, every time, where one of its operators cannot be run again from a trace
/// (such as unique, whose result's size hangs on data), where it reads values on the
/// host or holds tensors of its own, where it catches an error that its operators raise of shapes without data, where
/// an input that it writes to shares memory with another, and while TENOR_FUSE=0 is in the environment. why_not() says
/// so. Where a kernel meets an error of what its inputs hold, as an index out of range, on the CPU, and the function
/// writes to none of them, it is called as it is written once more, since it may catch the error. A compilation or a
/// launch that fails is an error. Several threads may call it at once.
class FusedFunction {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

  explicit FusedFunction(Function fn, const FuseOptions& options = {});

  /// @throws whatever the function throws.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;

  /// Why inputs like these run the function as it is written; empty where they run kernels.
  std::string why_not(const std::vector<Tensor>& inputs) const;
  /// Kernels that calls with inputs like these run in place of several operators.
  int kernels(const std::vector<Tensor>& inputs) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// fn, a function of Tensors that returns a Tensor or a vector of them, as a callable of the same arguments and result.
template <class Result, class... Inputs>
class Fused {
 public:
  template <class Fn>
  explicit Fused(Fn fn, const FuseOptions& options = {})
      : fused_(
            [fn = std::move(fn)](const std::vector<Tensor>& given) {
              const auto call = [&]<size_t... I>(std::index_sequence<I...>) { return fn(given[I]...); };
              if constexpr (std::is_same_v<Result, Tensor>)
                return std::vector<Tensor>{call(std::index_sequence_for<Inputs...>{})};
              else
                return call(std::index_sequence_for<Inputs...>{});
            },
            options) {}

  Result operator()(const std::decay_t<Inputs>&... inputs) const {
    if constexpr (std::is_same_v<Result, Tensor>)
      return fused_({inputs...})[0];
    else
      return fused_({inputs...});
  }
  const FusedFunction& function() const { return fused_; }

 private:
  FusedFunction fused_;
};

namespace detail {
template <class>
struct FusedOf;
template <class F, class R, class... A>
struct FusedOf<R (F::*)(A...) const> {
  using Type = Fused<R, A...>;
};
}  // namespace detail

/// fuse([](Tensor x, Tensor y) { return ...; }): see FusedFunction.
template <class Fn>
auto fuse(Fn fn, const FuseOptions& options = {}) {
  return typename detail::FusedOf<decltype(&Fn::operator())>::Type(std::move(fn), options);
}

}  // namespace tenor
