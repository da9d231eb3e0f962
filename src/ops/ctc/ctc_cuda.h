// The family's CUDA kernels, behind plain functions. Shapes and options are checked; what arrays hold is not.
#pragma once

#include "tenor/ctc.h"

namespace tenor::ctc {

struct CudaLoss {
  const char* op;
  Tensor log_probs, targets;
  CtcLengths input_lengths, target_lengths;
  int64_t blank;
  bool zero_infinity;
  std::string reduction;
  Tensor upstream;  ///< undefined: 1
  Tensor loss;      ///< undefined: not wanted
  Tensor gradient;  ///< likewise
};
void loss_cuda(const CudaLoss& problem);

struct CudaDecode {
  const char* op;
  Tensor log_probs;
  CtcLengths input_lengths;  ///< absent: all frames
  int64_t blank, width;
  Tensor ids, lengths;
};
void greedy_cuda(const CudaDecode& problem);
void beam_cuda(const CudaDecode& problem);

}  // namespace tenor::ctc
