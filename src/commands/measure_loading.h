// The speed of making batches, alone: they are made as for training, and no network reads them.
#pragma once

#include <string>

#include "data/load_stages.h"
#include "src/recipe/settings.h"

namespace owt {

struct LoadRequest {
  int threads = 1;     // a worker has so many
  double seconds = 5;  // measured time
  // Photographs only: drop the training files from the memory of the system first, and end after one epoch.
  bool cold = false;
};

struct LoadSpeed {
  int64_t set_images = 0;        // the data set has so many
  int workers = 1, threads = 1;  // threads of each worker
  bool on_gpu = false;           // batches are finished on a GPU
  Decoder decoder = Decoder::kCpu;
  double seconds = 0;
  int64_t images = 0;  // made for all workers
  LoadWork work{};     // by all loader threads; without images: a GPU keeps the data set
  double copy_s = 0;   // to copy an image to the GPU, with nothing beside it; 0: on the CPU

  int all_threads() const { return workers * threads; }
  double busy_cores() const { return work.times.work_s / seconds; }
  bool resident() const { return work.images == 0; }
  double images_per_s() const { return static_cast<double>(images) / seconds; }
  double waiting_share() const;  // the part of the threads' time in which they wait for files
  // Seconds of a thread per image, working or waiting for files.
  double thread_s() const;
  double stage_s(LoadStage stage) const;
  double rest_s() const;  // outside of all stages
  // Images that one core makes per second while no thread waits, on this device, and for a GPU, which augments and
  // mixes by itself.
  double images_per_core_s() const;
  double images_per_core_s_for_gpu() const;
};

// Reads training images of the recipe's format from the folder, with the recipe's workers and decoder, which must not
// be kAuto. Throws the errors of opening and reading them, and for drawn images.
LoadSpeed measure_loading(Settings settings, const std::string& folder, const LoadRequest& request);

// The cores that the loader of a worker needs when a GPU computes.
struct LoadNeed {
  double images_per_s = 0, images_per_core_s = 0;
  std::string source{};  // says where images_per_core_s is from

  double cores() const { return images_per_s / images_per_core_s; }
};
// For photographs. The speed of a core is measured for half a second on the training images in data_folder(); if there
// are none, it is the documented one of photographs as `owt prepare` packs them.
LoadNeed load_need(const Settings& settings, double images_per_s);

}  // namespace owt
