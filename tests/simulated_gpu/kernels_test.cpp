#include "tests/simulated_gpu/device.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "src/core/elements.cuh"
#include "src/system/check.h"
#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/test_memory.h"

using owt::launch;
using owt::Stream;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

namespace simulated_gpu::kernels_test {
namespace {

template <class T>
__global__ void scale(const T* x, T* y, T factor, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = factor * x[i];
}

// One sum per block, as reductions are written: shuffles within warps, shared memory between them.
__global__ void __launch_bounds__(256) block_sums(const float* x, float* sums, int count) {
  __shared__ float of_warp[8];
  float sum = 0;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count;
       i += static_cast<int>(gridDim.x * blockDim.x))
    sum += __ldg(x + i);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < 8 ? of_warp[threadIdx.x] : 0;
    for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  }
}

// Reverses each block through shared memory.
__global__ void reverse(int* values) {
  __shared__ int copy[64];
  int* block = values + blockIdx.x * blockDim.x;
  copy[threadIdx.x] = block[threadIdx.x];
  __syncthreads();
  block[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

// Wrong on purpose: reads values that other threads write, without waiting for them.
__global__ void reverse_without_waiting(int* values) {
  __shared__ int copy[64];
  int* block = values + blockIdx.x * blockDim.x;
  copy[threadIdx.x] = block[threadIdx.x];
  block[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

__global__ void every_shuffle(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* mine = out + lane * 6;
  mine[0] = __shfl_sync(0xffffffff, lane, 5);
  mine[1] = __shfl_up_sync(0xffffffff, lane, 3);
  mine[2] = __shfl_down_sync(0xffffffff, lane, 3);
  mine[3] = __shfl_xor_sync(0xffffffff, lane, 1, 8);
  mine[4] = __shfl_sync(0xffffffff, lane, 1, 4);
  mine[5] = static_cast<int>(__ballot_sync(0xffffffff, lane < 4));
}

// Threads from `stay` on end at once; the others wait for each other.
__global__ void some_end_early(int stay, int* result) {
  __shared__ int first;
  if (static_cast<int>(threadIdx.x) >= stay) return;
  if (threadIdx.x == 0) first = 42;
  __syncthreads();
  result[threadIdx.x] = first;
}

__global__ void shuffle_of_half_a_warp(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffff, 1, 0);
}

__global__ void count_up(int* counter) { atomicAdd(counter, 1); }

__global__ void where(int* out) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = static_cast<int>(block * 1000 + thread);
}

__global__ void order_of_starts(int* order, int* next) { order[blockIdx.x * blockDim.x + threadIdx.x] = (*next)++; }

// The last block to arrive, whichever it is, sees the writes of the others, and resets the counter.
__global__ void last_block_sums(int* terms, unsigned* arrived, int* sum) {
  terms[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
  __threadfence();
  if (atomicInc(arrived, gridDim.x - 1) < gridDim.x - 1) return;
  __threadfence();
  for (unsigned i = 0; i < gridDim.x; ++i) *sum += terms[i];
}

// C = A' * B + 1 of 16 x 16 and 16 x 8 numbers, which one warp multiplies.
__global__ void multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  alignas(16) __shared__ __nv_bfloat16 of_a[16][24], of_b[16][24];
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) {
    of_a[i / 16][i % 16] = a[i];
    of_b[i / 16][i % 16] = b[i];
  }
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x), part = lane / 8;
  uint32_t a_parts[4], b_parts[4];
  owt::load_transposed(a_parts, &of_a[lane % 8 + part / 2 * 8][part % 2 * 8]);
  owt::load_transposed(b_parts, &of_b[lane % 8 + part % 2 * 8][part / 2 * 8]);
  float sums[4] = {1, 1, 1, 1};
  owt::add_product(sums, a_parts, b_parts[0], b_parts[1]);
  for (int i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

TEST(Kernels, MultiplyOnTensorCores) {
  const Stream stream(owt::Device::kCuda);
  std::vector<__nv_bfloat16> a(256), b(256);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = __float2bfloat16(static_cast<float>(i % 7));
    b[i] = __float2bfloat16(static_cast<float>(i % 5) - 1);
  }
  const DeviceArray<__nv_bfloat16> on_a(a, stream), on_b(b, stream);
  const DeviceArray<float> c(16 * 8);
  launch(multiply, 1, 32, stream, on_a.data(), on_b.data(), c.data());
  const std::vector<float> found = c.read(stream);
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      float sum = 1;
      for (size_t k = 0; k < 16; ++k) sum += __bfloat162float(a[k * 16 + row]) * __bfloat162float(b[k * 16 + column]);
      EXPECT_EQ(found[row * 8 + column], sum) << row << ", " << column;
    }
}

