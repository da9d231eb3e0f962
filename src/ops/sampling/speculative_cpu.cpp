// speculative_accept: each chain on its own, its drafts one after another.
#include "src/ops/sampling/sampling_row.h"

namespace tenor::cpu {
namespace {

using sampling::Stream;
using sampling::Tag;

/// One chain: where its rows are, and the numbers that it draws.
template <class T>
struct Chain {
  using C = core::Compute<T>;
  const SpeculativeRows& rows;
  int64_t b, drafts, vocabulary;

  const T* target(int64_t i) const {
    return rows.target.data<T>() + b * rows.target.stride(0) + i * rows.target.stride(1);
  }
  const T* draft(int64_t i) const {
    return rows.draft.defined() ? rows.draft.data<T>() + b * rows.draft.stride(0) + i * rows.draft.stride(1) : nullptr;
  }
  int64_t id(int64_t i) const { return rows.draft_ids.data<int64_t>()[b * drafts + i]; }
  Stream stream(int64_t i, Tag tag) const {
    return {rows.options[b].seed, rows.options[b].position + static_cast<uint64_t>(i), tag};
  }

  bool accepts(int64_t i) const {
    const double p = static_cast<double>(core::widen(target(i)[id(i)]));
    const double q = rows.draft.defined() ? static_cast<double>(core::widen(draft(i)[id(i)])) : 1.0;
    return sampling::unit_interval(stream(i, Tag::kAccept)) * q < p;
  }

  /// What is left of the target at place i once the draft's share is taken; the target itself where nothing is.
  bool leave_rest(int64_t i, bool rejected, SampleRow<C>& row) const {
    const auto subtract = [&](const T* from) {
      each_part(vocabulary, [&](int64_t, int64_t begin, int64_t end) {
        sample_kernels<C>().subtract(target(i) + begin, from ? from + begin : nullptr, static_cast<size_t>(end - begin),
                                     rows.target.dtype(), row.weights() + begin);
      });
    };
    subtract(rejected ? draft(i) : nullptr);
    if (rejected && !rows.draft.defined()) row.weights()[id(i)] = std::max(row.weights()[id(i)] - 1, C(0));
    if (row.load(row.weights())) return true;
    subtract(nullptr);
    return row.load(row.weights());
  }

  int64_t draw(int64_t i, bool rejected, SampleRow<C>& row) const {
    if (!leave_rest(i, rejected, row)) return 0;
    row.weigh();  // in place
    return row.race(stream(i, Tag::kResidual));
  }

  /// Writes n + 1 ids; returns how many drafts were accepted.
  int64_t run(int64_t* ids, int64_t stride, SampleRow<C>& row) const {
    int64_t i = 0;
    while (i < drafts && id(i) >= 0 && accepts(i)) ++i;
    for (int64_t j = 0; j < i; ++j) ids[j * stride] = id(j);
    ids[i * stride] = draw(i, i < drafts && id(i) >= 0, row);
    for (int64_t j = i + 1; j <= drafts; ++j) ids[j * stride] = -1;
    return i;
  }
};

}  // namespace

void accept_rows(const SpeculativeRows& rows, const Tensor& ids, const Tensor& accepted) {
  const int64_t batch = ids.shape(0), drafts = ids.shape(1) - 1, vocabulary = rows.target.shape(2);
  core::visit_float(rows.target.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    const DType compute = sizeof(C) == 8 ? float64 : float32;
    const auto some = [&](int64_t begin, int64_t end) {
      SampleRow<C> row(vocabulary, compute, RowKind::kProbs);
      for (int64_t b = begin; b < end; ++b) {
        const Chain<T> chain{rows, b, drafts, vocabulary};
        accepted.data<int64_t>()[b * accepted.stride(0)] =
            chain.run(ids.data<int64_t>() + b * ids.stride(0), ids.stride(1), row);
      }
    };
    if (batch < num_threads())
      some(0, batch);
    else
      parallel_for(batch, grain_of(vocabulary * 16), some);
  });
}

}  // namespace tenor::cpu
