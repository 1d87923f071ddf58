// The user interface of owt prepare: official archives, folder trees, signals, kill -9, plain tar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "data/photos/photo.h"
#include "data/prepare/photo_sources.h"
#include "data/shard_index.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/environment.h"
#include "tests/support/made_photos.h"
#include "tests/support/temp_folder.h"

namespace owt::prepare_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Result {
  int code = -1;
  std::string out, err;
};

class PrepareProgramTest : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    write_bytes(file(name), bytes);
  }
  void shell(const std::string& command) const {
    ASSERT_EQ(std::system(("cd '" + folder_.path() + "' && " + command).c_str()), 0) << command;
  }
  static std::string jpeg(int gray, int64_t height = 40, int64_t width = 50) {
    return jpeg_of(
        {height, width, std::vector<uint8_t>(static_cast<size_t>(height * width * 3), static_cast<uint8_t>(gray))}, {});
  }
  static std::string noisy_jpeg(int64_t side, uint32_t state) {
    Photo photo{side, side, {}};
    for (int64_t i = 0; i < side * side * 3; ++i)
      photo.pixels.push_back(static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24));
    return jpeg_of(photo, {});
  }

  // Runs in the test's folder.
  Result owt(const std::string& words) const {
    const std::string out = file("stdout"), err = file("stderr");
    const std::string command = "cd '" + folder_.path() + "' && '" OWT_PROGRAM "' " + words + " >" + out + " 2>" + err;
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }
  // Its process, which does not end by itself before it is done.
  pid_t start(const std::vector<std::string>& words) const {
    std::fflush(nullptr);  // otherwise the child prints the contents of the buffers again
    const pid_t process = fork();
    if (process != 0) return process;
    std::vector<char*> arguments;
    std::string program = OWT_PROGRAM;
    arguments.push_back(program.data());
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    if (chdir(folder_.path().c_str()) != 0 || !freopen("stdout", "w", stdout) || !freopen("stderr", "w", stderr))
      _exit(126);
    execv(OWT_PROGRAM, arguments.data());
    _exit(127);
  }

  // (label, gray, name) of the records, in the order of their names.
  std::vector<std::string> records_of(const std::string& split) const {
    std::vector<std::string> all;
    for (int64_t shard = 0; fs::exists(file(split + "/" + shard_file_name(shard, ".index"))); ++shard) {
      const std::string path = file(split + "/" + shard_file_name(shard, ".index"));
      const std::string tar = read_file(file(split + "/" + shard_file_name(shard, ".tar")));
      for (const ShardRecord& record : parse_shard_index(read_file(path), path).records) {
        const Photo photo = read_photo(std::string_view(tar).substr(record.offset, record.bytes));
        all.push_back(format("{}: {} {}", record.name, record.label, photo.pixels[0]));
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  std::map<std::string, std::string> content_of(const std::string& dir) const {
    std::map<std::string, std::string> content;
    for (const auto& entry : fs::recursive_directory_iterator(file(dir)))
      if (entry.is_regular_file())
        content[entry.path().lexically_relative(file(dir)).string()] = read_file(entry.path().string());
    return content;
  }

  // ILSVRC2012_img_train.tar of three synsets with two images each, not in the order of their ids, and the validation
  // archive of four images.
  void write_archives() const {
    write("make/n02119789.tar.d/n02119789_1.JPEG", jpeg(30));
    write("make/n02119789.tar.d/n02119789_2.JPEG", jpeg(31));
    write("make/n02100735.tar.d/n02100735_1.JPEG", jpeg(10));
    write("make/n02100735.tar.d/n02100735_2.JPEG", jpeg(11));
    write("make/n02110185.tar.d/n02110185_1.JPEG", jpeg(20));
    write("make/n02110185.tar.d/n02110185_2.JPEG", jpeg(21));
    for (int i = 1; i <= 4; ++i) write("make/val/ILSVRC2012_val_0000000" + std::to_string(i) + ".JPEG", jpeg(100 + i));
    shell(
        "mkdir -p in; cd make; for n in n02119789 n02100735 n02110185; do tar -C $n.tar.d -cf $n.tar $(ls $n.tar.d); "
        "done;"
        "tar -cf ../in/ILSVRC2012_img_train.tar n02119789.tar n02100735.tar n02110185.tar;"
        "tar -C val -cf ../in/ILSVRC2012_img_val.tar $(ls val)");
  }
  void write_devkit() const {
    write("make/ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", "3\n1\n1\n2\n");
    shell("tar -C make -czf in/ILSVRC2012_devkit_t12.tar.gz ILSVRC2012_devkit_t12");
  }

  TempFolder folder_;
};

TEST_F(PrepareProgramTest, TheOfficialArchivesAreReadAsTheyAre) {
  write_archives();
  write_devkit();
  const Result result = owt("prepare imagenet in out --size 0 --shard-images 4");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("out/train: 6 images of 3 classes in 2 shards"),
                                HasSubstr("out/val: 4 images of 3 classes in 1 shard, "), HasSubstr("none skipped")));
  EXPECT_EQ(read_file(file("out/classes.txt")),
            "n02100735\tEnglish setter\nn02110185\tSiberian husky\nn02119789\tkit fox, Vulpes macrotis\n");
  EXPECT_THAT(records_of("out/train"),
              ElementsAre("n02100735/n02100735_1.JPEG: 0 10", "n02100735/n02100735_2.JPEG: 0 11",
                          "n02110185/n02110185_1.JPEG: 1 20", "n02110185/n02110185_2.JPEG: 1 21",
                          "n02119789/n02119789_1.JPEG: 2 30", "n02119789/n02119789_2.JPEG: 2 31"));
  EXPECT_THAT(records_of("out/val"),
              ElementsAre("ILSVRC2012_val_00000001.JPEG: 1 101", "ILSVRC2012_val_00000002.JPEG: 2 102",
                          "ILSVRC2012_val_00000003.JPEG: 2 103", "ILSVRC2012_val_00000004.JPEG: 0 104"));
  const Result again = owt("prepare imagenet in out --size 0 --shard-images 4");
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.out, AllOf(HasSubstr("out/train: already prepared"), HasSubstr("out/val: already prepared")));
}

