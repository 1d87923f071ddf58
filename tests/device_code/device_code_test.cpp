// nvcc's code for the hot kernels on Hopper (sm_90a), independent of the GPU of the build. Without a GPU, only this
// test shows that an access was split or that registers did not suffice.
#include <cxxabi.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/texts.h"
#include "tests/support/temp_folder.h"

namespace owt::device_code_test {
namespace {

// Accesses to global memory in the code, by the bytes that one thread moves. An access in a loop counts once.
struct Accesses {
  int wide = 0;    // 16 bytes
  int narrow = 0;  // less than 8 bytes
};

struct KernelCode {
  Accesses loads, stores;
  int registers = 0;    // per thread
  int local_bytes = 0;  // per thread: spilled registers, and arrays that are indexed at run time
  int products = 0;     // matrix products on tensor cores
  // The wait for the previous kernel, and the permission for the next one (src/core/launch.cuh); accesses to memory
  // before the wait, and loads through the read-only cache.
  bool waits = false, lets_next_start = false;
  int before_wait = 0, read_only = 0;
};

// By the kernels' names as C++ spells them: "void owt::relu_forward<float, 4>(long, float const*, float*)".
using Kernels = std::map<std::string, KernelCode>;

std::string spelt_out(const std::string& symbol) {
  int status = 0;
  char* name = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string text = name ? name : symbol;
  std::free(name);
  return std::regex_replace(text, std::regex(R"(owt::|\(anonymous namespace\)::)"), "");
}

void count(Accesses& accesses, int bytes) {
  accesses.wide += bytes == 16;
  accesses.narrow += bytes < 8;
}

// "ld.global.nc.v4.f32" is a load of 4 x 32 bits. An access without a state space may be to global memory too.
void count_ptx(const std::string& line, KernelCode& kernel) {
  const auto has = [&](const char* word) { return line.find(word) != std::string::npos; };
  kernel.products += has("mma.sync.");
  kernel.waits |= has("griddepcontrol.wait;");
  kernel.lets_next_start |= has("griddepcontrol.launch_dependents;");
  kernel.before_wait += !kernel.waits && (has("atom.") || has("red.global."));
  static const std::regex access(R"(^\s*(?:@!?%p\d+\s+)?(ld|st)((?:\.[\w:]+)*)\.[a-z](\d+)\s)");
  static const std::regex elsewhere(R"(\.(?:param|shared|const|local)\b)"), vector(R"(\.v(\d)\b)");
  std::smatch found, width;
  if (!std::regex_search(line, found, access)) return;
  const std::string qualifiers = found[2];
  if (std::regex_search(qualifiers, elsewhere)) return;
  kernel.before_wait += !kernel.waits;
  kernel.read_only += qualifiers.find(".nc") != std::string::npos;
  const int elements = std::regex_search(qualifiers, width, vector) ? std::stoi(width[1]) : 1;
  count(found[1] == "ld" ? kernel.loads : kernel.stores, elements * std::stoi(found[3]) / 8);
}

void read_ptx(const std::string& text, Kernels& kernels) {
  static const std::regex entry(R"(\.entry (\w+)\()");
  KernelCode* kernel = nullptr;
  std::smatch found;
  for (const std::string& line : split_lines(text)) {
    if (std::regex_search(line, found, entry)) kernel = &kernels[spelt_out(found[1])];
    if (!kernel) continue;
    count_ptx(line, *kernel);
    kernel->products += line.find("mma.sync.") != std::string::npos;
  }
}

// What the assembler says with -v.
void read_resources(const std::string& text, Kernels& kernels) {
  static const std::regex entry(R"(Compiling entry function '(\w+)')"), registers(R"(Used (\d+) registers)"),
      local(R"((\d+) bytes stack frame, (\d+) bytes spill stores)");
  KernelCode* kernel = nullptr;
  std::smatch found;
  for (const std::string& line : split_lines(text)) {
    if (std::regex_search(line, found, entry)) kernel = &kernels[spelt_out(found[1])];
    if (!kernel) continue;
    if (std::regex_search(line, found, registers)) kernel->registers = std::stoi(found[1]);
    if (std::regex_search(line, found, local)) kernel->local_bytes = std::stoi(found[1]) + std::stoi(found[2]);
  }
}

// The accesses in machine code, such as "LDG.E.U16.CONSTANT R4, ..."; without a size they are of 4 bytes.
Kernels read_machine_code(const std::string& text) {
  static const std::regex entry(R"(^\.text\.(\w+):)"), access(R"(\s(LD|ST)(G|L)?((?:\.\w+)*) )"),
      size(R"(\.[SU]?(8|16|64|128)\b)");
  Kernels kernels;
  KernelCode* kernel = nullptr;
  std::smatch found, bits;
  for (const std::string& line : split_lines(text)) {
    if (std::regex_search(line, found, entry)) kernel = &kernels[spelt_out(found[1])];
    if (!kernel) continue;
    const auto has = [&](const char* word) { return line.find(word) != std::string::npos; };
    kernel->products += has(" HMMA.");
    kernel->waits |= has(" ACQBULK");
    kernel->lets_next_start |= has(" PREEXIT");
    kernel->before_wait += !kernel->waits && (has(" ATOM") || has(" RED."));
    if (!std::regex_search(line, found, access)) continue;
    const std::string qualifiers = found[3];
    kernel->before_wait += !kernel->waits;
    kernel->read_only += qualifiers.find(".CONSTANT") != std::string::npos;
    const int bytes = std::regex_search(qualifiers, bits, size) ? std::stoi(bits[1]) / 8 : 4;
    if (found[2] == "L")
      kernel->local_bytes += bytes;
    else
      count(found[1] == "LD" ? kernel->loads : kernel->stores, bytes);
  }
  return kernels;
}

class Compiled {
 public:
  // The accesses are taken from the PTX. The assembler may join accesses but never splits them.
  explicit Compiled(const std::string& source) : name_(std::filesystem::path(source).stem()) {
    run(concat("'" OWT_NVCC "' " OWT_NVCC_FLAGS " -arch=sm_90a -cubin -Xptxas -v --keep --keep-dir ", folder_.path(),
               " -o ", folder_.file(name_ + ".sm_90a"), " '", source, "'"));
    read_ptx(read_file(folder_.file(name_ + ".ptx")), kernels_);
    read_resources(read_file(folder_.file("said")), kernels_);
  }

