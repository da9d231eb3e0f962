#include "call.h"
#include "tenor/grid_sample.h"

namespace tenor::python {

void bind_grid_sample(nb::module_& m) {
  m.def(
      "grid_sample",
      [](Array x, Array grid, std::string mode, std::string padding_mode, bool align_corners, Out out,
         Workspace workspace) {
        Call call("grid_sample", out, workspace);
        const Tensor image = call.array("x", x), places = call.array("grid", grid);
        const GridSampleOptions o{mode, padding_mode, align_corners, call.out()};
        return call.run([&] { return grid_sample(image, places, o); });
      },
      "x"_a, "grid"_a, "mode"_a = "bilinear", "padding_mode"_a = "zeros", "align_corners"_a = false, nb::kw_only(),
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "x [N, C, H, W] at the places of grid [N, Ho, Wo, 2] -> [N, C, Ho, Wo]; or [N, C, D, H, W], [N, Do, Ho, Wo, 3]. "
      "Coordinates (x, y[, z]) of\n"
      "which -1 to 1 span the image, to its pixels' edges (to their centres with align_corners). mode 'bilinear', "
      "'nearest' (ties to even),\n"
      "'bicubic' (two dims, A = -0.75). padding_mode 'zeros', 'border', 'reflection'. A NaN coordinate gives NaN; an "
      "infinite one 0, the\n"
      "edge, or NaN under reflection. grid has x's dtype or float32. Raises ValueError, ShapeError, DTypeError, "
      "DeviceError, UnsupportedError for\n"
      "bicubic in three dims.");
  const nb::object type = named_tuple("GridSampleGradients", {"grad_x", "grad_grid"});
  m.def(
      "grid_sample_backward",
      [type](Array grad_output, Array x, Array grid, std::string mode, std::string padding_mode, bool align_corners,
             Out out, Workspace workspace) {
        Call call("grid_sample_backward", out, workspace);
        const Tensor g = call.array("grad_output", grad_output), image = call.array("x", x),
                     places = call.array("grid", grid);
        const GridSampleBackwardOptions o{mode, padding_mode, align_corners, {call.out(0, 2), call.out(1, 2)}};
        return call.run_named(type, [&] {
          GridSampleGradients r = grid_sample_backward(g, image, places, o);
          return std::vector<Tensor>{r.grad_x, r.grad_grid};
        });
      },
      "grad_output"_a, "x"_a, "grid"_a, "mode"_a = "bilinear", "padding_mode"_a = "zeros", "align_corners"_a = false,
      nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "The gradients (grad_x, grad_grid) of grid_sample with the same options. A pixel adds up what its places give in "
      "their order: the same bits\n"
      "on every run. grad_grid is 0 for 'nearest' and where a coordinate is clipped; a NaN coordinate has the gradient "
      "NaN and adds nothing\n"
      "to grad_x. Raises ShapeError for grad_output; else as grid_sample.");
  m.def(
      "affine_grid",
      [](Array theta, DimList size, bool align_corners, Out out) {
        Call call("affine_grid", out);
        const Tensor t = call.array("theta", theta);
        const Dims shape = call.dims("size", size);
        const AffineGridOptions o{align_corners, call.out()};
        return call.run([&] { return affine_grid(t, shape, o); });
      },
      "theta"_a, "size"_a, "align_corners"_a = false, nb::kw_only(), "out"_a = nb::none(),
      "The grid of an affine map: theta [N, 2, 3] and size (N, C, H, W) give [N, H, W, 2], theta [N, 3, 4] and (N, C, "
      "D, H, W) give\n"
      "[N, D, H, W, 3]: theta times (x, y[, z], 1) at the pixels' places, (2 i + 1) / n - 1 of a dim of n (2 i / (n - "
      "1) - 1 with\n"
      "align_corners, 0 for n = 1). Raises ShapeError, ValueError for an empty image, DTypeError.");
}

}  // namespace tenor::python
