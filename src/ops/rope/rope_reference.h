// rope in float64, one head at a time: what the kernel is tested against.
#pragma once

#include <vector>

namespace tenor::reference {

/// `cos` and `sin` are one position's row, [rotary_dim/2].
inline std::vector<double> rope(std::vector<double> head, const std::vector<double>& cos,
                                const std::vector<double>& sin, bool interleaved) {
  const size_t half = cos.size();
  for (size_t i = 0; i < half; ++i) {
    double& a = head[interleaved ? 2 * i : i];
    double& b = head[interleaved ? 2 * i + 1 : i + half];
    const double turned = a * cos[i] - b * sin[i];
    b = b * cos[i] + a * sin[i];
    a = turned;
  }
  return head;
}

}  // namespace tenor::reference
