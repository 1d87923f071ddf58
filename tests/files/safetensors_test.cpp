#include "src/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::safetensors_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> values(const Tensor& tensor) { return {tensor.data(), tensor.data() + tensor.elements()}; }

template <class T>
std::string bytes_of(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

std::string with_length(const std::string& header, const std::string& data) {
  return bytes_of(std::vector<uint64_t>{header.size()}) + header + data;
}

class SafetensorsTest : public testing::Test {
 protected:
  // The reader's message for a file with these bytes; empty: no error.
  std::string complaint(const std::string& bytes) {
    write_bytes(path_, bytes);
    try {
      SafetensorsReader reader(path_);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path_));
      return e.what();
    }
    return "";
  }

  std::vector<float> read_one(const std::string& dtype, const std::string& data, int64_t count) {
    write_bytes(path_, with_length(concat(R"({"x":{"dtype":")", dtype, R"(","shape":[)", count,
                                          R"(],"data_offsets":[0,)", data.size(), "]}}"),
                                   data));
    return values(SafetensorsReader(path_).read("x"));
  }

  TempFolder folder_;
  std::string path_ = folder_.file("x.safetensors");
};

TEST_F(SafetensorsTest, WritesTheBytesOfTheFormat) {
  SafetensorsWriter writer(path_, {{"a", {1, 2}}, {"b", {}}});
  writer.write("a", std::vector<float>{1, 2});
  writer.write("b", std::vector<float>{3});
  const uint64_t sum = writer.finish();

  std::string header =
      R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_file(path_), with_length(header, bytes_of<float>({1, 2, 3})));
  EXPECT_EQ(sum, file_checksum(path_));
}

TEST_F(SafetensorsTest, ReadsBackWhatItWrote) {
  SafetensorsWriter writer(path_, {{"conv1.weight", {2, 1, 1, 2}}, {"none", {0, 3}}, {"conv1.bias", {2}}},
                           {{"format", "pt"}});
  const std::vector<float> weight = {1, -2, 3, INFINITY};
  writer.write("conv1.weight", std::span(weight).first(3));
  writer.write("conv1.weight", std::span(weight).last(1));
  writer.write("none", {});
  writer.write("conv1.bias", std::vector<float>{0.5f, 1e-40f});
  writer.finish();

  SafetensorsReader reader(path_);
  ASSERT_EQ(reader.entries().size(), 3u);
  EXPECT_EQ(reader.entries()[0].name, "conv1.weight");
  EXPECT_EQ(reader.find("conv1.weight")->shape, (Shape{2, 1, 1, 2}));
  EXPECT_EQ(reader.find("none")->shape, (Shape{0, 3}));
  EXPECT_EQ(reader.find("conv2.weight"), nullptr);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(values(reader.read("conv1.weight")), weight);
  EXPECT_THAT(values(reader.read("conv1.bias")), ElementsAre(0.5f, 1e-40f));
  EXPECT_EQ(reader.read("none").elements(), 0);
}