  const Kernels& kernels() const { return kernels_; }
  const Kernels& machine_code() const {
    if (machine_code_.empty()) {
      run(concat("'" OWT_NVDISASM "' -c ", folder_.file(name_ + ".sm_90a")));
      machine_code_ = read_machine_code(read_file(folder_.file("said")));
    }
    return machine_code_;
  }

 private:
  void run(const std::string& command) const {
    const std::string said = folder_.file("said");
    OWT_CHECK(std::system(concat("cd ", folder_.path(), " && ", command, " >", said, " 2>&1").c_str()) == 0, command,
              " failed:\n", read_file(said));
  }

  TempFolder folder_;
  std::string name_;
  Kernels kernels_;
  mutable Kernels machine_code_;  // disassembled when it is first wanted
};

std::string why_no_compiler() {
  for (const char* file : {OWT_NVCC, OWT_SOURCE_DIR "/CMakeLists.txt"})
    if (!std::filesystem::exists(file)) return concat(file, " is not here");
  return "";
}

// Requirements for a kernel. `kernel`: a part of its name. registers: a limit for which the launch's number of blocks
// of 256 threads run at once on a multiprocessor: 6 with at most 40 registers, 5 with 48, 4 with 64, 3 with 80.
struct Wanted {
  const char* kernel;
  int wide_loads, wide_stores;      // at least
  int narrow_loads, narrow_stores;  // at most
  int registers;                    // at most
  int products = 0;                 // at least
};

struct HotFile {
  const char* path;
  std::vector<Wanted> kernels;
};

// A row for each kernel that takes time in a step; f32 if it is used outside of tests.
const std::vector<HotFile>& hot_files() {
  static const std::vector<HotFile> files = {
      {"layers/relu.cu",
       {{"relu_forward<__nv_bfloat16, 8>", 1, 1, 1, 1, 32}, {"relu_backward<__nv_bfloat16, 8>", 2, 1, 2, 1, 32}}},
      {"layers/dropout.cu",
       {{"dropout_forward<__nv_bfloat16, true, true>", 1, 1, 1, 0, 32},
        {"dropout_forward<__nv_bfloat16, true, false>", 1, 1, 1, 1, 32},
        {"dropout_backward<__nv_bfloat16, true>", 1, 1, 1, 0, 32}}},
      // In works with sums the last block loads 8 times before it adds, and stores words.
      {"layers/gpu/bias_gradient.cu",
       {{"<SumGradient<__nv_bfloat16, 8, (Follows)0>", 9, 0, 1, 2, 48},
        {"<SumGradient<__nv_bfloat16, 8, (Follows)1>", 10, 1, 1, 2, 48},
        {"<SumGradient<__nv_bfloat16, 8, (Follows)2>", 10, 1, 1, 2, 48}}},
      {"layers/pool.cu",
       {{"max_pool_forward<__nv_bfloat16, 8, unsigned char, 3, true>", 9, 1, 0, 0, 48},
        {"max_pool_forward<__nv_bfloat16, 8, unsigned char, 2, true>", 4, 1, 0, 0, 40},
        {"<TileGradient<__nv_bfloat16, 8, 3, 2, true>", 12, 4, 1, 2, 80},
        {"<TileGradient<__nv_bfloat16, 8, 2, 2, true>", 9, 4, 1, 2, 64},
        {"<TileGradient<__nv_bfloat16, 8, 3, 2, false>", 4, 4, 0, 0, 80},
        {"<TileGradient<__nv_bfloat16, 8, 2, 2, false>", 1, 4, 0, 0, 48}}},
      {"layers/avg_pool.cu",
       {{"avg_pool_forward<__nv_bfloat16, 8>", 1, 1, 0, 0, 48},
        {"<AverageGradient<__nv_bfloat16, 8, true>", 10, 1, 1, 2, 64},
        {"<AverageGradient<__nv_bfloat16, 8, false>", 1, 1, 0, 0, 64}}},
      // The last block of the last group of rows adds the gradients of all groups, four groups at a time.
      {"layers/batch_norm.cu",
       {{"<NormSums<__nv_bfloat16, 8>", 10, 0, 1, 3, 64},
        {"<Normalize<__nv_bfloat16, 8, (NormThen)0>", 9, 1, 0, 0, 48},
        {"<Normalize<__nv_bfloat16, 8, (NormThen)1>", 9, 1, 0, 0, 48},
        {"<Normalize<__nv_bfloat16, 8, (NormThen)3>", 10, 1, 0, 0, 48},
        {"<NormGradientSums<__nv_bfloat16, 8, false>", 12, 0, 31, 13, 64},
        {"<NormGradientSums<__nv_bfloat16, 8, true>", 16, 0, 31, 13, 64},
        {"<NormInputGradient<__nv_bfloat16, 8, false>", 12, 1, 0, 0, 64},
        {"<NormInputGradient<__nv_bfloat16, 8, true>", 16, 1, 0, 0, 80}}},
      {"layers/branch_sums.cu",
       {{" combine<__nv_bfloat16, 8>", 2, 1, 2, 1, 32},
        {" combine_where_positive<__nv_bfloat16, 8>", 3, 1, 3, 1, 32},
        {"scale_channels_of<__nv_bfloat16, 8, false>", 2, 1, 0, 0, 32},
        {"scale_channels_of<__nv_bfloat16, 8, true>", 3, 1, 0, 0, 32},
        {"sum_products_of_channels<__nv_bfloat16, 8>", 2, 1, 0, 0, 48}}},
      // Narrow accesses are for the statistics of a position. The last block adds eight sums at a time.
      {"layers/layer_norm.cu",
       {{"layer_norm_forward<__nv_bfloat16, 8>", 7, 1, 0, 2, 48},
        {"layer_norm_backward<__nv_bfloat16, 8>", 8, 1, 2, 0, 48},
        {"<LayerNormSums<__nv_bfloat16, 8>", 10, 0, 4, 3, 64}}},
      {"layers/gpu/conv_plans.cu", {{"<AddBias<__nv_bfloat16, 8, true>", 3, 1, 0, 0, 40}}},
      // Narrow accesses are for channels that do not come in eights, and for the bias.
      {"layers/gpu/small_conv.cu",
       {{"small_conv<2, 4>", 12, 4, 44, 64, 128, 16},
        {"small_conv<1, 4>", 12, 2, 28, 32, 128, 8},
        {"small_conv<1, 2>", 12, 0, 20, 16, 128, 4}}},
      // Narrow accesses are as above, and for the sums of blocks.
      {"layers/gpu/small_conv_weights.cu",
       {{"small_conv_weights<5, __nv_bfloat16>", 8, 0, 42, 16, 128, 10},
        {"small_conv_weights<6, __nv_bfloat16>", 8, 0, 42, 16, 128, 12}}},
      // AlexNet's images with borders of two pixels and of four; ResNet's; images with eight channels.
      {"layers/gpu/space_to_depth.cu",
       {{"pack_images<unsigned int, FixedBlocks<unsigned int, 4, 6, 1, 24>", 0, 0, 6, 0, 32},
        {"pack_images<unsigned long, FixedBlocks<unsigned long, 4, 3, 1, 12>", 0, 0, 0, 0, 32},
        {"pack_images<unsigned short, FixedBlocks<unsigned short, 2, 6, 1, 16>", 0, 0, 6, 5, 32},
        {"pack_images<unsigned short, FixedBlocks<unsigned short, 1, 3, 1, 8>", 0, 1, 3, 0, 32}}},
      // Narrow accesses are for the numbers of rows, and for words of 32 classes and sums of blocks.
      {"layers/sampled.cu", {{"gather_units<uint4>", 4, 4, 4, 0, 32}}},
      {"layers/loss/class_sample.cu", {{"draw_words", 0, 0, 12, 8, 32}, {"write_sample", 0, 0, 3, 7, 32}}},
      // The other accesses are for elements that do not come in fours.
      {"src/parallel/optimizer.cu",
       {{"update_items<SgdRule<false>", 5, 4, 16, 11, 32},
        {"update_items<AdamWRule>", 7, 6, 18, 13, 40},
        {"update_rows<SgdRule<false>", 5, 4, 10, 6, 32},
        {"update_rows<AdamWRule>", 7, 6, 12, 8, 48},
        {"update_by_products<SgdRule<false>", 14, 8, 6, 3, 80, 16},
        {"update_by_products<AdamWRule>", 12, 6, 7, 4, 80, 16}}},
  };
  return files;
}

const KernelCode* find(const Kernels& kernels, const std::string& part) {
  for (const auto& [name, kernel] : kernels)
    if (name.find(part) != std::string::npos) return &kernel;
  return nullptr;
}

void expect_accesses(const KernelCode& kernel, const Wanted& wanted) {
  EXPECT_GE(kernel.loads.wide, wanted.wide_loads) << "loads of 16 bytes";
  EXPECT_GE(kernel.stores.wide, wanted.wide_stores) << "stores of 16 bytes";
  EXPECT_LE(kernel.loads.narrow, wanted.narrow_loads) << "loads of less than 8 bytes";
  EXPECT_LE(kernel.stores.narrow, wanted.narrow_stores) << "stores of less than 8 bytes";
  EXPECT_EQ(kernel.local_bytes, 0) << "local memory";
  EXPECT_GE(kernel.products, wanted.products) << "products on tensor cores";
}

// The hot files as one unit, compiled once: most of nvcc's time goes into headers that all of them include, and into
// kernels. So the kernels for activations in f32, which no row names, are left out.
const Compiled& compiled() {
  static const Compiled unit = [] {
    std::string text = R"(
      #define with_element with_each_element
      #include "src/core/elements.cuh"
      #undef with_element
      namespace owt {
      template <class Function>
      void with_element(DType, const Function& function) { function(__nv_bfloat16{}); }
      }
    )";
    for (const HotFile& file : hot_files()) text += concat("#include \"", file.path, "\"\n");
    const TempFolder sources;
    write_bytes(sources.file("hot.cu"), text);
    return Compiled(sources.file("hot.cu"));
  }();
  return unit;
}

class HotKernels : public testing::TestWithParam<HotFile> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(Files, HotKernels, testing::ValuesIn(hot_files()),
                         [](const auto& info) { return std::filesystem::path(info.param.path).stem().string(); });

TEST_P(HotKernels, MoveSixteenBytesAtATimeAndKeepToTheirRegisters) {
  for (const Wanted& wanted : GetParam().kernels) {
    SCOPED_TRACE(wanted.kernel);
    const KernelCode* kernel = find(compiled().kernels(), wanted.kernel);
    ASSERT_TRUE(kernel) << "no such kernel";
    expect_accesses(*kernel, wanted);
    EXPECT_LE(kernel->registers, wanted.registers);
  }
}

TEST_P(HotKernels, AreTheSameInMachineCode) {
  if (!std::filesystem::exists(OWT_NVDISASM)) GTEST_SKIP() << "CUDA's nvdisasm is not here";
  for (const Wanted& wanted : GetParam().kernels) {
    SCOPED_TRACE(wanted.kernel);
    const KernelCode* kernel = find(compiled().machine_code(), wanted.kernel);
    ASSERT_TRUE(kernel) << "no such kernel";
    expect_accesses(*kernel, wanted);
  }
}

TEST(DeviceCode, OfHotKernelsWaitsForThePreviousKernelBeforeItAccessesMemory) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const Kernels& kernels = std::filesystem::exists(OWT_NVDISASM) ? compiled().machine_code() : compiled().kernels();
  EXPECT_FALSE(kernels.empty());
  for (const auto& [name, kernel] : kernels) {
    EXPECT_TRUE(kernel.waits) << name;
    EXPECT_TRUE(kernel.lets_next_start) << name;
    EXPECT_EQ(kernel.before_wait, 0) << name;
    EXPECT_EQ(kernel.read_only, 0) << name;
  }
}

