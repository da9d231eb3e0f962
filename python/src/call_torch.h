// PyTorch tensors: read where they lie, results in memory of PyTorch's own allocator.
#pragma once

#include "call.h"

namespace tenor::python {

/// The tensor's memory. One that requires grad is taken detached where grad mode is off and refused elsewhere: Tenor
/// would cut the graph silently. @throws UnsupportedError
Tensor from_torch(const char* op, const char* name, nb::handle x);
/// PyTorch's current stream of a CUDA device.
Stream torch_stream(Device device);
/// The result as a torch tensor: memory of torch_allocator() comes back as the tensor it was made as.
nb::object to_torch(const Tensor& x);
/// Memory of torch.empty, so that PyTorch's caching, limits and graph pools apply to Tenor's results.
Allocator& torch_allocator();

// Of call.cpp, for every library:
/// Keeps a Python object alive from code that may run without the GIL.
std::shared_ptr<void> keep(nb::handle x);
/// Through __dlpack__, new or old.
Tensor from_dlpack_exporter(nb::handle x);

}  // namespace tenor::python
