#include "src/fusion/effort.h"

#include <algorithm>

#include "src/fusion/traffic.h"

namespace tenor::fusion {
namespace {

using core::OpClass;

bool is_narrow(const Tensor& x) { return x.defined() && (x.dtype() == float16 || x.dtype() == bfloat16); }

/// Of arithmetic on 16-bit floats, which runs in float32. The same elements count once, as a kernel may widen them
/// once.
void add_conversions(const core::Step& s, Effort& e) {
  const bool computes = s.op_class == OpClass::kElementwise || s.op_class == OpClass::kReduction;
  if (!computes || s.flops == 0 || s.work.as_bits) return;
  std::set<std::pair<const Storage*, std::vector<int64_t>>> seen;
  for (const Tensor& x : s.inputs)
    if (is_narrow(x) && seen.insert({x.storage().get(), elements_key(x)}).second)
      e.widened = core::count_sum(e.widened, distinct_elements(x)), e.narrow = x.dtype();
  for (const Tensor& y : s.outputs)
    if (is_narrow(y)) e.rounded = core::count_sum(e.rounded, distinct_elements(y)), e.narrow = y.dtype();
}

/// The dim that neighbours in memory differ in; -1 where none is.
int nearest_dim(const Tensor& x) {
  for (int d = x.ndim(); d-- > 0;)
    if (x.stride(d) == 1 && x.shape(d) > 1) return d;
  return -1;
}

/// Whether x's neighbours are apart in the result, and the other way round, both by far, so that a copy has to exchange
/// them in tiles: lines of elements of at most 4 bytes.
bool lies_across(const Tensor& x, const Tensor& out) {
  constexpr int64_t kFar = 64;
  const int near = nearest_dim(x), last = x.shape() == out.shape() ? nearest_dim(out) : x.ndim() - 1;
  return near >= 0 && last >= 0 && near != last && x.stride(last) >= kFar && x.shape(near) >= kFar &&
         x.shape(last) >= kFar && item_size(x.dtype()) <= 4;
}

void add_turns(const Node& node, Effort& e) {
  const core::Step& s = *node.step;
  if ((s.op_class != OpClass::kElementwise && s.op_class != OpClass::kView) || s.outputs.size() != 1) return;
  for (const Tensor& x : s.inputs)
    if (x.defined() && x.numel() == s.outputs[0].numel() && lies_across(x, s.outputs[0]))
      e.turned_read = core::count_sum(e.turned_read, distinct_bytes(x)),
      e.turned_written = distinct_bytes(s.outputs[0]);
}

}  // namespace

Effort effort_of(const Node& node) {
  const core::Step& s = *node.step;
  Effort e{s.work.exponentials, s.work.divisions, s.work.operations};
  if (node.kind == Kind::kView) return e;
  const bool wide = std::any_of(s.inputs.begin(), s.inputs.end(),
                                [](const Tensor& x) { return x.defined() && x.dtype() == float64; });
  if (wide) e.width = float64;
  add_conversions(s, e);
  add_turns(node, e);
  return e;
}

}  // namespace tenor::fusion
