// Mixture of experts: which experts each token goes to, tokens dealt to them, the experts' products, and their weighted
// sum. Sizes that depend on the routing stay on the device: nothing waits for the host, and there is no capacity limit.
#pragma once

#include <memory>
#include <string_view>

#include "tenor/tensor.h"

namespace tenor::moe {

class DispatchedTokens;

struct DispatchOptions {
  Tensor out = {};  ///< [T k, H]: the dispatched tokens
};

/// Which experts each of T tokens goes to, and with which weights: k slots a token. Copies share it.
class RoutingPlan {
 public:
  /// From any router: expert_indices [T,k] of an integer dtype, 0..experts-1, and weights [T,k] of a float dtype. A
  /// slot whose id is -1 (padding, another rank's expert) is not dispatched and adds nothing.
  /// @throws IndexError for another id (on CUDA it becomes -1 and raises the stream's flag); ValueError unless experts
  /// >= 1; ShapeError (more than 2^31 - 2 slots, too), DTypeError, DeviceError; UnsupportedError on CUDA beyond 16384
  /// experts
  RoutingPlan(const Tensor& expert_indices, const Tensor& weights, int64_t experts);

  int64_t tokens() const;
  int64_t top_k() const;
  int64_t experts() const;
  Device device() const;
  /// [T,k], converted to an integer dtype; -1 wraps in unsigned ones. @throws DTypeError
  Tensor expert_indices(DType dtype = uint32) const;
  const Tensor& weights() const;  ///< [T,k]

  /// x's rows [T,H] dealt out by expert, in token order within an expert (and slot order within a token): row p of the
  /// tokens is that of the p-th slot that is dispatched, sorted stably by expert. Rows past the last are 0. Cost: x
  /// read once, T k rows written. @throws ShapeError unless x is [T,H]; DTypeError, DeviceError
  DispatchedTokens dispatch(const Tensor& x, const DispatchOptions& options = {}) const;

