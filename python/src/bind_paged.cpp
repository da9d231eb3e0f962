// tenor.paged: plans, attention over pages, and the cache's writers. python/tenor/paged.py gives these names their
// module.
#include "bind_attention.h"
#include "part.h"
#include "src/core/text.h"
#include "src/core/visit.h"
#include "src/ops/paged/paged_plan.h"

namespace tenor::python {
namespace {

using core::fail;
using paged::DevicePlan;
using paged::HostPlan;
using paged::SplitWorkspace;

/// A sequence of ints or an integer array with one dim. @throws DTypeError, ShapeError, DeviceError, ValueError
std::vector<int64_t> to_ints(const char* op, const std::string& name, nb::handle x) {
  std::vector<int64_t> out;
  if (is_array(x)) {
    const Tensor t = to_tensor(op, name.c_str(), x);
    if (t.device() != kCpu) fail<DeviceError>("{}: {} must be on the CPU, got {}", op, name, t.device());
    if (!is_integer(t.dtype())) fail<DTypeError>("{}: {} must hold integers, got {}", op, name, t.dtype());
    if (t.ndim() != 1) fail<ShapeError>("{}: {} must have 1 dim, got shape {}", op, name, t.shape());
    core::visit_integer(t.dtype(), [&]<class I>() {
      for (int64_t i = 0; i < t.shape(0); ++i) {
        const I value = t.data<I>()[i * t.stride(0)];
        out.push_back(std::cmp_greater(value, INT64_MAX) ? INT64_MAX : static_cast<int64_t>(value));
      }
    });
    return out;
  }
  if (!PySequence_Check(x.ptr()) || PyUnicode_Check(x.ptr()))
    fail<DTypeError>("{}: {} must be a sequence of ints, got {}", op, name, nb::repr(x).c_str());
  for (nb::handle item : nb::borrow<nb::sequence>(x)) {
    Int value{};
    if (!read_int(item, value)) fail<DTypeError>("{}: {} must hold ints, got {}", op, name, nb::repr(item).c_str());
    out.push_back(value);
  }
  return out;
}

/// A sequence of such, or an integer array with two dims.
std::vector<std::vector<int64_t>> to_tables(const char* op, nb::handle x) {
  std::vector<std::vector<int64_t>> out;
  if (is_array(x)) {
    const Tensor t = to_tensor(op, "tables", x);
    if (t.ndim() != 2) fail<ShapeError>("{}: tables must have 2 dims, got shape {}", op, t.shape());
  } else if (!PySequence_Check(x.ptr()) || PyUnicode_Check(x.ptr())) {
    fail<DTypeError>("{}: tables must be a sequence of page lists, got {}", op, nb::repr(x).c_str());
  }
  size_t s = 0;
  for (nb::handle table : x) out.push_back(to_ints(op, "tables[" + std::to_string(s++) + "]", table));
  return out;
}

HostPlan to_host_plan(const char* op, int64_t page_size, int64_t pages, nb::handle tables, nb::handle lengths,
                      nb::handle ids, nb::handle positions) {
  return HostPlan(page_size, pages, to_tables(op, tables), to_ints(op, "lengths", lengths),
                  to_ints(op, "sequence_ids", ids), to_ints(op, "positions", positions));
}

/// A DevicePlan, and an empty array of its query's library: whose stream and allocator its updates use.
struct Plan {
  DevicePlan plan;
  nb::object like;
};

/// An array without memory of like's library and device.
nb::object empty_like(nb::handle like) {
  const nb::object make = find_attribute(like, "new_empty");
  return make.is_valid() && has_attribute(like, "is_cuda") ? make(0) : nb::none();
}

/// A call about `plan` on its library's stream.
Call call_of(const char* op, const Plan& plan) {
  Call call(op);
  if (!plan.like.is_none()) call.array("like", Array{plan.like});
  return call;
}

bool on_device(nb::handle x) {
  return is_array(x) && to_tensor("paged.update_", "its array", x).device().type != DeviceType::kCpu;
}

Tensor list_tensor(const std::vector<std::vector<int64_t>>& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  const Tensor x = Tensor::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)}, int64);
  for (size_t s = 0; s < rows.size(); ++s)
    for (size_t i = 0; i < width; ++i) x.data<int64_t>()[s * width + i] = i < rows[s].size() ? rows[s][i] : -1;
  return x;
}

