// Numbers and marks of a network's drawing (draw_net.h), as SVG.
#pragma once

#include <cstdint>
#include <string>

namespace owt::drawing {

struct Area {
  double x, y, width;
  double middle() const { return x + width / 2; }
  double right() const { return x + width; }
};

enum class Anchor { kStart, kMiddle, kEnd };

std::string with_unit(int64_t number);  // "12.3 K"
std::string two_digits(double value);   // empty for 0
std::string bytes_in_mb(int64_t bytes);

std::string written(double x, double y, const std::string& text, const char* look = "", Anchor anchor = {});
std::string rounded(const Area& area, double height, const char* look, double radius = 4);
std::string path(const std::string& way);
std::string arrow(double x, double from, double to);

// The columns of a box's line: right edges of the numbers; 0: no room for that number.
struct Ruler {
  double name, type, parameters, mb, flops;

  explicit Ruler(const Area& area) : name(area.x + 8) {
    const double right = area.right() - 8;
    const bool wide = area.width >= 440, medium = area.width >= 300;
    flops = medium ? right : 0;
    mb = wide ? right - 78 : 0;
    parameters = wide ? right - 148 : medium ? right - 62 : right;
    type = name + 0.6 * (parameters - (wide ? 78 : 50) - name);
  }
  double name_room() const { return type - name - 4; }
  double type_room(bool wide) const { return parameters - (wide ? 74 : 48) - type; }
};

}  // namespace owt::drawing