TEST(Kernels, LetTheLastBlockFinishWhatTheOthersBegan) {
  const Stream stream(owt::Device::kCuda);
  DeviceArray<int> terms(10), sum(std::vector<int>{0}, stream);
  DeviceArray<unsigned> arrived(std::vector<unsigned>{0}, stream);
  for (int i = 0; i < 3; ++i) launch(last_block_sums, 10, 1, stream, terms.data(), arrived.data(), sum.data());
  EXPECT_THAT(sum.read(stream), ElementsAre(3 * 55));
  EXPECT_THAT(arrived.read(stream), ElementsAre(0u));
}

TEST(Kernels, ReportHowManyBlocksAMultiprocessorRunsAtOnce) {
  const auto* kernel = reinterpret_cast<const void*>(&count_up);
  int blocks = 0;
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0), cudaSuccess);
  EXPECT_EQ(blocks, 8);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 2048, 0), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Kernels, RunEveryThreadOfTheGridOnce) {
  const Stream stream(owt::Device::kCuda);
  DeviceArray<int> out(2 * 3 * 4 * 5 * 6 * 7);
  launch(where, dim3(2, 3, 4), dim3(5, 6, 7), stream, out.data());
  const auto values = out.read(stream);
  for (int i = 0; i < static_cast<int>(values.size()); ++i) ASSERT_EQ(values[i], i / 210 * 1000 + i % 210);
}

TEST(Kernels, ConvertTheirArguments) {
  const Stream stream(owt::Device::kCuda);
  DeviceArray<float> x(std::vector<float>{1, 2, 3}, stream), y(3);
  launch(scale<float>, 1, 32, stream, x.data(), y.data(), 2, int64_t{3});
  EXPECT_THAT(y.read(stream), ElementsAre(2, 4, 6));
}

TEST(Kernels, KeepTheirArgumentsUntilTheyRun) {
  const Stream stream(owt::Device::kCuda);
  DeviceArray<float> x(std::vector<float>{1}, stream), y(1);
  float factor = 3;
  launch(scale<float>, 1, 1, stream, x.data(), y.data(), factor, 1);
  factor = 5;
  EXPECT_THAT(y.read(stream), ElementsAre(3));
}

TEST(Kernels, ReduceThroughShufflesAndSharedMemory) {
  const Stream stream(owt::Device::kCuda);
  std::vector<float> x(10000);
  std::iota(x.begin(), x.end(), 1.0f);
  DeviceArray<float> from(x, stream), sums(7);
  launch(block_sums, 7, 256, stream, from.data(), sums.data(), 10000);
  const auto parts = sums.read(stream);
  double total = 0;
  for (const float part : parts) total += static_cast<double>(part);
  EXPECT_NEAR(total, 10000.0 * 10001 / 2, 100);
}

TEST(Kernels, WaitForEachOtherAtABarrier) {
  const Stream stream(owt::Device::kCuda);
  std::vector<int> values(128);
  std::iota(values.begin(), values.end(), 0);
  DeviceArray<int> memory(values, stream);
  launch(reverse, 2, 64, stream, memory.data());
  const auto reversed = memory.read(stream);
  for (int i = 0; i < 64; ++i) {
    ASSERT_EQ(reversed[i], 63 - i);
    ASSERT_EQ(reversed[64 + i], 127 - i);
  }
}

TEST(Kernels, AForgottenBarrierGivesAWrongResult) {
  const Stream stream(owt::Device::kCuda);
  std::vector<int> values(128);
  std::iota(values.begin(), values.end(), 0);
  DeviceArray<int> memory(values, stream);
  launch(reverse_without_waiting, 2, 64, stream, memory.data());
  const auto reversed = memory.read(stream);
  bool right = true;
  for (int i = 0; i < 64; ++i) right = right && reversed[i] == 63 - i;
  EXPECT_FALSE(right);
}

