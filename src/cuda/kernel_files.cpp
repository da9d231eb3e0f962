#include "src/cuda/kernel_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "src/core/cache_folder.h"

namespace tenor::cuda {

namespace fs = std::filesystem;

namespace {

constexpr char kMagic[8] = {'T', 'e', 'n', 'o', 'r', 'K', '1', '\n'};
constexpr const char* kSuffix = ".kernel";

/// FNV-1a of 64 bits.
uint64_t hash_of(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325ull) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::string hexadecimal(uint64_t value) {
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[static_cast<size_t>(i)] = "0123456789abcdef"[value & 15];
  return out;
}

void put(std::string& file, uint64_t value) { file.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
/// Takes eight bytes off the front.
bool take(std::string_view& file, uint64_t& value) {
  if (file.size() < sizeof(value)) return false;
  std::memcpy(&value, file.data(), sizeof(value));
  file.remove_prefix(sizeof(value));
  return true;
}

/// Why a file or folder of that status is not to be trusted; empty: it is.
std::string distrust(const struct stat& status) {
  if (status.st_uid != geteuid()) return "belongs to another user";
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return "may be written to by others";
  return {};
}

std::string inspect(const fs::path& folder) {
  std::error_code ignored;
  fs::create_directories(folder.parent_path(), ignored);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return folder.string() + ": " + std::strerror(errno);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return folder.string() + ": " + std::strerror(errno);
  if (!S_ISDIR(status.st_mode)) return folder.string() + " is not a folder";
  const std::string why = distrust(status);
  return why.empty() ? why : folder.string() + " " + why;
}

/// The file's bytes, if it is one that this user alone may have written.
std::optional<std::string> read_trusted(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return {};
  const std::unique_ptr<const int, void (*)(const int*)> closed(&file, [](const int* f) { close(*f); });
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || !distrust(status).empty()) return {};
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = read(file, bytes.data() + got, bytes.size() - got);
    if (n <= 0) return {};
    got += static_cast<size_t>(n);
  }
  return bytes;
}

std::string pack(const std::string& key, const std::string& code) {
  std::string file(kMagic, sizeof(kMagic));
  put(file, key.size());
  put(file, code.size());
  file += key;
  file += code;
  put(file, hash_of(file));
  return file;
}

std::optional<std::string> unpack(const std::string& bytes, const std::string& key) {
  std::string_view rest = bytes;
  uint64_t key_size = 0, code_size = 0, checksum = 0;
  if (rest.substr(0, sizeof(kMagic)) != std::string_view(kMagic, sizeof(kMagic))) return {};
  rest.remove_prefix(sizeof(kMagic));
  if (!take(rest, key_size) || !take(rest, code_size) || key_size != key.size()) return {};
  if (rest.size() < sizeof(checksum) || rest.size() - sizeof(checksum) < key_size ||
      rest.size() - sizeof(checksum) - key_size != code_size)
    return {};
  std::string_view tail = rest.substr(key_size + code_size);
  take(tail, checksum);
  if (checksum != hash_of(std::string_view(bytes).substr(0, bytes.size() - sizeof(checksum)))) return {};
  if (rest.substr(0, key_size) != key) return {};
  return std::string(rest.substr(key_size, code_size));
}

}  // namespace

std::string fingerprint(std::string_view text) {
  return hexadecimal(hash_of(text)) + hexadecimal(hash_of(text, ~hash_of(text)));
}

KernelFiles::KernelFiles(fs::path folder) : folder_(std::move(folder)) {
  refused_ = folder_.empty() ? "there is no cache folder (TENOR_CACHE_DIR may name one)" : inspect(folder_);
}

fs::path KernelFiles::path_of(const std::string& key) const { return folder_ / (fingerprint(key) + kSuffix); }

std::optional<std::string> KernelFiles::find(const std::string& key) const {
  if (!refused_.empty()) return {};
  const std::optional<std::string> bytes = read_trusted(path_of(key));
  return bytes ? unpack(*bytes, key) : std::nullopt;
}

bool KernelFiles::keep(const std::string& key, const std::string& code) const {
  return refused_.empty() && core::replace_file(path_of(key), pack(key, code), true);
}

KernelFiles::Size KernelFiles::size() const {
  Size size;
  std::error_code failed;
  for (fs::directory_iterator entry(folder_, failed), end; !failed && entry != end; entry.increment(failed)) {
    if (entry->path().extension() != kSuffix) continue;
    std::error_code gone;
    const auto bytes = entry->file_size(gone);
    if (!gone) ++size.files, size.bytes += static_cast<int64_t>(bytes);
  }
  return size;
}

}  // namespace tenor::cuda
