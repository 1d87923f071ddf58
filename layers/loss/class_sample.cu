#include "layers/loss/class_sample.h"

#include <cmath>
#include <limits>

#include "layers/gpu/last_block.cuh"
#include "layers/loss/softmax_rows.cuh"
#include "src/core/grid.h"
#include "src/core/philox.cuh"

namespace owt {
namespace {

constexpr int64_t kWordClasses = 32;
constexpr unsigned kWordBlocks = kWordClasses / 4;  // Philox's blocks of four numbers

// The classes of a part as bits of words. A word begins at a multiple of 32 classes of all, so that its random numbers
// are whole blocks; bits outside of the part are never set. A block of threads has a word for each thread.
struct ClassWords {
  explicit ClassWords(const Slice& of)
      : part(of),
        first(of.begin / kWordClasses),
        count((of.end + kWordClasses - 1) / kWordClasses - first),
        blocks(std::max(1u, blocks_for(count))) {}

  __device__ int64_t word_of_thread() const { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
  __device__ int64_t first_class(int64_t word) const { return (first + word) * kWordClasses; }

  Slice part;
  int64_t first, count;
  unsigned blocks;
};

// The scratch memory of draw_classes(), i32.
struct DrawMemory {
  DrawMemory(const ClassWords& words, Tensor& scratch)
      : chosen(reinterpret_cast<uint32_t*>(scratch.data<int32_t>())),
        begins(scratch.data<int32_t>() + words.count),
        arrived(reinterpret_cast<unsigned*>(begins + words.blocks + 1)) {}
  static int64_t elements(const ClassWords& words) { return words.count + words.blocks + 2; }

