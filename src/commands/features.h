// The outputs of a layer of a trained network for many images, a batch at a time: `owt extract` and `owt verify`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "src/recipe/settings.h"
#include "src/train/inference.h"
#include "src/train/job.h"
#include "src/train/session.h"

namespace owt {

// The settings of a recipe for one rank.
struct FeatureSource {
  std::string weights;              // safetensors file
  std::string run_folder;           // for the data's facts (data_facts.h); empty: none
  std::string data;                 // folder; empty: see data_folder()
  int threads = 0;                  // 0: all cores
  int workers = 1;                  // threads with their own networks, which share the images
  std::string layer;                // empty: the layer before the last, whose output is the embedding of an image
  Split split = Split::kTest;       // split of the data set, in its order, in the centre view
  std::vector<std::string> photos;  // used instead of the data set, if any
  std::vector<int64_t> numbers;     // only these images of the split, in increasing order; empty: all
  int64_t spread = 0;               // only so many images, evenly spread over the split; 0: all
  bool labels = true;               // labels must be classes of the network
  bool mirrored = false;            // the mean of the outputs for an image and its mirror image
  bool kept = false;                // the caller keeps all outputs in memory, which must have room for them
};

class Features {
 public:
  // Reads the weights and opens the data. Throws Error, also for numbers that the split does not have.
  Features(const Settings& settings, FeatureSource source);

  const std::string& layer() const { return source_.layer; }
  int64_t images() const;
  Shape row() const { return network_.out(); }  // one image: H x W x C, or F
  int label(int64_t image) const { return job_.images(source_.split)->label(image); }

  // Calls take() with the outputs of all images in order: rows x row(), f32, on the host, valid until it returns. Only
  // one batch of each worker is in memory. Throws Error for an image that cannot be read.
  void each(const std::function<void(const Tensor& y)>& take);
  // Calls take() with the images that the network gets, in the same way: rows x H x W x C, of a data set.
  void each_input(const std::function<void(const Tensor& images)>& take);
  const Net& net() const { return network_.net(); }

 private:
  void open_images();
  void check_room() const;
  // Makes the outputs of the batch with this number, on the worker's thread.
  using Make = std::function<Tensor(int64_t batch)>;
  Make of_data_set(int worker, int workers, const std::shared_ptr<Inference>& network) const;
  Make of_photos(const std::shared_ptr<Inference>& network) const;
  int64_t batch_rows() const;
  // images_of(view): the images of one batch in a View::number.
  Tensor outputs(Inference& network, const std::function<Tensor(int view)>& images_of) const;

  Job job_;
  FeatureSource source_;
  Session session_;
  Views views_;
  Inference network_;
};

}  // namespace owt
