#include "src/report/draw_step.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/plan/plan_bytes.h"
#include "src/plan/plan_table.h"
#include "src/system/log.h"
#include "src/system/markup.h"

namespace owt {

// Colours are as in the figures of a page (page.css), where forward is c0, too. Pale is a related thing.
const char* const kStepStyle =
    "text{fill:#222} .line{stroke:#0002} .lane{fill:#0000000a} .on{fill:#fff} .on-pale{fill:#111}\n"
    ".c0{fill:#0b6bcb} .c1{fill:#d3541b} .c2{fill:#12855f} .c3{fill:#a8418c} .c4{fill:#a67c00} .c5{fill:#4b3fb0} "
    ".c6{fill:#1f8bc0} .c7{fill:#7c848d} .pale1{fill:#eda583} .pale3{fill:#e3bcd8}\n"
    "@media (prefers-color-scheme: dark){svg{background:#17191c} text{fill:#ddd} .line{stroke:#fff2} "
    ".lane{fill:#ffffff0f} .on,.on-pale{fill:#111}\n"
    ".c0{fill:#62a8ff} .c1{fill:#ff8f5c} .c2{fill:#45c99b} .c3{fill:#e58acb} .c4{fill:#e0bb4a} .c5{fill:#a79cff} "
    ".c6{fill:#7fd0f7} .c7{fill:#7d858e} .pale1{fill:#c4653b} .pale3{fill:#a5648f}}";

namespace {

constexpr double kLeft = 90, kRight = 75, kWidth = 1200, kTop = 44, kPanel = 118, kLane = 30, kLetter = 6.6;
constexpr double kShort = 0.35;  // fraction of the longest step

struct Look {
  const char *name, *color, *text;
};
// Index: kind of action. A start stands for its transfer; taking weights takes no time.
constexpr std::array<Look, 10> kLooks{{{"forward", "c0", "on"},
                                       {"loss", "c5", "on"},
                                       {"backward, data", "c1", "on-pale"},
                                       {"backward, weights", "pale1", "on-pale"},
                                       {"update", "c2", "on"},
                                       {"on the wire", "c3", "on"},
                                       {"waiting", "pale3", "on-pale"},
                                       {"weights copied", "c6", "on-pale"},
                                       {"weights averaged", "c4", "on-pale"},
                                       {"norms", "c7", "on-pale"}}};
const Look& look_of(const Action& action) { return kLooks.at(static_cast<size_t>(action.kind)); }

// Rare kinds of action are in the legend only if a step has one.
bool is_drawn(const std::vector<DrawnStep>& steps, Action::Kind kind) {
  if (kind < Action::Kind::kCopyWeights) return true;
  return std::any_of(steps.begin(), steps.end(), [&](const DrawnStep& step) {
    return std::any_of(step.times.begin(), step.times.end(),
                       [&](const TimedAction& at) { return at.action.kind == kind; });
  });
}

std::string text_at(double x, double y, const std::string& text, const char* more = "") {
  return format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, escaped(text));
}

// "12.5 ms"; from one second on "1.25 s".
std::string duration(double seconds) {
  return seconds >= 0.9995 ? format("{:.3g} s", seconds) : format("{:.3g} ms", seconds * 1e3);
}

bool fits(const std::string& text, double width) { return kLetter * static_cast<double>(text.size()) <= width - 6; }

double length_of(const DrawnStep& step) {
  double end = 0;
  for (const TimedAction& at : step.times) end = std::max(end, at.end_s);
  return end;
}

// The distance of ticks: 1, 2 or 5 times a power of ten, so that about ten ticks fit.
double tick(double seconds) {
  const double rough = seconds / 10, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

bool is_backward(const Action& action) {
  return action.kind == Action::Kind::kBackwardData || action.kind == Action::Kind::kBackwardWeights;
}

// One task of a stage, forward or backward of a micro-batch, is one box for all of its layers.
bool is_one_task(const Plan& plan, const TimedAction& a, const TimedAction& b) {
  if (plan.layer(b.action.layers.begin).place == kEveryPlace) return false;
  const bool alike = a.action.kind == b.action.kind || (is_backward(a.action) && is_backward(b.action));
  return alike && a.action.kind != Action::Kind::kStart && a.action.round == b.action.round && b.begin_s <= a.end_s;
}

std::vector<TimedAction> boxes(const DrawnStep& step, int place) {
  std::vector<TimedAction> all;
  for (const TimedAction& at : step.times) {
    if (at.place != place) continue;
    if (!all.empty() && is_one_task(step.plan, all.back(), at)) {
      Slice& layers = all.back().action.layers;
      layers = {std::min(layers.begin, at.action.layers.begin), std::max(layers.end, at.action.layers.end)};
      all.back().end_s = at.end_s;
    } else {
      all.push_back(at);
    }
  }
  return all;
}

class Drawing {
 public:
  Drawing(const std::vector<DrawnStep>& steps, size_t panels)
      : height_(kTop + kPanel * static_cast<double>(panels) + 20) {
    svg_ = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n"
        "<style>{2}</style>\n",
        kWidth, height_, kStepStyle);
    legend(steps);
  }

  // The axis has this many seconds; enlarged: more than 1 if the step is drawn again on an axis of its own.
  void panel(const DrawnStep& step, int place, double seconds, double enlarged) {
    seconds_ = seconds;
    const double top = kTop + kPanel * static_cast<double>(panels_++), compute = top + 22, wire = compute + kLane + 6;
    const Prediction& p = step.prediction;
    const std::string stage = place_name(step.plan, place);
    const std::string heading =
        enlarged > 1
            ? format("{} again, enlarged {:.3g} times{}", p.name(), enlarged, stage.empty() ? "" : ": " + stage)
            : format("{} of {} on {} workers{}, {} rows: {} a step, {:.0f} images/s, {} sent per worker; idle {}",
                     p.name(), step.plan.model, step.plan.ranks(), stage.empty() ? "" : ", " + stage,
                     p.request.step_rows, duration(p.step_s()), p.images_per_second(),
                     sent_text(p.bytes, p.busiest_link, 3), duration(p.exposed_s));
    svg_ += text_at(4, top + 14, heading, " font-weight=\"bold\"");
    for (const auto& [y, name] : {std::pair(compute, "computes"), {wire, "wire"}}) {
      svg_ += text_at(4, y + 19, name);
      svg_ += format("<rect class=\"lane\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\"/>\n", kLeft, y,
                     kWidth - kLeft - kRight, kLane);
    }
    for (const TimedAction& at : boxes(step, place))
      box(at, at.action.kind == Action::Kind::kStart ? place_on(wire, at.action, step.plan) : Place{compute, kLane},
          step.plan);
    svg_ += text_at(x(length_of(step)) + 5, compute + 19, duration(length_of(step)), " font-weight=\"bold\"");
    axis(wire + kLane);
  }

  std::string take() { return svg_ + "</svg>\n"; }

 private:
  struct Place {
    double y, height;
  };

  // Messages in and out overlap in time: incoming ones are in the upper half of the lane, outgoing ones in the lower
  // half.
  static Place place_on(double wire, const Action& action, const Plan& plan) {
    const Collective collective = plan.transfer(action.transfer).collective;
    if (!is_message(collective)) return {wire, kLane};
    return {collective == Collective::kReceive ? wire : wire + kLane / 2, kLane / 2};
  }

  double x(double seconds) const { return kLeft + seconds / seconds_ * (kWidth - kLeft - kRight); }

  void legend(const std::vector<DrawnStep>& steps) {
    double at = kLeft;
    for (size_t kind = 0; kind < kLooks.size(); ++kind) {
      if (!is_drawn(steps, static_cast<Action::Kind>(kind))) continue;
      const Look& look = kLooks[kind];
      svg_ += format("<rect x=\"{:.1f}\" y=\"10\" width=\"12\" height=\"12\" class=\"{}\"/>\n", at, look.color);
      svg_ += text_at(at + 17, 20, look.name);
      at += 40 + kLetter * static_cast<double>(std::string(look.name).size());
    }
  }

  void box(const TimedAction& at, const Place& place, const Plan& plan) {
    const double begin = x(at.begin_s), width = std::max(0.4, x(at.end_s) - begin);
    std::string what = subject(plan, at.action);
    if (what.empty()) what = name_of(at.action.kind);
    std::string round = at.action.round == kOwnRows ? "" : format(", round {}", at.action.round + 1);
    if (plan.request.slices > 1) round = format(", micro-batch {}", at.action.slice + 1) + round;
    svg_ += format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" class=\"{}\"><title>", begin,
                   place.y, width, place.height, look_of(at.action).color);
    svg_ += escaped(format("{}: {}{}, {} from {} on", look_of(at.action).name, what, round,
                           duration(at.end_s - at.begin_s), duration(at.begin_s)));
    svg_ += "</title></rect>\n";
    if (fits(what, width))
      svg_ += text_at(begin + 3, place.y + place.height / 2 + 4, what,
                      format(" class=\"{}\"", look_of(at.action).text).c_str());
  }