TEST_F(PrepareProgramTest, ValidationLabelsMayComeFromAList) {
  write_archives();
  const Result none = owt("prepare imagenet in out");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, AllOf(HasSubstr("ILSVRC2012_devkit_t12.tar.gz"), HasSubstr("--val-labels")));
  EXPECT_FALSE(fs::exists(file("out/train"))) << "before any work";
  std::string list;
  for (const std::string line : {"1.JPEG n02110185", "2.JPEG n02119789", "3.JPEG n02100735", "4 2"})
    list += "ILSVRC2012_val_0000000" + line + "\n";
  write("labels.txt", list);
  EXPECT_EQ(owt("prepare imagenet in out --size 0 --val-labels labels.txt").code, 0);
  EXPECT_THAT(records_of("out/val"),
              ElementsAre("ILSVRC2012_val_00000001.JPEG: 1 101", "ILSVRC2012_val_00000002.JPEG: 2 102",
                          "ILSVRC2012_val_00000003.JPEG: 0 103", "ILSVRC2012_val_00000004.JPEG: 2 104"));
  write("short.txt", "ILSVRC2012_val_00000001.JPEG n02110185\n");
  EXPECT_THAT(owt("prepare imagenet in new --val-labels short.txt").err,
              HasSubstr("no label for the validation image ILSVRC2012_val_00000002.JPEG"));
  write("strange.txt", "ILSVRC2012_val_00000001.JPEG n99\n" + list.substr(list.find('\n') + 1));
  EXPECT_THAT(owt("prepare imagenet in new --val-labels strange.txt").err, HasSubstr("'n99'"));
  write("in/LOC_val_solution.csv",
        "ImageId,PredictionString\nILSVRC2012_val_00000001,n02119789 1 2 3 4\nILSVRC2012_val_00000002,n02119789 5 6 7 "
        "8 n02119789 1 1 1 1\n"
        "ILSVRC2012_val_00000003,n02100735 1 2 3 4\nILSVRC2012_val_00000004,n02100735 1 2 3 4\n");
  EXPECT_EQ(owt("prepare imagenet in kaggle --size 0").code, 0);
  EXPECT_EQ(records_of("kaggle/val")[0], "ILSVRC2012_val_00000001.JPEG: 2 101");
}