TEST_F(SafetensorsTest, ReadsLargeTensorsWhole) {
  std::vector<float> many(200'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  SafetensorsWriter writer(path_, {{"x", {static_cast<int64_t>(many.size())}}});
  writer.write("x", many);
  writer.finish();

  EXPECT_EQ(values(SafetensorsReader(path_).read("x")), many);
}

TEST_F(SafetensorsTest, ReadsSomeRowsAlone) {
  SafetensorsWriter writer(path_, {{"a", {2}}, {"x", {3, 1, 2}}});
  writer.write("a", std::vector<float>{1, 2});
  writer.write("x", std::vector<float>{3, 4, 5, 6, 7, 8});
  writer.finish();
  SafetensorsReader reader(path_);
  EXPECT_THAT(values(reader.read_rows("x", {1, 3})), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(reader.read_rows("x", {1, 3}).shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(reader.read_rows("x", {2, 2}).elements(), 0);
  EXPECT_THROW(reader.read_rows("x", {2, 4}), Error);
}

TEST_F(SafetensorsTest, FindsRowsOfElementsOfAnySize) {
  const auto second_row = [&](const std::string& dtype, const std::string& data) {
    write_bytes(path_, with_length(concat(R"({"x":{"dtype":")", dtype, R"(","shape":[2,2],"data_offsets":[0,)",
                                          data.size(), "]}}"),
                                   data));
    return values(SafetensorsReader(path_).read_rows("x", {1, 2}));
  };
  EXPECT_THAT(second_row("F16", bytes_of<uint16_t>({0x3c00, 0x3c00, 0xc000, 0x4000})), ElementsAre(-2, 2));
  EXPECT_THAT(second_row("F64", bytes_of<double>({1, 2, 3, 4})), ElementsAre(3, 4));
}

TEST_F(SafetensorsTest, LeavesNoFileWithoutFinish) {
  { SafetensorsWriter writer(path_, {{"a", {2}}}); }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SafetensorsTest, InsistsOnTheOrderAndSizesDeclared) {
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  SafetensorsWriter writer(path_, {{"a", {2}}, {"b", {2}}});
  EXPECT_THROW(writer.write("b", two), Error);
  EXPECT_THROW(writer.write("a", three), Error);
  SafetensorsWriter short_one(folder_.file("short"), {{"a", {2}}});
  EXPECT_THROW(short_one.finish(), Error);
  EXPECT_THROW(SafetensorsWriter(folder_.file("twice"), {{"a", {2}}, {"a", {2}}}), Error);
}

TEST_F(SafetensorsTest, ReportsAFullDiskAndRemovesThePart) {
  const SmallDisk disk(1000);
  const std::vector<float> many(1000);
  EXPECT_THROW(
      {
        SafetensorsWriter writer(path_, {{"x", {1000}}});
        writer.write("x", many);
      },
      Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SafetensorsTest, ConvertsOtherElementTypes) {
  // 1, -2, the smallest subnormal half, the largest half, infinity
  EXPECT_THAT(read_one("F16", bytes_of<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00}), 5),
              ElementsAre(1, -2, 0x1p-24f, 65504, INFINITY));
  EXPECT_THAT(read_one("BF16", bytes_of<uint16_t>({0x3f80, 0xc040}), 2), ElementsAre(1, -3));
  EXPECT_THAT(read_one("F64", bytes_of<double>({0.25, -1e10}), 2), ElementsAre(0.25f, -1e10f));
  EXPECT_TRUE(std::isnan(read_one("F16", bytes_of<uint16_t>({0x7e00}), 1)[0]));
  EXPECT_TRUE(std::signbit(read_one("F16", bytes_of<uint16_t>({0x8000}), 1)[0]));
}

TEST_F(SafetensorsTest, KnowsTheCountersThatPyTorchKeepsAndRefusesIntegersAsWeights) {
  write_bytes(path_, with_length(R"({"__metadata__":{"format":"pt"},"bn.num_batches_tracked":)"
                                 R"({"dtype":"I64","shape":[],"data_offsets":[0,8]}})",
                                 bytes_of<int64_t>({42})));
  EXPECT_EQ(SafetensorsReader(path_).find("bn.num_batches_tracked")->shape, Shape());
  for (const auto& [dtype, bytes] : {std::pair("I64", 8),
                                     {"I32", 4},
                                     {"I16", 2},
                                     {"I8", 1},
                                     {"U8", 1},
                                     {"BOOL", 1},
                                     {"U64", 8},
                                     {"U32", 4},
                                     {"U16", 2}})
    EXPECT_THAT(message_of([&, dtype = dtype, bytes = bytes] {
                  read_one(dtype, std::string(static_cast<size_t>(bytes), 1), 1);
                }),
                AllOf(HasSubstr("tensor 'x'"), HasSubstr(dtype), HasSubstr("save it unquantised")));
}

// A tensor that is not used need not be understood.
TEST_F(SafetensorsTest, RefusesWhatItCannotReadOnlyWhereItIsTaken) {
  write_bytes(path_, with_length(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                 R"("odd":{"dtype":"F4","shape":[8],"data_offsets":[4,8]},)"
                                 R"("deep":{"dtype":"F32","shape":[1,1,1,1,1,2],"data_offsets":[8,16]}})",
                                 bytes_of<float>({7, 0, 0, 0})));
  SafetensorsReader reader(path_);
  EXPECT_THAT(values(reader.read("a")), ElementsAre(7));
  EXPECT_THAT(message_of([&] { reader.read("odd"); }), AllOf(HasSubstr("tensor 'odd'"), HasSubstr("type F4")));
  EXPECT_THAT(message_of([&] { reader.read_rows("deep", {0, 1}); }), HasSubstr("has 6 dimensions, wanted at most 5"));
}

TEST_F(SafetensorsTest, FindsNamesAfterThePrefixesOfPyTorchsWrappers) {
  const auto find = [&](std::vector<SafetensorsWriter::NamedShape> entries, const std::string& name) {
    SafetensorsWriter writer(path_, entries);
    for (const auto& entry : entries) writer.write(entry.name, std::vector<float>{1});
    writer.finish();
    const SafetensorsReader reader(path_);
    const auto* found = reader.find(name);
    return found ? found->name : "none";
  };
  EXPECT_EQ(find({{"module.a.weight", {1}}}, "a.weight"), "module.a.weight");
  EXPECT_EQ(find({{"model.module._orig_mod.a", {1}}}, "a"), "model.module._orig_mod.a");
  EXPECT_EQ(find({{"module.a", {1}}, {"a", {1}}}, "a"), "a");
  EXPECT_EQ(find({{"module.a", {1}}, {"model.a", {1}}}, "a"), "none") << "two are meant";
  EXPECT_EQ(find({{"modules.a", {1}}}, "a"), "none");
  EXPECT_EQ(find({{"module.", {1}}}, ""), "none");
}

TEST_F(SafetensorsTest, NamesThreeOfItsTensorsWhereNoneIsNear) {
  SafetensorsWriter writer(path_, {{"one", {1}}, {"two", {1}}, {"three", {1}}, {"four", {1}}, {"five", {1}}});
  for (const char* name : {"one", "two", "three", "four", "five"}) writer.write(name, std::vector<float>{1});
  writer.finish();
  EXPECT_THAT(message_of([&] { SafetensorsReader(path_).read("features.0.weight"); }),
              HasSubstr("it has 'one', 'two', 'three' and 2 more"));
}

TEST_F(SafetensorsTest, RefusesWhatStandsThereTwice) {
  EXPECT_THAT(complaint(with_length(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                    R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                    "1234")),
              HasSubstr("it names 'w' twice"));
  EXPECT_THAT(complaint(with_length(R"({"w":{"dtype":"F32","shape":[2],"shape":[1],"data_offsets":[0,4]}})", "1234")),
              AllOf(HasSubstr("tensor 'w'"), HasSubstr("'shape' stands there twice")));
  EXPECT_THAT(complaint(with_length(R"({"__metadata__":{"a":"b","a":"c"}})", "")), HasSubstr("'a' stands there twice"));
}

// Each error is in words of this program, with the expected kind.
TEST_F(SafetensorsTest, SaysWhatIsOfAnotherKindThanTheFormatHas) {
  for (const auto& [fields, wanted] :
       {std::pair(R"("dtype":"F32","shape":{"b":1,"a":2},"data_offsets":[0,8])", "'shape' is an object, wanted a list"),
        {R"("dtype":"F32","shape":2,"data_offsets":[0,8])", "'shape' is a number, wanted a list"},
        {R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])", "'shape' holds a text"},
        {R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", "'shape' holds a list"},
        {R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", "'shape' holds 2.0"},
        {R"("dtype":7,"shape":[2],"data_offsets":[0,8])", "'dtype' is a number, wanted a text"},
        {R"("dtype":"F32","shape":[2])", "there is no 'data_offsets'"},
        {R"("dtype":"F32","shape":[2],"data_offsets":null)", "'data_offsets' is null"}})
    EXPECT_THAT(complaint(with_length(concat(R"({"w":{)", fields, "}}"), std::string(8, 0))),
                AllOf(HasSubstr("tensor 'w'"), HasSubstr(wanted)));
  EXPECT_THAT(complaint(with_length(R"({"w":null})", "")), HasSubstr("it is null, wanted an object"));
  EXPECT_THAT(complaint(with_length(R"({"__metadata__":{"a":1}})", "")), HasSubstr("'a' is a number, wanted a text"));
  EXPECT_EQ(complaint(with_length(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"new":{"a":[[1],{}]}}})",
                                  std::string(8, 0))),
            "");
}

