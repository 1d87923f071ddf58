// Parts of a page: escaped texts, tables, figures with their numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/system/markup.h"

namespace owt {

// Four significant digits, "0.01235", "12350", "1.2e-07"; "–" for values that are not finite.
std::string short_number(double value);
// For columns whose largest number is `largest`: "22.59" and "0.33" have the same number of decimals. "<0.01" is more
// than 0.
std::string aligned_number(double value, double largest);

struct HtmlTable {
  std::vector<std::string> head{};
  std::vector<std::vector<std::string>> rows{};  // texts; columns of numbers are right-aligned
  bool stacks = false;                           // on a phone every row becomes a list of its cells
  bool words = false;                            // numbers are treated as words
};
std::string html_of(const HtmlTable& table);

struct Figure {
  std::string title;
  std::string picture;      // SVG or an image; empty: there is nothing to draw
  std::string about;        // describes the picture in a sentence or two, also for screen readers
  HtmlTable numbers{};      // numbers of the picture, to unfold
  std::string legend{};     // HTML
  bool wide = false;        // takes the width of the page
  bool about_shown = true;  // shown below the picture; false: only in its label
  std::string tools{};      // HTML beside the title
};
// The picture must contain `about` itself, as with picture_label().
std::string html_of(const Figure& figure);
std::string picture_label(const std::string& about);  // attributes of an <svg> or <img> for screen readers

// A legend entry: a coloured square and a text. color: number of a class of the page's style.
struct Key {
  std::string text;
  int color;  // see Line (chart.h)
  bool light = false;
};
constexpr int kColors = 8;                 // number of colours in the page's style
std::string class_of(int color, char of);  // "b3"; from kColors on "b3 k1", which is dashed
std::string legend_of(const std::vector<Key>& keys);

std::string section(const std::string& id, const std::string& title, const std::string& content);
std::string figures(const std::string& content);  // side by side if there is room
// Content about one of several runs, to unfold; it is initially open if there are few runs.
std::string of_run(const std::string& name, size_t runs, const std::string& content);
std::string paragraph(const std::string& text);
std::string missing(const std::string& text);  // a note on missing content, and how to get it
std::string warning(const std::string& text);  // a warning to the reader
std::string base64(std::string_view bytes);
std::string data_uri(const char* type, std::string_view bytes);  // "data:image/png;base64,..."

}  // namespace owt
