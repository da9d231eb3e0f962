// The candidates' functions, by file.
#pragma once

#include "src/core/step.h"
#include "src/ops/contract/gemm.h"

namespace tenor::contract {

struct Epilogue;

// gemm_integer.cpp: integers and bool, modulo 2^bits, on register tiles.
std::string integer_why_not(const GemmProblem& p);
void integer_run(const GemmProblem& p);

// gemm_plain.cpp: any type, any strides, one multiply-add at a time over k in order.
void reference_run(const GemmProblem& p);

// gemm_blocked.cpp: packed panels and register tiles; every output is one chain of FMAs over k, whatever m, n, the
// batch or the thread count.
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

// gemm_cuda_candidates.cpp: what the CUDA candidates take. gemm_cuda.cpp: rows, few rows or columns against a matrix
// that is read once; simple, everything, in an order over k that depends on k alone.
std::string cuda_rows_why_not(const GemmProblem& p);
void cuda_rows_run(const GemmProblem& p);
void cuda_simple_run(const GemmProblem& p);
/// Copies x so that its rows are contiguous and start at multiples of 16 bytes; x becomes the copy, which is returned.
Tensor align_rows(Matrix& x, const Dims& batch, int64_t rows, int64_t cols, Device device);

// gemm_tiles_cuda.cpp: the Hopper GEMM of src/cuda/gemm, whose order over k depends on k alone.
std::string cuda_tiles_why_not(const GemmProblem& p);
void cuda_tiles_run(const GemmProblem& p);
/// Of few rows: whether it reads b where it lies, and at the memory's speed.
bool cuda_tiles_streams(const GemmProblem& p);
/// Why it takes no such epilogue of p.operands (epilogue.h).
std::string cuda_epilogue_why_not(const GemmProblem& p, const Epilogue& epilogue);
/// States the copies that cuda_tiles_run makes.
void cuda_tiles_state_copies(const GemmProblem& p, std::vector<core::Copy>& copies);

// gemm_vendor_cuda.cpp: cuBLASLt, found at run time.
std::string cuda_vendor_why_not(const GemmProblem& p);
void cuda_vendor_run(const GemmProblem& p);

}  // namespace tenor::contract
