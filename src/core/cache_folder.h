// The folder in which measurements outlive the process.
#pragma once

#include <filesystem>
#include <string>

namespace tenor::core {

/// $TENOR_CACHE_DIR, $XDG_CACHE_HOME/tenor or ~/.cache/tenor; empty where there is none of them.
std::filesystem::path cache_folder();

/// Processor and thread count on one line: what a measurement on the CPU depends on.
std::string machine_key();

/// Writes a file beside the path and renames it over it: readers see the old text or the new one. Whether it could.
/// `private_file`: one that its owner alone may read and write, whatever the process's umask.
bool replace_file(const std::filesystem::path& path, const std::string& text, bool private_file = false);

}  // namespace tenor::core
