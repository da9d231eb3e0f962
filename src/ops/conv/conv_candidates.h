// The ways of computing a convolution, by device and in order of preference.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/core/candidates.h"
#include "src/core/step.h"
#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

using ConvCandidate = core::Candidate<ConvProblem>;

/// The candidates for that problem on its device, the best first; the last takes every problem. In a build without CUDA
/// its candidates can be asked, not run.
std::span<const ConvCandidate> conv_candidates(const ConvProblem& p);
/// Their names, for the registry.
std::vector<std::string> conv_strategies();

/// The candidate of that name, or the best ("auto"), by measurement where autotuning is on and `may_run`.
/// @throws as core::choose_tuned
const ConvCandidate& chosen(const char* op, const ConvProblem& p, std::string_view strategy, bool may_run);
/// The candidate taken and why others declined: Step::strategy.
std::string explain_choice(const ConvCandidate& taken, const ConvProblem& p);

/// The problem in words, for the tuning store: what speed may depend on beside the device.
std::string words_of(const ConvProblem& p);
/// Everything that what a library prepares for a problem depends on, but for where operands lie.
std::vector<int64_t> numbers_of(const ConvProblem& p);
/// What a candidate says of itself beside its name: a vendor's version and workspace.
std::string note_of(const ConvCandidate& taken, const ConvProblem& p);

/// What no vendor's library is handed: strides that leave outputs unread, sizes beyond 32 bits, a bias with gaps.
std::string vendors_why_not(const ConvProblem& p);

// CPU: conv_gemm.cpp, conv_direct.cpp, conv_vendor.cpp. Problems that are run are not empty.
std::string gemm_why_not(const ConvProblem& p);
void gemm_run(const ConvProblem& p);
void direct_run(const ConvProblem& p);
std::string vendor_why_not(const ConvProblem& p);
void vendor_run(const ConvProblem& p);
/// The copies that vendor_run makes into layouts of the library's own.
std::vector<core::Copy> vendor_copies(const ConvProblem& p);
/// Those that a candidate makes on the problem's device: Step::copies.
std::vector<core::Copy> copies_of(const ConvCandidate& taken, const ConvProblem& p);

}  // namespace tenor::conv
