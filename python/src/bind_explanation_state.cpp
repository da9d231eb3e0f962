// Explanations and their rows as tuples of plain values and back: what copying and pickling them need.
#include "call.h"
#include "tenor/explain.h"

namespace tenor::python {
namespace {

using E = Explanation;

template <class V>
nb::object packed(const V& value) {
  if constexpr (std::is_same_v<V, Dims>)
    return to_tuple(value);
  else if constexpr (std::is_same_v<V, DType>)
    return nb::cast(static_cast<int>(value));
  else if constexpr (std::is_same_v<V, std::vector<DType>>) {
    nb::list all;
    for (DType d : value) all.append(packed(d));
    return all;
  } else
    return nb::cast(value);
}

template <class V>
void unpack(nb::handle from, V& value) {
  if constexpr (std::is_same_v<V, Dims>) {
    for (nb::handle size : from) value.push_back(nb::cast<int64_t>(size));
  } else if constexpr (std::is_same_v<V, DType>) {
    value = static_cast<DType>(nb::cast<int>(from));
  } else if constexpr (std::is_same_v<V, std::vector<DType>>) {
    for (nb::handle d : from) unpack(d, value.emplace_back());
  } else {
    value = nb::cast<V>(from);
  }
}

/// _state(x) of a T, and _of_state(name, state) back.
template <class T, auto... Members>
void bind_state(nb::module_& m, const char* make) {
  m.def("_state", [](const T& x) { return nb::make_tuple(packed(x.*Members)...); });
  m.def(make, [](nb::tuple state) {
    T x{};
    size_t at = 0;
    (unpack(state[at++], x.*Members), ...);
    return x;
  });
}

}  // namespace

void bind_explanation_state(nb::module_& m) {
  bind_state<E::Step, &E::Step::op, &E::Step::op_class, &E::Step::shape, &E::Step::dtype, &E::Step::view,
             &E::Step::bytes_read, &E::Step::bytes_written, &E::Step::flops, &E::Step::bound, &E::Step::floor_us,
             &E::Step::time_us, &E::Step::share, &E::Step::note, &E::Step::source>(m, "_make_Step");
  bind_state<E::Kernel, &E::Kernel::steps, &E::Kernel::bytes_read, &E::Kernel::bytes_written, &E::Kernel::floor_us,
             &E::Kernel::strategy, &E::Kernel::declined, &E::Kernel::predicted_us>(m, "_make_Kernel");
  bind_state<E::Cut, &E::Cut::before, &E::Cut::after, &E::Cut::reason>(m, "_make_Cut");
  bind_state<E::Copy, &E::Copy::step, &E::Copy::bytes, &E::Copy::reason>(m, "_make_Copy");
  bind_state<E::Promotion, &E::Promotion::step, &E::Promotion::dtypes, &E::Promotion::to>(m, "_make_Promotion");
  bind_state<E::Limit, &E::Limit::name, &E::Limit::value, &E::Limit::unit, &E::Limit::source>(m, "_make_Limit");
  bind_state<E, &E::device, &E::device_source, &E::limits, &E::steps, &E::kernels, &E::cuts, &E::copies, &E::promotions,
             &E::intermediates, &E::flops, &E::bytes_needed, &E::bytes_moved, &E::remarks>(m, "_make_Explanation");
}

}  // namespace tenor::python
