#include "src/cuda/nvrtc.h"

#include <cuda_runtime_api.h>

#include <memory>

#include "src/core/text.h"
#include "src/cuda/shared_library.h"
#include "tenor/error.h"

#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#endif

namespace tenor::cuda {

std::vector<std::string> compile_options(const CompileTarget& target) {
  return {"--gpu-architecture=sm_" + std::to_string(target.major * 10 + target.minor),
          "--std=c++20",
          "--fmad=false",
          "--ftz=false",
          "--prec-div=true",
          "--prec-sqrt=true",
          "--device-as-default-execution-space",
          "--no-source-include",
          "--disable-warnings"};
}

std::string why_not_version(const std::string& path, int major, int minor) {
  constexpr int kMajor = CUDART_VERSION / 1000;
  if (major == kMajor) return {};
  return core::text("{} is NVRTC {}.{}, but Tenor was built with CUDA {}", path, major, minor, kMajor);
}

#if __has_include(<nvrtc.h>)

namespace {

using core::fail;

/// The functions that Tenor calls, or why there are none.
struct Nvrtc {
  std::string missing;
  decltype(&nvrtcVersion) Version = nullptr;
  decltype(&nvrtcGetErrorString) GetErrorString = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) GetNumSupportedArchs = nullptr;
  decltype(&nvrtcGetSupportedArchs) GetSupportedArchs = nullptr;
  decltype(&nvrtcCreateProgram) CreateProgram = nullptr;
  decltype(&nvrtcDestroyProgram) DestroyProgram = nullptr;
  decltype(&nvrtcCompileProgram) CompileProgram = nullptr;
  decltype(&nvrtcGetProgramLogSize) GetProgramLogSize = nullptr;
  decltype(&nvrtcGetProgramLog) GetProgramLog = nullptr;
  decltype(&nvrtcGetCUBINSize) GetCUBINSize = nullptr;
  decltype(&nvrtcGetCUBIN) GetCUBIN = nullptr;
};

LibraryNames library_names() {
  constexpr int kMajor = CUDART_VERSION / 1000;
  return {"TENOR_NVRTC",
          {{"libnvrtc.so." + std::to_string(kMajor),
            kMajor >= 13 ? "nvidia/cu" + std::to_string(kMajor) + "/lib" : "nvidia/cuda_nvrtc/lib"}}};
}

Nvrtc opened() {
  Nvrtc rtc;
  const LibraryNames names = library_names();
  const OpenedLibrary library = open_library(names);
  if (!library.handle) {
    rtc.missing = "NVRTC was not found (" + names.names[0].file + "; TENOR_NVRTC may name the file)";
    return rtc;
  }
  const auto find = [&](const char* name, auto& function) { find_function(library, name, function, rtc.missing); };
  find("nvrtcVersion", rtc.Version);
  find("nvrtcGetErrorString", rtc.GetErrorString);
  find("nvrtcGetNumSupportedArchs", rtc.GetNumSupportedArchs);
  find("nvrtcGetSupportedArchs", rtc.GetSupportedArchs);
  find("nvrtcCreateProgram", rtc.CreateProgram);
  find("nvrtcDestroyProgram", rtc.DestroyProgram);
  find("nvrtcCompileProgram", rtc.CompileProgram);
  find("nvrtcGetProgramLogSize", rtc.GetProgramLogSize);
  find("nvrtcGetProgramLog", rtc.GetProgramLog);
  find("nvrtcGetCUBINSize", rtc.GetCUBINSize);
  find("nvrtcGetCUBIN", rtc.GetCUBIN);
  int major = 0, minor = 0;
  if (rtc.missing.empty() && rtc.Version(&major, &minor) != NVRTC_SUCCESS)
    rtc.missing = library.path + " has no version";
  if (rtc.missing.empty()) rtc.missing = why_not_version(library.path, major, minor);
  return rtc;
}

const Nvrtc& found() {
  static const Nvrtc* rtc = new Nvrtc(opened());
  return *rtc;
}
const Nvrtc& nvrtc() {
  if (!found().missing.empty()) fail<UnsupportedError>("compiling at run time: {}", found().missing);
  return found();
}

void check(const Nvrtc& rtc, nvrtcResult status, const char* what) {
  if (status != NVRTC_SUCCESS) fail<CudaError>("{}: {}", what, rtc.GetErrorString(status));
}

void check_knows(const Nvrtc& rtc, const CompileTarget& target) {
  int count = 0;
  check(rtc, rtc.GetNumSupportedArchs(&count), "NVRTC");
  std::vector<int> known(static_cast<size_t>(count));
  check(rtc, rtc.GetSupportedArchs(known.data()), "NVRTC");
  for (int k : known)
    if (k == target.major * 10 + target.minor) return;
  fail<UnsupportedError>("compiling at run time: NVRTC {} does not know devices of compute capability {}.{}",
                         nvrtc_version(), target.major, target.minor);
}

std::string log_of(const Nvrtc& rtc, nvrtcProgram program) {
  size_t size = 0;
  if (rtc.GetProgramLogSize(program, &size) != NVRTC_SUCCESS || size < 2) return {};
  std::string log(size, '\0');
  rtc.GetProgramLog(program, log.data());
  log.pop_back();
  return log;
}

}  // namespace

std::string why_no_nvrtc() { return found().missing; }

std::string nvrtc_version() {
  const Nvrtc& rtc = nvrtc();
  int major = 0, minor = 0;
  check(rtc, rtc.Version(&major, &minor), "NVRTC");
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string compile_cubin(const std::string& name, const std::string& text, std::span<const EmbeddedHeader> headers,
                          const CompileTarget& target) {
  const Nvrtc& rtc = nvrtc();
  check_knows(rtc, target);
  std::vector<const char*> names, texts;
  for (const EmbeddedHeader& header : headers) names.push_back(header.name), texts.push_back(header.text);
  nvrtcProgram program = nullptr;
  check(rtc,
        rtc.CreateProgram(&program, text.c_str(), name.c_str(), static_cast<int>(headers.size()), texts.data(),
                          names.data()),
        "NVRTC");
  const std::unique_ptr<nvrtcProgram, void (*)(nvrtcProgram*)> owner(
      &program, [](nvrtcProgram* p) { nvrtc().DestroyProgram(p); });
  const std::vector<std::string> options = compile_options(target);
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const nvrtcResult status = rtc.CompileProgram(program, static_cast<int>(arguments.size()), arguments.data());
  if (status != NVRTC_SUCCESS) throw CudaError(name + ": " + rtc.GetErrorString(status) + ":\n" + log_of(rtc, program));
  size_t size = 0;
  check(rtc, rtc.GetCUBINSize(program, &size), "NVRTC");
  std::string cubin(size, '\0');
  check(rtc, rtc.GetCUBIN(program, cubin.data()), "NVRTC");
  return cubin;
}

#else

namespace {
[[noreturn]] void refuse() { core::fail<UnsupportedError>("compiling at run time: {}", why_no_nvrtc()); }
}  // namespace

std::string why_no_nvrtc() { return "this build has no NVRTC"; }
std::string nvrtc_version() { refuse(); }
std::string compile_cubin(const std::string&, const std::string&, std::span<const EmbeddedHeader>,
                          const CompileTarget&) {
  refuse();
}

#endif

}  // namespace tenor::cuda
