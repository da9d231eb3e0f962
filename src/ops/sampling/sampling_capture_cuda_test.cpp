// Sampling captured in a CUDA graph; seeds and positions in arrays give every replay draws of its own.
#include "src/cuda/capture_testing.h"
#include "tenor/sampling.h"

namespace tenor {
namespace {

using SamplingCudaCapture = testing::CudaCaptureTest;

TEST_F(SamplingCudaCapture, Draws) {
  for (DType dtype : {float32, bfloat16})
    for (int64_t n : {50, 5000, 170003}) {
      const Tensor logits = normal({3, n}, dtype), probs = probabilities({3, n}, dtype), ids = result({3}, int64),
                   valid = result({3}, boolean), several = result({3, 4}, int64), seed = integers({3}, 1000),
                   position = integers({3}, 1000), k = integers({3}, 60),
                   p = input({3}, float32, [](testing::Draw&draw) { return static_cast<double>(draw.upto(10)) / 10; });
      const std::string what = std::string(name(dtype)) + " " + std::to_string(n);
      const auto draw = [&](const std::string& how, SampleOptions options) {
        options.seed = seed, options.position = position, options.return_valid = true, options.out = {ids, valid};
        expect_replays("sample " + how + " " + what, {ids, valid}, [&] { sample(logits, options); });
      };
      draw("everything", {});
      draw("filtered", {.temperature = 0.8, .top_k = 50, .top_p = 0.9, .min_p = 0.01});
      draw("by row", {.temperature = p, .top_k = k, .top_p = p});
      draw("jointly", {.top_k = k, .top_p = 0.9, .joint = true});
      expect_replays("sample_from_probs " + what, {ids, valid}, [&] {
        sample_from_probs(probs, {.top_k = k, .seed = seed, .return_valid = true, .out = {ids, valid}});
      });
      for (bool replacement : {false, true})
        expect_replays("multinomial " + what, {several}, [&] {
          multinomial(probs, 4, {.replacement = replacement, .seed = seed, .position = position, .out = several});
        });
    }
}

TEST_F(SamplingCudaCapture, Filters) {
  for (int64_t n : {50, 5000, 170003}) {
    const Tensor logits = normal({3, n}), probs = probabilities({3, n}), out = result({3, n}), k = integers({3}, 60);
    expect_replays("top_k_mask_logits", {out}, [&] { top_k_mask_logits(logits, k, {.out = out}); });
    expect_replays("top_p_normalize_probs", {out}, [&] { top_p_normalize_probs(probs, 0.7, {.out = out}); });
  }
}

TEST_F(SamplingCudaCapture, Speculation) {
  const int64_t batch = 3, drafts = 4, tokens = 2000;
  const Tensor target = probabilities({batch, drafts + 1, tokens}), draft = probabilities({batch, drafts, tokens}),
               named = integers({batch, drafts}, tokens), seed = integers({batch}, 1000),
               ids = result({batch, drafts + 1}, int64), accepted = result({batch}, int64);
  for (const Tensor& known : {draft, Tensor()})
    expect_replays("speculative_accept", {ids, accepted}, [&] {
      speculative_accept(target, known, named, {.seed = seed, .out = {ids, accepted}});
    });
}

}  // namespace
}  // namespace tenor