  uint32_t* chosen;   // by word; 0 between draws
  int32_t* begins;    // by block of threads: where its classes begin in the sample; and their number
  unsigned* arrived;  // last_block.cuh
};

// The sum of the values of earlier threads of the block. `all` becomes the sum over all threads.
__device__ int sum_of_earlier(int value, int& all) {
  __shared__ int of_warp[kMaxWarps];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int sum = value;
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += before;
  }
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  int earlier = sum - value;
  all = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) {
    if (w < warp) earlier += of_warp[w];
    all += of_warp[w];
  }
  __syncthreads();  // before the next sum writes
  return earlier;
}

// Replaces counts by the sums of the counts before each, with the sum of all at the end.
__device__ void add_up_counts(int32_t* counts, int64_t number) {
  const int64_t each = (number + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * each;
  const int64_t end = begin + each < number ? begin + each : number;
  int mine = 0, all = 0;
  for (int64_t i = begin; i < end; ++i) mine += counts[i];
  int sum = sum_of_earlier(mine, all);
  for (int64_t i = begin; i < end; ++i) {
    const int count = counts[i];
    counts[i] = sum;
    sum += count;
  }
  if (threadIdx.x == 0) counts[number] = all;
}

__global__ void choose_labels(ClassWords words, int64_t count, const int32_t* labels, uint32_t* chosen) {
  wait_for_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count || labels[i] < words.part.begin || labels[i] >= words.part.end) return;
  const auto label = static_cast<unsigned>(labels[i]);
  atomicOr(chosen + (label / kWordClasses - words.first), 1u << label % kWordClasses);
}

// The classes of a word that random numbers choose: those below the threshold, of 24 bits.
__device__ uint32_t draw_word(const ClassWords& words, int64_t word, const DevicePhilox& random, uint32_t threshold) {
  const int64_t begin = words.first_class(word);
  uint32_t drawn = 0;
#pragma unroll
  for (unsigned b = 0; b < kWordBlocks; ++b) {
    const DevicePhilox::PhiloxBlock four = random.block(static_cast<uint64_t>(begin) / 4 + b);
#pragma unroll
    for (unsigned lane = 0; lane < 4; ++lane)
      drawn |= static_cast<uint32_t>(four.at[lane] >> 8 < threshold) << (4 * b + lane);
  }
  if (begin < words.part.begin) drawn &= ~0u << (words.part.begin - begin);
  if (begin + kWordClasses > words.part.end) drawn &= ~0u >> (begin + kWordClasses - words.part.end);
  return drawn;
}

__global__ void draw_words(ClassWords words, DevicePhilox random, const int64_t* step, uint32_t threshold,
                           DrawMemory memory) {
  wait_for_previous_kernel();
  const int64_t word = words.word_of_thread();
  int count = 0, of_block = 0;
  if (word < words.count) {
    const uint32_t chosen =
        memory.chosen[word] | draw_word(words, word, random.at_step(static_cast<uint64_t>(*step)), threshold);
    memory.chosen[word] = chosen;
    count = __popc(chosen);
  }
  sum_of_earlier(count, of_block);
  if (threadIdx.x == 0) memory.begins[blockIdx.x] = of_block;
  if (arrives_last(memory.arrived, gridDim.x)) add_up_counts(memory.begins, gridDim.x);
}

__global__ void write_sample(ClassWords words, DrawMemory memory, int64_t most, int32_t* rows, double* counter) {
  wait_for_previous_kernel();
  const int64_t word = words.word_of_thread(), all = memory.begins[words.blocks];
  uint32_t chosen = 0;
  if (word < words.count) {
    chosen = memory.chosen[word];
    memory.chosen[word] = 0;
  }
  int of_block = 0;
  int64_t place = memory.begins[blockIdx.x] + sum_of_earlier(__popc(chosen), of_block);
  const int64_t first_row = words.first_class(word) - words.part.begin;
  for (; chosen != 0 && place < most; chosen &= chosen - 1)
    rows[place++] = static_cast<int32_t>(first_row + __ffs(static_cast<int>(chosen)) - 1);
  for (int64_t i = all + word; i < most; i += int64_t{gridDim.x} * blockDim.x) rows[i] = kNoRow;
  if (word == 0) *counter += all <= most ? static_cast<double>(all) : std::numeric_limits<double>::quiet_NaN();
}

// The number of values <= `value`; the values ascend.
template <class T>
__device__ int64_t count_up_to(const T* values, int64_t count, T value) {
  int64_t begin = 0;
  for (int64_t end = count; begin < end;) {
    const int64_t middle = (begin + end) / 2;
    if (values[middle] <= value)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

struct FirstOfRanks {
  const int32_t *classes, *columns;
  int64_t ranks;
};

__global__ void find_label_columns(FirstOfRanks firsts, int rank, const int32_t* rows, int64_t most, int64_t count,
                                   const int32_t* labels, int32_t* to) {
  wait_for_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int32_t label = labels[i];
  to[i] = -1;
  if (label < 0 || label >= firsts.classes[firsts.ranks]) return;
  const int64_t owner = count_up_to(firsts.classes, firsts.ranks, label) - 1;
  const int32_t first_column = firsts.columns[owner];
  if (owner != rank) {
    to[i] = first_column;
    return;
  }
  // kNoRow is the largest unsigned number, so the rows ascend.
  static_assert(kNoRow == -1);
  const auto row = static_cast<uint32_t>(label - firsts.classes[owner]);
  const int64_t column = count_up_to(reinterpret_cast<const uint32_t*>(rows), most, row) - 1;
  if (column >= 0 && rows[column] == static_cast<int32_t>(row)) to[i] = static_cast<int32_t>(first_column + column);
}

}  // namespace

Tensor draw_scratch(Cuda, const Slice& part) {
  Tensor scratch({DrawMemory::elements(ClassWords(part))}, DType::kI32, Device::kCuda);
  scratch.zero();
  return scratch;
}

void draw_classes(Cuda, const Pass& pass, double rate, const Slice& part, const Tensor& labels, Tensor& rows,
                  Tensor& counter, Tensor& scratch) {
  OWT_CHECK(pass.device_step, "a draw needs the step on the GPU");
  const ClassWords words(part);
  const DrawMemory memory(words, scratch);
  const DevicePhilox random(Philox(pass.seed, RandomStream::kSample));
  // Equivalent to uniform < rate, on the 24 bits that make the uniform number.
  const auto threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(static_cast<float>(rate)) * 0x1p24));
  launch(choose_labels, blocks_for(labels.elements()), kBlockThreads, *pass.stream, words, labels.elements(),
         labels.data<int32_t>(), memory.chosen);
  launch(draw_words, words.blocks, kBlockThreads, *pass.stream, words, random, pass.device_step, threshold, memory);
  launch(write_sample, words.blocks, kBlockThreads, *pass.stream, words, memory, rows.elements(), rows.data<int32_t>(),
         counter.data<double>());
}

void find_columns(Cuda, const Tensor& classes, const Tensor& columns, int rank, const Tensor& rows,
                  const Tensor& labels, Tensor& to, const Stream& stream) {
  launch(find_label_columns, blocks_for(labels.elements()), kBlockThreads, stream,
         FirstOfRanks{classes.data<int32_t>(), columns.data<int32_t>(), classes.elements() - 1}, rank,
         rows.data<int32_t>(), rows.elements(), labels.elements(), labels.data<int32_t>(), to.data<int32_t>());
}

}  // namespace owt
