// The vendor candidate: oneDNN's matmul primitive (and, for one float32 matrix, its sgemm).
//
// Primitives are kept by problem, one cache a thread: no lock is shared, so neither threads nor a fork() meet one, and
// a primitive's memory objects can be reused between calls. oneDNN takes its thread count from OpenMP when a primitive
// is made and when it runs; both happen under tenor's own count, which is restored afterwards.
#include "src/ops/contract/gemm_kernels.h"

#ifndef TENOR_HAS_ONEDNN

namespace tenor::contract {
std::string vendor_why_not(const GemmProblem&) { return "this build has no oneDNN"; }
void vendor_run(const GemmProblem&) {}
}  // namespace tenor::contract

#else

#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include "src/cpu/onednn.h"

namespace tenor::contract {
namespace {

constexpr size_t kMaxPrimitives = 256;  // a thread's; beyond, the cache starts anew

/// Everything a primitive depends on, as numbers.
using Key = std::vector<int64_t>;
struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t h = 1469598103934665603ull;
    for (int64_t v : key) h = (h ^ static_cast<size_t>(v)) * 1099511628211ull;
    return h;
  }
};

/// The innermost batch dim is oneDNN's; those outside of it are walked here.
int64_t inner_batch(const GemmProblem& p) { return p.batch.empty() ? 1 : p.batch.back(); }

Key key_of(const GemmProblem& p, int threads) {
  Key key = {p.m, p.n, p.k, inner_batch(p), threads, p.bias != nullptr, p.bias_row, p.bias_col};
  for (const Matrix* x : {&p.a, &p.b, &p.c})
    for (int64_t v : {static_cast<int64_t>(x->dtype), x->row, x->col, x->batch.empty() ? 0 : x->batch.back()})
      key.push_back(v);
  return key;
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

struct Primitive {
  std::string declined;  // why oneDNN has nothing fast for the problem
  dnnl::matmul matmul;
  dnnl::memory a, b, c, bias;
  dnnl::memory::desc scratch;
  std::unordered_map<int, dnnl::memory> arguments;
};

dnnl::memory::desc desc_of(const Matrix& x, int64_t batch, int64_t rows, int64_t cols) {
  const auto type = type_of(x.dtype);
  if (batch == 1) return {{rows, cols}, type, dnnl::memory::dims{x.row, x.col}};
  const int64_t step = x.batch.back();
  return {{step == 0 ? 1 : batch, rows, cols}, type, dnnl::memory::dims{step == 0 ? rows * cols : step, x.row, x.col}};
}

std::unique_ptr<Primitive> make_primitive(const GemmProblem& p) {
  auto made = std::make_unique<Primitive>();
  try {
    const int64_t batch = inner_batch(p);
    const auto a = desc_of(p.a, batch, p.m, p.k), b = desc_of(p.b, batch, p.k, p.n), c = desc_of(p.c, batch, p.m, p.n);
    dnnl::memory::desc bias;
    if (p.bias)
      bias = batch == 1
                 ? dnnl::memory::desc({1, p.n}, dnnl::memory::data_type::f32, dnnl::memory::dims{p.n, 1})
                 : dnnl::memory::desc({1, 1, p.n}, dnnl::memory::data_type::f32, dnnl::memory::dims{p.n, p.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto op = p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc chosen(op, attributes, cpu::onednn_engine());
    if (std::strstr(chosen.impl_info_str(), "ref")) {
      made->declined = "oneDNN has only its reference kernel for these strides";
      return made;
    }
    made->matmul = dnnl::matmul(chosen);
    made->scratch = chosen.scratchpad_desc();
    made->arguments = {{DNNL_ARG_SRC, {a, cpu::onednn_engine(), nullptr}},
                       {DNNL_ARG_WEIGHTS, {b, cpu::onednn_engine(), nullptr}},
                       {DNNL_ARG_DST, {c, cpu::onednn_engine(), nullptr}}};
    if (p.bias) made->arguments.insert({DNNL_ARG_BIAS, {bias, cpu::onednn_engine(), nullptr}});
    if (made->scratch.get_size() > 0)
      made->arguments.insert({DNNL_ARG_SCRATCHPAD, {made->scratch, cpu::onednn_engine(), nullptr}});
  } catch (const dnnl::error& e) {
    made->declined = std::string("oneDNN declines: ") + e.what();
  }
  return made;
}

Primitive& primitive_of(const GemmProblem& p, int threads) {
  thread_local std::unordered_map<Key, std::unique_ptr<Primitive>, KeyHash> cache;
  Key key = key_of(p, threads);
  if (const auto found = cache.find(key); found != cache.end()) return *found->second;
  if (cache.size() >= kMaxPrimitives) cache.clear();
  const cpu::OmpThreads guard(threads);
  return *(cache[std::move(key)] = make_primitive(p));
}

bool unit_stride(const Matrix& x) { return x.row == 1 || x.col == 1; }

}  // namespace

std::string vendor_why_not(const GemmProblem& p) {
  if (p.batch_invariant) return "oneDNN's order over k may depend on the batch";
  if (p.compute != DType::kFloat32) return "takes float32 and bfloat16";
  if (p.a.dtype != p.b.dtype || (p.a.dtype != DType::kFloat32 && p.a.dtype != DType::kBFloat16))
    return "takes float32 and bfloat16, not mixed";
  if (p.c.dtype != p.a.dtype && p.c.dtype != DType::kFloat32) return "writes float32 or the operands' dtype";
  if (p.a.dtype == DType::kBFloat16 && !cpu::onednn_has_bfloat16()) return "this CPU has no bfloat16 instructions";
  if (!unit_stride(p.a) || !unit_stride(p.b) || p.c.col != 1) return "a matrix has no dim of unit stride";
  if (p.bias_row != 0 || (p.bias && p.bias_col != 1)) return "the bias runs along the rows";
  if (!p.batch.empty() && p.batch.back() > 1 && p.a.batch.back() == 0 && p.b.batch.back() == 0)
    return "both operands are shared over the batch";
  return primitive_of(p, cpu::onednn_threads()).declined;
}

void vendor_run(const GemmProblem& p) {
  const int threads = cpu::onednn_threads();
  Primitive& primitive = primitive_of(p, threads);
  const Tensor scratch = Tensor::empty({static_cast<int64_t>(primitive.scratch.get_size())}, uint8);
  auto& arguments = primitive.arguments;
  if (const auto at = arguments.find(DNNL_ARG_SCRATCHPAD); at != arguments.end())
    at->second.set_data_handle(scratch.raw());
  if (p.bias) arguments.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(p.bias));
  GemmProblem outer = p;
  if (!outer.batch.empty()) {
    outer.batch.pop_back();
    for (Matrix* x : {&outer.a, &outer.b, &outer.c}) x->batch.pop_back();
  }
  const cpu::OmpThreads guard(threads);
  dnnl::stream stream(cpu::onednn_engine());
  for_each_matrix(outer, 0, product(outer.batch), [&](const char* a, const char* b, char* c) {
    arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<char*>(a));
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<char*>(b));
    arguments.at(DNNL_ARG_DST).set_data_handle(c);
    primitive.matmul.execute(stream, arguments);
  });
  stream.wait();
}

}  // namespace tenor::contract

#endif
