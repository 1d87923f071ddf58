#include <algorithm>
#include <cmath>
#include <map>

#include "data/contact_sheet.h"
#include "data/photos/photo.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kMostClassesOfTable = 20, kMostPairs = 30, kShownImages = 24;
constexpr int64_t kThumbnailSide = 96, kSheetSide = 64;

struct Answer {
  int64_t image;
  std::string label, taken_for;
  double probability = 0, of_label = 0;  // probability of the predicted class, and of its label
  bool right() const { return label == taken_for; }
};

std::vector<Answer> answers_in(const CsvTable& table) {
  const size_t index = table.column("index").value_or(0), label = table.column("label_name").value_or(0),
               taken = table.column("top1_name").value_or(0);
  const auto number_label = table.column("label").value_or(0), number_taken = table.column("top1").value_or(0);
  std::vector<Answer> all;
  for (const auto& row : table.rows) {
    if (row.size() < table.head.size()) continue;
    const std::string& predicted = row[taken];
    Answer answer{std::stoll(row[index]), row[label], predicted.empty() ? "no class" : predicted,
                  table.number(row, "top1_probability"), table.number(row, "label_probability")};
    // Two classes may have the same name.
    if (row[number_label] != row[number_taken] && answer.label == answer.taken_for)
      answer.taken_for += " (" + row[number_taken] + ")";
    all.push_back(std::move(answer));
  }
  return all;
}

// Number of images by pair of class names.
using Pairs = std::map<std::pair<std::string, std::string>, int64_t>;

