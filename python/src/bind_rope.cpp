#include "call.h"
#include "src/core/text.h"
#include "tenor/rope.h"

namespace tenor::python {
namespace {

using core::fail;

double number(const std::string& key, nb::handle value) {
  const auto scalar = to_scalar(value, "rope_tables", ("scaling['" + key + "']").c_str());
  if (!scalar || scalar->is_bool())
    fail<ValueError>("rope_tables: scaling['{}'] must be a number, got {}", key, nb::repr(value).c_str());
  return scalar->as_double();
}

std::string type_name(const std::string& key, nb::handle value) {
  const auto text = utf8_of(value);
  if (!text) fail<ValueError>("rope_tables: scaling['{}'] must be a name, got {}", key, nb::repr(value).c_str());
  return *text;
}

/// The fields of a scaling dict by type; `required` come first.
struct Field {
  const char* type;
  const char* key;
  bool required;
};
constexpr Field kFields[] = {
    {"linear", "factor", true},
    {"llama3", "factor", true},
    {"llama3", "low_freq_factor", true},
    {"llama3", "high_freq_factor", true},
    {"llama3", "original_max_position_embeddings", true},
    {"yarn", "factor", true},
    {"yarn", "original_max_position_embeddings", true},
    {"yarn", "beta_fast", false},
    {"yarn", "beta_slow", false},
    {"yarn", "attention_factor", false},
    {"yarn", "mscale", false},
    {"yarn", "mscale_all_dim", false},
    {"yarn", "truncate", false},
};

void set_field(RopeScaling& s, const std::string& key, nb::handle value) {
  if (key == "truncate") {
    if (!PyBool_Check(value.ptr()))
      fail<ValueError>("rope_tables: scaling['truncate'] must be a bool, got {}", nb::repr(value).c_str());
    s.truncate = value.ptr() == Py_True;
    return;
  }
  const double v = number(key, value);
  if (key == "factor") s.factor = v;
  if (key == "original_max_position_embeddings") s.original_max_position_embeddings = v;
  if (key == "low_freq_factor") s.low_freq_factor = v;
  if (key == "high_freq_factor") s.high_freq_factor = v;
  if (key == "beta_fast") s.beta_fast = v;
  if (key == "beta_slow") s.beta_slow = v;
  if (key == "attention_factor") s.attention_factor = v;
  if (key == "mscale") s.mscale = v;
  if (key == "mscale_all_dim") s.mscale_all_dim = v;
}

/// "rope_type", or "type" as older configurations call it.
std::string scaling_type(nb::dict scaling) {
  std::string found;
  for (const char* key : {"type", "rope_type"}) {
    if (!scaling.contains(key) || scaling[key].is_none()) continue;
    const std::string type = type_name(key, scaling[key]);
    if (!found.empty() && found != type)
      fail<ValueError>("rope_tables: scaling has type '{}' and rope_type '{}'", found, type);
    found = type;
  }
  if (found.empty())
    fail<ValueError>("rope_tables: scaling must name its 'rope_type' (or 'type'), got {}", nb::repr(scaling).c_str());
  return found;
}

/// What configurations say beside the scaling, without effect on the tables.
bool is_remark(const std::string& key) {
  return key == "finetuned" || key == "type" || key == "rope_type" || key == "rope_theta";
}

/// A dict as in a model's configuration (rope_scaling, rope_parameters). A field that its type does not use is an
/// error.
RopeScaling to_scaling(nb::handle object) {
  if (object.is_none()) return {};
  if (!PyDict_Check(object.ptr()))
    fail<ValueError>("rope_tables: scaling must be a dict or None, got {}", nb::repr(object).c_str());
  const auto dict = nb::borrow<nb::dict>(object);
  RopeScaling s{.type = scaling_type(dict)};
  for (auto [k, value] : dict) {
    const std::string key = type_name("(key)", k);
    if (is_remark(key) || value.is_none() || (key == "original_max_position_embeddings" && s.type == "linear"))
      continue;
    bool known = s.type == "default";
    for (const Field& f : kFields) known = known || (s.type == f.type && key == f.key);
    if (known) set_field(s, key, value);
    const bool known_type = s.type == "linear" || s.type == "llama3" || s.type == "yarn";
    if (!known && known_type) fail<ValueError>("rope_tables: scaling of type '{}' has no field '{}'", s.type, key);
  }
  for (const Field& f : kFields)
    if (f.required && s.type == f.type && (!dict.contains(f.key) || dict[f.key].is_none()))
      fail<ValueError>("rope_tables: scaling of type '{}' needs '{}'", s.type, f.key);
  return s;
}

/// theta, or the configuration's own where the dict has one and the caller left the default.
double to_theta(double theta, nb::handle scaling) {
  if (!PyDict_Check(scaling.ptr())) return theta;
  const auto dict = nb::borrow<nb::dict>(scaling);
  if (!dict.contains("rope_theta") || dict["rope_theta"].is_none()) return theta;
  const double named = number("rope_theta", dict["rope_theta"]);
  if (theta != RopeTablesOptions().theta && theta != named)
    fail<ValueError>("rope_tables: theta is {}, but scaling['rope_theta'] is {}", theta, named);
  return named;
}

}  // namespace

void bind_rope(nb::module_& m) {
  m.def(
      "rope",
      [](Array x, Array cos, Array sin, bool interleaved, OptionalInt rotary_dim, OptionalArray positions, Out out) {
        Call call("rope", out);
        const Tensor t = call.array("x", x), c = call.array("cos", cos), s = call.array("sin", sin),
                     p = call.array("positions", positions);
        const Tensor to = call.out();
        return call.run([&] {
          return rope(t, c, s, {.interleaved = interleaved, .rotary_dim = rotary_dim, .positions = p, .out = to});
        });
      },
      "x"_a, "cos"_a, "sin"_a, nb::kw_only(), "interleaved"_a = false, "rotary_dim"_a = nb::none(),
      "positions"_a = nb::none(), "out"_a = nb::none(),
      "Rotary position embedding of x[..., S, H, D] with cos, sin [maxpos, rotary_dim/2]: each pair (a, b) of a head "
      "becomes "
      "(a cos - b sin, b cos + a sin) at its position. Pairs are (i, i + rotary_dim/2), or (2i, 2i + 1) when "
      "interleaved; the "
      "head beyond rotary_dim passes through. positions [S] or [..., S], default 0..S-1.");

  m.def(
      "rope_tables",
      [](Int maxpos, Int rotary_dim, Real theta, nb::object scaling, DeviceLike device, Out out) {
        Call call("rope_tables", out);
        static auto* type = new nb::object(named_tuple("RopeTables", {"cos", "sin"}));
        const int64_t rows = call.count("maxpos", maxpos);
        const RopeTablesOptions options{.theta = to_theta(theta, scaling),
                                        .scaling = to_scaling(scaling),
                                        .device = call.device(device),
                                        .out = {call.out(0, 2), call.out(1, 2)}};
        return call.run_named(*type, [&] {
          RopeTables tables = rope_tables(rows, rotary_dim, options);
          return std::vector<Tensor>{tables.cos, tables.sin};
        });
      },
      "maxpos"_a, "rotary_dim"_a, "theta"_a = 1e4, "scaling"_a = nb::none(), "device"_a = "cpu", nb::kw_only(),
      "out"_a = nb::none(),
      "The tables (cos, sin) [maxpos, rotary_dim/2] of rope, computed in float64, stored float32. scaling is a dict as "
      "in model "
      "configurations, of rope_type 'linear', 'llama3' or 'yarn' (whose attention factor is in the tables).");
}

}  // namespace tenor::python
