// Kernels without reductions: a thread takes one unit, neighbouring elements along the innermost dim.
#include <algorithm>

#include "src/cuda/fusion/kernels.h"
#include "src/cuda/fusion/writer.h"

namespace tenor::cuda {
namespace {

using fusion::Instruction;
using fusion::Program;

constexpr int kThreads = 256;

class LoopKernel {
 public:
  LoopKernel(const Program& program, const FusedOptions& options)
      : program_(program), walk_(walk_of(program)), writer_(program, walk_), last_(walk_.ndim() - 1) {
    width_ = vector_width(program, walk_, false, options.most_width);
  }

  FusedKernel kernel() const {
    const int64_t inner = last_ < 0 ? 1 : walk_.size.back(),
                  units = walk_.rows() * walk_.length() / inner * (inner / width_);
    const int64_t tail = last_ == 0 ? inner % width_ : 0;
    FusedKernel out;
    out.text = text(tail > 0);
    out.parameters = writer_.parameters({units, tail, 0, 0, width_});
    out.arrays = walk_.arrays;
    out.flags = writer_.flags();
    out.threads = kThreads;
    out.blocks = std::max<int64_t>((units + kThreads - 1) / kThreads, 1);
    out.layout = width_ == 1 ? "single elements" : joined("vectors of ", width_);
    return out;
  }

 private:
  bool varies_inside(int i) const { return last_ >= 0 && walk_.varies[static_cast<size_t>(i)].back(); }
  std::string width_of(int i) const { return varies_inside(i) ? "V" : "1"; }
  int64_t inner_stride(int a) const { return last_ < 0 ? 0 : walk_.arrays[static_cast<size_t>(a)].stride.back(); }

  std::string load(int i) const {
    const int a = walk_.array_of[static_cast<size_t>(i)], index = walk_.arrays[static_cast<size_t>(a)].index;
    const std::string type = type_of(program_.code[static_cast<size_t>(i)].dtype),
                      place = joined(writer_.pointer(a), " + at", a);
    if (index >= 0)
      return writer_.gather(i, place, joined(writer_.pointer(index), " + at", index),
                            joined("v", program_.code[static_cast<size_t>(i)].inputs[0]), width_of(i));
    switch (inner_stride(a)) {
      case 0:
        return joined("load<", type, ", 1>(", place, ")");
      case 1:
        return joined("load<", type, ", V>(", place, ")");
      default:
        return joined("load_apart<", type, ", V>(", place, ", static_cast<", writer_.index(), ">(p.stride[", a, "][",
                      last_, "]))");
    }
  }
  std::string store(int a, int value) const {
    const std::string place = joined(writer_.pointer(a), " + at", a), pack = joined("spread<V>(v", value, ")");
    switch (inner_stride(a)) {
      case 0:
        return joined(is_partial(a) ? joined("if (first", a, ") ") : std::string(), "store(", place, ", v", value, ")");
      case 1:
        return joined("store(", place, ", ", pack, ")");
      default:
        return joined("store_apart(", place, ", static_cast<", writer_.index(), ">(p.stride[", a, "][", last_, "]), ",
                      pack, ")");
    }
  }
  /// Whether only the first place along some dim writes the array.
  bool is_partial(int a) const {
    const Dims& stride = walk_.arrays[static_cast<size_t>(a)].stride;
    return a >= walk_.loads && std::find(stride.begin(), stride.end(), 0) != stride.end();
  }
  std::string is_first(int a) const {
    std::string all;
    for (int d = 0; d <= last_; ++d)
      if (walk_.arrays[static_cast<size_t>(a)].stride[static_cast<size_t>(d)] == 0)
        all += joined(all.empty() ? "" : " && ", "c", d, " == 0");
    return all.empty() ? "true" : all;
  }

  std::string body() const {
    std::string out = joined("template <int V>\n__device__ __forceinline__ void body(const P& p");
    for (size_t a = 0; a < walk_.arrays.size(); ++a) {
      out += joined(", ", writer_.index(), " at", a);
      if (is_partial(static_cast<int>(a))) out += joined(", bool first", a);
    }
    out += ") {\n";
    const auto name = [](int i) { return joined("v", i); };
    const auto turn = [&](size_t i) {  // all loads are under way before any is waited for, then all gathers
      const int a = walk_.array_of[i];
      return a < 0 ? 2 : walk_.arrays[static_cast<size_t>(a)].index < 0 ? 0 : 1;
    };
    for (int now = 0; now < 3; ++now)
      for (size_t i = 0; i < program_.code.size(); ++i) {
        const int a = walk_.array_of[i];
        if (turn(i) != now) continue;
        const int n = static_cast<int>(i);
        const std::string made = a >= 0 ? load(n) : writer_.step(n, name, width_of(n));
        out += joined("  const auto v", i, " = ", made, ";\n");
      }
    for (size_t s = 0; s < program_.stores.size(); ++s) {
      const int a = walk_.loads + static_cast<int>(s), value = program_.stores[s].value;
      const bool guarded = is_partial(a) && inner_stride(a) != 0;
      out += joined("  ", guarded ? joined("if (first", a, ") ") : "", store(a, value), ";\n");
    }
    return out + "}\n";
  }

  std::string call(const std::string& width) const {
    std::string out = joined("body<", width, ">(p");
    for (size_t i = 0; i < walk_.arrays.size(); ++i) {
      const int a = static_cast<int>(i);
      out += joined(", ", writer_.offset(a, 0, last_ + 1));
      if (is_partial(a)) out += joined(", ", is_first(a));
    }
    return out + ");\n";
  }

  std::string text(bool tail) const {
    const std::string index = writer_.index(), last = joined("c", last_);
    std::string out =
        joined("#include \"src/cuda/fusion/prelude/gather.cuh\"\nusing namespace tenor;\nusing namespace ",
               "tenor::fused;\nusing P = ", writer_.parameters_type(), ";\n", body());
    out += joined("extern \"C\" __global__ void __launch_bounds__(", kThreads,
                  ") fused(const __grid_constant__ P p) {\n  const ", index, " unit = blockIdx.x * static_cast<", index,
                  ">(", kThreads, ") + threadIdx.x;\n  if (unit < p.count) {\n");
    out += writer_.coordinates("unit", 0, last_ + 1);
    // The innermost coordinate counts units so far.
    if (width_ > 1) out += joined("  {\n  const ", index, " u = ", last, ", ", last, " = u * ", width_, ";\n");
    std::string inner = call(std::to_string(width_));
    out += joined("  ", inner, width_ > 1 ? "  }\n" : "", "  }\n");
    if (tail)
      out += joined("  if (blockIdx.x == 0 && threadIdx.x < p.tail) {\n  const ", index, " c0 = static_cast<", index,
                    ">(p.count) * ", width_, " + threadIdx.x;\n  ", call("1"), "  }\n");
    return out + "}\n";
  }

  const Program& program_;
  Walk walk_;
  Writer writer_;
  int last_;
  int width_;
};

}  // namespace

FusedKernel loop_kernel(const Program& program, const FusedOptions& options) {
  return LoopKernel(program, options).kernel();
}

}  // namespace tenor::cuda