TEST_F(PrepareProgramTest, TheUsualFolderTreeGivesTheSameSplits) {
  for (const std::string path : {"train/n02/b.JPEG", "train/n01/a.JPEG", "val/n02/v.JPEG"})
    write("in/" + path, jpeg(9));
  write("names.txt", "n01 tench, Tinca tinca\nn02 goldfish\n");
  const Result result = owt("prepare imagenet in out --size 0 --names names.txt");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_file(file("out/classes.txt")), "n01\ttench, Tinca tinca\nn02\tgoldfish\n");
  EXPECT_THAT(records_of("out/train"), ElementsAre("n01/a.JPEG: 0 9", "n02/b.JPEG: 1 9"));
  EXPECT_THAT(records_of("out/val"), ElementsAre("n02/v.JPEG: 1 9"));
  EXPECT_EQ(owt("prepare imagenet make out").code, 1);
}

TEST_F(PrepareProgramTest, FoldersAndListsMakeASplitAtATime) {
  for (const std::string path : {"cat/1.jpg", "dog/2.PNG", "cow/3.jpeg"}) write("train/" + path, jpeg(7));
  write("val/dog/4.jpg", jpeg(8));
  EXPECT_EQ(owt("prepare folder train out --size 0").code, 0);
  EXPECT_EQ(read_file(file("out/classes.txt")), "cat\ncow\ndog\n");
  EXPECT_EQ(owt("prepare folder val out --split val --size 0").code, 0);
  EXPECT_THAT(records_of("out/val"), ElementsAre("dog/4.jpg: 2 8"));
  write("val/yak/5.jpg", jpeg(8));
  const Result yak = owt("prepare folder val out --split val --force");
  EXPECT_EQ(yak.code, 1);
  EXPECT_THAT(yak.err, AllOf(HasSubstr("'yak'"), HasSubstr("classes.txt")));
  write("list.txt", "val/dog/4.jpg 2\nval/yak/5.jpg 0\n");
  EXPECT_EQ(owt("prepare list list.txt out --split val --force --size 0").code, 0);
  EXPECT_THAT(records_of("out/val"), ElementsAre("val/dog/4.jpg: 2 8", "val/yak/5.jpg: 0 8"));
  EXPECT_EQ(owt("prepare folder train out --split test").code, 2);
  EXPECT_EQ(owt("prepare folder train out --max-skipped some").code, 2);
  EXPECT_EQ(owt("prepare folder train").code, 2);
}

TEST_F(PrepareProgramTest, AListOfSeveralLabelsMakesTablesOfTargets) {
  for (const std::string name : {"a", "b, c", "d", "e"}) write("in/" + name + ".jpg", jpeg(9));
  write("in/bad.jpg", "no image");
  write("classes.txt", "ant\tof the wood\n\"bee\"\ncow\n");
  write("list.txt", "in/a.jpg 0,2\nin/b, c.jpg\t1:0.25,2:0.75 \nin/bad.jpg 1\nin/d.jpg 0:0\nin/e.jpg 1\n");
  const std::string command = "prepare list list.txt out --classes classes.txt --size 0 --max-skipped 1 --no-shuffle";
  for (int i = 0; i < 2; ++i) {
    const Result done = owt(command);
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("out/targets_train.csv: targets for data.targets = true\n"));
    EXPECT_EQ(read_file(file("out/targets_train.csv")),
              "name,ant,\"\"\"bee\"\"\",cow\nin/a.jpg,1,0,1\n\"in/b, c.jpg\",0,0.25,0.75\nin/d.jpg,0,0,0\n"
              "in/e.jpg,0,1,0\n");
    fs::remove(file("out/targets_train.csv"));
  }
  EXPECT_THAT(records_of("out/train"),
              ElementsAre("in/a.jpg: 0 9", "in/b, c.jpg: 2 9", "in/d.jpg: 0 9", "in/e.jpg: 1 9"));
  EXPECT_EQ(owt(command + " --split val").code, 0);
  // A list of plain labels repeats no name, since the split gets a table too; a table that exists stays as it is.
  write("plain.txt", "in/a.jpg 0\nin/a.jpg 1\n");
  const std::string plain =
      "prepare list plain.txt out --classes classes.txt --size 0 --no-shuffle --split val --force";
  EXPECT_THAT(owt(plain).err, HasSubstr("val has 'in/a.jpg' twice"));
  write("plain.txt", "in/a.jpg 0\nin/e.jpg 1\n");
  ASSERT_EQ(owt(plain).code, 0);
  EXPECT_EQ(read_file(file("out/targets_test.csv")), "name,ant,\"\"\"bee\"\"\",cow\nin/a.jpg,1,0,0\nin/e.jpg,0,1,0\n");
  write("out/targets_test.csv", "written by hand");
  ASSERT_EQ(owt(plain.substr(0, plain.rfind(" --force"))).code, 0);
  EXPECT_EQ(read_file(file("out/targets_test.csv")), "written by hand");
  EXPECT_EQ(owt(command + " --split val --force").code, 0);
  EXPECT_THAT(owt("inspect out").out, HasSubstr("  targets_test.csv: 1.00 classes of an image have a target of 0.5"));
  for (const auto& [line, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"in/a.jpg 0,3", "list.txt:2: label 3, but there are 3 classes"},
           {"in/a.jpg 0,0", "list.txt:2: wanted a path and a label"},
           {"in/a.jpg 0,", "list.txt:2: wanted a path and a label"},
           {"in/a.jpg 0:1.5", "list.txt:2: wanted a path and a label"},
           {"in/a.jpg 0:x", "list.txt:2: wanted a path and a label"},
           {"in/e.jpg 0,1", "list.txt has 'in/e.jpg' twice; write all labels of an image in one line"}}) {
    write("list.txt", "in/e.jpg 1\n" + line + "\n");
    const Result refused = owt("prepare list list.txt none --classes classes.txt");
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr(wanted));
    EXPECT_FALSE(fs::exists(file("none")));
  }
}