// 3 MB that would be 60 MB of values.
TEST_F(SafetensorsTest, KeepsNothingOfAHeaderThatHoldsNoTensors) {
  std::string lists = "[]";
  while (lists.size() < 3'000'000) lists += ",[]";
  EXPECT_THAT(complaint(with_length("{\"a\":{\"x\":[" + lists + "]}}", "")), HasSubstr("there is no 'dtype'"));
  EXPECT_THAT(complaint(with_length("{\"a\":[" + lists + "]}", "")), HasSubstr("it is a list, wanted an object"));
}

TEST_F(SafetensorsTest, NamesTheNearestTensorForAnUnknownOne) {
  SafetensorsWriter writer(path_, {{"conv1.weight", {1}}});
  writer.write("conv1.weight", std::vector<float>{1});
  writer.finish();
  SafetensorsReader reader(path_);
  try {
    reader.read("conv1.weigth");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr(path_), HasSubstr("nearest is 'conv1.weight'")));
  }
}

TEST_F(SafetensorsTest, RefusesElementTypesItCannotConvert) { EXPECT_THROW(read_one("F8_E4M3", "x", 1), Error); }

TEST_F(SafetensorsTest, RecognisesFilesThatAreNoSafetensors) {
  EXPECT_THAT(complaint(""), HasSubstr("no safetensors file"));
  EXPECT_THAT(complaint("PK\x03\x04 some zip archive, as PyTorch writes"), HasSubstr("no safetensors file"));
  EXPECT_THAT(complaint(with_length("{broken", "")), HasSubstr("no JSON"));
  EXPECT_THAT(complaint(with_length(R"({"a":{"dtype":"F32","shape":)" + nested(1'000'000) + "}}", "")),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(complaint(bytes_of<uint64_t>({uint64_t{1} << 60}) + "{}"), HasSubstr("no safetensors file"));
  EXPECT_THROW(SafetensorsReader(folder_.file("missing")), Error);
}

TEST_F(SafetensorsTest, RecognisesTruncatedAndOverlongFiles) {
  const std::string whole =
      with_length(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", bytes_of<float>({1, 2}));
  EXPECT_EQ(complaint(whole), "");
  EXPECT_THAT(complaint(whole.substr(0, whole.size() - 1)),
              HasSubstr("truncated: its tensors need 8 bytes, it holds 7"));
  EXPECT_THAT(complaint(whole.substr(0, 20)), HasSubstr("truncated: the header"));
  EXPECT_THAT(complaint(whole + "x"), HasSubstr("holds 9 bytes of data, its tensors need only 8"));
}

TEST_F(SafetensorsTest, RecognisesHeadersThatContradictThemselves) {
  const auto one = [](const std::string& fields) { return with_length("{\"a\":{" + fields + "}}", std::string(8, 0)); };
  EXPECT_THAT(complaint(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])")),
              AllOf(HasSubstr("tensor 'a'"), HasSubstr("span 8 bytes, but its shape in F32 needs 12")));
  EXPECT_THAT(complaint(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])")), HasSubstr("data_offsets"));
  EXPECT_THAT(complaint(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])")), HasSubstr("'shape' holds -2"));
  EXPECT_THAT(complaint(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8])")),
              HasSubstr("too large"));
  EXPECT_THAT(complaint(one(R"("dtype":"F32","data_offsets":[0,8])")), HasSubstr("shape"));
  EXPECT_THAT(complaint(with_length(R"({"a":7})", "")), HasSubstr("tensor 'a'"));
}

