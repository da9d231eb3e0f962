// The oracle of the index operators: loops over positions, on values in logical order.
#pragma once

#include <functional>
#include <vector>

#include "tenor/dims.h"

namespace tenor::reference {

/// Values in row-major order under a shape.
struct Array {
  Dims shape;
  std::vector<double> values;
  double& operator[](const Dims& at) { return values[place(at)]; }
  double operator[](const Dims& at) const { return values[place(at)]; }

 private:
  size_t place(const Dims& at) const {
    int64_t flat = 0;
    for (size_t d = 0; d < at.size(); ++d) flat = flat * shape[d] + at[d];
    return static_cast<size_t>(flat);
  }
};

/// Calls fn(position) in row-major order.
inline void for_each(const Dims& shape, const std::function<void(const Dims&)>& fn) {
  Dims at(shape.size(), 0);
  for (int64_t i = 0; i < product(shape); ++i) {
    fn(at);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
  }
}

/// The position with the index's entry there in dim's place.
inline Dims named(const Array& index, const Dims& at, size_t dim, int64_t n) {
  Dims out = at;
  const auto i = static_cast<int64_t>(index[at]);
  out[dim] = i < 0 ? i + n : i;
  return out;
}

inline Array gather(const Array& x, size_t dim, const Array& index) {
  Array out{index.shape, std::vector<double>(index.values.size())};
  for_each(index.shape, [&](const Dims& at) { out[at] = x[named(index, at, dim, x.shape[dim])]; });
  return out;
}

/// put(old, new) at each place that index names, in order.
inline Array scatter(Array x, size_t dim, const Array& index, const Array& src,
                     const std::function<double(double, double)>& put) {
  for_each(index.shape, [&](const Dims& at) {
    double& place = x[named(index, at, dim, x.shape[dim])];
    place = put(place, src[at]);
  });
  return x;
}

/// How often index names each place of x.
inline Array counts(const Array& x, size_t dim, const Array& index) {
  Array ones{index.shape, std::vector<double>(index.values.size(), 1)},
      none{x.shape, std::vector<double>(x.values.size(), 0)};
  return scatter(none, dim, index, ones, [](double a, double b) { return a + b; });
}

inline Array index_select(const Array& x, size_t dim, const std::vector<double>& index) {
  Array out{x.shape, {}};
  out.shape[dim] = static_cast<int64_t>(index.size());
  out.values.resize(static_cast<size_t>(product(out.shape)));
  for_each(out.shape, [&](const Dims& at) {
    Dims from = at;
    const auto i = static_cast<int64_t>(index[static_cast<size_t>(at[dim])]);
    from[dim] = i < 0 ? i + x.shape[dim] : i;
    out[at] = x[from];
  });
  return out;
}

inline Array index_add(Array x, size_t dim, const std::vector<double>& index, const Array& source, double alpha) {
  for_each(source.shape, [&](const Dims& at) {
    Dims to = at;
    const auto i = static_cast<int64_t>(index[static_cast<size_t>(at[dim])]);
    to[dim] = i < 0 ? i + x.shape[dim] : i;
    x[to] += alpha * source[at];
  });
  return x;
}

}  // namespace tenor::reference
