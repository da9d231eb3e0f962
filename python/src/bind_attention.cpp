#include "bind_attention.h"

#include "src/core/text.h"

namespace tenor::python {

Causal to_causal(const char* op, nb::handle x) {
  if (PyBool_Check(x.ptr())) return x.ptr() == Py_True;
  if (utf8_of(x) == "top_left") return Causal::kTopLeft;
  const std::string type =
      nb::cast<std::string>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(x.ptr()))).attr("__name__"));
  if (type == "bool_" || type == "bool") return PyObject_IsTrue(x.ptr()) == 1;  // NumPy's
  core::fail<ValueError>("{}: causal must be True, False or 'top_left', got {}", op, nb::repr(x).c_str());
}

Window to_window(const char* op, nb::handle x) {
  if (x.is_none()) return {};
  const auto bad = [&] {
    core::fail<ValueError>("{}: window must be (left, right) with integers >= -1, got {}", op, nb::repr(x).c_str());
  };
  if (!PySequence_Check(x.ptr()) || PyUnicode_Check(x.ptr()) || nb::len(x) != 2) bad();
  Int sides[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (!read_int(nb::object(nb::borrow<nb::sequence>(x)[i]), sides[i])) bad();
  }
  return {sides[0], sides[1]};
}

namespace {

/// The options that both forms share.
template <class Options>
void set_options(Call& call, const char* op, Options& o, OptionalReal scale, nb::handle causal, nb::handle window,
                 OptionalReal softcap, OptionalArray sinks, const std::string& strategy, bool return_lse) {
  o.scale = scale;
  o.causal = to_causal(op, causal);
  o.window = to_window(op, window);
  o.softcap = softcap;
  o.sinks = call.array("sinks", sinks);
  o.strategy = strategy;
  o.return_lse = return_lse;
  o.out = return_lse ? call.out(0, 2) : call.out();
  if (return_lse) o.out_lse = call.out(1, 2);
}

}  // namespace
void bind_attention(nb::module_& m) {
  const nb::object type = attention_result();
  m.attr("AttentionResult") = type;
  const nb::handle result = type;

  m.def(
      "attention",
      [result](Array query, Array key, Array value, OptionalArray mask, OptionalArray bias, OptionalReal scale,
               Option<Takes::kCausal> causal, Option<Takes::kWindow> window, OptionalReal softcap, OptionalArray sinks,
               const std::string& strategy, bool return_lse, Out out) {
        Call call("attention", out);
        const Tensor q = call.array("query", query), k = call.array("key", key), v = call.array("value", value);
        AttentionOptions o;
        o.mask = call.array("mask", mask);
        o.bias = call.array("bias", bias);
        set_options(call, "attention", o, scale, causal.object, window.object, softcap, sinks, strategy, return_lse);
        return run_attention(call, result, return_lse, [&] { return attention(q, k, v, o); });
      },
      "query"_a, "key"_a, "value"_a, "mask"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(),
      "scale"_a = nb::none(), "causal"_a.none() = false, "window"_a = nb::none(), "softcap"_a = nb::none(),
      "sinks"_a = nb::none(), "strategy"_a = "auto", "return_lse"_a = false, "out"_a = nb::none(),
      R"(softmax(scale * query key^T + bias) value over the keys that each query may see.

query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv] of one float dtype; Hq a multiple of Hkv. Returns
[B, Hq, Sq, Dv], with return_lse=True AttentionResult(out, lse), lse [B, Hq, Sq] float32 (natural logarithm, without the
sink).

mask: bool, True = attend. bias: float32 or query's dtype, added to the scores. Both broadcast to [B, Hq, Sq, Sk].
scale: finite and > 0; None is D ** -0.5. causal: True lets query i see keys j <= i + Sk - Sq (bottom-right), "top_left"
j <= i. window: (left, right) extra keys each side of that diagonal, inclusive, -1 unlimited. softcap: scores become
c * tanh(s / c), before mask and bias. sinks [Hq]: exp(sink) joins the denominator. strategy: "auto", "flash_tensorcore",
"flash_unit", "fallback". A row with nothing to attend gives 0 and lse -inf.

Raises ShapeError, DTypeError, DeviceError, ValueError, UnsupportedError.)");

  m.def(
      "attention_varlen",
      [result](Array query, Array key, Array value, Array cu_seqlens_q, Array cu_seqlens_k, OptionalReal scale,
               Option<Takes::kCausal> causal, Option<Takes::kWindow> window, OptionalReal softcap, OptionalArray sinks,
               const std::string& strategy, bool return_lse, Out out) {
        Call call("attention_varlen", out);
        const Tensor q = call.array("query", query), k = call.array("key", key), v = call.array("value", value);
        const Tensor cu_q = call.array("cu_seqlens_q", cu_seqlens_q), cu_k = call.array("cu_seqlens_k", cu_seqlens_k);
        AttentionVarlenOptions o;
        set_options(call, "attention_varlen", o, scale, causal.object, window.object, softcap, sinks, strategy,
                    return_lse);
        return run_attention(call, result, return_lse, [&] { return attention_varlen(q, k, v, cu_q, cu_k, o); });
      },
      "query"_a, "key"_a, "value"_a, "cu_seqlens_q"_a, "cu_seqlens_k"_a, nb::kw_only(), "scale"_a = nb::none(),
      "causal"_a.none() = false, "window"_a = nb::none(), "softcap"_a = nb::none(), "sinks"_a = nb::none(),
      "strategy"_a = "auto", "return_lse"_a = false, "out"_a = nb::none(),
      R"(attention() of packed sequences: query [Tq, Hq, D], key [Tk, Hkv, D], value [Tk, Hkv, Dv].

Sequence n has the queries cu_seqlens_q[n] to cu_seqlens_q[n + 1] - 1, and likewise keys; both arrays are int32 or int64,
equally long, rise from 0 and end at T at most. Rows past the end give 0 and lse -inf. Returns [Tq, Hq, Dv], with
return_lse=True AttentionResult(out, lse), lse [Tq, Hq] float32. Options as attention's.

Raises ShapeError, DTypeError, DeviceError, ValueError, UnsupportedError.)");

  m.def(
      "merge_states",
      [result](Array out_a, Array lse_a, Array out_b, Array lse_b, Out out) {
        Call call("merge_states", out);
        const Tensor a = call.array("out_a", out_a), la = call.array("lse_a", lse_a);
        const Tensor b = call.array("out_b", out_b), lb = call.array("lse_b", lse_b);
        const MergeStatesOptions o{call.out(0, 2), call.out(1, 2)};
        return run_attention(call, result, true, [&] { return merge_states(a, la, b, lb, o); });
      },
      "out_a"_a, "lse_a"_a, "out_b"_a, "lse_b"_a, nb::kw_only(), "out"_a = nb::none(),
      R"(The attention over two disjoint sets of keys, from the attention over each: AttentionResult(out, lse).

out_a, out_b [..., Dv] of one float dtype, lse_a, lse_b [...] float32. lse = log(exp(lse_a) + exp(lse_b)), out is the mean
of both weighted by exp(lse - that). A state without keys (0, -inf) changes no bit of the other.

Raises ShapeError, DTypeError, DeviceError, ValueError.)");
}

}  // namespace tenor::python
