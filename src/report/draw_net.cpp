#include "src/report/draw_net.h"

#include <algorithm>

#include "src/plan/back_part.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_table.h"
#include "src/report/net_blocks.h"
#include "src/report/net_marks.h"
#include "src/system/log.h"
#include "src/system/markup.h"

namespace owt {

// Scoped to a class, so that pages with other drawings keep their own styles.
const char* const kNetStyle = R"(
.net .page{fill:#fff}.net text{fill:#1d2126;font:12px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
.net .name{font-weight:600}.net .large{font-size:16px;font-weight:600}.net .soft{fill:#59626c}.net .small{font-size:10.5px}
.net .inner text{font-size:11px}.net .card{fill:#fff;stroke:#aab2bb}.net .frame{fill:#f1f3f6;stroke:#c3cad2}
.net .edge{fill:none;stroke:#6b747e;stroke-width:1.3}.net .head{fill:#6b747e}.net .cell{fill:#e1e5ea}.net .rank{fill:#111;font-size:10px}
.net .cut{stroke:#b4480f;stroke-width:1.3;stroke-dasharray:6 4}.net text.cutname{fill:#a33f0b;font-weight:600;font-size:10.5px}
@media(prefers-color-scheme:dark){.net .page{fill:#14171a}.net text{fill:#e6e8eb}.net .soft{fill:#a3acb6}
.net .card{fill:#1f2429;stroke:#505a64}.net .frame{fill:#191d21;stroke:#3b444d}.net .edge{stroke:#8b949e}.net .head{fill:#8b949e}
.net .cell{fill:#343c44}.net .rank{fill:#111}.net .cut{stroke:#f09a62}.net text.cutname{fill:#f5a873}}
)";

namespace {

using namespace drawing;

// Lengths in pixels. Letter widths are fractions of the font size, for wide fonts.
constexpr double kMargin = 10, kLeastWidth = 500, kBoxLine = 17, kBoxPad = 5, kGap = 27, kBarWidth = 300, kNarrow = 150,
                 kLaneOfNothing = 34, kBetweenLanes = 8, kRegular = 0.54, kBold = 0.62;
constexpr int kMostDrawn = 16;

double least_width(const std::vector<Block>& blocks) {
  double least = blocks.empty() ? kLaneOfNothing : kNarrow;
  for (const Block& block : blocks) {
    double inside = 2 * kMargin - kBetweenLanes;
    for (const auto& branch : block.branches) inside += least_width(branch) + kBetweenLanes;
    least = std::max(least, inside);
  }
  return least;
}

std::string name_of_all(const Block& block) {
  std::string name = block.at().name;
  if (!block.again.empty()) name += (block.again.size() > 1 ? " to " : ", ") + block.again.back();
  return name;
}

struct Drawn {
  std::string svg;
  double bottom;
};

class NetDrawing {
 public:
  explicit NetDrawing(const Plan& plan)
      : plan_(plan),
        blocks_(blocks_of(plan.layers, plan.layers.data() + plan.boundary)),
        width_(std::max(kLeastWidth, least_width(blocks_))),
        drawn_(std::min(plan.ranks(), kMostDrawn)) {
    for (const LayerPlan& at : plan.layers) {
      flops_ += at.flops_per_row;
      training_ += at.flops_per_row + at.backward_flops_per_row;
      parameters_ += at.parameters;
      bytes_ += at.weight_bytes;
    }
  }

  std::string whole(bool in_html) const {
    const Drawn top = heading();
    const Drawn net = layers(top.bottom);
    const double width = width_ + 2 * kMargin, height = net.bottom + kMargin;
    return format(
               "<svg{5} viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
               "height=\"{1:.0f}\" style=\"max-width:100%;height:auto\" role=\"img\" class=\"net\" "
               "aria-label=\"{2}\">\n<title>{2}</title>\n<desc>{3}</desc>\n<style>{4}</style>\n"
               "<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\" rx=\"6\"/>\n",
               width, height, escaped(about()), escaped(in_words()), kNetStyle,
               in_html ? "" : " xmlns=\"http://www.w3.org/2000/svg\"") +
           top.svg + net.svg + "</svg>\n";
  }

 private:
  double middle() const { return kMargin + width_ / 2; }
  bool in_giga() const { return flops_ >= 1e9; }
  std::string flops_text(double flops) const { return two_digits(flops / (in_giga() ? 1e9 : 1e6)); }

  std::string about() const {
    std::string text = format("The network {}: {} layers, {} parameters, {:.4g} GFLOP forward per image", plan_.model,
                              plan_.layers.size(), parameters_, flops_ / 1e9);
    return plan_.ranks() == 1 ? text : text + format(", on {} workers under {}", plan_.ranks(), strategy());
  }

  const char* strategy() const { return name_of(plan_.request.strategy); }

  std::string in_words() const {
    std::string text = format("From top to bottom: images {}", plan_.layers.front().in.str());
    for (const LayerPlan& at : plan_.layers)
      text +=
          format("; {}{} ({}) gives {}{}", begins_part(plan_, index_of(at)) ? words_of_part(at) + ": " : "", at.name,
                 at.type, at.out.str(), plan_.ranks() > 1 && at.weight_bytes > 0 ? ", " + held_words(at) : "");
    return text + ".";
  }

  Drawn heading() const {
    const double x = kMargin;
    double y = 26;
    std::string svg = written(x, y, shortened(plan_.model, letters(width_, 16, kBold)), "large");
    svg += written(x, y += 20,
                   format("{} parameters, {} MB; {} {} forward per image, {} in training", with_unit(parameters_),
                          bytes_in_mb(bytes_), flops_text(flops_), unit(), flops_text(training_)),
                   "soft");
    if (plan_.ranks() > 1) {
      svg += written(x, y += 17, plan_in_words(), "soft");
      svg += written(x, y += 17,
                     format("a worker holds {} MB of weights and sends {} in a step",
                            bytes_in_mb(weight_bytes_per_rank(plan_)), sent_text(plan_, 3)),
                     "soft");
      svg += legend(y + 11);
      y += 27;
    }
    const Ruler ruler({x, 0, width_});
    y += 22;
    svg += written(ruler.name, y, "layer", "soft small") + written(ruler.type, y, "type", "soft small") +
           written(ruler.parameters, y, "parameters", "soft small", Anchor::kEnd) +
           written(ruler.mb, y, "MB", "soft small", Anchor::kEnd) +
           written(ruler.flops, y, unit() + "/image", "soft small", Anchor::kEnd);
    return {svg, y + 8};
  }

  std::string unit() const { return in_giga() ? "GFLOP" : "MFLOP"; }

  std::string plan_in_words() const {
    const bool grid = plan_.model_ranks > 1 && plan_.replicas() > 1;
    return format("{} workers under {}{}, {} rows a step", plan_.ranks(), strategy(),
                  grid ? format(", {} groups of {}", plan_.replicas(), plan_.model_ranks) : "",
                  plan_.request.step_rows);
  }

  static size_t letters(double room, double font, double letter) {
    return static_cast<size_t>(std::max(1.0, room / (font * letter)));
  }

  // Blue and orange for two ranks, which all readers can distinguish; equally spaced hues for more.
  std::string color(int rank) const { return format("hsl({},65%,66%)", (210 + 360 * rank / drawn_) % 360); }
  double cell_width() const { return kBarWidth / drawn_; }

  std::string cell(int rank, double y, double height, double begin, double end, const char* look) const {
    const double room = cell_width() - 2, x = kMargin + 8 + rank * cell_width();
    return format("<rect {} x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\"/>", look, x + begin * room, y,
                  std::max(end > begin ? 1.0 : 0.0, (end - begin) * room), height);
  }

  std::string legend(double y) const {
    std::string svg;
    for (int rank = 0; rank < drawn_; ++rank)
      svg += cell(rank, y, 13, 0, 1, format("fill=\"{}\"", color(rank)).c_str()) +
             written(kMargin + 7 + (rank + 0.5) * cell_width(), y + 10, std::to_string(rank), "rank", Anchor::kMiddle);
    const bool all = drawn_ == plan_.ranks();
    return svg + written(kMargin + 8 + kBarWidth + 8, y + 10.5,
                         all ? "workers, and what each holds" : format("the parts of the first {} workers", drawn_),
                         "soft small");
  }

  struct Held {
    double begin = 0, end = 1;  // fractions of all outputs, or inputs
  };
  Held held_by(const LayerPlan& at, int rank) const {
    const auto place = static_cast<size_t>(plan_.place_of(rank));
    if (!at.is_at(static_cast<int>(place))) return {0, 0};
    const std::vector<Slice>& parts = at.by_inputs() ? at.inputs : at.parts;
    if (parts.empty()) return {};
    const auto all = static_cast<double>(parts.back().end);
    return {static_cast<double>(parts[place].begin) / all, static_cast<double>(parts[place].end) / all};
  }

  std::string held_words(const LayerPlan& at) const {
    if (at.place != kEveryPlace) return format("all of it on {}", ranks_at(at.place));
    if (at.by_inputs()) return format("1/{} of the inputs on each", plan_.model_ranks);
    return at.parts.empty() ? "all of it on each" : format("1/{} of the outputs on each", plan_.model_ranks);
  }

  std::string ranks_at(int place) const {
    std::string text = format("rank {}", place);
    if (plan_.replicas() > 1) text += format(", {}{}", place + plan_.model_ranks, plan_.replicas() > 2 ? ", ..." : "");
    return text;
  }

  bool has_bar(const Block& block) const {
    return plan_.ranks() > 1 && std::any_of(block.lines.begin(), block.lines.end(),
                                            [](const LayerPlan* at) { return at->weight_bytes > 0; });
  }

  // One cell per rank, filled by the fraction of the layer that it holds.
  std::string bar(const LayerPlan& at, double y) const {
    std::string svg;
    for (int rank = 0; rank < drawn_; ++rank) {
      const Held held = held_by(at, rank);
      svg += format("<g><title>{}, rank {}: {}</title>", escaped(at.name), rank,
                    held.end > held.begin ? format("{:.4g} to {:.4g} % of its {}", 100 * held.begin, 100 * held.end,
                                                   at.by_inputs() ? "inputs" : "outputs")
                                          : "nothing");
      svg += cell(rank, y, 10, 0, 1, "class=\"cell\"");
      svg += cell(rank, y, 10, held.begin, held.end, format("fill=\"{}\"", color(rank)).c_str()) + "</g>\n";
    }
    return svg + written(kMargin + 8 + kBarWidth + 8, y + 9, held_words(at), "soft small");
  }

  // A line of a box. Its title has the texts for which there is no room.
  std::string line(const LayerPlan& at, const std::string& name, size_t count, const Area& area, bool outer) const {
    const Ruler ruler(area);
    const double font = outer ? 12 : 11, y = area.y + 12.5;
    const std::string times = count > 1 ? format("{} × ", count) : "";
    const auto number = [&](double x, const std::string& text) {
      return text.empty() || x == 0 ? "" : written(x, y, times + text, "", Anchor::kEnd);
    };
    return "<g><title>" + escaped(title(at, name)) + "</title>" +
           written(ruler.name, y, shortened_in_front(name, letters(ruler.name_room(), font, kBold)), "name") +
           written(ruler.type, y, shortened(at.type, letters(ruler.type_room(ruler.mb > 0), font, kRegular)), "soft") +
           number(ruler.parameters, at.parameters > 0 ? with_unit(at.parameters) : "") +
           number(ruler.mb, bytes_in_mb(at.weight_bytes)) + number(ruler.flops, flops_text(at.flops_per_row)) +
           "</g>\n";
  }

  std::string title(const LayerPlan& at, const std::string& name) const {
    std::string shapes;
    for (const Shape& shape : at.params) shapes += (shapes.empty() ? "" : ", ") + shape.str();
    return format("{}: {}, {} to {}{}, {:.4g} MFLOP per image", name, at.type, at.in.str(), at.out.str(),
                  at.params.empty() || !at.inner.empty() ? "" : format(", weights {}", shapes), at.flops_per_row / 1e6);
  }

  // The name of a layer in a composite one, without the names of the enclosing layers.
  static std::string own_name(const LayerPlan& at, const std::string& of) {
    return at.name.starts_with(of + ".") ? at.name.substr(of.size() + 1) : at.name;
  }

  Drawn box(const Block& block, const Area& area, const std::string& inside_of) const {
    const bool outer = inside_of.empty();
    if (!block.branches.empty()) return frame(block, area, inside_of);
    std::string lines;
    double y = area.y + kBoxPad;
    for (const LayerPlan* at : block.lines) {
      lines += line(*at, own_name(*at, inside_of), 1, {area.x, y, area.width}, outer);
      y += kBoxLine;
    }
    if (outer && has_bar(block)) {
      lines += bar(block.at(), y + 2);
      y += kBoxLine;
    }
    y += kBoxPad;
    return {rounded(area, y - area.y, "card") + lines, y};
  }

  Drawn frame(const Block& block, const Area& area, const std::string& inside_of) const {
    const bool outer = inside_of.empty();
    double y = area.y + kBoxPad;
    const std::string name = block.again.empty() ? own_name(block.at(), inside_of) : name_of_all(block);
    std::string svg = line(block.at(), name, block.count(), {area.x, y, area.width}, outer);
    y += kBoxLine;
    if (outer && has_bar(block)) {
      svg += bar(block.at(), y + 2);
      y += kBoxLine;
    }
    const Drawn inside = branches(block, {area.x + kMargin, y + 2, area.width - 2 * kMargin});
    const double bottom = inside.bottom + kBoxPad;
    std::string behind;
    if (block.count() > 1) behind = rounded({area.x + 4, area.y + 4, area.width}, bottom - area.y, "frame");
    return {behind + rounded(area, bottom - area.y, "frame") + svg + "<g class=\"inner\">\n" + inside.svg + "</g>\n",
            bottom};
  }

  // The input goes to all branches, which join below the longest.
  Drawn branches(const Block& block, const Area& area) const {
    double least = 0, lanes = 0;
    for (const auto& branch : block.branches) (branch.empty() ? lanes : least) += least_width(branch) + kBetweenLanes;
    const double stretch = least > 0 ? (area.width + kBetweenLanes - lanes) / least : 1;
    std::vector<double> middles, bottoms;
    double x = area.x, lowest = area.y + 24;
    std::string svg;
    for (const auto& branch : block.branches) {
      const double room = (least_width(branch) + kBetweenLanes) * (branch.empty() ? 1 : stretch) - kBetweenLanes;
      const Drawn inside = chain(branch, {x, area.y + 20, room}, block.at().name);
      middles.push_back(x + room / 2);
      bottoms.push_back(branch.empty() ? area.y + 6 : inside.bottom);
      lowest = std::max(lowest, inside.bottom);
      svg += path(format("M{:.1f} {:.1f}V{:.1f}H{:.1f}", area.middle(), area.y, area.y + 6, middles.back()));
      if (!branch.empty()) svg += arrow(middles.back(), area.y + 6, area.y + 20);
      svg += inside.svg;
      x += room + kBetweenLanes;
    }
    const double join = lowest + 18;
    for (size_t i = 0; i < middles.size(); ++i)
      svg += path(format("M{:.1f} {:.1f}V{:.1f}H{:.1f}", middles[i], bottoms[i], join, area.middle()));
    return {svg + joint(block.joint, area.middle(), join), join + 12};
  }

  static std::string joint(Joint how, double x, double y) {
    const char* const text = how == Joint::kSum ? "+" : how == Joint::kProduct ? "×" : "side by side";
    const double width = how == Joint::kSideBySide ? 84 : 18;
    return rounded({x - width / 2, y - 9, width}, 18, "card", 9) + written(x, y + 4, text, "small", Anchor::kMiddle);
  }

  // Consecutive boxes inside a composite layer, where nothing moves between ranks.
  Drawn chain(const std::vector<Block>& blocks, const Area& area, const std::string& inside_of) const {
    Drawn all{"", area.y};
    for (const Block& block : blocks) {
      if (&block != &blocks.front()) all = edge(all, area.middle(), block.at().in.str());
      const Drawn next = box(block, {area.x, all.bottom, area.width}, inside_of);
      all = {all.svg + next.svg, next.bottom};
    }
    return all;
  }

  static Drawn edge(const Drawn& above, double x, const std::string& shape) {
    const double y = above.bottom;
    return {above.svg + arrow(x, y, y + kGap) + written(x + 8, y + 17, shape, "soft small"), y + kGap};
  }

  std::string move_text(const char* way, TransferId id) const {
    if (id == kNoTransfer) return "";
    const Transfer& transfer = plan_.transfer(id);
    return format("{} {} {} MB", way, name_of(transfer.collective), bytes_in_mb(transfer.bytes));
  }

  // The transfers between a layer and the next; null: there is no such layer.
  std::vector<std::string> moves(const LayerPlan* before, const LayerPlan* behind) const {
    std::vector<std::string> all;
    const auto add = [&](const char* way, TransferId id) {
      if (id != kNoTransfer) all.push_back(move_text(way, id));
    };
    if (before) add("↓", before->transfers.output);
    if (behind) add("↓", behind->transfers.input);
    if (!behind) add("↓", plan_.of_step.logits);
    if (behind) add("↑", behind->transfers.input_gradient);
    if (before) add("↑", before->transfers.output_gradient);
    return all;
  }

  int64_t index_of(const LayerPlan& at) const { return &at - plan_.layers.data(); }

  std::string words_of_part(const LayerPlan& at) const {
    if (at.place != kEveryPlace)
      return format("{} of {}: {}", place_name(plan_, at.place), plan_.stages.size(), ranks_at(at.place));
    return plan_.replicas() > 1 ? "model-parallel: shards, group's rows" : "model-parallel: shards, all rows";
  }

  std::string words_of_front() const {
    return plan_.front_layout() == Layout::kBatch ? "data-parallel: all weights, own rows" : "all weights, all rows";
  }

  // The connection of two boxes: the shape, the transfers, and the plan's cut, if any.
  Drawn between(const Drawn& above, const Shape& shape, const LayerPlan* before, const LayerPlan* behind) const {
    const double y = above.bottom;
    const std::vector<std::string> moved = moves(before, behind);
    const bool cut = behind && begins_part(plan_, index_of(*behind));
    const double height = std::max(cut ? 68.0 : kGap, 13.0 * static_cast<double>(moved.size()) + 12);
    std::string svg = written(middle() - 9, y + 16, shape.str(), "soft small", Anchor::kEnd);
    for (size_t i = 0; i < moved.size(); ++i)
      svg += written(middle() + 10, y + 15 + 13 * static_cast<double>(i), moved[i], "soft small");
    if (cut) {
      const double at = y + height - 26;
      if (before && index_of(*behind) == plan_.boundary) svg += written(kMargin, at - 6, words_of_front(), "cutname");
      svg += format("<path class=\"cut\" d=\"M0 {0:.1f}H{1:.1f}\"/>\n", at, width_ + 2 * kMargin);
      svg += written(kMargin, at + 13, words_of_part(*behind), "cutname");
    }
    return {above.svg + svg + arrow(middle(), y, y + height), y + height};
  }

  Drawn end(const Drawn& above, const std::string& text) const {
    const double width = 170;
    const Area area{middle() - width / 2, above.bottom, width};
    return {above.svg + rounded(area, 22, "frame", 11) + written(area.middle(), area.y + 15, text, "", Anchor::kMiddle),
            area.y + 22};
  }

  Drawn layers(double y) const {
    Drawn all = end({"", y}, "images");
    const LayerPlan* before = nullptr;
    for (const Block& block : blocks_) {
      all = between(all, block.at().in, before, &block.at());
      const Drawn next = box(block, {kMargin, all.bottom, width_}, "");
      all = {all.svg + next.svg, next.bottom + (block.count() > 1 ? 4 : 0)};
      before = block.lines.back();
    }
    all = between(all, plan_.layers.back().out, before, nullptr);
    return end(all, format("loss, {} classes", plan_.layers.back().out.elements()));
  }

  const Plan& plan_;
  std::vector<Block> blocks_;
  double width_;
  int drawn_;  // number of ranks drawn
  double flops_ = 0, training_ = 0;
  int64_t parameters_ = 0, bytes_ = 0;
};

}  // namespace

std::string draw_net(const Plan& plan, bool in_html) { return NetDrawing(plan).whole(in_html); }

}  // namespace owt
