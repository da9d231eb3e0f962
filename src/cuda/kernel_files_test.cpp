#include "src/cuda/kernel_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

namespace tenor::cuda {
namespace {

namespace fs = std::filesystem;

/// A folder that is gone after the test.
class KernelFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tenor-kernels-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  fs::path folder() const { return root_ / "cache" / "kernels"; }

  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path root_;
};

std::string code_of(size_t size) {
  std::string code(size, '\0');
  for (size_t i = 0; i < size; ++i) code[i] = static_cast<char>(i * 31 + size);
  return code;
}

TEST_F(KernelFilesTest, KeepsAndFinds) {
  const KernelFiles files(folder());
  ASSERT_EQ(files.refused(), "");
  EXPECT_FALSE(files.find("a key"));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100000}}) {
    const std::string key = "key of " + std::to_string(size);
    ASSERT_TRUE(files.keep(key, code_of(size)));
    EXPECT_EQ(files.find(key), code_of(size));
    EXPECT_EQ(KernelFiles(folder()).find(key), code_of(size)) << "by another process";
  }
  EXPECT_EQ(files.size().files, 3);
  EXPECT_GT(files.size().bytes, 100000);
  ASSERT_TRUE(files.keep("key of 1", "other"));
  EXPECT_EQ(files.find("key of 1"), "other");
  struct stat status {};
  ASSERT_EQ(stat(folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u) << "made for its owner alone";
}

/// Where a user's group is his own, processes leave files to be written to by the group; these are not found then.
TEST_F(KernelFilesTest, FindsWhatItKeptUnderAnyMask) {
  const KernelFiles files(folder());
  for (const mode_t mask : {0002, 0000, 0022, 0077}) {
    const std::string key = "kept under " + std::to_string(mask);
    const mode_t before = umask(mask);
    const bool kept = files.keep(key, code_of(100));
    umask(before);
    ASSERT_TRUE(kept);
    EXPECT_EQ(files.find(key), code_of(100)) << key;
  }
  for (const fs::directory_entry& file : fs::directory_iterator(folder()))
    EXPECT_EQ(file.status().permissions(), fs::perms::owner_read | fs::perms::owner_write) << file.path();
}

TEST_F(KernelFilesTest, FindsNothingDamaged) {
  const KernelFiles files(folder());
  const std::string key = "some text", code = code_of(500);
  ASSERT_TRUE(files.keep(key, code));
  const fs::path path = files.path_of(key);
  const std::string whole = read(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    write(path, whole.substr(0, length));
    ASSERT_FALSE(files.find(key)) << "cut to " << length;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    write(path, changed);
    ASSERT_FALSE(files.find(key)) << "byte " << i;
  }
  write(path, whole + "more");
  EXPECT_FALSE(files.find(key));
  write(path, whole);
  EXPECT_EQ(files.find(key), code);
  write(path, "junk");
  ASSERT_TRUE(files.keep(key, code)) << "is built again";
  EXPECT_EQ(files.find(key), code);
}

TEST_F(KernelFilesTest, TellsKeysApartInOneFile) {
  const KernelFiles files(folder());
  ASSERT_TRUE(files.keep("one", "code of one"));
  fs::copy_file(files.path_of("one"), files.path_of("two"));
  EXPECT_FALSE(files.find("two")) << "as if their names were alike";
}

TEST_F(KernelFilesTest, RefusesFoldersThatOthersMayWriteTo) {
  ASSERT_EQ(KernelFiles(folder()).refused(), "");
  ASSERT_TRUE(KernelFiles(folder()).keep("key", "code"));
  for (const mode_t mode : {0770, 0707, 0777}) {
    ASSERT_EQ(chmod(folder().c_str(), mode), 0);
    const KernelFiles files(folder());
    EXPECT_EQ(files.refused(), folder().string() + " may be written to by others");
    EXPECT_FALSE(files.find("key"));
    EXPECT_FALSE(files.keep("key", "code"));
  }
  ASSERT_EQ(chmod(folder().c_str(), 0755), 0);
  EXPECT_EQ(KernelFiles(folder()).find("key"), "code");
}

TEST_F(KernelFilesTest, RefusesFoldersAndFilesOfAnotherUser) {
  const KernelFiles files(folder());
  ASSERT_TRUE(files.keep("key", "code"));
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chown(files.path_of("key").c_str(), 12345, 12345), 0);
  EXPECT_FALSE(files.find("key"));
  ASSERT_EQ(chown(folder().c_str(), 12345, 12345), 0);
  EXPECT_EQ(KernelFiles(folder()).refused(), folder().string() + " belongs to another user");
}

TEST_F(KernelFilesTest, DoesNotFollowLinksOrReadWritableFiles) {
  const KernelFiles files(folder());
  ASSERT_TRUE(files.keep("key", "code"));
  const fs::path path = files.path_of("key"), elsewhere = root_ / "elsewhere";
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(files.find("key"));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  EXPECT_FALSE(files.find("key"));
}

TEST_F(KernelFilesTest, WithoutAFolderKeepsNothing) {
  const KernelFiles none{fs::path()};
  EXPECT_NE(none.refused(), "");
  EXPECT_FALSE(none.keep("key", "code"));
  EXPECT_FALSE(none.find("key"));
  write(root_ / "file", "");
  EXPECT_NE(KernelFiles(root_ / "file" / "kernels").refused(), "");
  EXPECT_EQ(KernelFiles(root_ / "file").refused(), (root_ / "file").string() + " is not a folder");
}

TEST_F(KernelFilesTest, ManyWritersAndReadersSeeWholeFiles) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const KernelFiles files(folder());
      for (int i = 0; i < 100; ++i) {
        const std::string key = "key " + std::to_string(i % 3), code = code_of(static_cast<size_t>(5000 + i % 3));
        if (t % 2 == 0 && !files.keep(key, code)) ++wrong;
        if (const auto found = files.find(key); found && *found != code) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(KernelFiles(folder()).size().files, 3);
  for (const auto& entry : fs::directory_iterator(folder()))
    EXPECT_EQ(entry.path().extension(), ".kernel") << "a draft was left behind";
}

}  // namespace
}  // namespace tenor::cuda
