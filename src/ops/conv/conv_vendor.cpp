#include "src/ops/conv/conv_candidates.h"
namespace tenor::conv {
std::string vendor_why_not(const ConvProblem&) { return "this build has no oneDNN"; }
void vendor_run(const ConvProblem&) {}
std::vector<core::Copy> vendor_copies(const ConvProblem&) { return {}; }
}  // namespace tenor::conv
