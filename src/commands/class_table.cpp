#include "src/commands/class_table.h"

#include <algorithm>
#include <utility>

#include "src/system/log.h"
#include "src/system/printable.h"

namespace owt {
namespace {

double percent(int64_t part, int64_t whole) { return 100 * static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

std::string class_table(std::vector<ClassAccuracy> classes, bool top5) {
  const std::string mean = format("mean over {} classes: top-1 {:.2f} %\n", classes.size(), 100 * mean_top1(classes));
  const size_t left_out = classes.size() > kMostClassesOfTable ? classes.size() - kWorstClasses : 0;
  if (left_out > 0) {
    std::ranges::stable_sort(classes, {},
                             [](const ClassAccuracy& c) { return std::pair(percent(c.top1, c.images), -c.images); });
    classes.resize(kWorstClasses);
  }
  size_t width = 5;
  for (const ClassAccuracy& c : classes) width = std::max(width, printable(c.name).size());
  std::string text =
      format("{:<{}}  images  top-1 %{}  most frequent wrong class\n", "class", width, top5 ? "  top-5 %" : "");
  for (const ClassAccuracy& c : classes)
    text += format("{:<{}}  {:>6}  {:>7.2f}{}  {}\n", printable(c.name), width, c.images, percent(c.top1, c.images),
                   top5 ? format("  {:>7.2f}", percent(c.top5, c.images)) : "",
                   c.times > 0 ? format("{} ({})", printable(c.taken_for), c.times) : "");
  if (left_out > 0)
    text += format("These {} classes have the lowest top-1. {} more are left out; --json FILE lists all.\n",
                   kWorstClasses, left_out);
  return text + mean;
}

}  // namespace owt