TEST_F(PrepareProgramTest, WhatIsLeftOutOfAFolderIsReported) {
  for (const std::string path : {"in/cat/1.jpg", "in/dog/2.jpg", "in/stray.jpg"}) write(path, jpeg(7));
  write("in/notes/a.txt", "");
  const Result result = owt("prepare folder in in/out --size 0");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_file(file("in/out/classes.txt")), "cat\ndog\n");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no class of notes"), HasSubstr("1 image that lies"), HasSubstr("stray.jpg")));
  EXPECT_EQ(owt("prepare folder in in/out --size 0 --force").code, 0);
  EXPECT_EQ(read_file(file("in/out/classes.txt")), "cat\ndog\n");
  write("above/train/cat/1.jpg", jpeg(7));
  write("above/val/cat/1.jpg", jpeg(7));
  const Result splits = owt("prepare folder above new");
  EXPECT_EQ(splits.code, 1);
  EXPECT_THAT(splits.err, HasSubstr("owt prepare imagenet above OUT"));
  EXPECT_FALSE(fs::exists(file("new")));
  write("list.txt", "in/cat/1.jpg 1\n");
  EXPECT_THAT(owt("prepare list list.txt listed --size 0").err, HasSubstr("no image of class 0"));
}

TEST_F(PrepareProgramTest, SomeOfEachClassAreHeldOutAndColoursMeasured) {
  for (int i = 0; i < 10; ++i)
    for (const std::string name : {"in/cat/", "in/dog/"}) write(name + std::to_string(i) + ".jpg", jpeg(10 * i));
  const std::string words = "prepare folder in out --size 0 --validation 0.2";
  const Result result = owt(words);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("out/train: 16 images"), HasSubstr("out/val: 4 images"),
                                HasSubstr("out/train/stats.json: 16 images")));
  std::vector<std::string> all = records_of("out/train");
  const std::vector<std::string> val = records_of("out/val");
  EXPECT_EQ(std::count_if(val.begin(), val.end(), [](const std::string& line) { return line[0] == 'c'; }), 2);
  all.insert(all.end(), val.begin(), val.end());
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 20u);
  EXPECT_THAT(owt(words).out, AllOf(HasSubstr("out/train: already prepared"), HasSubstr("out/val: already prepared")));
  EXPECT_EQ(owt(words + " --split val").code, 2);
  EXPECT_EQ(owt("prepare folder in new --validation 0").code, 2);
  EXPECT_THAT(owt("prepare folder in new --validation 20").err, HasSubstr("--validation = 20 holds 20 of the 20"));
  EXPECT_FALSE(fs::exists(file("new/classes.txt")));
}