std::string confusion_table(const std::vector<std::string>& classes, const Pairs& pairs) {
  std::string html = "<div class=\"scroll\"><table class=\"confusion\">\n<thead><tr><th scope=\"col\">label</th>";
  for (const std::string& name : classes) html += "<th scope=\"col\" class=\"n\">" + escaped(name) + "</th>";
  html += "</tr></thead>\n<tbody>\n";
  for (const std::string& label : classes) {
    int64_t images = 0;
    for (const std::string& taken : classes)
      if (const auto found = pairs.find({label, taken}); found != pairs.end()) images += found->second;
    html += "<tr><th scope=\"row\">" + escaped(label) + "</th>";
    for (const std::string& taken : classes) {
      const auto found = pairs.find({label, taken});
      const int64_t times = found == pairs.end() ? 0 : found->second;
      const double share = images > 0 ? static_cast<double>(times) / static_cast<double>(images) : 0;
      html += format("<td class=\"n {}\" style=\"--share:{:.0f}%\">{}</td>",
                     times == 0       ? "none"
                     : label == taken ? "right"
                                      : "wrong",
                     65 * std::sqrt(share), times);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

HtmlTable worst_pairs(const Pairs& pairs, const std::map<std::string, int64_t>& labels) {
  std::vector<std::pair<int64_t, std::pair<std::string, std::string>>> wrong;
  for (const auto& [pair, times] : pairs)
    if (pair.first != pair.second) wrong.push_back({times, pair});
  std::stable_sort(wrong.begin(), wrong.end(), [](auto& a, auto& b) { return a.first > b.first; });
  HtmlTable table{{"label", "taken for", "images", "of"}, {}};
  for (size_t i = 0; i < std::min(wrong.size(), kMostPairs); ++i)
    table.rows.push_back({wrong[i].second.first, wrong[i].second.second, std::to_string(wrong[i].first),
                          std::to_string(labels.at(wrong[i].second.first))});
  return table;
}

std::string confusions(const std::vector<Answer>& answers) {
  Pairs pairs;
  std::map<std::string, int64_t> labels;  // number of images by label; 0: a class that is only predicted
  int64_t right = 0;
  for (const Answer& a : answers)
    ++pairs[{a.label, a.taken_for}], ++labels[a.label], labels[a.taken_for], right += a.right();
  std::vector<std::string> classes;
  for (const auto& [name, images] : labels) classes.push_back(name);
  const std::string about = format("{} of {} images are classified correctly.", right, answers.size());
  if (classes.size() <= kMostClassesOfTable)
    return html_of(Figure{
        "Labels (rows) and what they are taken for (columns)", confusion_table(classes, pairs), about, {}, "", true});
  return html_of(
      Figure{"Pairs of classes that are mixed up most", html_of(worst_pairs(pairs, labels)), about, {}, "", true});
}

Photo centre_of(const Dataset& images, int64_t index) {
  const Shape shape = images.image();
  std::vector<uint8_t> pixels(static_cast<size_t>(shape.elements()));
  images.read(index, {}, pixels.data());
  Photo photo{shape[0], shape[1], {}};
  photo.pixels.reserve(static_cast<size_t>(shape[0] * shape[1] * 3));
  for (int64_t p = 0; p < shape[0] * shape[1]; ++p)
    for (int64_t c = 0; c < 3; ++c)
      photo.pixels.push_back(pixels[static_cast<size_t>(p * shape[2] + std::min(c, shape[2] - 1))]);
  return photo;
}

// Small pictures unchanged, photographs as JPEG.
std::string uri_of(const Photo& photo, int64_t side) {
  if (std::min(photo.height, photo.width) <= side) return data_uri("image/png", png_of(photo));
  return data_uri("image/jpeg", jpeg_of(resized(photo, side), {.quality = 80}));
}

std::string percent_of(double probability) { return format("{:.1f} %", 100 * probability); }

std::string thumbnail(const Dataset& images, const Answer& answer) {
  const std::string words = format("{}, taken for {} ({}), own probability {}", answer.label, answer.taken_for,
                                   percent_of(answer.probability), percent_of(answer.of_label));
  return format(
      "<li><img class=\"pixels\" src=\"{}\" alt=\"image {}: {}\"><b>{}</b> {}<br><span>not {} {}</span></li>\n",
      uri_of(centre_of(images, answer.image), kThumbnailSide), answer.image, escaped(words), escaped(answer.taken_for),
      percent_of(answer.probability), escaped(answer.label), percent_of(answer.of_label));
}

HtmlTable numbers_of_answers(std::span<const Answer> answers) {
  HtmlTable table{{"image", "label", "probability", "taken for", "probability"}, {}};
  for (const Answer& a : answers)
    table.rows.push_back(
        {std::to_string(a.image), a.label, percent_of(a.of_label), a.taken_for, percent_of(a.probability)});
  return table;
}

// The first images in the order of `less`.
template <class Less>
std::string shown_images(const std::string& title, const Dataset& images, std::vector<Answer> wrong, const Less& less) {
  const size_t count = std::min(wrong.size(), kShownImages);
  std::partial_sort(wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(count), wrong.end(), less);
  wrong.resize(count);
  std::string html = "<ul class=\"images\">\n";
  for (const Answer& answer : wrong) html += thumbnail(images, answer);
  return html_of(Figure{title, html + "</ul>\n", "", numbers_of_answers(wrong), "", true});
}

}  // namespace

std::string answers_section(const Answers* answers) {
  const std::string title = "What it takes images for";
  if (!answers)
    return section(
        "answers", title,
        missing(
            "Confusions and wrong images need the images: owt report RUN --data DIR evaluates the best checkpoint."));
  const std::vector<Answer> all = answers_in(answers->predictions);
  std::vector<Answer> wrong;
  std::copy_if(all.begin(), all.end(), std::back_inserter(wrong), [](const Answer& a) { return !a.right(); });
  std::string content =
      paragraph(format("The {} images, with {}.", answers->split, answers->weights)) + confusions(all);
  if (wrong.empty()) return section("answers", title, content + paragraph("All images are classified correctly."));
  const auto of_label = [](const Answer& a, const Answer& b) {
    return std::tuple(a.of_label, a.image) < std::tuple(b.of_label, b.image);
  };
  const auto confident = [](const Answer& a, const Answer& b) {
    return std::tuple(-a.probability, a.image) < std::tuple(-b.probability, b.image);
  };
  content += shown_images("Worst: the least probability of the label", *answers->images, wrong, of_label);
  content += shown_images("Wrong with the most confidence", *answers->images, wrong, confident);
  return section("answers", title, content);
}

std::string inputs_section(const SeenImages* seen) {
  const std::string title = "Images as the network sees them";
  if (!seen)
    return section("inputs", title, missing("A sheet of augmented images needs them: owt report RUN --data DIR."));
  Photo sheet = contact_sheet(*seen->images, seen->augment, seen->statistics, {.samples = 48, .columns = 12});
  const int64_t most = 12 * kSheetSide * 2;  // width in pixels
  const bool large = sheet.width > most;
  const int64_t width = large ? most : sheet.width;
  const std::string uri =
      large ? data_uri("image/jpeg",
                       jpeg_of(resized(sheet, std::min(sheet.height * most / sheet.width, most)), {.quality = 80}))
            : data_uri("image/png", png_of(sheet));
  const std::string about = format("{} random training images after the augmentation of the recipe.",
                                   std::min<int64_t>(48, seen->images->size()));
  const std::string image = format("<img class=\"pixels\" style=\"width:{}px\" src=\"{}\" alt=\"{}\">\n",
                                   std::max<int64_t>(width, 760), uri, about);
  return section("inputs", title, html_of(Figure{"Augmented training images", image, about, {}, "", true}));
}

}  // namespace owt
