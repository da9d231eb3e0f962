#include "src/ops/gated_delta/state_pool.h"

#include <string>
#include <unordered_map>

#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/sequences.h"
#include "src/core/visit.h"
#include "tenor/elementwise.h"
#include "tenor/view.h"

namespace tenor::delta {
namespace {

using core::fail;
using core::Named;

int64_t integer_at(const Tensor& x, int64_t i) {
  return core::visit(x.dtype(), [&]<class T>() { return core::cast<int64_t>(x.data<T>()[i * x.stride(0)]); });
}

/// The shape of `count` states.
Dims places_of(int64_t count, const Dims& state) {
  Dims all{count};
  for (int64_t size : state) all.push_back(size);
  return all;
}

void check_pool(const char* op, const StateOptions& o, int64_t sequences, const Dims& state, DType dtype) {
  if (o.initial_state.defined()) fail<ValueError>("{}: initial_state and state exclude each other", op);
  if (!o.state_indices.defined()) fail<ValueError>("{}: state needs state_indices", op);
  core::check_dtype(op, {"state", o.state}, dtype);
  core::check_ndim(op, {"state", o.state}, static_cast<int>(state.size()) + 1);
  core::check_shape(op, {"state", o.state}, places_of(o.state.shape(0), state));
  core::check_index_dtype(op, {"state_indices", o.state_indices});
  core::check_shape(op, {"state_indices", o.state_indices}, {sequences});
  core::check_writable(op, "state", o.state);
}

}  // namespace

void check_states(const char* op, const StateOptions& o, Named x, const Dims& state, DType dtype) {
  core::check_same_device(op, {x,
                               {"cu_seqlens", o.cu_seqlens},
                               {"initial_state", o.initial_state},
                               {"state", o.state},
                               {"state_indices", o.state_indices},
                               {"has_initial_state", o.has_initial_state}});
  if (o.cu_seqlens.defined()) {
    core::check_cu_seqlens(op, {"cu_seqlens", o.cu_seqlens});
    if (x.tensor.shape(0) != 1)
      fail<ShapeError>("{}: cu_seqlens needs {} with B = 1, got shape {}", op, x.name, x.tensor.shape());
  }
  const int64_t sequences = sequence_count(o, x.tensor.shape(0));
  if (o.state.defined()) {
    check_pool(op, o, sequences, state, dtype);
  } else if (o.state_indices.defined()) {
    fail<ValueError>("{}: state_indices needs state", op);
  }
  if (o.initial_state.defined()) {
    core::check_dtype(op, {"initial_state", o.initial_state}, dtype);
    core::check_shape(op, {"initial_state", o.initial_state}, places_of(sequences, state));
  }
  if (!o.has_initial_state.defined()) return;
  if (!o.state.defined() && !o.initial_state.defined())
    fail<ValueError>("{}: has_initial_state needs state or initial_state", op);
  core::check_dtype(op, {"has_initial_state", o.has_initial_state}, boolean);
  core::check_shape(op, {"has_initial_state", o.has_initial_state}, {sequences});
}

std::vector<Sequence> read_sequences(const char* op, const StateOptions& o, int64_t batch, int64_t steps) {
  std::vector<int64_t> starts;
  if (o.cu_seqlens.defined()) starts = core::read_cu_seqlens(op, {"cu_seqlens", o.cu_seqlens}, steps);
  std::vector<Sequence> all;
  std::unordered_map<int64_t, int64_t> taken;
  const int64_t count = sequence_count(o, batch);
  for (int64_t n = 0; n < count; ++n) {
    Sequence s{n, 0, steps, n, !o.state.defined() && !o.initial_state.defined()};
    if (!starts.empty()) s.batch = 0, s.begin = starts[n], s.length = starts[n + 1] - starts[n];
    if (o.has_initial_state.defined() && integer_at(o.has_initial_state, n) == 0) s.fresh = true;
    if (o.state.defined()) {
      s.slot = integer_at(o.state_indices, n);
      const bool wraps = o.state_indices.dtype() == uint64;  // the greatest ones are negative here, and no -1
      if (s.slot < (wraps ? 0 : -1) || s.slot >= o.state.shape(0))
        fail<IndexError>("{}: state_indices holds {} at {}, outside -1..{}", op,
                         wraps ? std::to_string(static_cast<uint64_t>(s.slot)) : std::to_string(s.slot), n,
                         o.state.shape(0) - 1);
      const auto [first, free] = taken.try_emplace(s.slot, n);
      if (!free && s.slot >= 0)
        fail<ValueError>("{}: state_indices names slot {} twice, at {} and {}", op, s.slot, first->second, n);
    }
    all.push_back(s);
  }
  return all;
}

void zero_unclaimed(const Tensor& out, const std::vector<Sequence>& sequences, bool packed) {
  const auto zero = [&](int64_t batch, int64_t begin, int64_t end) {
    if (begin < end) fill_(slice(slice(out, 0, batch, batch + 1), 2, begin, end), 0);
  };
  int64_t past = packed ? 0 : out.shape(2);
  for (const Sequence& s : sequences) {
    if (s.slot < 0) zero(s.batch, s.begin, s.begin + s.length);
    if (packed) past = s.begin + s.length;
  }
  if (packed) zero(0, past, out.shape(2));
}

Tensor apart_from_pool(const Tensor& x, const Tensor& pool) {
  return x.defined() && pool.defined() && core::spans_overlap(x, pool) ? x.clone() : x;
}

}  // namespace tenor::delta
