#include "src/system/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "src/system/files.h"
#include "tests/support/environment.h"
#include "tests/support/temp_folder.h"

namespace owt::plan_cache_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::Optional;

class PlanCacheTest : public testing::Test {
 protected:
  // What a new process would find.
  std::optional<std::string> find_anew(const std::string& key) { return PlanCache(folder_.path()).find(key); }
  std::string path_of(const std::string& key) { return PlanCache(folder_.path()).path_of(key); }

  TempFolder folder_;
};

TEST_F(PlanCacheTest, WhatWasStoredIsFoundByTheNextProcess) {
  PlanCache cache(folder_.path());
  cache.store("conv a", "plan 1");
  cache.store("conv b", std::string("line\nzero\0end", 13));
  EXPECT_THAT(cache.find("conv a"), Optional(std::string("plan 1")));
  EXPECT_THAT(find_anew("conv a"), Optional(std::string("plan 1")));
  EXPECT_THAT(find_anew("conv b"), Optional(std::string("line\nzero\0end", 13)));
  EXPECT_EQ(find_anew("conv c"), std::nullopt);
}

TEST_F(PlanCacheTest, TheLatestTextCounts) {
  PlanCache cache(folder_.path());
  cache.store("conv", "old");
  cache.store("conv", "new");
  EXPECT_THAT(cache.find("conv"), Optional(std::string("new")));
  EXPECT_THAT(find_anew("conv"), Optional(std::string("new")));
}

TEST_F(PlanCacheTest, WhatIsForThisProcessHasNoFile) {
  PlanCache cache(folder_.path());
  cache.store_for_this_process("conv", "plan");
  EXPECT_THAT(cache.find("conv"), Optional(std::string("plan")));
  EXPECT_EQ(find_anew("conv"), std::nullopt);
}

TEST_F(PlanCacheTest, FoldersAreMade) {
  const std::string deep = folder_.file("a/b");
  PlanCache(deep).store("conv", "plan");
  EXPECT_THAT(PlanCache(deep).find("conv"), Optional(std::string("plan")));
}

TEST_F(PlanCacheTest, AnyDamagedByteIsSeenAndTheFileRenewed) {
  PlanCache(folder_.path()).store("key", "text");
  const std::string good = read_file(path_of("key"));
  testing::internal::CaptureStderr();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write_bytes(path_of("key"), bad);
    EXPECT_EQ(find_anew("key"), std::nullopt) << "byte " << i;
  }
  for (const size_t length : {size_t{0}, size_t{5}, good.size() - 1}) {
    write_bytes(path_of("key"), good.substr(0, length));
    EXPECT_EQ(find_anew("key"), std::nullopt) << length << " bytes";
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("damaged"));
  PlanCache(folder_.path()).store("key", "text");
  EXPECT_THAT(find_anew("key"), Optional(std::string("text")));
}

TEST_F(PlanCacheTest, AnotherKeysFileIsNotBelieved) {
  PlanCache(folder_.path()).store("other", "text");
  write_bytes(path_of("key"), read_file(path_of("other")));
  testing::internal::CaptureStderr();
  EXPECT_EQ(find_anew("key"), std::nullopt);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("another choice's file"));
}

TEST_F(PlanCacheTest, AFolderThatCannotBeWrittenIsOneWarning) {
  write_bytes(folder_.file("file"), "");
  PlanCache cache(folder_.file("file/cache"));
  testing::internal::CaptureStderr();
  cache.store("conv a", "plan 1");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("OWT_CACHE"));
  testing::internal::CaptureStderr();
  cache.store("conv b", "plan 2");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("warning")));
  EXPECT_THAT(cache.find("conv a"), Optional(std::string("plan 1")));
  EXPECT_THAT(cache.find("conv b"), Optional(std::string("plan 2")));
}

TEST_F(PlanCacheTest, ManyThreadsShareOne) {
  PlanCache cache(folder_.path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 10; ++i) {
        cache.store("key " + std::to_string(i), "text " + std::to_string(i));
        EXPECT_THAT(cache.find("key " + std::to_string((i + t) % (i + 1))), testing::Ne(std::nullopt));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 10; ++i)
    EXPECT_THAT(find_anew("key " + std::to_string(i)), Optional("text " + std::to_string(i)));
}

TEST(PlanCacheFolder, IsOwtsOwnElseTheUsersElseThatOfHisHome) {
  const Variable home("HOME", "/home/ann");
  {
    const Variable caches("XDG_CACHE_HOME", "/caches"), own("OWT_CACHE", "/mine");
    EXPECT_EQ(PlanCache::user_folder(), "/mine");
  }
  {
    const Variable caches("XDG_CACHE_HOME", "/caches"), own("OWT_CACHE", nullptr);
    EXPECT_EQ(PlanCache::user_folder(), "/caches/owt");
  }
  const Variable caches("XDG_CACHE_HOME", nullptr), own("OWT_CACHE", nullptr);
  EXPECT_EQ(PlanCache::user_folder(), "/home/ann/.cache/owt");
  const Variable homeless("HOME", nullptr);
  EXPECT_EQ(PlanCache::user_folder(), "");
}

TEST(PlanCacheFolder, WithoutOneChoicesLiveInMemory) {
  PlanCache cache("");
  cache.store("conv", "plan");
  EXPECT_THAT(cache.find("conv"), Optional(std::string("plan")));
  EXPECT_EQ(PlanCache("").find("conv"), std::nullopt);
}

}  // namespace
}  // namespace owt::plan_cache_test
