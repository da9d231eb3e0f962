// Plans and appends on CUDA: the schedule's way to the device, and rows' way into the pages.
#include <cstring>
#include <mutex>

#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/content_kind.h"
#include "src/cuda/launch.h"
#include "src/ops/paged/paged_cuda.h"

namespace tenor::cuda {
namespace {

using State = paged::DevicePlan::State;

constexpr int kThreads = 256;

/// Pinned memory that copies to the device read: a buffer is used again once its copy is done, and there are as many as
/// copies have been under way at once. So no update waits.
class Staging {
 public:
  static Staging& instance() {
    static auto* staging = new Staging;
    return *staging;
  }
  /// Copies `bytes` of `from` to that device, which is current, on its stream.
  void copy(void* to, const void* from, size_t bytes, Device device, cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    const Buffer& buffer = free_buffer(bytes, device);
    std::memcpy(buffer.memory, from, bytes);
    check(cudaMemcpyAsync(to, buffer.memory, bytes, cudaMemcpyHostToDevice, stream), "paged.update_");
    check(cudaEventRecord(buffer.done, stream), "paged.update_");
  }

 private:
  struct Buffer {
    void* memory;
    size_t bytes;
    int device;
    cudaEvent_t done;  // the device's
  };
  const Buffer& free_buffer(size_t bytes, Device device) {
    for (const Buffer& b : buffers_)
      if (b.bytes >= bytes && b.device == device.index && cudaEventQuery(b.done) == cudaSuccess) return b;
    Buffer b{nullptr, std::max<size_t>(bytes, 4096), device.index, nullptr};
    check(cudaHostAlloc(&b.memory, b.bytes, cudaHostAllocPortable), "paged.update_");
    check(cudaEventCreateWithFlags(&b.done, cudaEventDisableTiming), "paged.update_");
    return buffers_.emplace_back(b);
  }
  std::mutex mutex_;
  std::vector<Buffer> buffers_;
};

/// An integer array of any dtype and strides.
struct Ints {
  const void* data;
  DType dtype;
  int64_t row, col;
};
Ints ints_of(const Tensor& x) {
  return {x.numel() ? x.raw() : nullptr, x.dtype(), x.stride(0), x.ndim() > 1 ? x.stride(1) : 0};
}
__device__ int64_t int_at(const Ints& x, int64_t row, int64_t col = 0) {
  return core::visit_integer(x.dtype, [&]<class I>() {
    const I value = static_cast<const I*>(x.data)[row * x.row + col * x.col];
    return value > I(0) && static_cast<uint64_t>(value) > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(value);
  });
}

struct Refill {
  Ints tables, lengths, ids, positions;
  int* to_tables;
  int* to_lengths;
  int* to_ids;
  int* to_positions;
  int64_t sequences, rows, columns;              // given
  int64_t all_sequences, all_rows, all_columns;  // of the plan
  int64_t page_size, pages;
  ContentError* flag;
  int op_tables, op_lengths, op_ids, op_positions;
};

/// A block a sequence: its length counts for nothing unless every page that it needs is there.
__global__ void refill_sequences(const __grid_constant__ Refill r) {
  const int64_t s = blockIdx.x;
  __shared__ int bad;
  int64_t length = s < r.sequences ? int_at(r.lengths, s) : 0;
  const int64_t most = min(r.columns * r.page_size, paged::kMostKeys);
  if (length < 0 || length > most) {
    if (threadIdx.x == 0) raise_content_error(r.flag, r.op_lengths, s, length);
    length = 0;
  }
  if (threadIdx.x == 0) bad = 0;
  __syncthreads();
  const int64_t used = (length + r.page_size - 1) / r.page_size;
  for (int64_t i = threadIdx.x; i < r.all_columns; i += blockDim.x) {
    const int64_t page = i < used ? int_at(r.tables, s, i) : 0;
    const bool fits = page >= 0 && page < r.pages;
    if (i < used && !fits) raise_content_error(r.flag, r.op_tables, s * r.columns + i, page), bad = 1;
    r.to_tables[s * r.all_columns + i] = fits ? static_cast<int>(page) : 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) r.to_lengths[s] = bad ? 0 : static_cast<int>(length);
}

__global__ void refill_rows(const __grid_constant__ Refill r) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= r.all_rows) return;
  int64_t s = i < r.rows ? int_at(r.ids, i) : -1, at = 0;
  if (s < -1 || s >= r.sequences) raise_content_error(r.flag, r.op_ids, i, s), s = -1;
  if (s >= 0) at = int_at(r.positions, i);
  if (at < 0 || at > paged::kMostKeys) raise_content_error(r.flag, r.op_positions, i, at), s = -1, at = 0;
  r.to_ids[i] = static_cast<int>(s);
  r.to_positions[i] = static_cast<int>(at);
}

struct Append {
  const char *k, *v;
  char *key_cache, *value_cache;
  int64_t k_at[3], v_at[3], key_at[4], value_at[4];  // strides
  const int *tables, *lengths, *ids, *positions;
  int64_t columns, page_size;
  int rows, heads, key_dim, value_dim;
  ContentError* flag;
  int op;
};

/// The slot of row i: page * page_size + place; -1 for padding and rows beyond their length.
__device__ int64_t slot_of(const Append& a, int i) {
  const int s = a.ids[i];
  if (s < 0 || a.positions[i] >= a.lengths[s]) return -1;
  return a.tables[s * a.columns + a.positions[i] / a.page_size] * a.page_size + a.positions[i] % a.page_size;
}