TEST_F(PrepareProgramTest, ShardsOfOtherProgramsAreReadAfterIndexing) {
  write("make/a.jpg", jpeg(40));
  write("make/a.cls", "1");
  write("make/b.jpg", jpeg(80));
  write("make/b.cls", "0");
  shell("mkdir -p web/train; tar -C make -cf web/train/some.tar a.jpg a.cls b.jpg b.cls");
  EXPECT_THAT(owt("prepare stats web").err, HasSubstr("owt prepare index web"));
  const Result result = owt("prepare index web");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("web/train: 2 images of 2 classes in 1 tar files, indexed; none skipped"),
                                HasSubstr("web/train/stats.json: 2 images")));
  EXPECT_THAT(owt("inspect web").out, HasSubstr("train: 2 images, 2 classes of 1 image each"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("EXIF")));
  // More tars, also beside the folders of the splits, with other colours.
  write("make/c.jpg", with_exif(jpeg(40), exif(6, true)));
  write("make/c.cls", "1");
  shell("tar -C make -cf web/more.tar c.jpg c.cls");
  EXPECT_THAT(owt("prepare index web").out,
              AllOf(HasSubstr("web/train: 1 of the images is rotated by EXIF, which is ignored"),
                    HasSubstr("web/train/stats.json: 3 images")));
  EXPECT_TRUE(fs::is_symlink(file("web/train/more.tar")));
}

TEST_F(PrepareProgramTest, InspectSaysWhatAFolderOfImagesIs) {
  write("in/cat/1.jpg", jpeg(7));
  const Result photos = owt("inspect in");
  EXPECT_EQ(photos.code, 0) << photos.err;
  EXPECT_THAT(photos.out, HasSubstr("in: it holds folders of images (cat); owt prepare folder in OUT"));
  write("other/a.txt", "");
  EXPECT_THAT(owt("inspect other").err, HasSubstr("other is no run, checkpoint or data set"));
  for (int i = 0; i < 12; ++i)
    for (int k = 0; k <= i; ++k) write(concat("many/c", 10 + i, '/', k, ".jpg"), jpeg(7, 8, 8));
  ASSERT_EQ(owt("prepare folder many out --size 0").code, 0);
  const std::string shown = owt("inspect out").out;
  EXPECT_THAT(shown, AllOf(HasSubstr("c21"), HasSubstr("c17"), HasSubstr("c14"), HasSubstr("c10"),
                           HasSubstr("... 2 more; --classes lists all")));
  EXPECT_THAT(shown, testing::Not(testing::AnyOf(HasSubstr("c15"), HasSubstr("c16"))));
  EXPECT_THAT(owt("inspect out --classes").out, AllOf(HasSubstr("c15"), testing::Not(HasSubstr("more;"))));
}

TEST_F(PrepareProgramTest, NothingIsChangedByACommandThatCannotSucceed) {
  write("old/cat/1.jpg", jpeg(7));
  write("new/dog/1.jpg", jpeg(8));
  ASSERT_EQ(owt("prepare folder old out --size 0").code, 0);
  const auto before = content_of("out");
  EXPECT_EQ(owt("prepare folder new out --force --size -3").code, 2);
  EXPECT_EQ(owt("prepare folder new out --force --max-skipped some").code, 2);
  EXPECT_EQ(content_of("out"), before);
  {
    const FileLock lock(file("out/prepare.lock"));
    EXPECT_THAT(owt("prepare folder new out --force").err, HasSubstr("another process prepares out"));
  }
  {
    const FileLock lock(file("out/train/prepare.lock"));
    EXPECT_THAT(owt("prepare folder new out --force").err, HasSubstr("another process prepares out/train"));
  }
  write("out/train/thesis.tex", "years of work");
  EXPECT_THAT(owt("prepare folder new out --force").err, HasSubstr("thesis.tex"));
  fs::remove(file("out/train/thesis.tex"));
  EXPECT_EQ(content_of("out"), before);
  EXPECT_EQ(owt("prepare folder new out --force --size 0").code, 0);
  EXPECT_EQ(read_file(file("out/classes.txt")), "dog\n");
  EXPECT_THAT(records_of("out/train"), ElementsAre("dog/1.jpg: 0 8"));
}

TEST_F(PrepareProgramTest, AClassesFileThatIsThereIsUsedAndNotReplaced) {
  write("in/cat/1.jpg", jpeg(7));
  write("out/classes.txt", "horse\ncat\n");
  ASSERT_EQ(owt("prepare folder in out --size 0").code, 0);
  EXPECT_EQ(read_file(file("out/classes.txt")), "horse\ncat\n");
  EXPECT_THAT(records_of("out/train"), ElementsAre("cat/1.jpg: 1 7"));
  write("other/classes.txt", "my notes\n");
  const Result result = owt("prepare folder in other");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("'cat'"), HasSubstr("other/classes.txt"), HasSubstr("--force")));
  EXPECT_EQ(read_file(file("other/classes.txt")), "my notes\n");
}

