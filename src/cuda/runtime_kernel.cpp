#include "src/cuda/runtime_kernel.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>

#include "src/core/cache_folder.h"
#include "src/core/text.h"
#include "src/cuda/capture.h"
#include "src/cuda/driver.h"
#include "src/cuda/runtime.h"
#include "tenor/error.h"

namespace tenor::cuda {
namespace {

struct Driver {
  decltype(&cuModuleLoadData) ModuleLoadData = nullptr;
  decltype(&cuModuleGetFunction) ModuleGetFunction = nullptr;
  decltype(&cuFuncGetAttribute) FuncGetAttribute = nullptr;
  decltype(&cuLaunchKernel) LaunchKernel = nullptr;
  decltype(&cuGetErrorString) GetErrorString = nullptr;
};

const Driver& driver() {
  static const Driver found = [] {
    Driver d;
    const auto find = [](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(driver_entry(name));
      if (!function) core::fail<UnsupportedError>("compiling at run time: the CUDA driver has no {}", name);
    };
    find("cuModuleLoadData", d.ModuleLoadData);
    find("cuModuleGetFunction", d.ModuleGetFunction);
    find("cuFuncGetAttribute", d.FuncGetAttribute);
    find("cuLaunchKernel", d.LaunchKernel);
    find("cuGetErrorString", d.GetErrorString);
    return d;
  }();
  return found;
}

void check_driver(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  if (status == CUDA_ERROR_OUT_OF_MEMORY) core::fail<OutOfMemoryError>("{}: out of device memory", what);
  const char* why = nullptr;
  driver().GetErrorString(status, &why);
  core::fail<CudaError>("{}: {}", what, why ? why : "unknown error");
}

CompileTarget target_of(Device device) {
  CompileTarget target{};
  check(cudaDeviceGetAttribute(&target.major, cudaDevAttrComputeCapabilityMajor, device.index), "fuse");
  check(cudaDeviceGetAttribute(&target.minor, cudaDevAttrComputeCapabilityMinor, device.index), "fuse");
  return target;
}

/// Everything that the code depends on.
std::string key_of(const std::string& text, std::span<const EmbeddedHeader> headers, const CompileTarget& target) {
  int driver_version = 0;
  check(cudaDriverGetVersion(&driver_version), "fuse");
  std::string key = "NVRTC " + nvrtc_version() + "\ndriver " + std::to_string(driver_version) + "\n";
  for (const std::string& option : compile_options(target)) key += option + "\n";
  std::string included;
  for (const EmbeddedHeader& header : headers) included += std::string(header.name) + "\n" + header.text;
  return key + fingerprint(included) + "\n" + text;
}

/// The kernel of a cubin, loaded into the current device's primary context.
std::shared_ptr<const RuntimeKernel> loaded(const std::string& cubin, const char* entry, KernelFacts facts) {
  const RelaxedCapture relaxed;
  const Driver& d = driver();
  check(cudaFree(nullptr), "fuse");  // the context exists from here on
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  check_driver(d.ModuleLoadData(&module, cubin.data()), "loading a compiled kernel");
  check_driver(d.ModuleGetFunction(&function, module, entry), "loading a compiled kernel");
  // Asking loads the code, which a launch within a capture could not.
  check_driver(d.FuncGetAttribute(&facts.registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function), "loading a compiled kernel");
  check_driver(d.FuncGetAttribute(&facts.local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function),
               "loading a compiled kernel");
  return std::make_shared<const RuntimeKernel>(function, facts);
}

std::shared_ptr<const RuntimeKernel> made(const std::string& text, const char* entry,
                                          std::span<const EmbeddedHeader> headers, Device device) {
  const DeviceGuard guard(device);
  const auto start = std::chrono::steady_clock::now();
  const CompileTarget target = target_of(device);
  const std::string key = key_of(text, headers, target);
  std::optional<std::string> cubin = kernel_files().find(key);
  KernelFacts facts;
  facts.from_disk = cubin.has_value();
  if (!cubin) {
    cubin = compile_cubin("fused kernel", text, headers, target);
    kernel_files().keep(key, *cubin);
  }
  std::shared_ptr<const RuntimeKernel> kernel = loaded(*cubin, entry, facts);
  facts = kernel->facts();
  facts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::make_shared<const RuntimeKernel>(*kernel, facts);
}

}  // namespace

void RuntimeKernel::launch(const char* op, int64_t blocks, int threads, Device device, void* parameters) const {
  if (blocks > INT32_MAX) core::fail<UnsupportedError>("{}: more elements than a launch can hold", op);
  const DeviceGuard guard(device);
  void* arguments[] = {parameters};
  check_driver(
      driver().LaunchKernel(static_cast<CUfunction>(function_), static_cast<unsigned>(blocks), 1, 1,
                            static_cast<unsigned>(threads), 1, 1, 0, current_stream(device).handle, arguments, nullptr),
      op);
}

std::shared_ptr<const RuntimeKernel> runtime_kernel(const std::string& text, const char* entry,
                                                    std::span<const EmbeddedHeader> headers, Device device) {
  using Made = std::shared_future<std::shared_ptr<const RuntimeKernel>>;
  static std::mutex mutex;
  static auto* known = new std::map<std::pair<int, std::string>, Made>;  // kernels outlive every static object
  std::promise<std::shared_ptr<const RuntimeKernel>> promise;
  Made found;
  bool mine = false;
  const auto key = std::make_pair(device.index, text);
  {
    const std::lock_guard lock(mutex);
    auto [entry_of, is_new] = known->try_emplace(key);
    if (is_new) entry_of->second = promise.get_future().share();
    mine = is_new;
    found = entry_of->second;
  }
  if (!mine) return found.get();
  try {
    promise.set_value(made(text, entry, headers, device));
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex);
    known->erase(key);  // the next caller tries again
  }
  return found.get();
}

const KernelFiles& kernel_files() {
  static const auto* files = [] {
    const std::filesystem::path folder = core::cache_folder();
    return new KernelFiles(folder.empty() ? folder : folder / "kernels");
  }();
  return *files;
}

}  // namespace tenor::cuda