TEST(Kernels, ShufflesFollowTheirLanes) {
  const Stream stream(owt::Device::kCuda);
  DeviceArray<int> out(32 * 6);
  launch(every_shuffle, 1, 32, stream, out.data());
  const auto values = out.read(stream);
  for (int lane = 0; lane < 32; ++lane) {
    const int* mine = values.data() + lane * 6;
    EXPECT_EQ(mine[0], 5);
    EXPECT_EQ(mine[1], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(mine[2], lane > 28 ? lane : lane + 3);
    EXPECT_EQ(mine[3], lane ^ 1);
    EXPECT_EQ(mine[4], lane / 4 * 4 + 1);
    EXPECT_EQ(mine[5], 0xf);
  }
}

TEST(Kernels, EndedThreadsDoNotCountAtABarrier) {
  const Stream stream(owt::Device::kCuda);
  DeviceArray<int> result(100);
  launch(some_end_early, 1, 100, stream, 37, result.data());
  const auto values = result.read(stream);
  EXPECT_THAT(std::vector<int>(values.begin(), values.begin() + 37), Each(42));
  EXPECT_EQ(values[37], -1);  // untouched
}

TEST(Kernels, AddAtomicallyAcrossStreams) {
  const Stream first(owt::Device::kCuda), second(owt::Device::kCuda);
  DeviceArray<int> counter(std::vector<int>{0}, first);
  first.synchronize();
  launch(count_up, 64, 128, first, counter.data());
  launch(count_up, 64, 128, second, counter.data());
  second.synchronize();
  EXPECT_THAT(counter.read(first), ElementsAre(2 * 64 * 128));
}

TEST(Kernels, StartTheirBlocksAndThreadsInChangingOrder) {
  const Stream stream(owt::Device::kCuda);
  std::set<std::vector<int>> orders;
  DeviceArray<int> order(4);
  for (int i = 0; i < 2; ++i) {
    DeviceArray<int> next(std::vector<int>{0}, stream);
    launch(order_of_starts, 2, 2, stream, order.data(), next.data());
    orders.insert(order.read(stream));
  }
  EXPECT_THAT(orders, ElementsAre(ElementsAre(0, 1, 3, 2), ElementsAre(2, 3, 1, 0)));
}

TEST(Kernels, AnEmptyGridQueuesNothing) {
  const Stream stream(owt::Device::kCuda);
  EXPECT_NO_THROW(launch(count_up, 0, 32, stream, nullptr));
  EXPECT_NO_THROW(stream.synchronize());
}

TEST(Kernels, LaunchesThatNoGpuAcceptsAreErrors) {
  const Stream stream(owt::Device::kCuda);
  for (const auto& [grid, block] :
       {std::pair(dim3(1), dim3(1025)), std::pair(dim3(1), dim3(1, 1, 65)), std::pair(dim3(1, 65536), dim3(1)),
        std::pair(dim3(1, 1, 65536), dim3(1)), std::pair(dim3(1), dim3(0))})
    EXPECT_THROW(launch(count_up, grid, block, stream, nullptr), owt::Error);
}

TEST(Kernels, AnEarlierErrorThatNobodyFetchedSurfacesAtTheLaunch) {
  const Stream stream(owt::Device::kCuda);
  DeviceArray<int> counter(1);
  int device = 0;
  EXPECT_EQ(cudaStreamGetDevice(nullptr, &device), cudaErrorInvalidResourceHandle);
  EXPECT_THROW(launch(count_up, 1, 1, stream, counter.data()), owt::Error);
  EXPECT_NO_THROW(launch(count_up, 1, 1, stream, counter.data()));
}

TEST(KernelsDeathTest, AShuffleThatLanesMissEndsTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        const Stream stream(owt::Device::kCuda);
        DeviceArray<int> out(32);
        launch(shuffle_of_half_a_warp, 1, 32, stream, out.data());
        stream.synchronize();
      },
      HasSubstr("all 32 must take part"));
}

__global__ void copy_four(const float* from, float* to) { owt::store_pack(to, owt::load_pack<float, 4>(from)); }

TEST(KernelsDeathTest, AnAccessThatIsNotAlignedToItsWidthEndsTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto copy_at = [](int from, int to) {
    const Stream stream(owt::Device::kCuda);
    DeviceArray<float> memory(16);
    launch(copy_four, 1, 1, stream, memory.data() + from, memory.data() + to);
    stream.synchronize();
  };
  copy_at(4, 8);
  EXPECT_DEATH(copy_at(5, 8), "");
  EXPECT_DEATH(copy_at(4, 9), "");
}

}  // namespace
}  // namespace simulated_gpu::kernels_test
