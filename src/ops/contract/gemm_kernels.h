// The candidates' functions, by file.
#pragma once

#include "src/ops/contract/gemm.h"

namespace tenor::contract {

// gemm_plain.cpp: any type, any strides, one multiply-add at a time over k in order.
std::string integer_why_not(const GemmProblem& p);
void integer_run(const GemmProblem& p);
void reference_run(const GemmProblem& p);

// gemm_blocked.cpp: packed panels and register tiles; every output is one chain of FMAs over k, whatever m, n, the batch
// or the thread count.
std::string blocked_why_not(const GemmProblem& p);
void blocked_run(const GemmProblem& p);

// gemm_rows.cpp: a few rows against a matrix that is read once.
std::string rows_why_not(const GemmProblem& p);
void rows_run(const GemmProblem& p);

// gemm_tiles.cpp: bfloat16 on AMX tiles; an output's order over k depends on k alone.
std::string tiles_why_not(const GemmProblem& p);
void tiles_run(const GemmProblem& p);

// gemm_vendor.cpp: oneDNN.
std::string vendor_why_not(const GemmProblem& p);
void vendor_run(const GemmProblem& p);

}  // namespace tenor::contract