  struct State;
  const State& state() const { return *state_; }
  explicit RoutingPlan(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

struct CombineOptions {
  Tensor shared = {};  ///< [T,H], y's dtype or float32: joins each sum last, before it is rounded
  Tensor out = {};     ///< [T,H], y's dtype
};

/// Tokens by expert: expert e's are rows offsets[e] to offsets[e + 1] of `tokens`.
class DispatchedTokens {
 public:
  DispatchedTokens(RoutingPlan plan, Tensor tokens) : plan_(std::move(plan)), tokens_(std::move(tokens)) {}
  const RoutingPlan& plan() const { return plan_; }
  const Tensor& tokens() const { return tokens_; }  ///< [T k, H]
  const Tensor& offsets() const;                    ///< int64 [E + 1]

  /// out[t] = sum over the slots s of token t, ascending, of weights[t,s] * y[its row], in float32 (float64 for
  /// float64), rounded once: the way back of dispatch. y [T k, H]. Rows of y that no slot names, NaN or not, never
  /// reach a result; a token without a dispatched slot gives 0. Cost: y read once, [T,H] written.
  /// @throws ShapeError, DTypeError, DeviceError
  Tensor combine(const Tensor& y, const CombineOptions& options = {}) const;

 private:
  RoutingPlan plan_;
  Tensor tokens_;
};

struct RouteOptions {
  bool renormalize = true;  ///< the chosen weights are divided by their sum
};
/// softmax(logits [T,E]) over all experts in float32 (float64 for float64), its top_k, weights rounded to logits'
/// dtype. Slots stand in descending order, the lower expert on ties. A row with NaN or +inf, or of -inf alone, has NaN
/// weights; its experts are the first by its logits, NaN below -inf, and distinct. The CPU and CUDA give the same bits.
/// @throws ValueError unless 1 <= top_k <= E; ShapeError, DTypeError; UnsupportedError on CUDA for E beyond 16384
RoutingPlan route(const Tensor& logits, int64_t top_k, const RouteOptions& options = {});

struct SigmoidGroupedOptions {
  int64_t top_k;            ///< 1 to 64, at most the experts of the selected groups
  int64_t groups;           ///< 1 to 128, divides E
  int64_t selected_groups;  ///< 1 to groups
  bool group_top_two = true;  ///< a group's score is its two largest, which takes two experts a group; else its largest
  bool renormalize = true;
  double scale = 1;  ///< finite, > 0
};
/// Scores s = 1 / (1 + exp(-logits)) in float32 (float64 for float64) and c = s + bias (float32 [E], which may be
/// undefined). A group's score is the sum of its two largest c, or its largest; experts of groups that are not among
/// the first selected_groups are never chosen, of the others the top_k by c. Groups and experts: larger first, the
/// lower number on ties, NaN below -inf. Weights are s, not c: with renormalize s / (sum s + 1e-20), then times scale,
/// rounded to logits' dtype. E is 1 to 1024. Source: DeepSeek-V3, arXiv 2412.19437, section 2.1.2.
/// @throws ValueError for options out of their range, ShapeError, DTypeError, DeviceError
RoutingPlan route_sigmoid_grouped(const Tensor& logits, const Tensor& bias, const SigmoidGroupedOptions& options);

struct ForwardOptions {
  bool renormalize = true;
  Tensor out = {};  ///< [T,H]
};
struct SigmoidGroupedForwardOptions {
  SigmoidGroupedOptions routing;
  std::string_view strategy = "auto";
  Tensor out = {};
};
struct ForwardRoutedOptions {
  Tensor shared = {};  ///< [T,H]: the shared experts' output, added in float32 before the one rounding
  std::string_view strategy = "auto";
  Tensor out = {};
};
struct ForwardDispatchedOptions {
  std::string_view strategy = "auto";
  Tensor out = {};  ///< [T k, H]
};

/// E experts without biases: expert(x) = down (silu(gate x) * (up x)). Holds the three tensors, copies nothing.
/// Strategies of the products: "tensorcore" (matrix units of a CUDA device, float16 and bfloat16), "gemm" (the CPU's
/// contraction kernels), "scalar" (one chain of multiply-adds an element, any dtype; the same chain on both devices),
/// "auto". Sums are float32 (float64 for float64); silu(gate) * up is float32, rounded once to the tokens' dtype before
/// down. Cost: 6 I H FLOPs a dispatched row; each expert that has tokens is read once or so.
class SwiGluExperts {
 public:
  /// gate, up [E,I,H], down [E,H,I] of one float dtype and device, any strides. @throws ShapeError, DTypeError,
  /// DeviceError
  SwiGluExperts(const Tensor& gate, const Tensor& up, const Tensor& down);

  const Tensor& gate() const { return gate_; }
  const Tensor& up() const { return up_; }
  const Tensor& down() const { return down_; }

  /// route(logits [T,E], top_k), then forward_routed. x [T,H] has the weights' dtype.
  /// @throws as both
  Tensor forward(const Tensor& x, const Tensor& logits, int64_t top_k, const ForwardOptions& options = {}) const;
  /// route_sigmoid_grouped(logits, bias, ...), then forward_routed. @throws as both
  Tensor forward_sigmoid_grouped(const Tensor& x, const Tensor& logits, const Tensor& bias,
                                 const SigmoidGroupedForwardOptions& options) const;
  /// dispatch, forward_dispatched and combine, bit for bit, in one call. @throws as they do
  Tensor forward_routed(const Tensor& x, const RoutingPlan& plan, const ForwardRoutedOptions& options = {}) const;
  /// Each row of the tokens through its expert: [T k, H]; rows past the last expert's are 0.
  /// @throws ShapeError, DTypeError, DeviceError; ValueError for an unknown strategy, UnsupportedError for one that
  /// cannot do it
  Tensor forward_dispatched(const DispatchedTokens& d, const ForwardDispatchedOptions& options = {}) const;

 private:
  Tensor gate_, up_, down_;
};

struct GroupedMatmulOptions {
  Tensor out = {};  ///< [M,N]
};
/// out[i] = x[i] weight[g]^T for the rows offsets[g] <= i < offsets[g + 1] of group g; rows past the last offset are 0.
/// x [M,K] and weight [G,N,K] of one float dtype, any strides; offsets int32 or int64 [G + 1], rising from 0 to at most
/// M, any group sizes. float32 accumulation (float64 for float64), one rounding. Cost: 2 K N FLOPs a row.
/// @throws ValueError for other offsets (on CUDA they are clamped and raise the stream's flag), ShapeError, DTypeError,
/// DeviceError
Tensor grouped_matmul(const Tensor& x, const Tensor& weight, const Tensor& offsets,
                      const GroupedMatmulOptions& options = {});

}  // namespace tenor::moe
