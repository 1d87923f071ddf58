// Pieces of a page: texts made safe, tables, figures with their numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/core/markup.h"

namespace owt {

// Four significant digits, "0.01235", "12350", "1.2e-07"; "–" for what is not finite.
std::string short_number(double value);
// For numbers below each other of which the largest is `largest`: "22.59" and "0.33" have as many digits behind the
// point; "<0.01" is more than 0.
std::string aligned_number(double value, double largest);

struct HtmlTable {
  std::vector<std::string> head{};
  std::vector<std::vector<std::string>> rows{};  // texts; columns of numbers stand to the right
  bool stacks = false;                           // on a phone every row is a list of its cells
  bool words = false;                            // numbers are words like others
};
std::string html_of(const HtmlTable& table);

struct Figure {
  std::string title;
  std::string picture;      // SVG, or an image; empty: there is nothing to draw
  std::string about;        // in a sentence or two, what the picture shows, for who cannot see it, too
  HtmlTable numbers{};      // of the picture, to unfold
  std::string legend{};     // HTML
  bool wide = false;        // takes the page's width
  bool about_shown = true;  // below the picture; false: its label alone says it
};
// The picture has to name `about` itself, as picture_label() does.
std::string html_of(const Figure& figure);
std::string picture_label(const std::string& about);  // attributes of an <svg> or <img> for screen readers

// A coloured square and a text for each; color: the number of a class of the page's style.
struct Key {
  std::string text;
  int color;  // see Line (chart.h)
  bool light = false;
};
constexpr int kColors = 8;                 // of the page's style
std::string class_of(int color, char of);  // "b3"; of colours from kColors on "b3 k1", which are dashed
std::string legend_of(const std::vector<Key>& keys);

std::string section(const std::string& id, const std::string& title, const std::string& content);
std::string figures(const std::string& content);  // side by side where there is room
// What is of one of several runs: to unfold, and open at first where there are few.
std::string of_run(const std::string& name, size_t runs, const std::string& content);
std::string paragraph(const std::string& text);
std::string missing(const std::string& text);  // what is not there, and how to get it
std::string warning(const std::string& text);  // what to look at
std::string base64(std::string_view bytes);
std::string data_uri(const char* type, std::string_view bytes);  // "data:image/png;base64,..."

}  // namespace owt
