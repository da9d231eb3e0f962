// Includes nothing but Tenor's public headers, as a user's program does.
#include <tenor/tenor.h>

#include <cmath>
#include <cstdio>

int main() {
  const tenor::Tensor x = tenor::full({4, 8}, 2.0), gamma = tenor::ones({8});
  const tenor::Tensor y = tenor::rms_norm(x, gamma, {.epsilon = 1e-6});
  const double sum = tenor::sum(tenor::matmul(y, tenor::transpose(y, 0, 1))).item_double();
  try {
    tenor::matmul(x, x);
    return 1;
  } catch (const tenor::ShapeError& error) {
    std::printf("%s\n", error.what());
  }
  std::printf("%s\n", tenor::to_string(y).c_str());
  std::printf("sum %.3f with %d threads\n", sum, tenor::num_threads());
  return std::abs(sum - 128.0) < 1e-3 ? 0 : 1;
}
