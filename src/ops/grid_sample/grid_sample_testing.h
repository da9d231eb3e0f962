// Random samplings, for the tests on both devices.
#pragma once

#include "src/ops/grid_sample/grid_sample_reference.h"
#include "tenor/grid_sample.h"

namespace tenor::testing {

struct GridCall {
  std::string mode, padding;
  bool align;
  Dims image, places;  // [N, C, *S], [N, *places, dims]
  std::string text() const {
    return mode + " " + padding + (align ? " aligned " : " ") + to_string(image) + " at " + to_string(places);
  }
  GridReference reference() const { return {mode, padding, align}; }
  int64_t count() const { return product(places) / std::max<int64_t>(places[0] * places.back(), 1); }
};

inline GridCall random_grid_call(Draw& draw) {
  static const std::string kModes[] = {"bilinear", "nearest", "bicubic"},
                           kPaddings[] = {"zeros", "border", "reflection"};
  const bool volume = draw.upto(2) == 0;
  GridCall call{kModes[draw.upto(volume ? 1 : 2)],
                kPaddings[draw.upto(2)],
                draw.coin(),
                {draw.upto(3), draw.coin() ? 1 + draw.upto(3) : 4 * (1 + draw.upto(4))},
                {}};
  call.places.push_back(call.image[0]);
  for (int d = 0; d < (volume ? 3 : 2); ++d) {
    call.image.push_back(1 + draw.upto(volume ? 6 : 13));
    call.places.push_back(1 + draw.upto(volume ? 6 : 25));
  }
  if (draw.upto(5) == 0) call.places.back() = 1;  // a column of places
  call.places.push_back(volume ? 3 : 2);
  return call;
}

/// Coordinates in and around the image, a few of them exact, far or not finite. 16-bit and float32 grids have rounding
/// of their own, so positions stay off the places where a value jumps: halves for the nearest pixel.
inline std::vector<double> random_coordinates(Draw& draw, const GridCall& call, DType dtype) {
  std::vector<double> out(static_cast<size_t>(product(call.places)));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto size =
        static_cast<double>(call.image[call.image.size() - 1 - i % static_cast<size_t>(call.places.back())]);
    for (int attempt = 0; attempt < 50; ++attempt) {
      out[i] = rounded(0.8 * draw.normal(), dtype);
      const double u = (out[i] + 1) * (call.align ? size - 1 : size) / 2 - (call.align ? 0 : 0.5);
      if (std::abs(u * 2 - std::nearbyint(u * 2)) > 1e-3) break;
    }
    if (draw.upto(60) == 0) out[i] = draw.coin() ? kNan : draw.coin() ? kInf : -kInf;
    if (draw.upto(60) == 0) out[i] = draw.coin() ? 50 : -1000;
  }
  return out;
}

/// Row-major, channels side by side, or anything.
inline Tensor any_image(Draw& draw, const Dims& shape, DType dtype) {
  if (draw.upto(2) > 0) return draw.coin() ? draw.dense(shape, dtype) : draw.view(shape, dtype);
  Dims strides(shape.size(), 0);
  int64_t step = shape[1];
  strides[1] = 1;
  for (size_t d = shape.size(); d-- > 2;) strides[d] = step, step *= shape[d];
  strides[0] = step;
  const Tensor x = Tensor::empty(shape, dtype, kCpu, strides);
  assign(x, draw.normals(product(shape)));
  return x;
}

}  // namespace tenor::testing