template <class T>
__device__ void append_row(const Append& a, int i, int64_t page, int64_t place, const char* rows,
                           const int64_t (&from)[3], char* cache, const int64_t (&to)[4], int dim) {
  for (int e = threadIdx.x; e < a.heads * dim; e += blockDim.x) {
    const int head = e / dim, d = e % dim;
    reinterpret_cast<T*>(cache)[page * to[0] + place * to[1] + head * to[2] + d * to[3]] =
        reinterpret_cast<const T*>(rows)[i * from[0] + head * from[1] + d * from[2]];
  }
}

/// A block a row.
template <class T>
__global__ void append_rows(const __grid_constant__ Append a) {
  const int i = static_cast<int>(blockIdx.x);
  const int s = a.ids[i];
  if (s < 0) return;
  const int64_t slot = slot_of(a, i);
  bool taken = false;
  for (int earlier = threadIdx.x; slot >= 0 && earlier < i; earlier += blockDim.x)
    taken = taken || slot_of(a, earlier) == slot;
  if (__syncthreads_or(taken) || slot < 0) {
    if (threadIdx.x == 0) raise_content_error(a.flag, a.op, i, a.positions[i]);
    return;
  }
  const int64_t page = slot / a.page_size, place = slot % a.page_size;
  append_row<T>(a, i, page, place, a.k, a.k_at, a.key_cache, a.key_at, a.key_dim);
  append_row<T>(a, i, page, place, a.v, a.v_at, a.value_cache, a.value_at, a.value_dim);
}

}  // namespace

void paged_write(State& plan, const std::vector<int32_t>& words) {
  const DeviceGuard guard(plan.device);
  const cudaStream_t stream = current_stream(plan.device).handle;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capturing), "paged.update_");
  if (capturing != cudaStreamCaptureStatusNone)
    throw UnsupportedError(
        "paged.update_: a graph would replay today's schedule; update the plan outside of the capture, or from device "
        "arrays");
  Staging::instance().copy(plan.memory.raw(), words.data(), words.size() * sizeof(int32_t), plan.device, stream);
}

void paged_refill(const State& plan, const Tensor& tables, const Tensor& lengths, const Tensor& sequence_ids,
                  const Tensor& positions) {
  static const int op_tables = content_op("paged.update_", "tables"),
                   op_lengths = content_op("paged.update_", "lengths", ContentKind::kValue);
  static const int op_ids = content_op("paged.update_", "sequence_ids"),
                   op_positions = content_op("paged.update_", "positions");
  const DeviceGuard guard(plan.device);
  Refill r{ints_of(tables), ints_of(lengths), ints_of(sequence_ids), ints_of(positions)};
  r.to_tables = plan.tables.data<int>(), r.to_lengths = plan.lengths.data<int>();
  r.to_ids = plan.sequence_ids.data<int>(), r.to_positions = plan.positions.data<int>();
  r.sequences = lengths.shape(0), r.rows = positions.shape(0), r.columns = tables.shape(1);
  r.all_sequences = plan.size.sequences, r.all_rows = plan.size.queries, r.all_columns = plan.size.pages_per_sequence;
  r.page_size = plan.size.page_size, r.pages = plan.size.pages;
  r.flag = content_error(current_stream(plan.device));
  r.op_tables = op_tables, r.op_lengths = op_lengths, r.op_ids = op_ids, r.op_positions = op_positions;
  if (r.all_sequences > 0)
    launch("paged.update_", refill_sequences, Grid{dim3(static_cast<unsigned>(r.all_sequences)), dim3(kThreads)},
           plan.device, r);
  if (r.all_rows > 0)
    launch("paged.update_", refill_rows,
           Grid{dim3(static_cast<unsigned>((r.all_rows + kThreads - 1) / kThreads)), dim3(kThreads)}, plan.device, r);
}

void paged_append(const State& plan, const Tensor& k, const Tensor& v, const Tensor& key_cache,
                  const Tensor& value_cache) {
  static const int op = content_op("paged.append", "positions");
  if (plan.size.queries == 0 || k.numel() + v.numel() == 0) return;
  const DeviceGuard guard(plan.device);
  Append a{};
  const auto place = [](const Tensor& x, auto& strides) {
    for (int d = 0; d < x.ndim(); ++d) strides[d] = x.stride(d);
    return x.numel() ? static_cast<char*>(x.raw()) : nullptr;
  };
  a.k = place(k, a.k_at), a.v = place(v, a.v_at), a.key_cache = place(key_cache, a.key_at),
  a.value_cache = place(value_cache, a.value_at);
  a.tables = plan.tables.numel() ? plan.tables.data<int>() : nullptr, a.lengths = plan.lengths.data<int>();
  a.ids = plan.sequence_ids.data<int>(), a.positions = plan.positions.data<int>();
  a.columns = plan.size.pages_per_sequence, a.page_size = plan.size.page_size;
  a.rows = static_cast<int>(plan.size.queries), a.heads = static_cast<int>(k.shape(1));
  a.key_dim = static_cast<int>(k.shape(2)), a.value_dim = static_cast<int>(v.shape(2));
  a.flag = content_error(current_stream(plan.device)), a.op = op;
  core::visit_size(k.dtype(), [&]<class T>() {
    launch("paged.append", append_rows<T>, Grid{dim3(static_cast<unsigned>(a.rows)), dim3(kThreads)}, plan.device, a);
  });
}

}  // namespace tenor::cuda
