// Compiled kernels on disk. A file holds the whole key beside the code and a checksum over both: what is cut short,
// damaged or of another key is not found. Writers rename a finished draft into place, so readers never see a part.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tenor::cuda {

/// 32 hexadecimal digits that tell texts apart.
std::string fingerprint(std::string_view text);

class KernelFiles {
 public:
  /// Keeps files in that folder, which is made (for its owner alone) when it does not exist. Without a folder, or where
  /// refused() says why not, nothing is found and nothing kept.
  explicit KernelFiles(std::filesystem::path folder);

  /// The code that was kept under that key.
  std::optional<std::string> find(const std::string& key) const;
  /// Whether the code is kept now.
  bool keep(const std::string& key, const std::string& code) const;

  /// Why the folder is not used: it belongs to another user, or others may write to it (they could have any code run).
  /// Empty where it is used.
  const std::string& refused() const { return refused_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// The file of that key.
  std::filesystem::path path_of(const std::string& key) const;

  struct Size {
    int64_t files = 0, bytes = 0;
  };
  Size size() const;

 private:
  std::filesystem::path folder_;
  std::string refused_;
};

}  // namespace tenor::cuda
