// Times the all-reduce of the MPI library, for comparison with `owt bench-comm`: f32 sums of 64 MB, in place.
//
//   mpicxx -O2 -o mpi_allreduce tools/bench/mpi_allreduce.cpp && mpirun -np 2 ./mpi_allreduce [MEGABYTES [TIMES]]
//
// Prints bytes, median milliseconds, and algorithm and bus bandwidth in GB/s as nccl-tests define them: bytes / time,
// and 2 (K-1)/K of that.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double megabytes = count > 1 ? std::atof(words[1]) : 64;
  const int times = count > 2 ? std::atoi(words[2]) : 20;
  std::vector<float> sum(static_cast<size_t>(megabytes * 1e6 / sizeof(float)), 1e-9f);
  std::vector<double> seconds;
  for (int i = -2; i < times; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, sum.data(), static_cast<int>(sum.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 0) seconds.push_back(MPI_Wtime() - begin);  // the first rounds touch new memory
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2], bytes = static_cast<double>(sum.size() * sizeof(float));
  if (rank == 0)
    std::printf("MPI_Allreduce, %d ranks: %.0f bytes, %.3f ms, algbw %.3f GB/s, busbw %.3f GB/s\n", ranks, bytes,
                median * 1e3, bytes / median * 1e-9, 2.0 * (ranks - 1) / ranks * bytes / median * 1e-9);
  MPI_Finalize();
}
