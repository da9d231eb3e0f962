// What every operator of the family checks of its arguments.
#pragma once

#include <vector>

#include "src/core/check.h"
#include "tenor/ctc.h"

namespace tenor::ctc {

/// log_probs [T, N, C] and a blank among its classes.
void check_log_probs(const char* op, const Tensor& log_probs, int64_t blank);
/// N lengths of an integer dtype, on log_probs' device where they are an array.
void check_lengths(const char* op, const char* name, const CtcLengths& lengths, const Tensor& log_probs);
/// Whether the host knows what they are: numbers, or an array in its memory.
bool on_host(const CtcLengths& lengths);
/// Their values. @throws ValueError unless within 0..most
std::vector<int64_t> read_lengths(const char* op, const char* name, const CtcLengths& lengths, int64_t most);
/// Element i of an integer vector in host memory; what is beyond int64 becomes its largest.
int64_t integer_at(const Tensor& x, int64_t i);

}  // namespace tenor::ctc
