// Batches on the device that computes, from the settings of a Loader.
//
// On a GPU the images travel as bytes and are augmented there (data/device_augment.h); images are f32 or bf16 as the
// precision says, labels i32. All batches lie in the same memory, so that work which is recorded once can read them.
// next() must not be called while its stream is being recorded. settings.augmenter is needed; settings.held and
// settings.reader are chosen here.
#pragma once

#include <cstdint>
#include <memory>

#include "data/loader.h"
#include "src/core/device.h"

namespace owt {

// The batches of a Loader with these settings on either device. On a GPU, a data set whose images and labels take at
// most `resident_bytes` is kept there, all others are sent batch by batch.
std::unique_ptr<BatchSource> make_batches(const Compute& on, LoaderSettings settings, int64_t resident_bytes);

std::unique_ptr<BatchSource> make_batches(Cpu, LoaderSettings settings, int64_t resident_bytes);
std::unique_ptr<BatchSource> make_batches(Cuda, LoaderSettings settings, int64_t resident_bytes);

// Batches from a copy of the whole data set on the calling host thread's GPU, which all sources of one process share
// and which stays as long as the data set. Throws OutOfMemory where it does not fit.
std::unique_ptr<BatchSource> make_resident_batches(Cuda, LoaderSettings settings);
// Batches read by a Loader and sent ahead of need.
std::unique_ptr<BatchSource> make_streamed_batches(Cuda, LoaderSettings settings);

}  // namespace owt
