// What the bindings of the attention families share: options that take several kinds of object, results with an lse.
#pragma once

#include "call.h"
#include "tenor/attention.h"

namespace tenor::python {

/// causal=, window=, workspace=: any Python object, checked with the operator's name; what it may be is said in
/// signatures.
enum class Takes { kAnything, kCausal, kWindow };
template <Takes kWhat>
struct Option {
  nb::handle object;
};
using Object = Option<Takes::kAnything>;

/// @throws ValueError
Causal to_causal(const char* op, nb::handle x);
Window to_window(const char* op, nb::handle x);

/// (out, lse) as AttentionResult, or out alone.
template <class F>
nb::object run_attention(Call& call, nb::handle type, bool with_lse, F&& fn) {
  if (!with_lse) return call.run([&] { return fn().out; });
  return call.run_named(type, [&] {
    AttentionResult r = fn();
    return std::vector<Tensor>{std::move(r.out), std::move(r.lse)};
  });
}

/// The named tuple (out, lse).
inline nb::object attention_result() { return named_tuple("AttentionResult", {"out", "lse"}); }

}  // namespace tenor::python

template <tenor::python::Takes kWhat>
struct nanobind::detail::type_caster<tenor::python::Option<kWhat>> {
  using Takes = tenor::python::Takes;
  static constexpr auto kCausal = const_name<kWhat == Takes::kCausal>("bool | str", "object");
  NB_TYPE_CASTER(tenor::python::Option<kWhat>,
                 const_name<kWhat == Takes::kWindow>(const_name("tuple[int, int]"), kCausal))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    value.object = src;
    return true;
  }
};