void update(Plan& self, nb::handle host, nb::handle tables, nb::handle lengths, nb::handle ids, nb::handle positions) {
  constexpr const char* kOp = "paged.update_";
  const nb::handle arrays[] = {tables, lengths, ids, positions};
  const auto given = std::count_if(std::begin(arrays), std::end(arrays), [](nb::handle x) { return !x.is_none(); });
  Call call = call_of(kOp, self);
  if (!host.is_none()) {
    if (given) fail<ValueError>("{}: takes a HostPlan or the four arrays, not both", kOp);
    const HostPlan* plan = nullptr;
    if (!nb::try_cast(host, plan) || !plan)
      fail<DTypeError>("{}: host must be a HostPlan, got {}", kOp, nb::repr(host).c_str());
    return call.compute([&] { self.plan.update_(*plan); });
  }
  if (given != 4) fail<ValueError>("{}: takes a HostPlan or all of tables, lengths, sequence_ids and positions", kOp);
  if (std::none_of(std::begin(arrays), std::end(arrays), on_device)) {
    const paged::Capacity size = self.plan.capacity();
    const HostPlan plan = to_host_plan("paged.HostPlan", size.page_size, size.pages, tables, lengths, ids, positions);
    return call.compute([&] { self.plan.update_(plan); });
  }
  const auto one = [&](const char* name, nb::handle x) {
    if (is_array(x)) return call.array(name, Array{x});
    const Tensor row = list_tensor({to_ints(kOp, name, x)});
    return row.with_layout({row.shape(1)}, {1}, 0);
  };
  const Tensor t = is_array(tables) ? call.array("tables", Array{tables}) : list_tensor(to_tables(kOp, tables));
  const Tensor n = one("lengths", lengths), s = one("sequence_ids", ids), at = one("positions", positions);
  call.compute([&] { self.plan.update_(t, n, s, at); });
}

/// workspace=: a SplitWorkspace, a uint8 array or None.
template <class Options>
void set_workspace(Call& call, Options& o, nb::handle x) {
  if (x.is_none()) return;
  const SplitWorkspace* splits = nullptr;
  if (nb::try_cast(x, splits) && splits) {
    o.split_workspace = *splits;
  } else {
    o.workspace = call.array("workspace", Array{x});
  }
}
template <class Options>
void set_results(Call& call, Options& o, bool return_lse) {
  o.return_lse = return_lse;
  o.out = return_lse ? call.out(0, 2) : call.out();
  if (return_lse) o.out_lse = call.out(1, 2);
}

bool to_flag(const char* op, nb::handle x) {
  const Causal causal = to_causal(op, x);
  if (causal.kind() == Causal::kTopLeft) fail<ValueError>("{}: causal must be True or False, got 'top_left'", op);
  return causal.kind() != Causal::kOff;
}

/// Whether a cache must be copied before it is written: a tenor.Tensor whose storage has other holders than its Python
/// object and `x`.
bool is_held_elsewhere(nb::handle object, const Tensor& x) {
  return nb::isinstance<Tensor>(object) && paged::is_shared(x, 2);
}

nb::object append(const Plan& self, Array k, Array v, Array key_cache, Array value_cache, bool in_place) {
  const char* op = in_place ? "paged.append_" : "paged.append";
  Call call(op);
  const Tensor rows_k = call.array("k", k), rows_v = call.array("v", v);
  const Tensor kc = call.array("key_cache", key_cache), vc = call.array("value_cache", value_cache);
  const bool copy_k = !in_place && is_held_elsewhere(key_cache.object, kc),
             copy_v = !in_place && is_held_elsewhere(value_cache.object, vc);
  const paged::Caches kept = call.compute([&] {
    return paged::append_to(self.plan.state(), op, rows_k, rows_v, kc, vc, copy_k, copy_v,
                            paged::append_recipe(self.plan));
  });
  if (in_place) return nb::none();
  return nb::make_tuple(copy_k ? nb::cast(kept.key) : nb::borrow(key_cache.object),
                        copy_v ? nb::cast(kept.value) : nb::borrow(value_cache.object));
}