// All kernels, whether this test compiles them or not.
TEST(Sources, OfEveryKernelBeginWithTheWaitAndDoNotUseTheReadOnlyCache) {
  const std::regex kernel("__global__"), begins(R"(__global__[^{;]*\{\s*wait_for_previous_kernel\(\);)"),
      read_only(R"(__ldg\b|__restrict__|ld\.global\.nc)"), comment(R"(//[^\n]*)");
  int64_t kernels = 0;
  for (const char* folder : {"data", "layers", "src"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(concat(OWT_SOURCE_DIR "/", folder))) {
      if (entry.path().extension() != ".cu" && entry.path().extension() != ".cuh") continue;
      const std::string code = std::regex_replace(read_file(entry.path()), comment, "");
      const auto count = [&](const std::regex& what) {
        return std::distance(std::sregex_iterator(code.begin(), code.end(), what), {});
      };
      kernels += count(kernel);
      EXPECT_EQ(count(begins), count(kernel)) << entry.path();
      EXPECT_EQ(count(read_only), 0) << entry.path();
    }
  EXPECT_GT(kernels, 0);
}

// Checks the figures themselves with kernels whose accesses can be counted by hand.
TEST(DeviceCode, WideAndNarrowAccessesAreDistinguished) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const TempFolder folder;
  write_bytes(folder.file("copies.cu"), R"(
    #include <cuda_runtime.h>
    __global__ void wide(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
    __global__ void split(const float4* x, float* y) {
      const float4 v = x[threadIdx.x];
      for (int i = 0; i < 4; ++i) y[5 * threadIdx.x + i] = (&v.x)[i];
    }
    __global__ void local(const int* order, float* y) {
      float all[64];
      for (int i = 0; i < 64; ++i) all[order[i]] = y[i];
      for (int i = 0; i < 64; ++i) y[i] = all[order[64 + i]];
    })");
  const Compiled compiled(folder.file("copies.cu"));
  for (const Kernels& kernels :
       {compiled.kernels(), std::filesystem::exists(OWT_NVDISASM) ? compiled.machine_code() : compiled.kernels()}) {
    const KernelCode *wide = find(kernels, "wide("), *split = find(kernels, "split("), *local = find(kernels, "local(");
    ASSERT_TRUE(wide && split && local);
    EXPECT_EQ(wide->loads.wide, 1);
    EXPECT_EQ(wide->stores.wide, 1);
    EXPECT_EQ(wide->loads.narrow + wide->stores.narrow, 0);
    EXPECT_EQ(wide->local_bytes, 0);
    EXPECT_EQ(split->loads.wide, 1);
    EXPECT_EQ(split->stores.wide, 0);
    EXPECT_EQ(split->stores.narrow, 4);
    EXPECT_GT(local->local_bytes, 0);
  }
  EXPECT_GT(find(compiled.kernels(), "wide(")->registers, 4);
}

}  // namespace
}  // namespace owt::device_code_test