  void axis(double y) {
    const double each = tick(seconds_);
    for (int i = 0; i * each <= seconds_; ++i) {
      svg_ += format("<line class=\"line\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                     x(i * each), y - 2 * kLane - 6, y + 4);
      svg_ += text_at(x(i * each), y + 15, duration(i * each), " font-size=\"10\" text-anchor=\"middle\"");
    }
  }

  double seconds_ = 1, height_;
  size_t panels_ = 0;
  std::string svg_;
};

}  // namespace

std::string draw_steps(const std::vector<DrawnStep>& steps) {
  double longest = 0;
  for (const DrawnStep& step : steps) longest = std::max(longest, length_of(step));
  const auto is_short = [&](const DrawnStep& step) {
    return length_of(step) > 0 && length_of(step) < kShort * longest;
  };
  size_t panels = 0;
  for (const DrawnStep& step : steps) panels += static_cast<size_t>(step.plan.places()) * (is_short(step) ? 2 : 1);
  Drawing drawing(steps, panels);
  for (const DrawnStep& step : steps) {
    for (int place = 0; place < step.plan.places(); ++place) drawing.panel(step, place, longest > 0 ? longest : 1, 1);
    for (int place = 0; is_short(step) && place < step.plan.places(); ++place)
      drawing.panel(step, place, length_of(step), longest / length_of(step));
  }
  return drawing.take();
}

}  // namespace owt