nb::object copy_pages(Array cache, nb::handle src, nb::handle dst, bool in_place) {
  const char* op = in_place ? "paged.copy_pages_" : "paged.copy_pages";
  Call call(op);
  const Tensor x = call.array("cache", cache);
  const std::vector<int64_t> from = to_ints(op, "src", src), to = to_ints(op, "dst", dst);
  const bool copy = !in_place && is_held_elsewhere(cache.object, x);
  const Tensor kept = call.compute([&] { return paged::copy_pages_of(op, x, from, to, copy); });
  if (in_place) return nb::none();
  return copy ? nb::cast(kept) : nb::borrow(cache.object);
}

void bind_host_plan(nb::module_& m) {
  nb::class_<HostPlan>(m, "_PagedHostPlan", R"(What one step computes, checked on the host.

HostPlan(page_size, pages, tables, lengths, sequence_ids, positions): `pages` physical pages of page_size keys are in the
pool; tables is a list of page numbers a sequence, or one int array [sequences, M]; lengths counts each sequence's keys,
those that this step appends included. Query row i stands at positions[i] (absolute, from 0) of sequence
sequence_ids[i]; -1 is a padding row. Table entries past ceil(length / page_size) may hold anything.

Raises IndexError for a page, sequence id or negative position out of range, ValueError for counts that disagree, a
negative length, a table too short.)")
      .def(
          "__init__",
          [](HostPlan* self, Int page_size, Int pages, Object tables, Object lengths, Object sequence_ids,
             Object positions) {
            new (self) HostPlan(to_host_plan("paged.HostPlan", page_size, pages, tables.object, lengths.object,
                                             sequence_ids.object, positions.object));
          },
          "page_size"_a, "pages"_a, "tables"_a.none(), "lengths"_a.none(), "sequence_ids"_a.none(),
          "positions"_a.none())  // whose errors name them
      .def_prop_ro("page_size", &HostPlan::page_size, "Keys of a page.")
      .def_prop_ro("pages", &HostPlan::pages, "Physical pages of the pool.")
      .def_prop_ro("queries", &HostPlan::queries, "Query rows, padding included.")
      .def_prop_ro("sequences", &HostPlan::sequences, "Sequences.")
      .def("__repr__", [](const HostPlan& p) {
        return "HostPlan(page_size=" + std::to_string(p.page_size()) + ", pages=" + std::to_string(p.pages()) +
               ", sequences=" + std::to_string(p.sequences()) + ", queries=" + std::to_string(p.queries()) + ")";
      });
}

void bind_split_workspace(nb::module_& m) {
  nb::class_<SplitWorkspace>(m, "_PagedSplitWorkspace",
                             R"(Memory for float32 partial states of `splits` parts of each row's keys.

SplitWorkspace(q, queries, heads, value_dim, splits) on q's device; passed as workspace= it asks for exactly that many
splits. splits is 2 to 32, 4 * splits * queries * heads * (value_dim + 2) bytes at most 64 MiB (ValueError). Its shape must
match at use (ShapeError).)")
      .def(
          "__init__",
          [](SplitWorkspace* self, Array q, Int queries, Int heads, Int value_dim, Int splits) {
            Call call("paged.SplitWorkspace");
            const Tensor like = call.array("q", q);
            new (self)
                SplitWorkspace(call.compute([&] { return SplitWorkspace(like, queries, heads, value_dim, splits); }));
          },
          "q"_a, "queries"_a, "heads"_a, "value_dim"_a, "splits"_a)
      .def_prop_ro("splits", &SplitWorkspace::splits, "Parts of each row's keys.");
}

using PlanClass = nb::class_<Plan>;

