#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "data/photos/photo.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "src/report/pages/sections.h"
#include "src/system/config.h"
#include "src/system/log.h"
#include "src/system/own_words.h"

namespace owt {
namespace {

constexpr int64_t kMostFilters = 256, kMostSide = 256, kFilterColumns = 16, kFilterGap = 2, kFilterWidth = 640;
constexpr uint8_t kGapColor = 20;  // darker than most weights; 0 is mid-grey

// A tensor of weights in PyTorch's order as tiles of height x width: one per filter, in colour, if filters have three
// channels; else one per channel of a filter. Zero is mid-grey; the largest absolute value is black or white.
class WeightPicture {
 public:
  WeightPicture(const Tensor& weights, const std::string& name) : weights_(weights) {
    const Shape& shape = weights.shape();
    const bool image = shape.rank() == 4;
    height_ = image ? shape[2] : std::min(shape[0], kMostSide);
    width_ = image ? shape[3] : std::min(shape.row_elements(), kMostSide);
    colour_ = image && shape[1] == 3;
    tiles_ = !image ? 1 : std::min(colour_ ? shape[0] : shape[0] * shape[1], kMostFilters);
    const int64_t all = !image ? 1 : colour_ ? shape[0] : shape[0] * shape[1];
    about_ = image ? format("{} of {} filters{} of {} x {} of {}", tiles_, all, colour_ ? " in colour" : "' channels",
                            height_, width_, name)
                   : format("{} of {} rows and {} of {} columns of {}", height_, shape[0], width_, shape.row_elements(),
                            name);
    for (int64_t i = 0; i < weights.elements(); ++i) largest_ = std::max(largest_, std::abs(weights.data()[i]));
    about_ += format("; grey is 0, black and white are {:.4g}", largest_);
    scale_ = std::clamp<int64_t>(kFilterWidth / (std::min(tiles_, kFilterColumns) * width_), 1, 12);
  }

  const std::string& about() const { return about_; }

  Photo photo() const {
    const int64_t columns = std::min(tiles_, kFilterColumns), rows = (tiles_ + columns - 1) / columns;
    const int64_t down = scale_ * height_ + kFilterGap, across = scale_ * width_ + kFilterGap;
    Photo picture{rows * down - kFilterGap, columns * across - kFilterGap};
    picture.pixels.assign(static_cast<size_t>(picture.height * picture.width * 3), kGapColor);
    for (int64_t tile = 0; tile < tiles_; ++tile) paint(picture, tile, tile / columns * down, tile % columns * across);
    return picture;
  }

 private:
  void paint(Photo& picture, int64_t tile, int64_t top, int64_t left) const {
    for (int64_t y = 0; y < scale_ * height_; ++y)
      for (int64_t x = 0; x < scale_ * width_; ++x)
        for (int64_t c = 0; c < 3; ++c)
          picture.pixels[static_cast<size_t>(((top + y) * picture.width + left + x) * 3 + c)] =
              pixel(tile, y / scale_, x / scale_, c);
  }
  uint8_t pixel(int64_t tile, int64_t y, int64_t x, int64_t channel) const {
    const int64_t plane = colour_ ? tile * 3 + channel : tile;
    const int64_t row = weights_.shape().rank() == 4 ? width_ : weights_.shape().row_elements();
    const int64_t at = weights_.shape().rank() == 4 ? (plane * height_ + y) * row + x : y * row + x;
    const float value = largest_ > 0 ? weights_.data()[at] / largest_ : 0;
    return static_cast<uint8_t>(std::lround(127.5f + 127.5f * std::clamp(value, -1.0f, 1.0f)));
  }

  Tensor weights_;
  int64_t height_ = 1, width_ = 1, tiles_ = 1;
  int64_t scale_ = 1;  // pixels of the picture per pixel of a filter
  bool colour_ = false;
  float largest_ = 0;
  std::string about_;
};

bool has_picture(const SafetensorsReader::Entry& entry) { return entry.shape.rank() == 4 || entry.shape.rank() == 2; }

// The tensor of the layer; with an empty name, the first one that can be shown.
const SafetensorsReader::Entry& chosen_tensor(const SafetensorsReader& file, const std::string& layer) {
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) {
    if (!has_picture(entry)) continue;
    if (layer.empty() || entry.name == layer || entry.name == layer + ".weight") return entry;
    names.push_back(entry.name.substr(0, entry.name.rfind('.')));
  }
  const std::string near = nearest(layer, names);
  fail("no layer '", layer, "' with weights to show", near.empty() ? "" : concat("; did you mean '", near, "'?"),
       " (layers: ", joined(names), ")");
}

HtmlTable numbers_of_weights(const std::string& name, const Tensor& weights) {
  double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
  for (int64_t i = 0; i < weights.elements(); ++i) {
    const double value = weights.data()[i];
    sum += value, squares += value * value, low = std::min(low, value), high = std::max(high, value);
  }
  const auto count = static_cast<double>(weights.elements());
  const double mean = sum / count, deviation = std::sqrt(std::max(squares / count - mean * mean, 0.0));
  return {{"weights", "values", "mean", "deviation", "least", "largest"},
          {{name, std::to_string(weights.elements()), short_number(mean), short_number(deviation), short_number(low),
            short_number(high)}}};
}

std::string filters_of(const RunRecord& run, const std::string& layer) {
  if (run.checkpoint.empty())
    return missing(
        "No checkpoint yet: owt train writes them at the end of epochs, and where run.checkpoint_every_steps says.");
  SafetensorsReader file(trained_weights_of(run.checkpoint));
  const SafetensorsReader::Entry& entry = chosen_tensor(file, layer);
  const Tensor weights = file.read(entry.name);
  const WeightPicture picture(weights, entry.name);
  const Photo photo = picture.photo();
  const std::string image = format("<img class=\"pixels\" src=\"{}\" alt=\"{}\">\n",
                                   data_uri("image/png", png_of(photo)), escaped(picture.about()));
  const std::string checkpoint = std::filesystem::path(run.checkpoint).filename().string();
  return html_of(Figure{concat(entry.name, " of ", run.name, ", ", checkpoint), image, picture.about() + ".",
                        numbers_of_weights(entry.name, weights), "", true});
}

}  // namespace

void check_layer(Runs runs, const std::string& layer) {
  std::string wrong;
  for (const RunRecord& run : runs) {
    std::optional<SafetensorsReader> file;
    try {
      if (!run.checkpoint.empty()) file.emplace(trained_weights_of(run.checkpoint));
    } catch (const Error&) {  // the page reports it
    }
    if (!file) continue;
    try {
      static_cast<void>(chosen_tensor(*file, layer));
      return;
    } catch (const Error& e) {
      wrong = e.what();
    }
  }
  if (!wrong.empty()) fail(wrong);
}

std::string filters_section(Runs runs, const std::string& layer) {
  std::string content;
  for (const RunRecord& run : runs) try {
      content += of_run(run.name, runs.size(), filters_of(run, layer));
    } catch (const std::exception& e) {  // a run of another network, or a damaged file
      content += missing(concat(run.name, ": ", own_words(e)));
    }
  if (layer.empty()) content += paragraph("Another layer's are shown with owt report --layer NAME.");
  return section("filters", "Filters", content);
}

}  // namespace owt
