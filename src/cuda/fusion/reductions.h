// The reductions that fused kernels have, as text of src/cuda/fusion/prelude/rows.cuh.
#pragma once

#include <string>

#include "src/fusion/program.h"

namespace tenor::cuda {

/// Why a fused kernel does not form that reduction; empty where it does.
std::string why_not_reduced(const fusion::Program& program, const fusion::Instruction& in);

/// A variance or a standard deviation, whose accumulators are moments about the row's first element.
/// Whether it is a maximum or a minimum.
bool is_extreme(const fusion::Instruction& in);
bool is_deviation(const fusion::Instruction& in);

/// How accumulators meet.
std::string core_of(const fusion::Instruction& in);
/// How an element becomes an accumulator; not of deviations.
std::string take_of(const fusion::Instruction& in);
/// What sums and products are formed in: of integers modulo 2^64.
std::string formed_in(const fusion::Instruction& in);
/// The pack of one that the accumulator `total` ends as.
std::string total_of(const fusion::Instruction& in, const std::string& total);

}  // namespace tenor::cuda