TEST_F(SafetensorsTest, RecognisesOverlapsAndGaps) {
  const auto two = [](int begin, int end) {
    return with_length(concat(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],)",
                              R"("data_offsets":[)", begin, ",", end, "]}}"),
                       std::string(static_cast<size_t>(end), 0));
  };
  EXPECT_EQ(complaint(two(8, 12)), "");
  EXPECT_THAT(complaint(two(6, 10)), HasSubstr("tensor 'b' overlaps"));
  EXPECT_THAT(complaint(two(10, 14)), HasSubstr("2 bytes before tensor 'b'"));
}

// Readers that map the file need the data aligned to eight bytes; the header is padded with the fewest blanks for that.
TEST_F(SafetensorsTest, TheDataBeginsAtTheNextMultipleOfEight) {
  for (size_t length = 1; length <= 9; ++length) {
    SafetensorsWriter writer(path_, {{std::string(length, 'n'), {1}}});
    writer.write(std::string(length, 'n'), std::vector<float>{1});
    writer.finish();
    const std::string file = read_file(path_);
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    EXPECT_EQ(header % 8, 0u);
    EXPECT_EQ(file.size(), 8 + header + 4);
    EXPECT_LT(file.size() - 4 - 1 - file.find_last_of('}'), 8u) << "blanks behind " << file.substr(8, header);
  }
}

}  // namespace
}  // namespace owt::safetensors_test