TEST_F(PrepareProgramTest, KeysWithBlanksGetTheirOwnLabels) {
  for (const std::string path : {"train/sea horse/a.JPEG", "train/sea lion/a.JPEG"}) write("in/" + path, jpeg(9));
  write("in/val/v.JPEG", jpeg(5));
  const auto label = [&](const std::string& line, const std::string& out) {
    write("labels.txt", line);
    const Result result = owt("prepare imagenet in " + out + " --size 0 --val-labels labels.txt");
    return result.code == 0 ? records_of(out + "/val")[0] : result.err;
  };
  EXPECT_EQ(label("v.JPEG 1\n", "a"), "v.JPEG: 1 5");
  EXPECT_EQ(label("\xEF\xBB\xBFv.JPEG sea lion\n", "b"), "v.JPEG: 1 5");
  EXPECT_THAT(label("v.JPEG sea\n", "c"), AllOf(HasSubstr("'sea'"), HasSubstr("v.JPEG")));
  EXPECT_THAT(label("v.JPEG 2\n", "d"), HasSubstr("labels.txt:1: label 2"));
  EXPECT_THAT(label("v.JPEG 1\nv.JPEG 0\n", "e"), HasSubstr("labels.txt:2: v.JPEG has two labels"));
}

TEST_F(PrepareProgramTest, ANumberThatIsAlsoTheNameOfAnotherClassIsRefused) {
  for (const std::string path : {"train/0/a.JPEG", "train/10/a.JPEG", "train/2/a.JPEG"}) write("in/" + path, jpeg(9));
  write("in/val/v.JPEG", jpeg(5));
  write("labels.txt", "v.JPEG 2\n");
  EXPECT_EQ(owt("prepare imagenet in out --val-labels labels.txt").code, 0) << "number 2 is the class 2";
  write("in/train/1/a.JPEG", jpeg(9));
  const Result result = owt("prepare imagenet in new --val-labels labels.txt");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("labels.txt:1: label 2 may be class number 2, '10'"));
}

TEST_F(PrepareProgramTest, LabelsThatWouldNotBeUsedAndStrayImagesAreNamed) {
  for (const std::string path : {"train/n01/a.JPEG", "val/n01/v.JPEG"}) write("in/" + path, jpeg(9));
  EXPECT_THAT(owt("prepare imagenet in out --val-labels nowhere.txt").err, HasSubstr("leave out --val-labels"));
  write("in/val/stray.jpg", jpeg(9));
  EXPECT_THAT(owt("prepare imagenet in out").err, AllOf(HasSubstr("stray.jpg"), HasSubstr("n01")));
  fs::remove_all(file("in/val"));
  EXPECT_THAT(owt("prepare imagenet in out --val-labels nowhere.txt").err, HasSubstr("no validation images"));
  EXPECT_FALSE(fs::exists(file("out/classes.txt")));
}

TEST_F(PrepareProgramTest, ADamagedShardIsMadeAgainByTheSameCommand) {
  write("in/cat/1.jpg", jpeg(40));
  ASSERT_EQ(owt("prepare folder in out").code, 0);
  const auto whole = content_of("out");
  fs::resize_file(file("out/train/000000.tar"), 1000);
  const Result stats = owt("prepare stats out");
  EXPECT_EQ(stats.code, 1);
  EXPECT_THAT(stats.err, AllOf(HasSubstr("000000.tar has 1000 bytes"), HasSubstr("run owt prepare again")));
  EXPECT_EQ(owt("prepare folder in out").code, 0);
  EXPECT_EQ(content_of("out"), whole);
}

// Each shard is an open file. Programs start with a low limit that they may raise.
TEST_F(PrepareProgramTest, AsManyShardsAreOpenAsTheSystemAllows) {
  write("photo.jpg", jpeg(7));
  std::string list;
  for (int i = 0; i < 60; ++i) list += "photo.jpg 0\n";
  write("list.txt", list);
  ASSERT_EQ(owt("prepare list list.txt out --shard-images 1").code, 0);
  shell("ulimit -Sn 40 && '" OWT_PROGRAM "' inspect out >shown");
  EXPECT_THAT(read_file(file("shown")), HasSubstr("60 images"));
  shell("ulimit -n 40 && ! '" OWT_PROGRAM "' inspect out >shown 2>said");
  EXPECT_THAT(read_file(file("said")),
              AllOf(HasSubstr("60 shards"), HasSubstr("may open 40 files"), HasSubstr("ulimit -Hn")));
}

