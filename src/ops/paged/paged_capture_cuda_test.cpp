// Attention over a paged cache captured in a CUDA graph: prefill and decode, one key or several splits, the latent form
// and the writes to the cache, on small shapes, which the sanitizers run.
#include "src/cuda/capture_testing.h"
#include "tenor/paged.h"

namespace tenor {
namespace {

using PagedCudaCapture = testing::CudaCaptureTest;

/// Three sequences of 90, 1 and 33 keys in pages that lie in no order; the first has ten queries, the others one each,
/// and a row is padding.
paged::HostPlan schedule(int64_t page_size) {
  const std::vector<int64_t> lengths{90, 1, 33};
  std::vector<std::vector<int64_t>> tables;
  int64_t next = 0;
  const int64_t pages = 2 * (90 / page_size + 1 + 33 / page_size + 3);
  for (int64_t length : lengths) {
    tables.emplace_back();
    for (int64_t n = 0; n * page_size < length; ++n) tables.back().push_back(pages - 1 - 2 * next++);
  }
  std::vector<int64_t> ids(10, 0), positions;
  for (int64_t i = 80; i < 90; ++i) positions.push_back(i);
  for (int64_t id : {1, 2, -1})
    ids.push_back(id), positions.push_back(id < 0 ? 0 : lengths[static_cast<size_t>(id)] - 1);
  return {page_size, pages, tables, lengths, ids, positions};
}

TEST_F(PagedCudaCapture, Attention) {
  const int64_t H = 8, G = 2, D = 64;
  for (DType dtype : {bfloat16, float32})
    for (int64_t page_size : {16, 3}) {
      const paged::HostPlan host = schedule(page_size);
      const int64_t T = host.queries();
      const Tensor q = normal({T, H, D}, dtype), k = normal({host.pages(), page_size, G, D}, dtype),
                   v = normal({host.pages(), page_size, G, D}, dtype), sinks = normal({H}),
                   out = result({T, H, D}, dtype), lse = result({T, H}), fresh = normal({T, G, D}, dtype);
      const paged::DevicePlan plan = paged::DevicePlan::upload(host, q);
      const std::string what = std::string(name(dtype)) + " page " + std::to_string(page_size);
      for (const int64_t splits : {0, 3}) {
        paged::AttentionOptions options{
            .window = {70, -1}, .softcap = 20.0, .sinks = sinks, .return_lse = true, .out = out, .out_lse = lse};
        if (splits) options.split_workspace = paged::SplitWorkspace(q, T, H, D, splits);
        expect_replays("paged.attention " + what + " splits " + std::to_string(splits), {out, lse},
                       [&] { plan.attention(q, k, v, options); });
      }
      expect_replays("paged.append_ " + what, {}, [&] { plan.append_(fresh, fresh, k, v); });
    }
}

TEST_F(PagedCudaCapture, Latent) {
  for (const int64_t R : {512, 100})
    for (DType dtype : {bfloat16, float32}) {
      const paged::HostPlan host = schedule(16);
      const int64_t T = host.queries(), H = 16, P = 64;
      const Tensor q = normal({T, H, R}, dtype), qp = normal({T, H, P}, dtype),
                   latent = normal({host.pages(), 16, 1, R}, dtype), kp = normal({host.pages(), 16, 1, P}, dtype),
                   out = result({T, H, R}, dtype), lse = result({T, H});
      const paged::DevicePlan plan = paged::DevicePlan::upload(host, q);
      expect_replays("paged.mla R" + std::to_string(R) + " " + std::string(name(dtype)), {out, lse},
                     [&] { plan.mla(q, qp, latent, kp, 0.1, true, {.return_lse = true, .out = out, .out_lse = lse}); });
    }
}

TEST_F(PagedCudaCapture, CopyPages) {
  const Tensor cache = normal({8, 16, 2, 64}, bfloat16);
  paged::copy_pages_(cache, {0, 3}, {5, 7});  // both lists reach the device before a graph can hold them
  expect_replays("paged.copy_pages_", {}, [&] { paged::copy_pages_(cache, {0, 3}, {5, 7}); });
}

}  // namespace
}  // namespace tenor
