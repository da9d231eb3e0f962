// What the bindings of the attention families share: options that take several kinds of object, results with an lse.
#pragma once

#include "call.h"
#include "tenor/attention.h"

namespace tenor::python {

/// causal=, window=, workspace=: any Python object, checked with the operator's name.
struct Object { nb::handle object; };

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

template <>
struct nanobind::detail::type_caster<tenor::python::Object> {
  NB_TYPE_CASTER(tenor::python::Object, const_name("object"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    value.object = src;
    return true;
  }
};