void bind_schedule(PlanClass& c) {
  c.def_static(
       "upload",
       [](const HostPlan& host, Array like) {
         Call call("paged.DevicePlan.upload");
         const Tensor q = call.array("like", like);
         return Plan{call.compute([&] { return DevicePlan::upload(host, q); }), empty_like(like.object)};
       },
       "host"_a, "like"_a, "The schedule on like's device; reusable while it stays the same.")
      .def_static(
          "reserve",
          [](Array like, Int page_size, Int pages, Int queries, Int sequences, Int pages_per_sequence) {
            Call call("paged.DevicePlan.reserve");
            const Tensor q = call.array("like", like);
            const paged::Capacity size{page_size, pages, queries, sequences, pages_per_sequence};
            return Plan{call.compute([&] { return DevicePlan::reserve(q, size); }), empty_like(like.object)};
          },
          "like"_a, nb::kw_only(), "page_size"_a, "pages"_a, "queries"_a, "sequences"_a, "pages_per_sequence"_a,
          "Memory at fixed addresses for schedules up to that size, all padding at first. Launch shapes depend on "
          "these numbers\n"
          "alone, so a captured CUDA graph replays what update_ wrote last.")
      .def(
          "update_",
          [](Plan& self, Object host, Object tables, Object lengths, Object sequence_ids, Object positions) {
            update(self, host.object, tables.object, lengths.object, sequence_ids.object, positions.object);
          },
          "host"_a.none() = nb::none(), nb::kw_only(), "tables"_a.none() = nb::none(), "lengths"_a.none() = nb::none(),
          "sequence_ids"_a.none() = nb::none(), "positions"_a.none() = nb::none(),
          R"(Refills the plan from a HostPlan, or from the four of them as lists or arrays, on the host or the device.

On the current stream, without synchronising; rows and sequences beyond those given become padding. Raises ValueError over
capacity. A bad entry of a device array makes its row padding or its sequence empty, and raises the stream's flag.)")
      .def_prop_ro(
          "lengths", [](const Plan& p) { return p.plan.lengths(); }, "int32 [sequences] on the device.")
      .def_prop_ro(
          "sequence_ids", [](const Plan& p) { return p.plan.sequence_ids(); }, "int32 [queries] on the device.")
      .def_prop_ro(
          "positions", [](const Plan& p) { return p.plan.positions(); }, "int32 [queries] on the device.")
      .def(
          "workspace_size",
          [](const Plan& p, const std::string& op, Int heads, Int value_dim) {
            return p.plan.workspace_size(op, heads, value_dim);
          },
          "op"_a, "heads"_a, "value_dim"_a,
          "Bytes of a uint8 workspace= with which op ('attention' or 'mla') allocates nothing but its result.");
}

void bind_attention_of_plan(PlanClass& c) {
  c.def(
      "attention",
      [](const Plan& self, Array q, Array k, Array v, std::optional<double> scale, Object causal, Object window,
         std::optional<double> softcap, OptionalArray sinks, Object workspace, const std::string& strategy,
         bool return_lse, Out out) {
        Call call("paged.attention", out);
        const Tensor query = call.array("q", q), key = call.array("k", k), value = call.array("v", v);
        paged::AttentionOptions o;
        o.scale = scale;
        o.causal = to_flag("paged.attention", causal.object);
        o.window = to_window("paged.attention", window.object);
        o.softcap = softcap;
        o.sinks = call.array("sinks", sinks);
        set_workspace(call, o, workspace.object);
        o.strategy = strategy;
        set_results(call, o, return_lse);
        return run_attention(call, attention_result(), return_lse,
                             [&] { return self.plan.attention(query, key, value, o); });
      },
      "q"_a, "k"_a, "v"_a, "scale"_a = nb::none(), "causal"_a.none() = true, nb::kw_only(),
      "window"_a.none() = nb::none(), "softcap"_a = nb::none(), "sinks"_a = nb::none(),
      "workspace"_a.none() = nb::none(), "strategy"_a = "auto", "return_lse"_a = false, "out"_a = nb::none(),
      R"(Attention of each query row over the cached keys of its sequence: ragged prefill and decode in one call.

q [queries, Hq, D], k [pages, page_size, Hkv, D], v [pages, page_size, Hkv, Dv] of one float dtype and any strides; Hq a
multiple of Hkv, D and Dv 1 to 1024. Returns [queries, Hq, Dv], with return_lse=True AttentionResult(out, lse), lse
[queries, Hq] float32.

scale: finite and > 0; None is D ** -0.5. causal: a query at position p sees the keys 0..p, else all of its sequence.
strategy: "auto", "flash_tensorcore", "flash_unit".
window: (left, right) extra keys each side of its position, -1 unlimited. softcap, sinks: as tenor.attention. workspace: a
SplitWorkspace asks for that many splits; a uint8 array of workspace_size() bytes saves the allocation. A padding row gives 0
and lse -inf; what lies beyond a length, NaN or not, never reaches a result.

Raises ShapeError, DTypeError, DeviceError, ValueError (for an unknown strategy, too), UnsupportedError for a strategy that cannot do it.)");
}

void bind_mla(PlanClass& c) {
  c.def(
      "mla",
      [](const Plan& self, Array q, Array qp, Array latent, Array kp, double scale, Object causal, Object workspace,
         const std::string& strategy, bool return_lse, Out out) {
        Call call("paged.mla", out);
        const Tensor query = call.array("q", q), query_p = call.array("qp", qp), cache = call.array("latent", latent),
                     cache_p = call.array("kp", kp);
        paged::MlaOptions o;
        set_workspace(call, o, workspace.object);
        o.strategy = strategy;
        set_results(call, o, return_lse);
        const bool on = to_flag("paged.mla", causal.object);
        return run_attention(call, attention_result(), return_lse,
                             [&] { return self.plan.mla(query, query_p, cache, cache_p, scale, on, o); });
      },
      "q"_a, "qp"_a, "latent"_a, "kp"_a, "scale"_a, "causal"_a.none(), nb::kw_only(), "workspace"_a.none() = nb::none(),
      "strategy"_a = "auto", "return_lse"_a = false, "out"_a = nb::none(),
      R"(Latent attention (MLA) with absorbed weights: softmax(scale (q . latent + qp . kp)) latent.

q [queries, H, R], qp [queries, H, P], latent [pages, page_size, 1, R], kp [pages, page_size, 1, P] of one float dtype; R 1 to
1024, P 1 to 256. scale is the model's own, of its query-key size before absorption. Returns the compressed context
[queries, H, R], with return_lse=True AttentionResult(out, lse).

Raises ShapeError, DTypeError, DeviceError, ValueError (for an unknown strategy, too), UnsupportedError for a strategy that cannot do it.)");
}

void bind_append(PlanClass& c) {
  c.def(
       "append",
       [](const Plan& self, Array k, Array v, Array key_cache, Array value_cache) {
         return append(self, k, v, key_cache, value_cache, false);
       },
       "k"_a, "v"_a, "key_cache"_a, "value_cache"_a,
       R"(Writes row i of k [queries, Hkv, D] and v [queries, Hkv, Dv] at (sequence_ids[i], positions[i]); padding rows are skipped.

Returns the caches to keep: a tenor.Tensor whose allocation another tensor shares is copied first, any other cache is written in
place. A position at or beyond its length is IndexError, two rows for one slot ValueError; then nothing is written.)")
      .def(
          "append_",
          [](const Plan& self, Array k, Array v, Array key_cache, Array value_cache) {
            append(self, k, v, key_cache, value_cache, true);
          },
          "k"_a, "v"_a, "key_cache"_a, "value_cache"_a,
          "append that always writes in place: for caches that are views of one pool.");
}

void bind_copy_pages(nb::module_& m) {
  Part part(m, "paged");
  part.def(
      "copy_pages",
      [](Array cache, Object src, Object dst) { return copy_pages(cache, src.object, dst.object, false); }, "cache"_a,
      "src"_a, "dst"_a,
      R"(cache[dst[i]] = cache[src[i]] along the first dim, every source read before the first write.

src and dst are equally long lists of pages, dst without repeats (ValueError), each in the cache (IndexError). Returns the cache
to keep: a tenor.Tensor whose allocation another tensor shares is copied first, any other is written in place.)");
  part.def(
      "copy_pages_", [](Array cache, Object src, Object dst) { copy_pages(cache, src.object, dst.object, true); },
      "cache"_a, "src"_a, "dst"_a, "copy_pages that always writes in place.");
}

}  // namespace

void bind_paged(nb::module_& m) {
  bind_host_plan(m);
  bind_split_workspace(m);
  PlanClass plan(m, "_PagedDevicePlan", "A schedule on the device of the queries; made by upload or reserve.");
  refuse_construction(plan, "paged.DevicePlan",
                      "paged.DevicePlan.upload(host, like=q) of a HostPlan, or paged.DevicePlan.reserve(q, ...)");
  bind_schedule(plan);
  bind_attention_of_plan(plan);
  bind_mla(plan);
  bind_append(plan);
  bind_copy_pages(m);
}

}  // namespace tenor::python
