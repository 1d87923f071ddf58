// Batches on the computing device, made from the settings of a Loader.
//
// On a GPU the images arrive as bytes and are augmented there (data/device_augment.h). Images are f32 or bf16,
// depending on the precision; labels are i32. All batches use the same memory, so that recorded work can read them.
// next() must not be called while its stream is being recorded. settings.augmenter is required; settings.held,
// settings.reader and settings.files are set here.
#pragma once

#include <cstdint>
#include <memory>

#include "data/loader.h"
#include "src/core/device.h"

namespace owt {

// Batches of a Loader with these settings, on either device. On a GPU, a data set whose images and labels take at most
// `resident_bytes` is kept there; others are sent batch by batch.
std::unique_ptr<BatchSource> make_batches(const Compute& on, LoaderSettings settings, int64_t resident_bytes);

std::unique_ptr<BatchSource> make_batches(Cpu, LoaderSettings settings, int64_t resident_bytes);
std::unique_ptr<BatchSource> make_batches(Cuda, LoaderSettings settings, int64_t resident_bytes);

// Batches from a copy of the whole data set on the calling host thread's GPU. All sources of one process share the
// copy, and it lives as long as the data set. Throws OutOfMemory if it does not fit.
std::unique_ptr<BatchSource> make_resident_batches(Cuda, LoaderSettings settings);
// Batches read by a Loader and sent ahead of time. In training, with settings.decoder, the GPU decodes the JPEG files
// that it can, and the loader's threads decode the others. With kGpu, throws Error if nvJPEG is missing.
std::unique_ptr<BatchSource> make_streamed_batches(Cuda, LoaderSettings settings);

}  // namespace owt