TEST_F(PrepareProgramTest, ShardsAreReadWithPlainTar) {
  write("in/cat/1.jpg", jpeg(40));
  write("in/dog/2.jpg", jpeg(80));
  ASSERT_EQ(owt("prepare folder in out --no-shuffle").code, 0);
  shell("tar -tf out/train/000000.tar > names; mkdir x; tar -C x -xf out/train/000000.tar");
  EXPECT_EQ(read_file(file("names")), "000000.jpg\n000000.cls\n000001.jpg\n000001.cls\n");
  EXPECT_EQ(read_file(file("x/000001.cls")), "1");
  const Photo photo = read_photo(read_file(file("x/000001.jpg")));
  EXPECT_EQ(photo.height, 256);
  EXPECT_EQ(photo.width, 320);
  EXPECT_EQ(photo.pixels[0], 80);
}

TEST_F(PrepareProgramTest, TooManyBadImagesExitWith1AndSayWhereTheyAreListed) {
  write("in/cat/1.jpg", jpeg(40));
  write("in/cat/2.jpg", "not a picture");
  const Variable threads("OMP_NUM_THREADS", nullptr);  // more than there are cores are warned of
  const Result result = owt("prepare folder in out");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(testing::StartsWith("owt: error: 1 of 2 images"), HasSubstr("cat/2.jpg"),
                                HasSubstr("out/train/skipped.txt")));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(owt("prepare folder in out --max-skipped 49%").code, 1);
  const Result more = owt("prepare folder in out --max-skipped 50%");
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("1 images of 1 classes in 1 shard, "));
  EXPECT_THAT(more.out, HasSubstr("1 skipped, see"));
}

// Enough work to be interrupted: `lines` times a photo that takes some milliseconds.
TEST_F(PrepareProgramTest, ASignalStopsAndTheSameCommandContinues) {
  write("photo.jpg", noisy_jpeg(1200, 1));
  std::string list;
  for (int i = 0; i < 200; ++i) list += "photo.jpg 0\n";
  write("list.txt", list);
  const std::string words = "prepare list list.txt out --shard-images 5 --threads 1";
  const pid_t process = start({"prepare", "list", "list.txt", "out", "--shard-images", "5", "--threads", "1"});
  while (!fs::exists(file("out/train/000000.index")) && waitpid(process, nullptr, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(kill(process, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 75);
  EXPECT_THAT(read_file(file("stderr")), AllOf(HasSubstr("stopped after"), HasSubstr("the same command resumes")));
  EXPECT_FALSE(fs::exists(file("out/train/dataset.json")));
  const auto time = fs::last_write_time(file("out/train/000000.tar"));
  const Result result = owt(words);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("200 images"));
  EXPECT_EQ(fs::last_write_time(file("out/train/000000.tar")), time);
}

TEST_F(PrepareProgramTest, KilledAtAnyMomentTheSameCommandGivesTheSameBytes) {
  std::string list;
  for (uint32_t i = 0; i < 10; ++i) write("photo" + std::to_string(i) + ".jpg", noisy_jpeg(300, i));
  write("photo3.jpg", "bad");
  for (int i = 0; i < 200; ++i) list += "photo" + std::to_string(i % 10) + ".jpg " + std::to_string(i % 7) + "\n";
  write("list.txt", list);
  const auto words = [](const std::string& out) {
    return std::vector<std::string>{"prepare", "list", "list.txt", out, "--shard-images", "9", "--max-skipped", "20"};
  };
  ASSERT_EQ(owt("prepare list list.txt whole --shard-images 9 --max-skipped 20").code, 0);
  int kills = 0, status = 0;
  // Increasing delays, because a busy machine may make everything slow.
  for (int milliseconds = 5;; milliseconds += 10 + milliseconds / 10) {
    const pid_t process = start(words("killed"));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    kill(process, SIGKILL);
    ASSERT_EQ(waitpid(process, &status, 0), process);
    if (WIFEXITED(status)) break;  // it was faster
    ++kills;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(file("stderr"));
  EXPECT_GT(kills, 2);
  EXPECT_EQ(content_of("killed"), content_of("whole"));
}

}  // namespace
}  // namespace owt::prepare_test
