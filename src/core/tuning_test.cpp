#include "src/core/tuning.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "src/core/cache_folder.h"
#include "src/core/candidates.h"
#include "src/core/testing.h"
#include "src/core/tuning_testing.h"
#include "tenor/device.h"
#include "tenor/modes.h"

namespace tenor::core {
namespace {

/// A cache folder of its own, autotuning on.
class Autotune : public ::testing::Test {
 protected:
  std::string file() const { return folder_ + "/tuning.json"; }
  std::string text() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(file()) << text;
  }
  /// Makes the process read the file anew: another folder, then this one.
  void reread() const {
    setenv("TENOR_CACHE_DIR", (folder_ + "-other").c_str(), 1);
    tunings();
    setenv("TENOR_CACHE_DIR", folder_.c_str(), 1);
  }
  const tenor::testing::FreshTuning fresh_;
  const std::string folder_ = fresh_.folder();
};

// ---- the store
// ----------------------------------------------------------------------------------------------------------

TEST_F(Autotune, TheFastestIsRememberedOnDisk) {
  EXPECT_EQ(tuned_winner("op", "2x3"), std::nullopt);
  remember_tuning("op", "2x3", {{"slow", 20.5}, {"fast", 2}});
  EXPECT_EQ(tuned_winner("op", "2x3"), "fast");
  EXPECT_EQ(tuned_winner("op", "2x4"), std::nullopt);
  EXPECT_EQ(tuned_winner("other", "2x3"), std::nullopt);
  reread();
  EXPECT_EQ(tuned_winner("op", "2x3"), "fast");
  ASSERT_EQ(tunings().size(), 1u);
  EXPECT_EQ(tunings()[0].machine, machine_key());
  EXPECT_EQ(tunings()[0].microseconds[0], std::pair(std::string("slow"), 20.5));
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_TRUE(entry.path().filename() == "tuning.json" || entry.path().filename() == "tuning.json.lock")
        << entry.path();
}

TEST_F(Autotune, AnotherThreadCountIsAnotherMachine) {
  const int threads = num_threads();
  remember_tuning("op", "p", {{"a", 1}});
  set_num_threads(threads + 1);
  EXPECT_EQ(tuned_winner("op", "p"), std::nullopt);
  set_num_threads(threads);
  EXPECT_EQ(tuned_winner("op", "p"), "a");
}

TEST_F(Autotune, TheFirstStaysUnlessAnotherIsClearlyFaster) {
  remember_tuning("op", "p", {{"usual", 100}, {"other", 98}});
  EXPECT_EQ(tuned_winner("op", "p"), "usual");
  remember_tuning("op", "p", {{"usual", 100}, {"other", 90}});
  EXPECT_EQ(tuned_winner("op", "p"), "other");
}

TEST_F(Autotune, Forgetting) {
  remember_tuning("op", "p", {{"a", 1}});
  remember_tuning("op", "q", {{"a", 1}});
  remember_tuning("other", "p", {{"b", 1}});
  EXPECT_EQ(forget_tunings("op", "q"), 1);
  EXPECT_EQ(tuned_winner("op", "p"), "a");
  remember_tuning("op", "q", {{"a", 1}});
  EXPECT_EQ(forget_tunings("op"), 2);
  EXPECT_EQ(tuned_winner("op", "p"), std::nullopt);
  reread();
  EXPECT_EQ(tuned_winner("op", "q"), std::nullopt);
  EXPECT_EQ(tuned_winner("other", "p"), "b");
  EXPECT_EQ(forget_tunings(""), 1);
  EXPECT_TRUE(tunings().empty());
}

TEST_F(Autotune, OtherProcessesEntriesStay) {
  constexpr int kProcesses = 4, kEach = 10;
  for (int p = 0; p < kProcesses; ++p)
    if (fork() == 0) {
      for (int i = 0; i < kEach; ++i) remember_tuning("op", std::to_string(p) + "/" + std::to_string(i), {{"a", 1}});
      _exit(0);
    }
  for (int p = 0; p < kProcesses; ++p) wait(nullptr);
  remember_tuning("op", "mine", {{"a", 1}});
  EXPECT_EQ(tunings().size(), size_t{kProcesses * kEach + 1});
}

TEST_F(Autotune, ABrokenFileIsAnEmptyTableAndIsReplaced) {
  const std::string deep(100000, '[');
  for (const std::string& broken :
       {std::string(), std::string("{"), std::string("[1, 2]"), std::string("{\"entries\": 3}"), deep,
        std::string("{\"entries\": [1, {\"op\": 1}, {\"op\": \"op\", \"problem\": \"p\"}]}"), std::string("\xff\xfe{}"),
        std::string("{\"format\": 2, \"entries\": []}"),
        std::string("{\"entries\": [{\"op\": \"op\", \"problem\": \"p\", \"machine\": \"m\", "
                    "\"version\": \"v\", \"winner\": \"w\", \"microseconds\": [[1, 2]]}]}")}) {
    write(broken);
    ::testing::internal::CaptureStderr();
    reread();
    EXPECT_TRUE(tunings().empty()) << broken.substr(0, 80);
    EXPECT_TRUE(tunings().empty());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("tuning.json is no tuning table"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "said once";
    remember_tuning("op", "p", {{"a", 1}});
    reread();
    EXPECT_EQ(tuned_winner("op", "p"), "a");
  }
}

TEST_F(Autotune, WholeEntriesOfAPartlyForeignFileCount) {
  remember_tuning("op", "p", {{"a", 1}});
  std::string mixed = text();
  mixed.replace(mixed.find("\"entries\": [") + 12, 0, "{\"op\": 7}, ");
  write(mixed);
  ::testing::internal::CaptureStderr();
  reread();
  EXPECT_EQ(tuned_winner("op", "p"), "a");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("not in all of its entries"), std::string::npos);
}

TEST_F(Autotune, AMissingOrGoodFileIsReadWithoutAWord) {
  ::testing::internal::CaptureStderr();
  reread();
  remember_tuning("op", "p", {{"a", 1}});
  reread();
  EXPECT_EQ(tuned_winner("op", "p"), "a");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(Autotune, AFolderThatCannotBeWrittenCostsTheNextProcessAMeasurement) {
  setenv("TENOR_CACHE_DIR", "/proc/no/such/place", 1);
  remember_tuning("op", "p", {{"a", 1}});
  remember_tuning("op", "q", {{"b", 1}});
  EXPECT_EQ(tuned_winner("op", "p"), "a");
  EXPECT_EQ(tuned_winner("op", "q"), "b");
}

// ---- choosing
// -----------------------------------------------------------------------------------------------------------

struct Problem {
  int size;
};
int runs = 0;
std::set<std::thread::id> runners;
template <int kMicroseconds>
void busy(const Problem&) {
  ++runs;
  runners.insert(std::this_thread::get_id());  // under the measuring lock, if that works
  std::this_thread::sleep_for(std::chrono::microseconds(kMicroseconds));
}
std::string only_small(const Problem& p) { return p.size < 10 ? "" : "too large"; }

// Far enough apart that a machine at work elsewhere does not turn them about.
const Candidate<Problem> kList[] = {{"first", always<Problem>, busy<9000>},
                                    {"small", only_small, busy<100>},
                                    {"coarse", always<Problem>, busy<1>, 1},
                                    {"second", always<Problem>, busy<5000>},
                                    {"reference", always<Problem>, busy<1>, kNeverTuned}};

std::string chosen(const Problem& p, bool may_run = true, const char* strategy = "auto") {
  return choose_tuned<Problem>("op", kList, p, kCpu, strategy, may_run, [&] { return std::to_string(p.size); }).name;
}

TEST_F(Autotune, TheFastestOfOneNumericsClass) {
  EXPECT_EQ(chosen({5}), "small");
  EXPECT_EQ(chosen({50}), "second");
  runs = 0;
  EXPECT_EQ(chosen({5}), "small");
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(tunings().size(), 2u);
  EXPECT_EQ(tunings()[0].microseconds.size() + tunings()[1].microseconds.size(), 5u);  // neither coarse nor reference
}

TEST_F(Autotune, NothingRunsWhereItMayNot) {
  runs = 0;
  EXPECT_EQ(chosen({5}, false), "first");
  EXPECT_EQ(runs, 0);
  chosen({5});
  EXPECT_EQ(chosen({5}, false), "small");
}

TEST_F(Autotune, ANamedStrategyOrBatchInvarianceIsNotTuned) {
  runs = 0;
  EXPECT_EQ(chosen({5}, true, "second"), "second");
  {
    BatchInvariantGuard guard;
    EXPECT_EQ(chosen({5}), "first");
  }
  autotune(false);
  EXPECT_EQ(chosen({5}), "first");
  EXPECT_EQ(runs, 0);
}

TEST_F(Autotune, TheLogNamesWhatWasChosen) {
  TuningLog log;
  chosen({5});
  chosen({50}, false);
  chosen({5}, true, "second");
  ASSERT_EQ(log.problems.size(), 2u);
  EXPECT_EQ(log.problems[0], std::pair(std::string("op"), std::string("5")));
}

TEST_F(Autotune, AWinnerThatNowDeclinesIsPassedOver) {
  remember_tuning("op", "50", {{"small", 1}});
  EXPECT_EQ(chosen({50}), "first");
}

TEST_F(Autotune, SeveralThreadsMeasureOnce) {
  runners.clear();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { chosen({50}); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(runners.size(), 1u) << "the others waited for it";
}

TEST_F(Autotune, ASlowCandidateIsTimedOnce) {
  int calls = 0;
  const auto slow = [&] { ++calls, std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  EXPECT_GT(time_call(slow, 100), 1000);
  EXPECT_EQ(calls, 1);
  EXPECT_GT(time_call(slow, 1e9), 1000);
  EXPECT_GT(calls, 3);
}

}  // namespace
}  // namespace tenor::core
