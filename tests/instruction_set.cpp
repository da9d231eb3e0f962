// Linked into every C++ test: TENOR_TEST_TARGET=avx2 or =baseline runs its kernels as a machine without AVX-512, or
// without AVX2, would. A build for one instruction set alone (TENOR_NATIVE) has no other.
#include <hwy/targets.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace {

const bool kChosen = [] {
  const char* wanted = std::getenv("TENOR_TEST_TARGET");
  if (!wanted) return false;
  const std::string_view name = wanted;
  if (name != "avx2" && name != "baseline") {
    std::cerr << "TENOR_TEST_TARGET: avx2 or baseline, got " << name << '\n';
    std::exit(2);
  }
  // A better instruction set has a lower bit.
  hwy::DisableTargets(name == "avx2" ? HWY_AVX2 - 1 : 2 * HWY_AVX2 - 1);
  return true;
}();

}  // namespace
