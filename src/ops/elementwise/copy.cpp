// copy_into and the Tensor members that copy.
#include <cstring>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/step.h"
#include "src/cpu/parallel.h"
#include "src/cpu/tile.h"
#include "src/ops/elementwise/elementwise_recipe.h"

namespace tenor {
namespace {

/// Both dense in the same dimension order: one run of bytes.
bool is_one_run(const Tensor& src, const Tensor& dst) {
  if (src.dtype() != dst.dtype()) return false;
  if (src.is_contiguous() && dst.is_contiguous()) return true;
  int64_t reach = 1;
  for (int d = 0; d < src.ndim(); ++d) {
    if (src.shape(d) == 1) continue;
    if (src.stride(d) != dst.stride(d)) return false;
    reach += (src.shape(d) - 1) * src.stride(d);
  }
  return reach == src.numel() && !core::has_internal_overlap(src);
}

void copy_bytes(const Tensor& src, const Tensor& dst) {
  constexpr int64_t kPiece = 64 << 10;
  const int64_t bytes = src.numel() * static_cast<int64_t>(item_size(src.dtype()));
  const auto* from = static_cast<const char*>(src.raw());
  auto* to = static_cast<char*>(dst.raw());
  cpu::parallel_for((bytes + kPiece - 1) / kPiece, 4, [&](int64_t first, int64_t last) {
    std::memcpy(to + first * kPiece, from + first * kPiece,
                static_cast<size_t>(std::min(last * kPiece, bytes) - first * kPiece));
  });
}

/// x copied into `out`, stated as a step of its own where the caller asked for the copy.
Tensor copied(const char* op, const Tensor& x, const Tensor& out, const char* why) {
  core::StepScope step([&] {
    core::Step made{op, core::OpClass::kElementwise, {x}, {out}, x.numel()};
    made.work.as_bits = x.dtype() == out.dtype();
    made.recipe = std::make_shared<elementwise::Copy>();
    const int64_t bytes = x.numel() * static_cast<int64_t>(item_size(x.dtype()));
    if (why) made.copies.push_back({"x", bytes, why});
    return made;
  });
  if (!step.shape_only(out)) core::copy_into(x, out);
  return out;
}

}  // namespace

void core::copy_into(const Tensor& src, const Tensor& dst) {
  if (dst.numel() == 0) return;
  if (spans_overlap(src, dst)) {
    if (same_elements(src, dst) && src.dtype() == dst.dtype()) return;
    const Tensor held = Tensor::empty(src.shape(), src.dtype(), src.device());
    copy_into(src, held);
    return copy_into(held, dst);
  }
  if (dst.device().type == DeviceType::kCuda) return backend(dst.device()).copy_into(src, dst);
  if (is_one_run(src, dst)) return copy_bytes(src, dst);
  cpu::TileProgram program{.shape = dst.shape(),
                           .inputs = {{src.raw(), src.strides(), src.dtype(), src.dtype()}},
                           .steps = {},
                           .outputs = {{dst.raw(), dst.strides(), dst.dtype(), src.dtype()}},
                           .stored = {0},
                           .cost = src.dtype() == dst.dtype() ? 0 : 2};
  cpu::run_tiles(program);
}

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  return copied("contiguous", *this, empty(shape_, dtype_, device()), "its strides are not row-major");
}

Tensor Tensor::clone() const {
  return copied("clone", *this, empty(shape_, dtype_, device(), core::result_strides(shape_, *this)), nullptr);
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  return copied("to", *this, empty(shape_, dtype, device(), core::result_strides(shape_, *this)), nullptr);
}

}  // namespace tenor
