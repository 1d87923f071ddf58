// The functions of OpenMP that the sources use, for teams of one thread: Clang's own OpenMP is a separate package.
#pragma once

inline int omp_get_max_threads() { return 1; }
inline int omp_get_num_threads() { return 1; }
inline int omp_get_num_procs() { return 1; }
inline int omp_get_thread_num() { return 0; }
inline int omp_get_thread_limit() { return 1; }
inline void omp_set_num_threads(int) {}
